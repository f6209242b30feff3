"""`Flow`: an invertible network, by zuko, and the likelihood that it is trained by."""

from __future__ import annotations

import math
from collections.abc import Iterator
from functools import partial

import torch
from sklearn.utils.validation import check_is_fitted
from torch import Tensor, nn

from pindown._random import RandomState
from pindown.losses import Penalty
from pindown.methods.dictionary.autoencoder import first_samples, samples_at_once, units_of
from pindown.methods.inputs import DataSummary, TrainingInput
from pindown.networks import preprocessing
from pindown.networks.encoder import Encoder, Make
from pindown.networks.preprocessing import Preprocess, Preprocessing
from pindown.training import Trainer
from pindown_papers.baselines.bijections import Bijection, couplings
from pindown_papers.baselines.generating import Generating
from pindown_papers.baselines.spec import LikelihoodSpec


class Flow(Generating):
    r"""Normalising flow: an invertible network that turns observations into standard normal latents, by zuko.

    It maximises the likelihood of as many directions of the rows as there are latents, the leading ones:

    .. math:: \log p(x) = \log N\bigl(f(x); 0, I\bigr) + \log \lvert \det D_x f(x) \rvert

    So it belongs where there are about as many latents as observed variables; of images, which are laid out flat, and
    of wide rows all else is lost, as of principal components. No theorem covers its latents: whatever keeps
    the normal law, such as any rotation, has the same likelihood.

    Parameters
    ----------
    n_components : int
        Number of latents, at most that of the observed variables.
    penalty : Penalty or None
        Any of `pindown.losses`, such as ``DependencySparsity(weight, n_columns=1)``, on the decoder.
    encoder : callable
        `baselines.couplings`, `baselines.splines`, or a function (n_in, n_out) that returns a `baselines.Bijection`.
    preprocess : callable
        What is done to observations before the flow sees them, which takes the first of what comes out. The default
        gives directions unit variance, the largest first.
    batch_size, max_iter, learning_rate, trainer, device, verbose, random_state
        As of `Dictionary`.

    Attributes
    ----------
    encoder_, decoder_ : torch.nn.Module
        The trained map and its inverse; the decoder's observations are standardised.
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
    Rozet et al., Zuko: normalizing flows in PyTorch, 2022.

    Examples
    --------
    >>> from pindown.simulate import Structured
    >>> x = Structured.well_posed([[1, 0], [1, 1]], random_state=0).sample(500, random_state=1).x
    >>> flow = Flow(2, max_iter=20, random_state=0).fit(x)
    >>> flow.transform(x).shape, flow.sample(3, random_state=0).shape, flow.guarantee
    (torch.Size([500, 2]), (3, 2), None)
    >>> torch.allclose(flow.inverse_transform(flow.transform(x)), x, atol=1e-4)
    True
    """

    spec = LikelihoodSpec()

    def __init__(
        self,
        n_components: int = 2,
        *,
        penalty: Penalty | None = None,
        encoder: Make = couplings,
        preprocess: Preprocess = preprocessing.default_preprocessing,
        batch_size: int | None = None,
        max_iter: int = 1_000,
        learning_rate: float | None = None,
        trainer: Trainer = Trainer(),  # noqa: B008 (a frozen value)
        device: str | None = None,
        verbose: bool = True,
        random_state: RandomState = None,
    ) -> None:
        self.n_components = n_components
        self.penalty = penalty
        self.encoder = encoder
        self.preprocess = preprocess
        self.batch_size = batch_size
        self.max_iter = max_iter
        self.learning_rate = learning_rate
        self.trainer = trainer
        self.device = device
        self.verbose = verbose
        self.random_state = random_state

    def score(self, X, y=None) -> float:
        """Return the log likelihood of the directions that the flow sees, in their units, in nats per row."""
        check_is_fitted(self)
        model = self._precise()
        assert isinstance(model, Likelihood)
        x = self._put(self._validated(X, reset=False))
        with torch.no_grad():
            return float(torch.cat([model.log_likelihood(part)[1] for part in x.split(samples_at_once(x))]).mean())

    def _summarize(self, inputs: TrainingInput, preprocessing: Preprocessing, seed: int) -> DataSummary:
        asked, seen = self._requested_components(), math.prod(preprocessing.shape_out)
        if asked > seen:
            raise ValueError(
                f"Flow: n_components={asked}, but a flow of these rows has {seen} codes: as many as directions in "
                "which they vary. Ask for at most as many."
            )
        return DataSummary(asked)

    def _preprocess_for(self, shape: tuple[int, ...]) -> Preprocess:
        if self.preprocess is preprocessing.default_preprocessing and len(shape) > 1:
            return partial(preprocessing.whiten, n_components=self.n_components)
        return self.preprocess

    def _noise(self, summary: DataSummary, n_samples: int, generator: torch.Generator) -> tuple[Tensor]:
        """Return uniform numbers for each latent, which a penalty may use."""
        return (torch.rand(n_samples, summary.n_components, generator=generator, device=generator.device),)

    def _objective(self, encoder: Encoder, summary: DataSummary, batches: Iterator[tuple[Tensor, ...]]) -> nn.Module:
        if not isinstance(encoder.body, Bijection):
            raise TypeError(
                f"Flow: `encoder` made a {type(encoder.body).__name__}, which cannot be inverted. Use "
                "baselines.couplings or baselines.splines, or let your function return a baselines.Bijection."
            )
        return Likelihood(encoder, first_samples(batches), penalty=self.penalty)


class Inverse(nn.Module):
    """From latents to standardised observations: what a bijection undoes, and where its directions lie among these."""

    back: Tensor
    offset: Tensor

    def __init__(self, bijection: Bijection, back: Tensor, offset: Tensor, shape: tuple[int, ...]) -> None:
        super().__init__()
        self.bijection, self.shape = bijection, shape
        self.register_buffer("back", back)
        self.register_buffer("offset", offset)

    def forward(self, z: Tensor) -> Tensor:
        """Decode (n, d) to (n, …)."""
        return (self.bijection.inverse(z) @ self.back + self.offset).unflatten(1, self.shape)


class Likelihood(nn.Module):
    """Minus the log likelihood of a batch, in nats per row, and a penalty on the way back."""

    centre: Tensor
    scale: Tensor

    def __init__(self, encoder: Encoder, x: Tensor, *, penalty: Penalty | None) -> None:
        super().__init__()
        assert isinstance(encoder.body, Bijection)
        self.encoder, self.penalty = encoder, penalty
        centre, scale = units_of(x)
        self.register_buffer("centre", centre)
        self.register_buffer("scale", scale)
        # Exact where nothing was left out, since the first layer is linear; elsewhere the best of linear maps.
        seen = encoder.preprocess(x).flatten(1)[:, : encoder.body.n].double()
        seen = torch.cat([seen, torch.ones(len(seen), 1, dtype=seen.dtype)], 1)
        back = torch.linalg.lstsq(seen, ((x.double() - centre) / scale).flatten(1), driver="gelsd").solution.float()
        self.decoder = Inverse(encoder.body, back[:-1].contiguous(), back[-1].contiguous(), tuple(x.shape[1:]))

    def log_likelihood(self, x: Tensor) -> tuple[Tensor, Tensor]:
        """Return latents (n, d), and the log likelihood of each row, (n,)."""
        bijection = self.decoder.bijection
        z, volume = bijection.with_volume(self.encoder.preprocess(x))
        return z, volume - 0.5 * (z.square().sum(1) + bijection.n * math.log(2 * math.pi))

    def forward(self, x: Tensor, uniform: Tensor) -> Tensor:
        """Return what is minimised of rows (n, …) and uniform numbers (n, d)."""
        z, likelihood = self.log_likelihood(x)
        loss = -likelihood.mean()
        return loss if self.penalty is None else loss + self.penalty(self.decoder, z, uniform)[1]
