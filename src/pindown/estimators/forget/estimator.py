"""`Forget`: codes that are blind to a nuisance."""

from __future__ import annotations

import copy
import math
import numbers
import sys
from collections.abc import Callable, Iterator
from typing import Any, Self

import numpy as np
import torch
from sklearn.utils import check_array, check_scalar
from sklearn.utils.validation import check_is_fitted
from torch import Tensor, nn

from pindown import _random, networks, theory
from pindown.directions import Directions, directions, even_rows
from pindown.estimators.base import WHITEN_ROWS, BaseEncoder, Encoder, as_array, encode, warn
from pindown.estimators.forget.answers import ANSWERS
from pindown.estimators.forget.game import Game, History, Rebuild, straightened
from pindown.estimators.forget.nuisance import (
    Column,
    FreshTroubled,
    HeldOut,
    Nuisance,
    Troubled,
    as_table,
    assemble,
    read_columns,
    read_strata,
)
from pindown.estimators.forget.opening import Opening
from pindown.networks import Whiten
from pindown.processes import Confounded, Process, ShapeNuisance
from pindown.processes import Nuisance as NuisanceWorld
from pindown.sources.batches import Draw
from pindown.sources.drawing import Epochs
from pindown.spaces import Reals, Space
from pindown.training import TrainingLog, optimizers, waiting_cosine

CLOSED_FORM_ROWS = 50_000
"""Rows from which means and covariances of the start are taken."""

START_ROWS = 5_000
"""Rows, about, from which the decoder's straight path starts."""

FEWEST_HELD_OUT, MOST_HELD_OUT = 200, 4_000
"""Rows held out for the probe: if fewer than so many, none; and never more than so many,"""

MOST_OF_A_LINEAR_CODE = 500
"""nor than so many of a linear code: it cannot learn rows by heart, and every row it misses shows in its angles."""

DEAD = 1e-3
"""Spread of whitened data along a direction up to which they do not vary along it: no code can hold it."""

LEAK = 0.1
"""How far from chance to certainty a probe may get before the fit warns."""


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
    checkpoint : path or None
        File to save the fit to, and to resume it from.
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
        Of a linear encoder: orthonormal rows M; the code of x is M (x − mean).
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
    patience = None  # a game has no falling loss to stop by
    _schedule = staticmethod(waiting_cosine)
    _chooses_components = True

    def __init__(
        self,
        n_components=None,
        *,
        strength=0.5,
        n_bins=None,
        encoder=networks.unfolded,
        classifier=networks.reader,
        decoder=networks.unfolded,
        n_restarts=1,
        batch_size=None,
        max_iter=2_000,
        learning_rate=1e-3,
        weight_decay=None,
        optimizer=optimizers.rivals,
        holdout=0.1,
        checkpoint=None,
        device=None,
        verbose=True,
        random_state=None,
    ):
        self.n_components = n_components
        self.strength = strength
        self.n_bins = n_bins
        self.encoder = encoder
        self.classifier = classifier
        self.decoder = decoder
        self.n_restarts = n_restarts
        self.batch_size = batch_size
        self.max_iter = max_iter
        self.learning_rate = learning_rate
        self.weight_decay = weight_decay
        self.optimizer = optimizer
        self.holdout = holdout
        self.checkpoint = checkpoint
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
        return self._fit(X, y, given)

    def inverse_transform(self, Z, y):
        """Rebuild observations from codes and the nuisance of each; what the codes dropped is filled in by its mean.

        With another value of y than a row's own this says how the row would look *if* one code meant the same for
        both. Nothing promises that: blind is not aligned.
        """
        check_is_fitted(self)
        codes = check_array(as_array(Z), dtype=[np.float64, np.float32])
        if codes.shape[1] != self.n_components_:
            raise ValueError(f"Forget: Z must have {self.n_components_} columns, one per code, got {codes.shape[1]}.")
        table = as_table(as_array(y), len(codes))
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
        with _random.forked(0):
            return callable(self.encoder) and isinstance(self.encoder(getattr(self, "n_features_in_", 2), 1), nn.Linear)

    def _space(self) -> Space:
        check_scalar(self.strength, "strength", numbers.Real, min_val=0)
        check_scalar(self.holdout, "holdout", numbers.Real, min_val=0, max_val=0.5)
        check_scalar(self.n_restarts, "n_restarts", numbers.Integral, min_val=1)
        if self.n_bins is not None:
            check_scalar(self.n_bins, "n_bins", numbers.Integral, min_val=2)
        return Reals()

    def _draw(self, X: np.ndarray, y: Any, device: torch.device) -> Draw:
        side, given = (as_array(part) for part in y)
        columns, kinds = read_columns(side, len(X), self.n_bins)
        strata = read_strata(given, len(X))
        nuisance = assemble(columns, kinds, strata)
        nuisance.refuse_identical()
        if n_rare := nuisance.n_rare:
            self._warn(
                f"{n_rare} rows have a value of y that is too rare, or alone in its stratum, to be compared with "
                "others: they are left out of the game, and what the codes tell of them is unknown. Merge rare values."
            )
        rng = np.random.default_rng(_random.draw_seed(self.random_state) % 2**63)
        order = rng.permutation(len(X))
        n_held = min(int(self.holdout * len(X)), MOST_OF_A_LINEAR_CODE if self._is_linear else MOST_HELD_OUT)
        held, used = np.split(order, [n_held if n_held >= FEWEST_HELD_OUT else 0])
        some = held if len(held) else used[:MOST_HELD_OUT]
        self._compared = HeldOut(X[some], nuisance.take(some), given is not None)
        used = np.sort(used)
        self._begin(X, kinds, nuisance, used[rng.permutation(len(used))[:CLOSED_FORM_ROWS]])
        self._held_out = HeldOut(X[held], nuisance.take(held), given is not None)
        rows = Troubled.on(device, X[used], nuisance.take(used))
        return Epochs(rows, self._rows_per_batch(len(rows), "rows"))

    def _draw_fresh(self, process: Process, batch_size: int) -> Draw:
        if not isinstance(process, NuisanceWorld | ShapeNuisance | Confounded):
            raise ValueError(
                f"Forget forgets a nuisance, but {type(process).__name__} has none. Give a world of Nuisance, "
                "ShapeNuisance or Confounded."
            )
        sample = process.sample(WHITEN_ROWS + MOST_HELD_OUT, random_state=0)
        assert sample.u is not None
        X, u = sample.x.numpy(), sample.u.numpy()
        columns, kinds = read_columns(u, len(u), None)
        nuisance = assemble(columns, kinds, np.zeros(len(u), dtype=np.int64))
        used, held = np.arange(WHITEN_ROWS), np.arange(WHITEN_ROWS, len(u))
        self._begin(X[used], kinds, nuisance.take(used), used)
        self._held_out = self._compared = HeldOut(X[held], nuisance.take(held), False)
        return FreshTroubled.of(process, batch_size, nuisance)

    def _begin(self, X: np.ndarray, kinds: list[Column], nuisance: Nuisance, rows: np.ndarray) -> None:
        """Look at the data: which directions tell the nuisance, and so how many codes there can be."""
        if hasattr(self, "encoder_"):  # if this fit is broken off, the last one's must not meet these columns
            del self.encoder_
        whiten = Whiten.of(torch.as_tensor(X))
        self.columns_ = kinds
        matrix = whiten.matrix.double().numpy()
        white, groupings = whiten(torch.as_tensor(X[rows])).double().numpy(), nuisance.take(rows).groupings()
        rng, linear = np.random.default_rng(0), self._is_linear
        found = directions(white, groupings, spreads=linear, size=np.linalg.pinv(matrix), rng=rng)
        rest = white @ found.basis[found.n_means + found.n_spreads :].T
        rest -= rest.mean(0)
        n_blind = int(np.linalg.matrix_rank(rest.T @ rest / len(rest), tol=DEAD**2, hermitian=True))
        self._choose(found, n_blind, int(nuisance.label_weights().any(0).sum()))
        start = found.keep(self.n_components_)
        # Rows that cannot be even would be next to zero, and a label that is to be told must be heard from the start.
        if not linear and (nuisance.n_strata == 1 or self.n_components_ <= found.n_blind):
            start = even_rows(white, groupings, start, rng)
        self._opening = Opening(nuisance, found, start, matrix)

    def _choose(self, found: Directions, blind: int, n_labels: int) -> None:
        """Settle the number of codes, if in so many directions data vary and no value differs from another."""
        self.n_told_ = found.n_means, found.n_spreads
        d = blind + sum(self.n_told_)
        told = f"{found.n_means} of {d} directions means differ between values"
        if self._is_linear:
            told += f", and in {found.n_spreads} more covariances"
        if self.n_components is not None:
            if self.n_components > blind:
                self._warn(
                    f"n_components={self.n_components} is more than the {blind} blind directions there are: in {told}. "
                    "Linear codes beyond these must leak, and no theorem covers others. Ask for fewer, or leave it out."
                )
            return
        # A linear reader tells labels apart by one code less; these can be blind even if no direction is.
        self.n_components_ = n = max(1, blind, 0 if self._is_linear else min(d, n_labels - 1))
        if n > blind:
            few = f"only {blind} direction(s) do not tell" if blind else "every direction tells"
            self._warn(
                f"{few} the nuisance: in {told}. {n} code(s) are kept, the least telling, and nothing says that they "
                "can be blind. Join values of y, or give n_components."
            )
        elif self.verbose and sys.stderr.isatty():
            print(f"Forget: {n} codes, since in {told}.", file=sys.stderr)

    def _objective(self, encoder: Encoder, batches: Iterator[tuple[Tensor, ...]]) -> nn.Module:
        players = encoder, self.classifier, self.decoder
        linear, strength, steps = self._is_linear, self.strength, self.max_iter
        game = self._opening.game(*players, linear=linear, strength=strength, max_iter=steps)
        game.start_decoder(batches, START_ROWS)
        return game

    def _search(
        self, make: Callable[[int], nn.Module], minimise: Callable[..., TrainingLog], draw: Draw, seed: int
    ) -> tuple[nn.Module, TrainingLog]:
        if self.n_restarts == 1:
            return super()._search(make, minimise, draw, seed)
        games = [make(seed + k) for k in range(self.n_restarts)]
        logs = [minimise(game, seed + k, f"restart {k}") for k, game in enumerate(games)]
        self.restart_scores_ = np.array([self._missed_and_told(game, seed) for game in games])
        best = int(self.restart_scores_.argmin())
        return games[best], logs[best]

    def _missed_and_told(self, game: nn.Module, seed: int) -> float:
        """Return the objective of the encoder on rows to compare games by, with a fresh probe for the classifier."""
        assert isinstance(game, Game)
        rows, encoder = self._compared, game.averaged[0]
        assert isinstance(encoder, Encoder)
        probe = rows.probe(lambda x: encode(encoder, x), seed)
        told = rows.nuisance
        missed = game.missed(*map(torch.as_tensor, (rows.x, told.groups, told.strata, told.shown)))
        return missed + (0.0 if probe is None else game.strength * math.log(2) * probe.bits)

    def _learned(self, objective: nn.Module) -> None:
        assert isinstance(objective, Game)
        encoder, decoder = (copy.deepcopy(player) for player in objective.averaged)
        assert isinstance(encoder, Encoder)
        assert isinstance(encoder.whiten, Whiten)
        whiten, back = encoder.whiten, torch.eye(self.n_components_)
        if objective.is_linear:
            encoder, back = straightened(encoder)
            self.components_ = next(encoder.body.parameters()).cpu().numpy().astype(np.float64)
        self.encoder_ = encoder.eval()
        self.decoder_ = Rebuild(back, decoder, whiten).to(whiten.mean.device).double().eval()
        loss, accuracy, rebuilt = objective.trace[: self.n_iter_].double().cpu().numpy().T
        probe = self._held_out.probe(self._encode, _random.draw_seed(self.random_state))
        self.history_ = History(loss, accuracy, self._opening.nuisance.chance_loss(), rebuilt, probe)
        del self._held_out, self._compared, self._opening
        if probe is not None and probe.leaks and probe.excess > LEAK:
            self._warn(f"on {probe.n_rows} rows held out, {probe.verdict} Try more steps (max_iter), or fewer codes.")

    def _warn(self, message: str) -> None:
        warn(f"Forget: {message}")
