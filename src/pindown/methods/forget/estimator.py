"""`Forget`: codes that are blind to a nuisance."""

from __future__ import annotations

import copy
import numbers
import sys
from collections.abc import Iterator, Mapping
from dataclasses import replace
from itertools import count
from typing import Any, Self

import numpy as np
import torch
from sklearn.utils import check_array, check_consistent_length, check_scalar
from sklearn.utils.validation import check_is_fitted
from torch import Tensor, nn

from pindown import _random, networks, theory
from pindown._random import RandomState
from pindown.data import as_source
from pindown.data.data import from_torch
from pindown.errors import warn
from pindown.methods.base import BaseEncoder
from pindown.methods.fitting import Trained, Training
from pindown.methods.forget.audit import ForgetSpec
from pindown.methods.forget.charts import Charts
from pindown.methods.forget.choosing import BENT, FIXED, N_FOLDS, TRANSPORTED, Charted, Choice
from pindown.methods.forget.game import Game, Rebuild, straightened
from pindown.methods.forget.images import encoder_behind, spreads, whitened
from pindown.methods.forget.initialisation import Initialisation
from pindown.methods.forget.looking import Asked, NuisanceSummary, look_at
from pindown.methods.forget.nuisance import as_table
from pindown.methods.forget.playing import Played, at_charts, history, played, read_afterwards, transported
from pindown.methods.inputs import TrainingInput, is_in_memory, preprocessed
from pindown.methods.transport import SlicedTransport
from pindown.networks import preprocessing
from pindown.networks.encoder import ENCODED_AT_ONCE, Encoder, Make
from pindown.networks.images import is_image
from pindown.networks.preprocessing import Preprocess, Preprocessing
from pindown.training import Trainer, TrainingDefaults, best_device, optimizers, waiting_cosine

START_ROWS = 5_000
"""Rows, about, from which the decoder's straight path starts."""


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

    Where the game starts, how it is played so that it settles, and what holds an encoder beside it, says the page
    "Forgetting a nuisance".

    Parameters
    ----------
    n_components : int or None
        Number of codes. None takes, of charts, the directions that stand out of noise; of one map d − dim V, by the
        numerical rank of the means of the values (and, if linear, of their covariances), beyond what noise would show
        in so many rows; if it can bend, given a label, at least one less than the label has values.
    strength : float
        λ, what hiding is worth against keeping: nats of the classifier's loss against whitened units of squared error.
        Larger ones hide less in the end if the classifier cannot follow. 0 hides nothing; of a linear encoder only that
        matters.
    n_bins : int or None
        None: y holds labels. A number: y holds quantities. The classifier then tells apart so many bins with about
        equally many rows, since a regression would only make the *mean* of e unpredictable; the decoder sees the
        quantity itself.
    charts : bool
        Whether the nuisance of rows will be known when they are encoded, so that codes may be told it: see `transform`.
        Then a map per value in closed form is tried first, and the game is played only if that leaks on rows held out.
        Of pictures the game comes first, and a transport per value after it.
        False, or a linear encoder, or ``Trainer(validation_fraction=0)``, looks for one map for all values.
    encoder : callable
        Called as ``encoder(n_features, n_components)``, returns a module. The default starts at the closed form, and
        can bend; an `nn.Linear`, as of ``networks.linear``, stays linear, with orthonormal rows: see ``components_``.
    preprocess : callable
        What is done to observations first: see `Contrast`. Of images, 128 leading directions are whitened: closed forms
        are taken of them, the decoder rebuilds them, and the encoder convolves the picture that they show. With
        ``preprocess=preprocessing.whiten`` they are laid out as vectors.
    classifier, decoder : callable
        Called as ``(n_in, n_out)``, return modules. A linear encoder has a linear decoder.
    n_restarts : int
        Games, each with other networks and batches. The one is kept that does best on rows held out (or, if none are,
        on rows it was trained on), with a fresh probe in the classifier's place: what the decoder misses, plus λ times
        what the probe reads, and what the reader of a given label misses, in nats.
    batch_size, max_iter : int or None, int
        Rows per step, None takes 512, or all if there are fewer; steps, of which the encoder rests in the first tenth.
    learning_rate : float
        Of the encoder, at its top. The others' is an argument of ``optimizers.rivals``: ``functools.partial(
        optimizers.rivals, answer_rate=5e-3)``.
    trainer : Trainer
        Weight decay (None: 10,000 / n_samples, at most 2), optimizer (None: `optimizers.rivals`), fraction of the
        samples to hold out, precision, checkpoint, callbacks …: see `pindown.training.Trainer`.
    device, verbose, random_state : str or None, bool, int or RandomState or None
        None takes a GPU if there is one; show progress and what was chosen, if there is a terminal; seed.

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
    held_out_ : HeldOut or None
        What the best reader tells of the nuisance in codes of rows held out. None if there were too few.
    history_ : History
        ``classifier_loss``, ``classifier_accuracy``, ``reconstruction`` of each step, ``chance_loss``, and ``probe``,
        a `pindown.metrics.Leakage`.
    chosen_ : Choice or None
        Which codes were kept, of which that were compared; None if there were no others.
    charts_ : Charted or None
        The maps that are told the nuisance; None if one map was kept.
    transport_ : SlicedTransport or None
        Of pictures: what brings codes of one map to one law, given the nuisance; None if it did not help.
    encoder_, decoder_, objective_ : torch.nn.Module
        The encoder that is not told it; the map from its code and nuisance to x (None beside charts, which have their
        own inverse); what was played.
    restart_scores_ : ndarray of shape (n_restarts,)
        Of each game, by which one was chosen, the smallest; absent if there was but one.
    loss_curve_ : ndarray of shape (n_iter_,)
        Sum of the losses, each step. A game has no loss that falls; see ``history_``.
    n_iter_ : int
        Steps taken; a closed form takes one.

    Warns
    -----
    IdentifiabilityWarning
        If more codes are asked for than directions are blind, or none is, values of y are rare, rows do not show the
        given label, the classifier learned its rows by heart, or the probe reads y.

    References
    ----------
    Ganin and Lempitsky, Unsupervised domain adaptation by backpropagation, ICML 2015. Liu et al., SCAR, 2026.

    Examples
    --------
    Eight observed variables, a nuisance of four values: five dimensions survive, and they are found.

    >>> from pindown.metrics import leakage
    >>> from pindown.simulate import Nuisance
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

    spec = ForgetSpec()
    training_defaults = TrainingDefaults(optimizer=optimizers.rivals, schedule=waiting_cosine, adversarial=True)
    charts_: Charted | None = None  # not of fits that older versions saved
    transport_: SlicedTransport | None = None
    chosen_: Choice | None = None
    decoder_: Rebuild | None
    settled_on: str | None = None  # what a refit keeps, since the fit has chosen it

    def __init__(
        self,
        n_components: int | None = None,
        *,
        strength: float = 0.5,
        n_bins: int | None = None,
        charts: bool = True,
        encoder: Make = networks.skip_mlp,
        preprocess: Preprocess = preprocessing.default_preprocessing,
        classifier: Make = networks.small_mlp,
        decoder: Make = networks.skip_mlp,
        n_restarts: int = 1,
        batch_size: int | None = None,
        max_iter: int = 2_000,
        learning_rate: float = 1e-3,
        trainer: Trainer = Trainer(),  # noqa: B008 (a frozen value)
        device: str | None = None,
        verbose: bool = True,
        random_state: RandomState = None,
    ) -> None:
        self.n_components = n_components
        self.strength = strength
        self.n_bins = n_bins
        self.charts = charts
        self.encoder = encoder
        self.preprocess = preprocess
        self.classifier = classifier
        self.decoder = decoder
        self.n_restarts = n_restarts
        self.batch_size = batch_size
        self.max_iter = max_iter
        self.learning_rate = learning_rate
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

    def transform(self, X, y=None):
        """Encode observations; with their nuisance, by the chart of each row's value, where charts were kept.

        Parameters
        ----------
        X : array or tensor of shape (n_samples, n_features), or Source
            The observations.
        y : array of shape (n_samples,) or (n_samples, n_columns), optional
            The nuisance of each row, of values that were there in `fit`. None: unknown, as in a pipeline or of rows of
            another value. These are encoded by one map for all, which comes as near to the charts as one can that does
            not tell means apart; of pictures, by the map that a transport follows. If ``chosen_`` says that one map was
            kept, it is the same with y and without.
        """
        check_is_fitted(self)
        if y is None:
            return super().transform(X)
        value = self._values(from_torch(y))
        if self.charts_ is None:
            codes = super().transform(X)
            return codes if self.transport_ is None else self._like(codes, codes, self.transport_(codes, value))
        if not is_in_memory(X):
            X = np.concatenate([block["x"] for block in as_source(X).blocks(ENCODED_AT_ONCE)])
        array = self._validated(X, reset=False)
        check_consistent_length(array, value)
        return self._like(X, array, self.charts_.encode(torch.as_tensor(array), torch.as_tensor(value)))

    def _values(self, y: Any) -> np.ndarray:
        """Return the number of each row's value of the nuisance, or say what is wrong with it; (n,)."""
        table = as_table(y, len(y))
        if table.shape[1] != len(self.columns_):
            raise ValueError(f"Forget: y must have {len(self.columns_)} column(s), as in fit, got {table.shape[1]}.")
        numbers = np.stack([kind.numbers(column) for kind, column in zip(self.columns_, table.T, strict=True)], 1)
        untold = self.charts_ is None and self.transport_ is None
        return numbers[:, 0] if untold or numbers.shape[1] == 1 else self.reader_.combined(numbers)

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
        value = self._values(table)
        shown = np.hstack([kind.seen(column) for kind, column in zip(self.columns_, table.T, strict=True)])
        device = self.encoder_.device
        z, seen = (torch.as_tensor(a, dtype=torch.float64, device=device) for a in (codes, shown))
        with torch.no_grad():
            if self.charts_ is not None:
                rebuilt = self.charts_.inverse(z, torch.as_tensor(value, device=device), seen)
            elif self.decoder_ is not None:
                rebuilt = self.decoder_(z if self.transport_ is None else self.transport_.inverse(z, value), seen)
        return self._like(Z, codes, rebuilt.unflatten(1, self.shape_in_))

    def __sklearn_tags__(self):
        """Say what scikit-learn may expect."""
        tags = super().__sklearn_tags__()
        tags.target_tags.required = True
        return tags

    def _accepts(self, shape: tuple[int, ...]) -> bool:
        images = self.preprocess is preprocessing.default_preprocessing and not self._is_linear
        return len(shape) == 1 or (images and is_image(shape))

    @property
    def _is_linear(self) -> bool:
        """Whether the encoder makes a linear layer, of one code of as many features as are known."""
        if isinstance(self.encoder, nn.Module):
            return isinstance(self.encoder, nn.Linear)
        with _random.forked(0):
            try:
                return isinstance(self.encoder(getattr(self, "n_features_in_", 2), 1), nn.Linear)
            except Exception:  # it makes no network of vectors: if it must, `built` says what is wrong with it
                return False

    def _check_parameters(self) -> None:
        super()._check_parameters()
        check_scalar(self.strength, "strength", numbers.Real, min_val=0)
        check_scalar(self.n_restarts, "n_restarts", numbers.Integral, min_val=1)
        if self.trainer.patience is not None:
            raise ValueError(
                f"Forget: trainer has patience={self.trainer.patience}, but a game has no falling loss to stop by. "
                "Leave it out, and say by max_iter how long to play."
            )
        if self.n_bins is not None:
            check_scalar(self.n_bins, "n_bins", numbers.Integral, min_val=2)

    def _training_samples(self, inputs: TrainingInput, first: Preprocessing) -> TrainingInput:
        return preprocessed(first, inputs)

    def _summarize(self, inputs: TrainingInput, first: Preprocessing, seed: int) -> NuisanceSummary:
        n_components = None if self.n_components is None else self._requested_components()
        pictures = is_image(first.shape_in)
        if pictures and n_components is None:
            raise ValueError(
                "Forget: n_components must be given for pictures: their directions are no count of what varies in "
                "them. Say how many latents there are beside the nuisance, such as Forget(4)."
            )
        charts = self.charts and not pictures  # a map per value that is linear in pixels undoes no light and no camera
        spread = spreads(first) if pictures else None
        asked = Asked(
            n_components,
            self.n_bins,
            self.trainer.validation_fraction,
            charts,
            self._is_linear,
            spread,
            self.settled_on,
        )
        summary = look_at(inputs, first, seed, asked)
        return replace(summary, transports=self.charts and pictures and not self._is_linear and summary.can_transport)

    def _preprocess_for(self, shape: tuple[int, ...]) -> Preprocess:
        return (
            whitened if is_image(shape) and self.preprocess is preprocessing.default_preprocessing else self.preprocess
        )

    def _encoder_for(self, first: Preprocessing, device: torch.device) -> Any:
        convolves = self.encoder in (networks.skip_mlp, networks.convolutional)  # the default, and its name
        return encoder_behind(first, device) if convolves and is_image(first.shape_in) else self.encoder

    def _fields(self, summary: NuisanceSummary, sides: Mapping[str, Any]) -> tuple[Any, ...]:
        read = summary.reader.read_numbers if summary.by_number else summary.reader.read
        return read(sides["nuisance"], sides.get("given"))

    def _objective(
        self, encoder: Encoder, summary: NuisanceSummary, batches: Iterator[tuple[Tensor, ...]]
    ) -> nn.Module:
        return self._game(summary.initialisation, encoder, batches)

    def _game(
        self,
        start: Initialisation,
        encoder: Encoder,
        batches: Iterator[tuple[Tensor, ...]],
        charts: Charts | None = None,
    ) -> Game:
        steps = self._n_steps * self.trainer.accumulate
        how: dict[str, Any] = {"linear": self._is_linear, "strength": self.strength, "max_iter": steps}
        game = start.game(encoder, self.classifier, self.decoder, **how, charts=charts)
        game.start_decoder(batches, START_ROWS)
        return game

    def _optimise(self, training: Training, seed: int) -> Trained:
        summary = training.summary
        assert isinstance(summary, NuisanceSummary)

        def first_batches(seed: int) -> Iterator[tuple[Tensor, ...]]:
            peek = _random.generator(seed, training.prepared.device)
            return (training.raw_batches(step, peek) for step in count())

        def make_bent(seed: int) -> nn.Module:
            with _random.forked(seed):
                start, encoder = at_charts(summary, self.encoder)
                return self._game(start, encoder, first_batches(seed), summary.charts_apart)

        found = played(training.new_objective, make_bent, training.minimise, summary, self.n_restarts, seed)
        if summary.transports:
            settled = self.settled_on == TRANSPORTED
            found = transported(found, summary, first_batches(seed), seed, settled=settled)
        return training.trained(found.objective, found.log, found)

    def _store(self, trained: Trained) -> None:
        objective, summary, found = trained.objective, trained.summary, trained.details
        assert isinstance(summary, NuisanceSummary)
        assert isinstance(found, Played)
        self.chosen_, self.transport_ = found.choice, found.transport
        if found.restart_scores is not None:
            self.restart_scores_ = found.restart_scores
        self.columns_, self.n_told_, self.reader_ = list(summary.reader.kinds), summary.n_told, summary.reader
        kept, self.charts_ = None if self.chosen_ is None else self.chosen_.kept.name, None
        doubts, note = summary.of_fixed, summary.note
        if kept in (None, FIXED, TRANSPORTED):
            self._learned_one_map(objective)
        else:
            assert summary.charts is not None
            assert summary.fixed is not None
            device = best_device(self.device)  # a look is made where the rows are
            self.encoder_, self.decoder_ = copy.deepcopy(summary.fixed).to(device).eval(), None
            self.n_components_ = summary.charts.n_codes
            charted = Charted.bent(objective) if kept == BENT else Charted(copy.deepcopy(summary.charts))
            self.charts_ = charted.to(device)
            doubts, note = (), f"{self.n_components_} codes, {kept}."
        seed, steps = _random.draw_seed(self.random_state), (self.n_iter_, self.trainer.accumulate)
        self.history_ = history(objective, summary, self.chosen_, seed, steps)
        self.held_out_ = read_afterwards(self.history_.probe, N_FOLDS if summary.is_settled else 1, self.n_iter_)
        note = note if self.chosen_ is None else f"{note} {self.chosen_}".strip()
        if note and self.verbose and sys.stderr.isatty():
            print(f"Forget: {note}", file=sys.stderr)
        for message in (*doubts, *self.history_.doubts):
            warn(f"Forget: {message}")

    def _learned_one_map(self, objective: nn.Module) -> None:
        assert isinstance(objective, Game)
        encoder, decoder = (copy.deepcopy(player) for player in objective.averaged)
        assert isinstance(encoder, Encoder)
        first, back = encoder.preprocess, torch.eye(self.n_components_)
        if objective.is_linear:
            encoder, back = straightened(encoder)
            in_own_units = next(encoder.body.parameters()) / encoder.preprocess.rescaling.scale
            self.components_ = in_own_units.cpu().numpy().astype(np.float64)
        self.encoder_ = encoder.eval()
        self.decoder_ = Rebuild(back, decoder, first).to(first.mean.device).double().eval()
