"""`Forget`: codes that are blind to a nuisance."""

from __future__ import annotations

import copy
import math
import numbers
import sys
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Any, Self

import numpy as np
import torch
from sklearn.utils import check_array, check_scalar
from sklearn.utils.validation import check_is_fitted
from torch import Tensor, nn

from pindown import _random, networks, theory
from pindown._random import RandomState
from pindown.data import from_torch
from pindown.directions import Directions, directions, even_rows
from pindown.estimators.afterwards import warn
from pindown.estimators.base import BaseEncoder
from pindown.estimators.encoding import Encoder, encode
from pindown.estimators.forget.answers import ANSWERS
from pindown.estimators.forget.game import Game, History, Rebuild, straightened
from pindown.estimators.forget.initialisation import Initialisation
from pindown.estimators.forget.nuisance import (
    HeldOut,
    Nuisance,
    NuisanceReader,
    as_table,
    assemble,
    read_columns,
    read_strata,
)
from pindown.estimators.reading import Look, Reading
from pindown.networks import preprocessing
from pindown.networks.building import Make
from pindown.networks.preprocessing import FirstLayer, Preprocess
from pindown.sources import Drawn, World
from pindown.sources.batches import Draw
from pindown.spaces import Reals, Space
from pindown.training import Trainer, TrainingLog, optimizers, waiting_cosine
from pindown.training.optimizers import MakeOptimizer

CLOSED_FORM_ROWS = 50_000
"""Rows from which means and covariances of the start are taken."""

START_ROWS = 5_000
"""Rows, about, from which the decoder's straight path starts."""

FEWEST_HELD_OUT, MOST_HELD_OUT = 200, 4_000
"""Rows held out for the probe: none if they would be fewer, and never more."""

MOST_HELD_OUT_OF_LINEAR = 500
"""The same for a linear encoder, which cannot learn rows by heart, but whose angles miss every row it does not see."""

MIN_SPREAD = 1e-3
"""Spread of whitened data along a direction up to which they do not vary along it: no code can hold it."""

MAX_LEAK = 0.1
"""How far from chance to certainty a probe may get before the fit warns."""


@dataclass(frozen=True, eq=False)
class NuisanceLook(Look):
    """What `Forget` sees before training: directions that tell the nuisance, where to start, rows held out."""

    n_told: tuple[int, int] = field(kw_only=True)
    note: str = field(kw_only=True)
    reader: NuisanceReader = field(kw_only=True)
    by_number: bool = field(kw_only=True)  # whether rows come with the numbers of their values
    initialisation: Initialisation = field(kw_only=True)
    held_out: HeldOut = field(kw_only=True)
    compared: HeldOut = field(kw_only=True)


class Forget(BaseEncoder):
    r"""Codes that are blind to a nuisance, by a game: a classifier looks for it, the encoder hides it.

    .. math:: \min_f\, \max_D\; -\lambda L_D(f) + L_g(f), \qquad
              \min_D L_D = H(e \mid \hat z) = H(e) - I(e; \hat z)

    At the classifier's best answer its cross-entropy is the entropy of the nuisance e less what the codes tell of it,
    so that the encoder minimises mutual information; that is 0 exactly if :math:`\hat z \perp e`. A constant would do
    as well, so something must keep information: orthonormal rows if ``encoder=networks.linear``, otherwise a decoder
    that is shown e and rebuilds x.

    **What is promised** (`guarantee`). A linear code of clusters
    :math:`\tilde a \mid e \sim \mathrm{vMF}(v_e, \kappa)` is blind if and only if its rows are orthogonal to
    :math:`V = \mathrm{span}\{v_e - v_{e'}\}`; with d − dim V rows it keeps all the rest. **What is not**: that one code
    means the same for two values of e. Blind is not aligned: see ``not_promised``. And a classifier that fails in
    training proves nothing: ``history_.probe`` is trained afterwards, from scratch, on rows that were held out; for a
    report use `pindown.metrics.leakage` on rows of your own.

    The game starts from a linear code: off the directions in which means and covariances differ between values, or, if
    the encoder can bend, as near to one mean and one covariance for all of them as rows can come. It is played so that
    it settles: the classifier learns first and at a constant rate, the encoder has no momentum and a rate that falls to
    zero, and the weights of the last quarter are averaged. Since a classifier is never quite at its best answer, an
    encoder that can bend is also held by the energy distance between the codes of different values
    (`pindown.penalties.energy_distance`), which is 0 exactly where the game ends.

    Parameters
    ----------
    n_components : int or None
        Number of codes. None takes d − dim V, by the numerical rank of the means of the values (and, for a linear
        encoder, of their covariances), beyond what noise would show in so many rows; of an encoder that can bend, given
        a label, at least one less than the label has values.
    strength : float
        λ, what hiding is worth against keeping: nats of the classifier's loss against whitened units of squared error.
        Larger ones hide less in the end if the classifier cannot follow. 0 hides nothing: an autoencoder. For a linear
        encoder, which nothing else pulls at, it only matters whether it is 0.
    n_bins : int or None
        None: y holds labels. A number: y holds quantities. The classifier then tells apart so many bins with about
        equally many rows, since a regression would only make the *mean* of e unpredictable; the decoder sees the
        quantity itself.
    encoder : callable
        Called as ``encoder(n_features, n_components)``, returns a module. The default starts at the closed form, and
        can bend; an `nn.Linear`, as of ``networks.linear``, stays linear, with orthonormal rows: see ``components_``.
    preprocess : callable
        What is done to observations first: see `Contrast`. Images must be laid out as vectors, by
        ``preprocess=preprocessing.whiten``.
    classifier, decoder : callable
        Called as ``(n_in, n_out)``, return modules. A linear encoder has a linear decoder.
    n_restarts : int
        Games, each with other networks and batches. The one is kept that does best on rows held out (or, if none are,
        on rows it was trained on), with a fresh probe in the classifier's place: what the decoder misses, plus λ times
        what the probe reads, and what the reader of a given label misses, in nats.
    batch_size : int or None
        Rows per step; None takes 512, or all if there are fewer.
    max_iter : int
        Steps. The classifier and the decoder move in all of them, the encoder after the first tenth.
    learning_rate : float
        Of the encoder, at its top. The others' is an argument of ``optimizers.rivals``: ``functools.partial(
        optimizers.rivals, answer_rate=5e-3)``.
    weight_decay : float or None
        Share of the weights taken off per step, in units of the learning rate. None takes 10,000 / n_samples, at most
        2.
    optimizer : callable
        See `pindown.training.optimizers`. With ``optimizers.adam`` the game is the textbook's, which circles.
    holdout : float
        Share of the rows, at most 4,000 in all, and 500 of a linear code, kept out of the training and given to the
        probe. Fewer than 200 are not worth it, and none are held out.
    trainer : Trainer
        How to train: precision, checkpoint, patience, callbacks … See `pindown.training.Trainer`.
    device : str or None
        None takes a GPU if there is one.
    verbose : bool
        Show progress, and the number of codes if it was chosen, if there is a terminal.
    random_state : int, RandomState or None
        Seed.

    Attributes
    ----------
    n_components_ : int
        Number of codes.
    n_told_ : tuple of int
        In how many directions of the data means differ between values, and in how many more covariances (0 unless the
        encoder is linear).
    components_ : ndarray of shape (n_components_, n_features)
        Of a linear encoder: rows M, orthonormal where columns are in units of their spread; the code of x is
        M (x − mean).
    history_ : History
        ``classifier_loss``, ``classifier_accuracy``, ``reconstruction`` of each step, ``chance_loss``, and ``probe``,
        a `pindown.metrics.Leakage`.
    encoder_, decoder_, objective_ : torch.nn.Module
        The trained encoder; the map from code and nuisance to x; what was played.
    restart_scores_ : ndarray of shape (n_restarts,)
        Of each game, by which one was chosen, the smallest; absent if there was but one.
    loss_curve_ : ndarray of shape (n_iter_,)
        Sum of the losses, each step. A game has no loss that falls; see ``history_``.
    n_iter_ : int
        Steps taken.

    Warns
    -----
    IdentifiabilityWarning
        If more codes are asked for than directions are blind, or none is, values of y are rare, or the probe reads y.

    References
    ----------
    Ganin and Lempitsky, Unsupervised domain adaptation by backpropagation, ICML 2015. Liu et al., SCAR, 2026.

    Examples
    --------
    Eight observed variables, a nuisance of four values: five dimensions survive, and they are found.

    >>> from pindown.metrics import leakage
    >>> from pindown.processes import Nuisance
    >>> world = Nuisance.on_sphere(8, 4, 10.0, n_layers=1, random_state=0)
    >>> train, test = (world.sample(2_000, random_state=s) for s in (1, 2))
    >>> forget = Forget(encoder=networks.linear, max_iter=200, random_state=0).fit(train.x, train.u)
    >>> forget.n_components_
    5
    >>> probes = ["linear", "quadratic"]
    >>> told = [leakage(a, test.u, probes=probes, random_state=0) for a in (test.x, forget.transform(test.x))]
    >>> [found.worst > 0.5 for found in told]  # chance is .25
    [True, False]
    """

    answers = ANSWERS
    _schedule = staticmethod(waiting_cosine)
    _loss_falls = False
    _wants_vectors = True

    def __init__(
        self,
        n_components: int | None = None,
        *,
        strength: float = 0.5,
        n_bins: int | None = None,
        encoder: Make = networks.unfolded,
        preprocess: Preprocess = preprocessing.suited,
        classifier: Make = networks.reader,
        decoder: Make = networks.unfolded,
        n_restarts: int = 1,
        batch_size: int | None = None,
        max_iter: int = 2_000,
        learning_rate: float = 1e-3,
        weight_decay: float | None = None,
        optimizer: MakeOptimizer = optimizers.rivals,
        holdout: float = 0.1,
        trainer: Trainer = Trainer(),  # noqa: B008 (a frozen value)
        device: str | None = None,
        verbose: bool = True,
        random_state: RandomState = None,
    ) -> None:
        self.n_components = n_components
        self.strength = strength
        self.n_bins = n_bins
        self.encoder = encoder
        self.preprocess = preprocess
        self.classifier = classifier
        self.decoder = decoder
        self.n_restarts = n_restarts
        self.batch_size = batch_size
        self.max_iter = max_iter
        self.learning_rate = learning_rate
        self.weight_decay = weight_decay
        self.optimizer = optimizer
        self.holdout = holdout
        self.trainer = trainer
        self.device = device
        self.verbose = verbose
        self.random_state = random_state

    @property
    def guarantee(self) -> theory.Theorem:
        """The theorem that applies if the data meet its assumptions."""
        return theory.FORGET if self._is_linear else theory.FORGET_NONLINEAR

    def fit(self, X, y=None, given=None) -> Self:
        """Play the game.

        Parameters
        ----------
        X : array or tensor of shape (n_samples, n_features)
            The observations.
        y : array or tensor of shape (n_samples,) or (n_samples, n_columns)
            The nuisance: labels, or quantities (``n_bins``). Of several columns each is forgotten, and what they tell
            together.
        given : array of shape (n_samples,), optional
            A label that must survive although it goes with the nuisance. Codes are then blind to y *within* each of its
            values: ẑ ⟂ e | label. Without it, forgetting e takes with it what e tells of the label. An encoder that can
            bend is also asked to tell it, by a linear reader in the game: among the labels that go with a row's value
            of y, all counting the same, so that to tell y is no help.
        """
        return self._fit(X, {"nuisance": y, "given": given})

    def inverse_transform(self, Z, y):
        """Rebuild observations from codes and the nuisance of each; what the codes dropped is filled in by its mean.

        With another value of y than a row's own this says how the row would look *if* one code meant the same for
        both. Nothing promises that: blind is not aligned.
        """
        check_is_fitted(self)
        codes = check_array(from_torch(Z), dtype=[np.float64, np.float32])
        if codes.shape[1] != self.n_components_:
            raise ValueError(f"Forget: Z must have {self.n_components_} columns, one per code, got {codes.shape[1]}.")
        table = as_table(from_torch(y), len(codes))
        if table.shape[1] != len(self.columns_):
            raise ValueError(f"Forget: y must have {len(self.columns_)} column(s), as in fit, got {table.shape[1]}.")
        shown = np.hstack([kind.seen(column) for kind, column in zip(self.columns_, table.T, strict=True)])
        device = self.decoder_.mean.device
        with torch.no_grad():
            rebuilt = self.decoder_(*(torch.as_tensor(a, dtype=torch.float64, device=device) for a in (codes, shown)))
        return self._like(Z, codes, rebuilt)

    def __sklearn_tags__(self):
        """Say what scikit-learn may expect."""
        tags = super().__sklearn_tags__()
        tags.target_tags.required = True
        return tags

    @property
    def _is_linear(self) -> bool:
        """Whether the encoder makes a linear layer, of one code of as many features as are known."""
        if isinstance(self.encoder, nn.Module):
            return isinstance(self.encoder, nn.Linear)
        with _random.forked(0):
            return callable(self.encoder) and isinstance(self.encoder(getattr(self, "n_features_in_", 2), 1), nn.Linear)

    def _space(self) -> Space:
        check_scalar(self.strength, "strength", numbers.Real, min_val=0)
        check_scalar(self.holdout, "holdout", numbers.Real, min_val=0, max_val=0.5)
        check_scalar(self.n_restarts, "n_restarts", numbers.Integral, min_val=1)
        if self.trainer.patience is not None:
            raise ValueError(
                f"Forget: trainer has patience={self.trainer.patience}, but a game has no falling loss to stop by. "
                "Leave it out, and say by max_iter how long to play."
            )
        if self.n_bins is not None:
            check_scalar(self.n_bins, "n_bins", numbers.Integral, min_val=2)
        return Reals()

    def _look(self, reading: Reading, first: FirstLayer, seed: int) -> NuisanceLook:
        data, linear = reading.data, self._is_linear
        if reading.source is not None and data.nuisance is None:
            raise ValueError(
                f"Forget forgets a nuisance, but {reading.source_name} has none. Give a world of Nuisance, "
                "ShapeNuisance or Confounded, or a source of (x, nuisance)."
            )
        columns, kinds = read_columns(data.nuisance, len(data), self.n_bins)
        nuisance = assemble(columns, kinds, read_strata(data.given, len(data)))
        nuisance.refuse_identical()
        rng = np.random.default_rng(seed % 2**63)
        order = rng.permutation(len(data))
        # Rows of a world cost nothing; those of a stream that were looked at first are trained on later.
        share = self.holdout if reading.source is None else float(isinstance(reading.source, Drawn)) / 2
        n_held = min(int(share * len(data)), MOST_HELD_OUT_OF_LINEAR if linear else MOST_HELD_OUT)
        held, used = np.split(order, [n_held if n_held >= FEWEST_HELD_OUT else 0])
        compared = held if len(held) else used[:MOST_HELD_OUT]
        used = np.sort(used)
        rows = used[rng.permutation(len(used))[:CLOSED_FORM_ROWS]]
        white = first(torch.as_tensor(data.X[rows])).double().numpy()
        groupings, rng = nuisance.take(rows).groupings(), np.random.default_rng(0)
        matrix = first.turned.numpy()
        found = directions(white, groupings, spreads=linear, size=np.linalg.pinv(matrix), rng=rng)
        n_components, note, doubts = self._choose(found, white, nuisance)
        start = found.keep(n_components)
        # Rows that cannot be even would be next to zero, and a label that is to be told must be heard from the start.
        if not linear and (nuisance.n_strata == 1 or n_components <= found.n_blind):
            start = even_rows(white, groupings, start, rng)
        is_given = data.given is not None
        return NuisanceLook(
            n_components,
            rows=used if reading.source is None else None,
            warnings=doubts,
            n_told=(found.n_means, found.n_spreads),
            note=note,
            reader=NuisanceReader.of(nuisance, kinds, data.given),
            by_number=isinstance(reading.source, World),
            initialisation=Initialisation(nuisance, found, start, matrix),
            held_out=HeldOut(data.X[held], nuisance.take(held), is_given),
            compared=HeldOut(data.X[compared], nuisance.take(compared), is_given),
        )

    def _fields(self, look: NuisanceLook, sides: dict[str, Any]) -> tuple[Any, ...]:
        read = look.reader.read_numbers if look.by_number else look.reader.read
        return read(sides["nuisance"], sides.get("given"))

    def _choose(self, found: Directions, white: np.ndarray, nuisance: Nuisance) -> tuple[int, str, tuple[str, ...]]:
        """Return the number of codes, why it was chosen, and what stands against it."""
        doubts: tuple[str, ...] = ()
        if n_rare := nuisance.n_rare:
            doubts += (
                f"{n_rare} rows have a value of y that is too rare, or alone in its stratum, to be compared with "
                "others: they are left out of the game, and what the codes tell of them is unknown. Merge rare values.",
            )
        rest = white @ found.basis[found.n_means + found.n_spreads :].T
        rest -= rest.mean(0)
        blind = int(np.linalg.matrix_rank(rest.T @ rest / len(rest), tol=MIN_SPREAD**2, hermitian=True))
        d = blind + found.n_means + found.n_spreads
        told = f"{found.n_means} of {d} directions means differ between values"
        if self._is_linear:
            told += f", and in {found.n_spreads} more covariances"
        if self.n_components is not None:
            n = self._asked_components()
            if n > blind:
                doubts += (
                    f"n_components={n} is more than the {blind} blind directions there are: in {told}. Linear codes "
                    "beyond these must leak, and no theorem covers others. Ask for fewer, or leave it out.",
                )
            return n, "", doubts
        # A linear reader tells labels apart by one code less; these can be blind even if no direction is.
        n_labels = int(nuisance.label_weights().any(0).sum())
        n = max(1, blind, 0 if self._is_linear else min(d, n_labels - 1))
        if n > blind:
            few = f"only {blind} direction(s) do not tell" if blind else "every direction tells"
            doubts += (
                f"{few} the nuisance: in {told}. {n} code(s) are kept, the least telling, and nothing says that they "
                "can be blind. Join values of y, or give n_components.",
            )
            return n, "", doubts
        return n, f"{n} codes, since in {told}.", doubts

    def _objective(self, encoder: Encoder, look: NuisanceLook, batches: Iterator[tuple[Tensor, ...]]) -> nn.Module:
        if look.note and self.verbose and sys.stderr.isatty():
            print(f"Forget: {look.note}", file=sys.stderr)
        players = encoder, self.classifier, self.decoder
        linear, strength, steps = self._is_linear, self.strength, self._n_steps * self.trainer.accumulate
        game = look.initialisation.game(*players, linear=linear, strength=strength, max_iter=steps)
        game.start_decoder(batches, START_ROWS)
        return game

    def _search(
        self,
        make: Callable[[int], nn.Module],
        minimise: Callable[..., TrainingLog],
        draw: Draw,
        look: NuisanceLook,
        seed: int,
    ) -> tuple[nn.Module, TrainingLog]:
        if self.n_restarts == 1:
            return super()._search(make, minimise, draw, look, seed)
        games = [make(seed + k) for k in range(self.n_restarts)]
        logs = [minimise(game, seed + k, f"restart {k}") for k, game in enumerate(games)]
        self.restart_scores_ = np.array([_missed_and_told(game, look.compared, seed) for game in games])
        best = int(self.restart_scores_.argmin())
        return games[best], logs[best]

    def _learned(self, objective: nn.Module, look: NuisanceLook) -> None:
        assert isinstance(objective, Game)
        encoder, decoder = (copy.deepcopy(player) for player in objective.averaged)
        assert isinstance(encoder, Encoder)
        first, back = encoder.preprocess, torch.eye(self.n_components_)
        if objective.is_linear:
            encoder, back = straightened(encoder)
            in_own_units = next(encoder.body.parameters()) / encoder.preprocess.columns.scale
            self.components_ = in_own_units.cpu().numpy().astype(np.float64)
        self.encoder_, self.columns_, self.n_told_ = encoder.eval(), list(look.reader.kinds), look.n_told
        self.decoder_ = Rebuild(back, decoder, first).to(first.mean.device).double().eval()
        trace = objective.trace.unflatten(0, (-1, self.trainer.accumulate)).mean(1)[: self.n_iter_]
        loss, accuracy, rebuilt = trace.double().cpu().numpy().T
        probe = look.held_out.probe(self._encode, _random.draw_seed(self.random_state))
        self.history_ = History(loss, accuracy, look.initialisation.nuisance.chance_loss(), rebuilt, probe)
        if probe is not None and probe.leaks and probe.excess > MAX_LEAK:
            warn(f"Forget: on {probe.n_rows} rows held out, {probe.verdict} Try more steps (max_iter), or fewer codes.")


def _missed_and_told(game: nn.Module, rows: HeldOut, seed: int) -> float:
    """Return the objective of the encoder on rows to compare games by, with a fresh probe for the classifier."""
    assert isinstance(game, Game)
    encoder, told = game.averaged[0], rows.nuisance
    assert isinstance(encoder, Encoder)
    probe = rows.probe(lambda x: encode(encoder, x), seed)
    missed = game.missed(*map(torch.as_tensor, (rows.x, told.groups, told.strata, told.shown)))
    return missed + (0.0 if probe is None else game.strength * math.log(2) * probe.bits)
