"""`DisCo`: directions of a generator that is trained first, each distinguished from the others by what it changes."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn import functional

from pindown import networks
from pindown._random import RandomState
from pindown.losses import Penalty
from pindown.methods.dictionary.autoencoder import first_samples
from pindown.methods.fitting import Trained, Training
from pindown.methods.inputs import DataSummary
from pindown.methods.parameters import check_positive_number
from pindown.networks import built, preprocessing
from pindown.networks.encoder import Encoder, Make
from pindown.networks.images import decoder_for, encoder_for
from pindown.networks.preprocessing import Preprocess
from pindown.training import Trainer, best_device
from pindown_papers.baselines.autoencoding import Autoencoding
from pindown_papers.baselines.divergences import Weighed
from pindown_papers.baselines.spec import ReconstructionSpec
from pindown_papers.baselines.variational import Variational

LEAST_STEP = 0.5
"""Of a step along a direction, in standard deviations of the prior, next to the size of a normal number."""


class DisCo(Autoencoding):
    r"""Directions of a generator, found by contrast: those that change its images each in a way of its own.

    First a plain variational autoencoder is trained, then d orthogonal directions :math:`a_j` of its latents, in as
    many steps, with the generator g as it is. A network e sees what a step along a direction does,

    .. math:: v = \lvert e(g(z + \epsilon a_j)) - e(g(z)) \rvert

    and changes along the same direction are to be alike, along different ones not (InfoNCE), each in few entries of v.
    Codes are the coordinates along the directions. No theorem says that one is a latent: a network that undoes the
    generator distinguishes any directions.

    Parameters
    ----------
    n_components : int
        Number of latents, and of directions.
    temperature : float
        Of the contrast.
    penalty : Penalty or None
        Any of `pindown.losses`, such as ``DependencySparsity(weight, n_columns=1)``, on the way from latents to
        observations, while directions are looked for.
    unrolled : bool
        Whether latents of images start at Isomap coordinates, as those of `Dictionary` do, and not where the
        networks happen to: from there a hue, which goes around a circle, stays folded. Vectors start with a linear map.
    encoder, decoder : callable
        Called as ``encoder(n_features, n_components)`` and ``decoder(n_components, n_features)``, with the shape of a
        sample where samples are images; return modules. The network that contrasts is made by the first, too.
    preprocess : callable
        What is done to observations before the encoder sees them: see `pindown.networks.preprocessing`.
    batch_size, max_iter, learning_rate, trainer, device, verbose, random_state
        As of `Dictionary`; ``max_iter`` steps for the generator, and as many for directions.

    Attributes
    ----------
    encoder_, decoder_ : torch.nn.Module
        The trained networks, along the directions; the decoder's observations are standardised.
    directions_ : ndarray of shape (n_components, n_components)
        A column each, in the space of the generator.
    objective_ : torch.nn.Module
        What was minimised.
    held_out_ : HeldOut or None
        The score on the validation set, next to that on training samples. None without one.
    loss_curve_ : ndarray of shape (n_iter_,)
        Loss of each step: of the generator, then of directions.
    n_iter_ : int
        Steps that led to the weights that were kept.

    References
    ----------
    Ren et al., Learning disentangled representation by exploiting pretrained generative models: a contrastive learning
    view, ICLR 2022.

    Examples
    --------
    >>> from pindown.simulate import Structured
    >>> x = Structured.well_posed([[1, 0], [1, 1], [0, 1]], random_state=0).sample(500, random_state=1).x
    >>> disco = DisCo(2, max_iter=20, random_state=0).fit(x)
    >>> disco.transform(x).shape, disco.sample(3, random_state=0).shape, disco.guarantee
    (torch.Size([500, 2]), (3, 3), None)
    """

    spec = ReconstructionSpec()

    training_defaults = replace(Autoencoding.training_defaults, cross_validated=False)

    def __init__(
        self,
        n_components: int = 2,
        *,
        temperature: float = 0.2,
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
        self.temperature = temperature
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

    @property
    def directions_(self) -> np.ndarray:
        """Directions in the space of the generator, a column each."""
        model = self.objective_
        assert isinstance(model, Navigated)
        return model.turn.matrix().detach().cpu().numpy()

    def _divergence(self) -> nn.Module:
        check_positive_number(self.temperature, "temperature")
        return Weighed(1.0)

    def _objective(self, encoder: Encoder, summary: DataSummary, batches: Iterator[tuple[Tensor, ...]]) -> nn.Module:
        d, shape, device = summary.n_components, self.shape_in_, best_device(self.device)
        decoder = built("DisCo", "decoder", decoder_for(self.decoder, shape, device), d, shape)
        seen = shape if len(shape) > 1 else shape[0]
        contrast = built("DisCo", "encoder", encoder_for(self.encoder, seen, device), seen, d)
        x = first_samples(batches)
        model = Navigated(
            encoder,
            decoder,
            d,
            x,
            contrast=contrast,
            temperature=float(self.temperature),
            divergence=self._divergence(),
            sparse=self.penalty,
        )
        return self._started(model, x)

    def _optimise(self, training: Training, seed: int) -> Trained:
        objective = training.new_objective(seed)
        assert isinstance(objective, Navigated)
        generator = training.minimise(objective, seed, "generator")
        objective.navigate()
        directions = training.minimise(objective, seed, "directions")
        curve, seconds = (
            np.concatenate([generator.loss_curve, directions.loss_curve]),
            generator.seconds + directions.seconds,
        )
        return training.trained(objective, replace(directions, loss_curve=curve, seconds=seconds))


class Turn(nn.Module):
    """A rotation that can be learned: of rows z → z A, or back again.

    Examples
    --------
    >>> turn = Turn(3)
    >>> nn.init.normal_(turn.angles)[0].shape
    torch.Size([3])
    >>> torch.allclose(turn.matrix() @ turn.matrix().mT, torch.eye(3), atol=1e-5)
    True
    """

    def __init__(self, d: int) -> None:
        super().__init__()
        self.angles = nn.Parameter(torch.zeros(d, d), requires_grad=False)

    def matrix(self) -> Tensor:
        """Return the rotation, a direction in each column; (d, d)."""
        return torch.matrix_exp(self.angles - self.angles.mT)

    def forward(self, z: Tensor) -> Tensor:
        """Return coordinates along the directions."""
        return z @ self.matrix().to(z.dtype)


class Turned(nn.Module):
    """What a rotation is undone by."""

    def __init__(self, turn: Turn) -> None:
        super().__init__()
        self.turn = turn

    def forward(self, codes: Tensor) -> Tensor:
        """Return what has these coordinates."""
        return codes @ self.turn.matrix().mT.to(codes.dtype)


class Navigated(Variational):
    """A variational autoencoder, and directions of its latents: first its bound is minimised, then their contrast."""

    def __init__(
        self,
        encoder: Encoder,
        decoder: nn.Module,
        d: int,
        x: Tensor,
        *,
        contrast: nn.Module,
        temperature: float,
        divergence: nn.Module,
        sparse: Penalty | None,
    ) -> None:
        super().__init__(encoder, decoder, d, x, divergence=divergence, penalty=None)
        self.turn, self.contrast, self.temperature, self.sparse = Turn(d), contrast, temperature, sparse
        self.encoder.body = nn.Sequential(encoder.body, self.turn)
        self.decoder = nn.Sequential(Turned(self.turn), decoder)
        self.contrast.requires_grad_(False)

    @property
    def body(self) -> nn.Module:
        """What gives the means of posteriors, before they are turned."""
        assert isinstance(self.encoder.body, nn.Sequential)
        return self.encoder.body[0]

    @property
    def generator(self) -> nn.Module:
        """What decodes latents that are not turned."""
        assert isinstance(self.decoder, nn.Sequential)
        return self.decoder[1]

    def navigate(self) -> None:
        """Keep the generator as it is, and look for directions from now on."""
        self.requires_grad_(False)
        for part in (self.turn, self.contrast):
            part.requires_grad_(True)

    def forward(self, *batch: Tensor) -> Tensor:
        """Return what is minimised of rows (n, …), normal numbers (n, d) and uniform ones (n, d)."""
        if not self.turn.angles.requires_grad:
            return super().forward(*batch)
        x, normal, uniform = batch
        with torch.no_grad():
            z = self.posterior(x).mean
            before = self.generator(z)
        which = (uniform[:, 0] * self.d).long().clamp_max(self.d - 1)
        step = normal[:, 0] + LEAST_STEP * normal[:, 0].sign()
        after = self.generator(z + step[:, None] * self.turn.matrix().mT[which])
        change = (self.contrast(after) - self.contrast(before)).abs().float()
        loss = contrasted(change, which, self.temperature)
        return loss if self.sparse is None else loss + self.sparse(self.decoder, self.turn(z), uniform)[1]


def contrasted(change: Tensor, which: Tensor, temperature: float) -> Tensor:
    r"""InfoNCE of changes (n, k) whose positives are those along the same direction; and their entropy.

    With unit vectors v, the entropy of their squares asks that a change be in few entries.

    Examples
    --------
    Changes of two directions, each in an entry of its own, have no entropy and are distinguished:

    >>> contrasted(torch.eye(2).repeat(3, 1), torch.tensor([0, 1] * 3), 0.05).item() < 1e-6
    True
    >>> contrasted(torch.ones(6, 2), torch.tensor([0, 1] * 3), 0.05).item() > 1
    True
    """
    v = functional.normalize(change, dim=1)
    alike = v @ v.mT / temperature
    own = torch.eye(len(v), dtype=torch.bool, device=v.device)
    same = (which[:, None] == which) & ~own
    alike = alike.masked_fill(own, -torch.inf)
    paired = same.any(1)  # in a small batch a direction may come once
    nce = (alike[paired].logsumexp(1) - alike.masked_fill(~same, -torch.inf)[paired].logsumexp(1)).sum() / len(v)
    squares = v.square()
    return nce - (squares * (squares + 1e-8).log()).sum(1).mean()
