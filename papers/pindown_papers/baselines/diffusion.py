"""`EncDiff`: an encoder whose latents a denoiser of images is shown, by diffusers."""

from __future__ import annotations

from collections.abc import Iterator

import torch
from sklearn.utils.validation import check_is_fitted
from torch import Tensor, nn

from pindown import networks
from pindown._random import RandomState
from pindown.losses import Penalty
from pindown.methods.dictionary.autoencoder import first_samples, samples_at_once, units_of
from pindown.methods.inputs import DataSummary, TrainingInput
from pindown.networks import built, preprocessing
from pindown.networks.encoder import Encoder, Make
from pindown.networks.preprocessing import Preprocess
from pindown.training import Trainer, TrainingDefaults
from pindown_papers.baselines.denoising import LEVELS, Denoiser, denoising
from pindown_papers.baselines.generating import Generating
from pindown_papers.baselines.spec import MeanImageSpec


class EncDiff(Generating):
    r"""Diffusion model of images that is given their latents, each as a token that its layers attend to; by diffusers.

    Encoder and denoiser are trained together to guess images behind noise,

    .. math:: \mathbb E_{x, t, \epsilon} \tfrac12 \bigl\lVert x - g(\sqrt{\bar\alpha_t} \, x
              + \sqrt{1 - \bar\alpha_t} \, \epsilon, t, f(x)) \bigr\rVert^2

    with latents f(x) of unit variance. The decoder draws images from noise that is always the same. No theorem
    covers its latents: nothing in the loss distinguishes latents from an invertible map of them.

    Parameters
    ----------
    n_components : int
        Number of latents.
    penalty : Penalty or None
        Any of `pindown.losses`, such as ``DependencySparsity(weight, n_columns=1)``, on the mean image.
    encoder : callable
        Called as ``encoder(shape, n_components)`` with the shape of an image; returns a module.
    preprocess : callable
        What is done to observations before the encoder sees them: see `pindown.networks.preprocessing`.
    decoder : callable
        Called as ``decoder(n_components, shape)``; returns a `pindown_papers.baselines.denoising.Denoiser`.
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
    Yang et al., Diffusion model with cross attention as an inductive bias for disentanglement, NeurIPS 2024.

    Examples
    --------
    >>> from pindown_papers.simulations import Sprites
    >>> x = Sprites(8, factors=("x", "hue"))(torch.rand(60, 2, generator=torch.Generator().manual_seed(0)))
    >>> diffusion = EncDiff(2, batch_size=16, max_iter=1, trainer=Trainer(validation_fraction=0), random_state=0).fit(x)
    >>> diffusion.transform(x).shape, diffusion.sample(2, random_state=0).shape, diffusion.guarantee
    (torch.Size([60, 2]), (2, 3, 8, 8), None)
    """

    spec = MeanImageSpec()
    training_defaults = TrainingDefaults(learning_rates=(1e-3, 1e-3), weight_decay=0.0)

    def __init__(
        self,
        n_components: int = 2,
        *,
        penalty: Penalty | None = None,
        encoder: Make = networks.smooth,
        preprocess: Preprocess = preprocessing.default_preprocessing,
        decoder: Make = denoising,
        batch_size: int | None = None,
        max_iter: int = 2_000,
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
        self.decoder = decoder
        self.batch_size = batch_size
        self.max_iter = max_iter
        self.learning_rate = learning_rate
        self.trainer = trainer
        self.device = device
        self.verbose = verbose
        self.random_state = random_state

    def score(self, X, y=None) -> float:
        """Return the log likelihood of images around the mean ones of their latents, but for a constant.

        In nats per row, of noise of unit variance, in units of what they are fitted in.
        """
        check_is_fitted(self)
        model = self._precise()
        assert isinstance(model, Denoising)
        return model.likelihood(self._put(self._validated(X, reset=False)))

    def _check_inputs(self, inputs: TrainingInput) -> None:
        if len(self.shape_in_) != 3 or any(side % 2 for side in self.shape_in_[1:]):
            raise ValueError(
                f"EncDiff: X has rows of shape {self.shape_in_}, but pictures (n, c, h, w) with even sides are drawn "
                "from noise. Crop or enlarge them, or take BetaVAE."
            )
        super()._check_inputs(inputs)

    def _noise(self, summary: DataSummary, n_samples: int, generator: torch.Generator) -> tuple[Tensor, Tensor]:
        """Return noise for each image, and uniform numbers for each latent."""
        noise = torch.randn(n_samples, *self.shape_in_, generator=generator, device=generator.device)
        return noise, torch.rand(n_samples, summary.n_components, generator=generator, device=generator.device)

    def _objective(self, encoder: Encoder, summary: DataSummary, batches: Iterator[tuple[Tensor, ...]]) -> nn.Module:
        decoder = built("EncDiff", "decoder", self.decoder, summary.n_components, self.shape_in_)
        if not isinstance(decoder, Denoiser):
            raise TypeError(
                f"EncDiff: decoder made a {type(decoder).__name__}, which sees no noise. Take networks.denoising, or "
                "let your function return a networks.Denoiser."
            )
        return Denoising(encoder, decoder, summary.n_components, first_samples(batches), penalty=self.penalty)


class Denoising(nn.Module):
    """Half of the squared error of guessed images, of each row, and a penalty on the mean images of latents."""

    centre: Tensor
    scale: Tensor

    def __init__(self, encoder: Encoder, decoder: Denoiser, d: int, x: Tensor, *, penalty: Penalty | None) -> None:
        super().__init__()
        # Codes of unit variance: nothing else says how large they are.
        encoder.body = nn.Sequential(encoder.body, nn.BatchNorm1d(d, affine=False))
        self.encoder, self.decoder, self.penalty = encoder, decoder, penalty
        centre, scale = units_of(x)
        self.register_buffer("centre", centre)
        self.register_buffer("scale", scale)

    def standardised(self, x: Tensor) -> Tensor:
        """Return observations in the decoder's units."""
        return ((x - self.centre) / self.scale).float()

    def forward(self, x: Tensor, noise: Tensor, uniform: Tensor) -> Tensor:
        """Return what is minimised of images (n, …), noise of their shape, and uniform numbers (n, d)."""
        z, clean = self.encoder(x).float(), self.standardised(x)
        level = (uniform[:, 0] * LEVELS).long().clamp_max(LEVELS - 1)
        guess = self.decoder.guessed(self.decoder.noisy(clean, level, noise), level, z)
        loss = 0.5 * (clean - guess).square().flatten(1).sum(1).mean()
        return loss if self.penalty is None else loss + self.penalty(self.decoder.mean, z, uniform)[1]

    @torch.no_grad()
    def likelihood(self, x: Tensor) -> float:
        """Return minus half of the squared error of mean images, of each row."""
        parts = x.split(samples_at_once(x))
        errors = [(self.standardised(part) - self.decoder.mean(self.encoder(part))).square().sum() for part in parts]
        return -0.5 * float(torch.stack(errors).sum()) / len(x)
