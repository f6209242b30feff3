"""`BetaVAE` and `FactorVAE`: autoencoders of rows by themselves."""

from __future__ import annotations

from dataclasses import replace

from torch import nn

from pindown import networks
from pindown._random import RandomState
from pindown.losses import Penalty
from pindown.methods.parameters import check_positive_number, check_weight
from pindown.networks import preprocessing
from pindown.networks.encoder import Make
from pindown.networks.preprocessing import Preprocess
from pindown.training import Trainer
from pindown_papers.baselines.autoencoding import Autoencoding
from pindown_papers.baselines.divergences import TotalCorrelation, Weighed
from pindown_papers.baselines.spec import ReconstructionSpec


class BetaVAE(Autoencoding):
    r"""Variational autoencoder whose divergence from the prior weighs β times.

    A large β makes latents carry less, and those with a diagonal posterior lie along the directions that pixels change
    most by. With ``beta=1`` it is the plain autoencoder. No theorem covers its latents.

    Parameters
    ----------
    n_components : int
        Number of latents.
    beta : float
        Weight of the divergence.
    penalty : Penalty or None
        Any of `pindown.losses`, such as ``DependencySparsity(weight, n_columns=1)``, next to the bound.
    unrolled : bool
        Whether latents of images start at Isomap coordinates, as those of `Dictionary` do, and not where the
        networks happen to: from there a hue, which goes around a circle, stays folded. Vectors start with a linear map.
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
    Higgins et al., β-VAE: learning basic visual concepts with a constrained variational framework, ICLR 2017.

    Examples
    --------
    >>> from pindown.simulate import Structured
    >>> x = Structured.well_posed([[1, 0], [1, 1], [0, 1]], random_state=0).sample(500, random_state=1).x
    >>> vae = BetaVAE(2, max_iter=20, random_state=0).fit(x)
    >>> vae.transform(x).shape, vae.sample(3, random_state=0).shape, vae.guarantee
    (torch.Size([500, 2]), (3, 3), None)
    """

    spec = ReconstructionSpec()

    def __init__(
        self,
        n_components: int = 2,
        *,
        beta: float = 4.0,
        penalty: Penalty | None = None,
        unrolled: bool = True,
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
        self.unrolled = unrolled
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


class FactorVAE(Autoencoding):
    r"""Variational autoencoder whose latents are pressed to be independent of each other.

    A classifier of latents and shuffled latents estimates their total correlation, which weighs γ times. It is
    adversarial training: its loss says little, and there is no validation set. No theorem covers its latents:
    independent Gaussian latents stay so in any rotation.

    Parameters
    ----------
    n_components : int
        Number of latents.
    gamma : float
        Weight of the total correlation.
    penalty : Penalty or None
        Any of `pindown.losses`, such as ``DependencySparsity(weight, n_columns=1)``, next to the bound.
    unrolled : bool
        Whether latents of images start at Isomap coordinates, as those of `Dictionary` do, and not where the
        networks happen to: from there a hue, which goes around a circle, stays folded. Vectors start with a linear map.
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
    Kim and Mnih, Disentangling by factorising, ICML 2018.

    Examples
    --------
    >>> from pindown.simulate import Structured
    >>> x = Structured.well_posed([[1, 0], [1, 1], [0, 1]], random_state=0).sample(500, random_state=1).x
    >>> vae = FactorVAE(2, max_iter=20, random_state=0).fit(x)
    >>> vae.transform(x).shape, vae.sample(3, random_state=0).shape, vae.guarantee
    (torch.Size([500, 2]), (3, 3), None)
    """

    spec = ReconstructionSpec()
    training_defaults = replace(Autoencoding.training_defaults, adversarial=True)

    def __init__(
        self,
        n_components: int = 2,
        *,
        gamma: float = 10.0,
        penalty: Penalty | None = None,
        unrolled: bool = True,
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
        self.gamma = gamma
        self.penalty = penalty
        self.unrolled = unrolled
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
        check_weight(self.gamma, "gamma")
        return TotalCorrelation(int(self.n_components), float(self.gamma))
