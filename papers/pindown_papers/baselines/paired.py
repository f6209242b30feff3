"""`SlowVAE` and `AdaGVAE`: autoencoders of pairs."""

from __future__ import annotations

from torch import nn

from pindown import networks
from pindown._random import RandomState
from pindown.losses import Penalty
from pindown.methods.parameters import check_positive_number
from pindown.networks import preprocessing
from pindown.networks.encoder import Make
from pindown.networks.preprocessing import Preprocess
from pindown.training import Trainer
from pindown_papers.baselines.autoencoding import Paired
from pindown_papers.baselines.divergences import Slow, Weighed


class SlowVAE(Paired):
    r"""Variational autoencoder of pairs in time: each latent moves by a Laplace step, most hardly at all.

    What `Contrast` with ``p=1`` does with a theorem, from the same pairs and without a decoder.

    Parameters
    ----------
    n_components : int
        Number of latents.
    beta, gamma : float
        Weights of the divergence of the first from a normal law, and of the second from a Laplace law around the first.
    rate : float
        Of the Laplace law: the inverse of its scale.
    penalty : Penalty or None
        Any of `pindown.losses`, such as ``DependencySparsity(weight, n_columns=1)``, next to the bound.
    encoder, decoder : callable
        Called as ``encoder(n_features, n_components)`` and ``decoder(n_components, n_features)``, with the shape of a
        sample where samples are images; return modules. The defaults suit vectors and images.
    preprocess : callable
        What is done to observations before the encoder sees them: see `pindown.networks.preprocessing`.
    batch_size, max_iter, learning_rate, trainer, device, verbose, random_state
        As of `Dictionary`.

    Attributes
    ----------
    encoder_, decoder_ : torch.nn.Module
        The trained networks; the decoder's observations are standardised.
    objective_ : torch.nn.Module
        What was minimised.
    held_out_ : HeldOut or None
        The score on the validation set, next to that on training samples. None without one.
    loss_curve_ : ndarray of shape (n_iter_,)
        Loss of each step.
    n_iter_ : int
        Steps that led to the weights that were kept.

    References
    ----------
    Klindt et al., Towards nonlinear disentanglement in natural data with temporal sparse coding, ICLR 2021.

    Examples
    --------
    >>> from pindown.simulate import Structured
    >>> x = Structured.well_posed([[1, 0], [1, 1], [0, 1]], random_state=0).sample(500, random_state=1).x
    >>> vae = SlowVAE(2, max_iter=20, random_state=0).fit(x, x + 0.1)
    >>> vae.transform(x).shape, vae.sample(3, random_state=0).shape, vae.guarantee
    (torch.Size([500, 2]), (3, 3), None)
    """

    def __init__(
        self,
        n_components: int = 2,
        *,
        beta: float = 1.0,
        gamma: float = 10.0,
        rate: float = 6.0,
        penalty: Penalty | None = None,
        encoder: Make = networks.smooth,
        preprocess: Preprocess = preprocessing.default_preprocessing,
        decoder: Make = networks.smooth,
        batch_size: int | None = None,
        max_iter: int = 2_000,
        learning_rate: float | None = None,
        trainer: Trainer = Trainer(),  # noqa: B008 (a frozen value)
        device: str | None = None,
        verbose: bool = True,
        random_state: RandomState = None,
    ) -> None:
        self.n_components = n_components
        self.beta = beta
        self.gamma = gamma
        self.rate = rate
        self.penalty = penalty
        self.encoder = encoder
        self.preprocess = preprocess
        self.decoder = decoder
        self.batch_size = batch_size
        self.max_iter = max_iter
        self.learning_rate = learning_rate
        self.trainer = trainer
        self.device = device
        self.verbose = verbose
        self.random_state = random_state

    def _divergence(self) -> nn.Module:
        for name in ("beta", "gamma", "rate"):
            check_positive_number(getattr(self, name), name)
        return Slow(float(self.beta), float(self.gamma), float(self.rate))


class AdaGVAE(Paired):
    r"""Variational autoencoder of pairs that share some latents: those in which two posteriors agree are averaged.

    How many are shared need not be known, and may differ from pair to pair. No theorem is claimed here.

    Parameters
    ----------
    n_components : int
        Number of latents.
    beta : float
        Weight of the divergence.
    penalty : Penalty or None
        Any of `pindown.losses`, such as ``DependencySparsity(weight, n_columns=1)``, next to the bound.
    encoder, decoder : callable
        Called as ``encoder(n_features, n_components)`` and ``decoder(n_components, n_features)``, with the shape of a
        sample where samples are images; return modules. The defaults suit vectors and images.
    preprocess : callable
        What is done to observations before the encoder sees them: see `pindown.networks.preprocessing`.
    batch_size, max_iter, learning_rate, trainer, device, verbose, random_state
        As of `Dictionary`.

    Attributes
    ----------
    encoder_, decoder_ : torch.nn.Module
        The trained networks; the decoder's observations are standardised.
    objective_ : torch.nn.Module
        What was minimised.
    held_out_ : HeldOut or None
        The score on the validation set, next to that on training samples. None without one.
    loss_curve_ : ndarray of shape (n_iter_,)
        Loss of each step.
    n_iter_ : int
        Steps that led to the weights that were kept.

    References
    ----------
    Locatello et al., Weakly-supervised disentanglement without compromises, ICML 2020.

    Examples
    --------
    >>> from pindown.simulate import Structured
    >>> x = Structured.well_posed([[1, 0], [1, 1], [0, 1]], random_state=0).sample(500, random_state=1).x
    >>> vae = AdaGVAE(2, max_iter=20, random_state=0).fit(x, x + 0.1)
    >>> vae.transform(x).shape, vae.sample(3, random_state=0).shape, vae.guarantee
    (torch.Size([500, 2]), (3, 3), None)
    """

    _adapts = True

    def __init__(
        self,
        n_components: int = 2,
        *,
        beta: float = 1.0,
        penalty: Penalty | None = None,
        encoder: Make = networks.smooth,
        preprocess: Preprocess = preprocessing.default_preprocessing,
        decoder: Make = networks.smooth,
        batch_size: int | None = None,
        max_iter: int = 2_000,
        learning_rate: float | None = None,
        trainer: Trainer = Trainer(),  # noqa: B008 (a frozen value)
        device: str | None = None,
        verbose: bool = True,
        random_state: RandomState = None,
    ) -> None:
        self.n_components = n_components
        self.beta = beta
        self.penalty = penalty
        self.encoder = encoder
        self.preprocess = preprocess
        self.decoder = decoder
        self.batch_size = batch_size
        self.max_iter = max_iter
        self.learning_rate = learning_rate
        self.trainer = trainer
        self.device = device
        self.verbose = verbose
        self.random_state = random_state

    def _divergence(self) -> nn.Module:
        check_positive_number(self.beta, "beta")
        return Weighed(float(self.beta))
