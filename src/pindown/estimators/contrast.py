"""`Contrast`: recover latents from pairs of related samples."""

from __future__ import annotations

import copy
import math
import numbers
import warnings
from typing import Any

import numpy as np
import torch
from sklearn.utils import check_scalar
from sklearn.utils.validation import check_is_fitted
from torch import Tensor, nn

from pindown import networks, theory
from pindown.estimators._base import BaseEncoder, Encoder, as_array, check_positive
from pindown.estimators._pairing import Epochs, FreshPairs, pair_up
from pindown.losses import infonce
from pindown.processes import Process
from pindown.spaces import Reals, Space, Sphere
from pindown.training import Draw

SCORE_ROWS = 4_096
"""Pairs compared with each other in `score`."""


class Contrast(BaseEncoder):
    r"""Recover latents from pairs of related samples, by telling partners from strangers (InfoNCE).

    If samples are :math:`x = g(z)` with injective g, z is uniform on the sphere, and the partner's latent follows
    :math:`p(\tilde z | z) \propto e^{\kappa z^\top \tilde z}`, then the minimiser is z up to a rotation. In
    :math:`\mathbb R^d` with :math:`p(\tilde z | z) \propto e^{-\lambda \lVert \tilde z - z \rVert_p^p}` it is z up to
    an affine map, and for p ≠ 2 up to order, sign and one common scale. `guarantee` is the theorem that applies.

    Parameters
    ----------
    n_components : int
        Number of latents.
    space : Space
        Where the codes live: ``Sphere()`` or ``Reals()``. For latents in a box use ``Reals()``.
    p : float
        Codes are compared by −‖·‖_p^p. On the sphere p = 2 is the dot product.
    temperature : float or None
        Divides the similarity. None learns it; on the sphere its inverse then estimates the concentration κ.
    any_marginal : bool
        Learn the log density of the observations along with the codes. The theorems ask for latents with a uniform
        marginal; with this correction they need not be.
    self_negatives : bool
        Take the samples themselves as negatives, each its own among them, as the paper's code does. Needs
        ``any_marginal=False``.
    encoder : callable
        Called as ``encoder(n_features, n_components)``, returns a module. The default starts unfolded.
    batch_size : int or None
        Pairs per step; None takes 512, or all if there are fewer.
    max_iter : int
        Steps.
    learning_rate : float
        Of Adam, at the top of a cosine schedule.
    weight_decay : float
        Share of the weights taken off per step, in units of the learning rate. Lower it when samples are fresh at
        every step.
    patience : int or None
        Stop when the mean loss over so many steps is less than .001 below that of as many before.
    checkpoint : path or None
        File to save the fit to, and to resume it from.
    device : str or None
        None takes a GPU if there is one.
    verbose : bool
        Show progress, if there is a terminal.
    random_state : int, RandomState or None
        Seed.

    Attributes
    ----------
    encoder_ : torch.nn.Module
        The trained encoder.
    objective_ : torch.nn.Module
        What was minimised: maps samples and partners to the loss.
    temperature_ : float
        The temperature, given or learned.
    loss_curve_ : ndarray of shape (n_iter_,)
        Loss of each step.
    n_iter_ : int
        Steps taken.

    References
    ----------
    Zimmermann et al., Contrastive Learning Inverts the Data Generating Process, ICML 2021.

    Examples
    --------
    >>> from pindown.metrics import linear_r2
    >>> from pindown.processes import Pairs
    >>> train, test = (Pairs.on_sphere(3, 10.0, random_state=0).sample(5_000, random_state=s) for s in (1, 2))
    >>> contrast = Contrast(3, max_iter=300, random_state=0).fit(train.x, train.x_pos)
    >>> linear_r2(test.x, test.z) < 0.95 < 0.99 < linear_r2(contrast.transform(test.x), test.z)
    True
    """

    def __init__(
        self,
        n_components=2,
        *,
        space=Sphere(),  # noqa: B008 (a frozen value)
        p=2,
        temperature=None,
        any_marginal=True,
        self_negatives=False,
        encoder=networks.unfolded,
        batch_size=None,
        max_iter=2_000,
        learning_rate=2e-3,
        weight_decay=2.0,
        patience=None,
        checkpoint=None,
        device=None,
        verbose=True,
        random_state=None,
    ):
        self.n_components = n_components
        self.space = space
        self.p = p
        self.temperature = temperature
        self.any_marginal = any_marginal
        self.self_negatives = self_negatives
        self.encoder = encoder
        self.batch_size = batch_size
        self.max_iter = max_iter
        self.learning_rate = learning_rate
        self.weight_decay = weight_decay
        self.patience = patience
        self.checkpoint = checkpoint
        self.device = device
        self.verbose = verbose
        self.random_state = random_state

    @property
    def guarantee(self) -> theory.Theorem | None:
        """The theorem that applies if the data meet its assumptions; None if none covers these parameters."""
        if self.space == Sphere():
            return theory.CONTRAST_SPHERE if self.p == 2 else None
        if self.space == Reals():
            return theory.CONTRAST_METRIC if self.p == 2 else theory.CONTRAST_LP
        return None

    def score(self, X, y=None) -> float:
        """Return the information between partners that the codes show, in nats: log n minus the loss.

        A lower bound, at most ``log 4096`` since so many pairs are compared at once. Unrelated partners give 0 or
        less. On data not used in `fit` it says, without ground truth, whether anything was learned.
        """
        check_is_fitted(self)
        pairing = pair_up(self._validated(X, reset=False), as_array(y))
        generator = torch.Generator().manual_seed(0)
        # Neighbouring rows may be related, and related rows make poor strangers: compare rows from everywhere.
        shuffled = torch.randperm(len(pairing), generator=generator)
        x, x_pos = pairing.take(shuffled, generator)
        n_chunks = math.ceil(len(x) / SCORE_ROWS)
        objective = copy.deepcopy(self.objective_).double()
        device = self.encoder_.whiten.mean.device
        with torch.inference_mode():
            information = [
                len(a) * (math.log(len(a)) - float(objective(a.to(device).double(), b.to(device).double())))
                for a, b in zip(x.chunk(n_chunks), x_pos.chunk(n_chunks), strict=True)
            ]
        return sum(information) / len(x)

    def _space(self) -> Space:
        check_positive(self.p, "p")
        check_scalar(self.p, "p", numbers.Real, min_val=1)
        if self.temperature is not None:
            check_positive(self.temperature, "temperature")
        if self.any_marginal and self.self_negatives:
            raise ValueError(
                "Contrast: self_negatives=True takes samples as negatives, and any_marginal=True corrects for the "
                "density of partners. Choose one: the paper's code is self_negatives=True, any_marginal=False."
            )
        if self.space not in (Sphere(), Reals()):
            raise ValueError(
                f"Contrast: space must be Sphere() or Reals(), got {self.space!r}. Codes of latents in a box live "
                "in Reals(): where the box lies is not identified."
            )
        if self.space == Sphere() and self.n_components == 1:
            warnings.warn(
                "Contrast: n_components=1 on the sphere leaves only the two points −1 and 1. "
                "Use space=Reals(), or n_components=2 for an angle.",
                stacklevel=4,
            )
        return self.space

    def _objective(self, encoder: Encoder) -> nn.Module:
        p = None if self.space == Sphere() and self.p == 2 else self.p
        potential = networks.flat(encoder.n_features, 1, hidden=(64, 64)) if self.any_marginal else None
        return _Objective(encoder, potential, p, self.temperature, self.self_negatives)

    def _draw(self, X: np.ndarray, y: Any, device: torch.device) -> Draw:
        pairing = pair_up(X, as_array(y), device)
        return Epochs(pairing, self._rows_per_batch(len(pairing)))

    def _draw_fresh(self, process: Process, batch_size: int) -> Draw:
        return FreshPairs(process, batch_size)

    def _learned(self, objective: nn.Module) -> None:
        assert isinstance(objective, _Objective)
        with torch.no_grad():
            self.temperature_ = float(objective.temperature())


class _Objective(nn.Module):
    """The loss of a batch of pairs, with a temperature that is given or learned."""

    def __init__(
        self,
        encoder: Encoder,
        potential: nn.Module | None,
        p: float | None,
        temperature: float | None,
        self_negatives: bool,
    ) -> None:
        super().__init__()
        self.encoder, self.potential, self.p, self.self_negatives = encoder, potential, p, self_negatives
        self.given = temperature
        if temperature is None:
            self.log_temperature = nn.Parameter(torch.zeros(()))

    def temperature(self) -> float | Tensor:
        # One number must travel as far as ten thousand weights do together: give it ten times their speed.
        return torch.exp(10 * self.log_temperature) if self.given is None else self.given

    def forward(self, x: Tensor, x_pos: Tensor) -> Tensor:
        # One pass over both halves is faster than two passes over one.
        z, z_pos = self.encoder(torch.cat([x, x_pos])).chunk(2)
        return infonce(
            z,
            z_pos,
            temperature=self.temperature(),
            p=self.p,
            potential=None if self.potential is None else self.potential(self.encoder.whiten(x_pos))[:, 0],
            self_negatives=self.self_negatives,
        )
