"""Audit of anyone's embedding: refits, controls, leakage, structure kept, and which claim they support.

The audit of our own methods is in `pindown.auditing.audit`. Here a method is an object with ``fit`` and ``transform``,
or a function, and the audit knows nothing else about it.
"""

from __future__ import annotations

import copy
import dataclasses
import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from itertools import chain, combinations
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy.spatial.distance import pdist
from scipy.stats import spearmanr
from sklearn.base import clone
from sklearn.cluster import KMeans
from sklearn.decomposition import PCA
from sklearn.metrics import adjusted_rand_score

from pindown import _random, theory
from pindown._names import printed
from pindown.auditing.agreement import HALVES, Agreement, Measure, measure_for
from pindown.auditing.checks.conditions import needed
from pindown.auditing.checks.verdict import Verdict, unchecked
from pindown.auditing.page import fill, save_result
from pindown.auditing.refits import MAX_HELD_OUT, Samples
from pindown.auditing.result import plain
from pindown.data.data import Data, as_array
from pindown.data.files import require_in_memory
from pindown.data.labels import as_numbers, is_quantity
from pindown.errors import InputError
from pindown.metrics import Effort, Leakage, leakage, structure_kept
from pindown.metrics.arrays import Labels, Matrix, check_same_samples, read_matrix, standardise
from pindown.theory import Indeterminacy, Theorem

Array = NDArray[Any]
Transform = Callable[[Array], ArrayLike]
"""Return the embedding of observations: (n, …) → (n, d)."""

Fit = Callable[[Array, Array | None, int], Transform]
"""Fit a method to observations and their side variable, with a seed."""

Columns = Mapping[str, ArrayLike]

NEIGHBOURS = Indeterminacy("any map that keeps neighbours", "near samples stay near", theory.BIJECTION.allows)
"""What may differ between layouts such as those of UMAP: all but which samples are neighbours."""

PROBES = ("linear", "quadratic", "neighbours")
N_PERMUTATIONS = 199  # for each column that is decoded
SERIES = 0.3  # correlation of samples with the next ones from which they are a series
LEVEL = 0.01  # p-value that rules out chance
MARGIN = 0.02  # by which agreement, or a score, must exceed that of shuffled data
RAW_DIRECTIONS = 50  # leading principal components that stand for raw features, if there are more
N_DISTANCES, N_CLUSTERS = 500, 8  # samples whose distances are compared; clusters, unless labels say how many
N_HIDDEN, MOST_COLUMNS = 128, 10  # units of the random network; columns of a side variable up to which it is decoded


@dataclass(frozen=True, eq=False)
class Embedder:
    """A method, and what is known about it.

    Parameters
    ----------
    method : object or callable
        An object with ``fit`` and ``transform``, which is copied for each fit and gets each seed as its
        ``random_state``, if it has one. Or a function ``(X_train, side_train, seed) -> transform``.
    name : str
        By default the name of its class, or function.
    free : Indeterminacy
        In what two fits may differ and still agree: `theory.ORTHOGONAL` (a rotation), `theory.AFFINE` (a linear map),
        `theory.ELEMENTWISE` (the order of columns, and a monotone function of each), or `NEIGHBOURS`.
    theorem : Theorem, optional
        What identification rests on. It replaces ``free`` by what the theorem leaves open.
    checks : callable, optional
        ``checks(X, side, Z)`` returns verdicts on the theorem's assumptions. Without them nothing is identified.

    Examples
    --------
    >>> Embedder(PCA(2), free=theory.ORTHOGONAL).title
    'PCA'
    """

    method: Any
    name: str = ""
    free: Indeterminacy = theory.AFFINE
    theorem: Theorem | None = None
    checks: Callable[[Array, Array | None, Matrix], Sequence[Verdict]] | None = None

    def __post_init__(self) -> None:
        if not callable(self.method) and not (hasattr(self.method, "fit") and hasattr(self.method, "transform")):
            what = "an object with fit and transform, or a function (X, side, seed) -> transform"
            raise TypeError(f"audit: the method must be {what}, got {type(self.method).__name__}.")

    @classmethod
    def of(cls, method: object) -> Embedder:
        """Return a method as one of these."""
        return method if isinstance(method, Embedder) else cls(method)

    @property
    def title(self) -> str:
        """The name that the audit prints."""
        return self.name or getattr(self.method, "__name__", type(self.method).__name__)

    @property
    def leaves_open(self) -> Indeterminacy:
        """In what two fits may differ."""
        return self.free if self.theorem is None else self.theorem.indeterminacy

    def fit(self, X: Array, side: Array | None, seed: int) -> Transform:
        """Fit a copy of the method, and return its transform; global random numbers stay as they were."""
        with _seeded(seed):
            if not hasattr(self.method, "fit"):
                return self.method(X, side, seed)
            has_parameters = hasattr(self.method, "get_params")
            fresh = clone(self.method) if has_parameters else copy.deepcopy(self.method)
            if has_parameters and "random_state" in fresh.get_params():
                fresh.set_params(random_state=seed)
            fitted = fresh.fit(X) if side is None else fresh.fit(X, side)
        return (fresh if fitted is None else fitted).transform


@dataclass(frozen=True)
class Scored:
    """A score of an embedding on held-out samples, next to those of what has learned nothing."""

    name: str
    value: float  # of the worst refit
    chance: float
    p_value: float | None = None
    shuffled: float | None = None  # of a fit to shuffled data
    random: float | None = None  # of a random network with as many outputs
    raw: float | None = None  # of the features themselves

    def __str__(self) -> str:
        p = "" if self.p_value is None else f", p = {self.p_value:.2g}"
        others = {"shuffled data": self.shuffled, "random network": self.random, "raw features": self.raw}
        parts = [f"chance {printed(self.chance)}{p}"]
        parts += [f"{name} {printed(value)}" for name, value in others.items() if value is not None]
        return f"{self.name}: {printed(self.value)} ({', '.join(parts)})"


@dataclass(frozen=True)
class EmbeddingAudit:
    """What an audit found about an embedding. Prints as text; `save` writes a page, or the numbers as JSON."""

    method: str
    free: Indeterminacy | None = None  # in what fits may differ; None for an embedding alone, without refits
    agreement: tuple[Agreement, ...] = ()  # up to this freedom: of fits with other seeds, and to halves
    stability: tuple[Agreement, ...] = ()  # of distances, and of clusters
    learned: Scored | None = None  # the side variable that the method learned from, decoded from held-out samples
    nuisances: tuple[Scored, ...] = ()  # of each column that should not be decodable
    labels: tuple[Scored, ...] = ()  # of each that should
    structure: tuple[Scored, ...] = ()  # how much of X is kept
    theorem: Theorem | None = None  # the one that was named
    verdicts: tuple[Verdict, ...] = ()  # what its checks found
    n_samples: int = 0
    n_held_out: int = 0  # on which everything was measured
    n_fits: int = 0
    notes: tuple[str, ...] = ()

    @property
    def reasons(self) -> tuple[str, ...]:
        """The reasons to claim nothing; empty if fits are consistent."""
        if self.free is None:
            return ("an embedding alone does not show whether another fit would find the same",)
        reasons = [
            f"{each.between} disagree: {each.metric} {printed(each.worst)} (threshold {each.threshold})"
            for each in self.agreement
            if not each.enough
        ]
        if not reasons and not self._beats_shuffled_data:
            reasons.append("fits to shuffled data agree as well, and keep as much, so agreement shows nothing")
        if (found := self.learned) is not None:
            if found.p_value is not None and found.p_value > LEVEL:
                reasons.append(f"nothing of the side variable shows on held-out samples ({found})")
            elif found.shuffled is not None and found.value < found.shuffled + MARGIN:
                reasons.append(f"a fit to a shuffled side variable scores as high ({found})")
        return tuple(reasons)

    @property
    def _beats_shuffled_data(self) -> bool:
        """Whether fits to shuffled data agree less, decode or keep less, or leave more of a nuisance."""
        pairs = [(each.worst, each.shuffled) for each in self.agreement]
        pairs += [(each.value, each.shuffled) for each in (self.learned, *self.structure) if each is not None]
        pairs += [(-each.value, None if each.shuffled is None else -each.shuffled) for each in self.nuisances]
        return any(value > shuffled + MARGIN for value, shuffled in pairs if shuffled is not None)

    @property
    def identified(self) -> bool:
        """Whether the theorem that was named applies: fits agree, and each of its checks holds."""
        on_theorem = () if self.theorem is None else needed(self.theorem, self.verdicts)
        return bool(on_theorem) and not self.reasons and all(each.outcome == "holds" for each in on_theorem)

    @property
    def claim(self) -> str:
        """The sentence that may be quoted: identification, consistency, or why nothing is claimed."""
        if self.reasons:
            return f"Nothing is claimed: {'; '.join(self.reasons)}."
        assert self.free is not None
        refits, halves = self.agreement
        shuffled = "" if halves.shuffled is None else f", fits to shuffled data {printed(halves.shuffled)}"
        found = (
            f"independent fits agree on {self.n_held_out:,} held-out samples: {refits.metric} {printed(refits.worst)} "
            f"with other seeds, {printed(halves.worst)} on halves (chance {printed(halves.chance)}{shuffled})"
        )
        if self.identified and self.theorem is not None:
            trusted = [assumption.name for assumption in unchecked(self.theorem, self.verdicts)]
            start = f"If these hold: {', '.join(trusted)}, then " if trusted else ""
            text = f"{start}{self.theorem.subject} up to {self.free.name} ({self.theorem.source}); {found}."
            return text[0].upper() + text[1:]
        why = "no theorem was named"
        if self.theorem is not None:
            failed = [v.name for v in needed(self.theorem, self.verdicts) if v.outcome != "holds"]
            why = f"these checks do not hold: {', '.join(failed)}" if failed else "none of its assumptions was checked"
        return f"Consistent up to {self.free.name}, which is not identification ({why}); {found}."

    @property
    def not_shown(self) -> tuple[str, ...]:
        """What is left open."""
        if self.free is None:
            refits = "whether other seeds or other samples give the same embedding: audit the method, not its output"
            fitted = "whether scores hold for new samples: the method may have seen these"
            return (refits, fitted, "nuisances that were not named")
        true = () if self.identified else ("that the latents are the true ones",)
        return (*true, "nuisances that were not named", "freedom from nuisances that probes of other kinds would find")

    @property
    def parts(self) -> dict[str, Sequence[object]]:
        """What was found, by heading."""
        return {
            "agreement of independent fits": self.agreement,
            "stability of distances and clusters": self.stability,
            "side variable decoded": () if self.learned is None else (self.learned,),
            "nuisances decoded, less is better": self.nuisances,
            "labels decoded, more is better": self.labels,
            "structure of X kept": self.structure,
            "assumptions": self.verdicts,
            "notes": self.notes,
            "claim": (self.claim,),
            "not shown": self.not_shown,
        }

    def __str__(self) -> str:
        lines = [
            f"Audit of {self.method}, {self.n_samples:,} samples, {self.n_held_out:,} measured, {self.n_fits} fits"
        ]
        for title, entries in self.parts.items():
            lines += [title, *(f"  {entry}" for entry in entries)] if entries else []
        return "\n".join(lines)

    def to_dict(self) -> dict[str, Any]:
        """Return all of it as dictionaries, lists, text and numbers; None for NaN."""
        said = {"claim": self.claim, "identified": self.identified, "reasons": self.reasons, "open": self.not_shown}
        fields = {field.name: getattr(self, field.name) for field in dataclasses.fields(self)}
        return plain(said | fields | {"free": self.free and self.free.name})

    def save(self, path: str | Path) -> Path:
        """Write a page (``.html``) or the numbers (``.json``), whole or not at all; return the path."""
        page = partial(fill, "embedding.html.j2", title=f"Audit of {self.method}", found=self)
        return save_result(path, self.to_dict, page)


# ---- audits ---------------------------------------------------------------------------------------------------------


def audit_embedder(
    embedder: Embedder,
    X: ArrayLike,
    y: ArrayLike | None,
    named: Named,
    groups: ArrayLike | None,
    n_fits: int,
    rng: np.random.Generator,
    begin: Callable[[str], None],
) -> EmbeddingAudit:
    """Return the audit of a method that is not ours: see `pindown.audit`."""
    require_in_memory("audit", X)
    data = Data(np.asarray(X), signal=y, groups=groups)
    units = np.arange(len(data)) if data.groups is None else as_numbers(data.groups)
    samples = Samples(data, None if y is None else "signal", units=units)
    held = samples.drawn(1 / 4, rng)
    rows = np.sort(rng.permutation(np.flatnonzero(held))[:MAX_HELD_OUT])
    train, held_out = samples.take(np.flatnonzero(~held)), samples.take(rows)
    half = train.drawn(1 / 2, rng)
    if not held.any() or not half.any():
        raise InputError("groups", "audit: there are too few samples, or groups, to hold some out and halve the rest.")
    halves = [train.take(np.flatnonzero(some)) for some in (half, ~half)]

    def embedded(some: Samples, stage: str) -> Matrix:
        begin(stage)
        transform = embedder.fit(some.X, some.side, int(rng.integers(2**31)))
        z = transform(held_out.X)
        dense = np.asarray(z.toarray() if hasattr(z, "toarray") else as_array(z))
        return read_matrix("the embedding", dense.reshape(len(held_out), -1))

    others = [embedded(train, "fit with another seed") for _ in range(n_fits)]
    parts = [embedded(some, "fit to half of the samples") for some in halves]
    nulls = [embedded(some.shuffled(rng), "fit to shuffled data, as a control") for some in halves]
    begin("agreement, leakage and structure")
    if len({z.shape[1] for z in (*others, *parts, *nulls)}) > 1:
        raise InputError("method", "audit: fits have different numbers of columns. Set the number of components.")
    compared = _Compared(others, nulls[0], held_out.X, units[rows], rng)
    own = named.take(rows)
    n_clusters = next((len(np.unique(column)) for column in own.labels.values()), N_CLUSTERS)
    free = embedder.leaves_open
    measures = [
        Measure("neighbours kept", _neighbours_kept) if free is NEIGHBOURS else measure_for(free),
        Measure("rank correlation of distances", _distances_kept),
        Measure(f"adjusted Rand index of {n_clusters} clusters", partial(_clusters_kept, n_clusters=n_clusters)),
    ]
    agreement, *stability = (_agreements(measure, others, parts, nulls) for measure in measures)
    is_learned = y is not None and not any(np.array_equal(data.signal, column) for column in named.nuisance.values())
    is_learned = is_learned and math.prod(data.signal.shape[1:]) <= MOST_COLUMNS  # positives are no label
    same = all(np.array_equal(others[0], each) for each in others[1:])
    notes = ["fits with other seeds are equal: this method uses no seed, and only halves tell"] * same
    features = standardise(samples.X.reshape(len(samples), -1).astype(np.float64))
    alike = float((features[1:] * features[:-1]).mean())  # of a series near 1, of independent samples near 0
    if groups is None and alike > SERIES:
        notes.append(
            f"samples are like the next ones (correlation {alike:.2f}), so held-out samples are like those of the fit, "
            "and scores too high: pass blocks of time, or sessions, as groups"
        )
    return EmbeddingAudit(
        embedder.title,
        free,
        agreement,
        tuple(chain.from_iterable(stability)),
        compared.decoded("y", held_out.data.signal) if is_learned else None,
        *compared.named(own),
        embedder.theorem,
        () if embedder.checks is None else tuple(embedder.checks(held_out.X, held_out.side, others[0])),
        len(samples),
        len(rows),
        n_fits + 4,
        tuple(notes),
    )


def audit_alone(
    Z: ArrayLike,
    X: ArrayLike | None = None,
    *,
    nuisance: Columns | None = None,
    labels: Columns | None = None,
    groups: ArrayLike | None = None,
    name: str = "an embedding",
    random_state: int = 0,
) -> EmbeddingAudit:
    """Audit an embedding alone: what can be decoded from it, how much of X it keeps, and what this does not show.

    Parameters
    ----------
    Z : array (n, d)
        The embedding.
    X : array (n, …), optional
        The data. Without them structure is not measured, and no raw features are compared.
    nuisance, labels : mapping of str to array (n,)
        What should not be decodable, and what should.
    groups : array (n,), optional
        Subjects, sessions …: samples of one group are never on both sides of a split.

    Examples
    --------
    >>> rng = np.random.default_rng(0)
    >>> site, X = np.arange(400) % 2, rng.normal(size=(400, 5))
    >>> found = audit_alone(X[:, :2] + 3 * site[:, None], X, nuisance={"site": site})
    >>> found.nuisances[0].value > 0.9, found.claim
    (True, 'Nothing is claimed: an embedding alone does not show whether another fit would find the same.')
    """
    z, rng = read_matrix("Z", Z), np.random.default_rng(random_state)
    named = Named.read(len(z), nuisance, labels)
    units = np.arange(len(z)) if groups is None else as_numbers(as_array(groups, "groups"))
    if X is not None:
        check_same_samples("Z", z, "X", as_array(X))
    rows = np.sort(rng.permutation(len(z))[:MAX_HELD_OUT])
    compared = _Compared([z[rows]], None, None if X is None else as_array(X)[rows], units[rows], rng)
    nuisances, decoded, structure = compared.named(named.take(rows))
    counts = len(z), len(rows)
    return EmbeddingAudit(name, None, (), (), None, nuisances, decoded, structure, None, (), *counts)


class Named(NamedTuple):
    """Columns by name: what should not be decodable from an embedding, and what should."""

    nuisance: dict[str, Array]
    labels: dict[str, Array]

    @classmethod
    def read(cls, n: int, nuisance: Columns | None, labels: Columns | None) -> Named:
        """Return columns as arrays, or raise if one has another length."""
        named = cls(
            *({name: as_array(part, name) for name, part in (some or {}).items()} for some in (nuisance, labels))
        )
        for name, part in (named.nuisance | named.labels).items():
            if len(part) != n:
                raise InputError(name, f"{name} has {len(part)} samples, but there are {n}. Pass one for each.")
        return named

    def take(self, rows: NDArray[np.int64]) -> Named:
        """Return the values of these samples."""
        return Named(*({name: part[rows] for name, part in some.items()} for some in self))


class _Compared:
    """Embeddings of held-out samples, next to those of shuffled data, a random network, and the features themselves."""

    def __init__(
        self, others: list[Matrix], null: Matrix | None, X: Array | None, units: Labels, rng: np.random.Generator
    ) -> None:
        self.others, self.units, self.seed = others, units, int(rng.integers(2**31))
        self.x: Matrix | None = None
        self.controls: dict[str, Matrix] = {} if null is None else {"shuffled": null}
        if X is not None:
            self.x = x = standardise(read_matrix("X", X.reshape(len(X), -1)))
            hidden = np.maximum(x @ rng.normal(size=(x.shape[1], N_HIDDEN)) / math.sqrt(x.shape[1]), 0)
            self.controls["random"] = hidden @ rng.normal(size=(N_HIDDEN, others[0].shape[1]))
            few = min(RAW_DIRECTIONS, *x.shape)
            self.controls["raw"] = x if x.shape[1] <= few else PCA(few, random_state=0).fit_transform(x)

    def decoded(self, name: str, values: Array, better: int = 1) -> Scored:
        """Return how well probes decode a column from the worst refit; ``better`` is −1 where less is better."""

        def found(z: Matrix, n_permutations: int = 19) -> Leakage:
            effort = Effort(n_seeds=1, n_permutations=n_permutations, max_samples=MAX_HELD_OUT)
            return leakage(z, values, groups=self.units, probes=PROBES, effort=effort, random_state=self.seed)

        z = min(self.others, key=lambda z: better * found(z).worst)
        worst = found(z, N_PERMUTATIONS * math.prod(values.shape[1:]))
        controls = {name: max(found(z).worst, 0.0) for name, z in self.controls.items()}
        # An R² below 0 says no more than 0: that probes extrapolate.
        return Scored(f"{name} ({worst.measure})", max(worst.worst, 0.0), worst.chance, worst.p_value, **controls)

    def named(self, own: Named) -> tuple[tuple[Scored, ...], tuple[Scored, ...], tuple[Scored, ...]]:
        """Return how well nuisances and labels are decoded, and how much structure is kept."""
        nuisances = tuple(self.decoded(name, column, -1) for name, column in own.nuisance.items())
        labels = tuple(self.decoded(name, column) for name, column in own.labels.items())
        return nuisances, labels, self._structure(own)

    def _structure(self, named: Named) -> tuple[Scored, ...]:
        """Return how many neighbours, and how much variance, are kept; within levels of the first nuisance."""
        if (x := self.x) is None:
            return ()
        levels = next((v for v in named.nuisance.values() if not is_quantity(v)), np.zeros(len(x)))
        sets = {"": self.others, **{name: [z] for name, z in self.controls.items() if name != "raw"}}
        kept = {name: [structure_kept(x, z, levels, random_state=0) for z in some] for name, some in sets.items()}
        neighbours = {name: min(each.neighbours for each in some) for name, some in kept.items()}
        variance = {name: min(each.variance for each in some) for name, some in kept.items()}
        return tuple(
            Scored(what, found.pop(""), 0.0, **found)
            for what, found in (("neighbours within levels", neighbours), ("variance within levels", variance))
        )


def _neighbours_kept(a: Matrix, b: Matrix) -> float:
    return structure_kept(a, b, np.zeros(len(a)), random_state=0).neighbours


def _distances_kept(a: Matrix, b: Matrix) -> float:
    return float(spearmanr(pdist(a[:N_DISTANCES]), pdist(b[:N_DISTANCES])).statistic)


def _clusters_kept(a: Matrix, b: Matrix, n_clusters: int) -> float:
    first, second = (KMeans(n_clusters, n_init=3, random_state=0).fit_predict(z) for z in (a, b))
    return float(adjusted_rand_score(first, second))


def _agreements(
    measure: Measure, others: list[Matrix], halves: list[Matrix], nulls: list[Matrix]
) -> tuple[Agreement, Agreement]:
    """Compare fits with other seeds, and fits to halves next to fits to shuffled halves."""
    chance, between_seeds = measure.chance(others[0]), tuple(measure(a, b) for a, b in combinations(others, 2))
    of_seeds = Agreement("fits with other seeds", measure.name, between_seeds, chance)
    return of_seeds, Agreement(HALVES, measure.name, (measure(*halves),), chance, measure(*nulls))


@contextmanager
def _seeded(seed: int) -> Iterator[None]:
    """Seed the global random numbers of torch and numpy, for methods without a seed, and restore them."""
    before = np.random.get_state()  # noqa: NPY002 (other packages draw from it)
    np.random.set_state(np.random.RandomState(seed).get_state())  # noqa: NPY002
    try:
        with _random.forked(seed):
            yield
    finally:
        np.random.set_state(before)  # noqa: NPY002
