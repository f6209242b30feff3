"""`audit`: refit an estimator, check assumptions, and say which claims are supported."""

from __future__ import annotations

import math
import numbers
import sys
import warnings
from collections.abc import Callable, Hashable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import replace
from typing import Any, overload

import numpy as np
from numpy.typing import ArrayLike
from sklearn.utils import check_scalar
from sklearn.utils.validation import check_is_fitted

from pindown import _random, networks, theory
from pindown.auditing.audit_page import pictures_of
from pindown.auditing.checks.conditions import INJECTIVE_ENCODER, STRUCTURE_KEPT
from pindown.auditing.checks.noise import band, moved_by_noise
from pindown.auditing.checks.verdict import Verdict, with_better
from pindown.auditing.claims import strongest_claim
from pindown.auditing.embedding import Columns, Embedder, EmbeddingAudit, Named, audit_embedder
from pindown.auditing.refits import Estimator, Samples, encoder_of, latent_matrix, refit
from pindown.auditing.result import Audit
from pindown.auditing.spec import Verdicts, spec_of
from pindown.data.data import Data
from pindown.errors import InputError

CHECKED_SAMPLES = 20_000  # samples that are checked before training: more would take minutes, and change little


@overload  # an estimator of ours is an object, too
def audit(  # type: ignore[overload-overlap]
    est: Estimator,
    X: ArrayLike | Data | Mapping[Hashable, object] | None = None,
    y: ArrayLike | Mapping[Hashable, object] | None = None,
    *,
    groups: ArrayLike | Mapping[Hashable, object] | None = None,
    n_fits: int | None = None,
    random_state: int | np.random.RandomState | None = None,
) -> Audit: ...


@overload
def audit(
    est: object,
    X: ArrayLike | None = None,
    y: ArrayLike | None = None,
    *,
    groups: ArrayLike | None = None,
    nuisance: Columns | None = None,
    labels: Columns | None = None,
    n_fits: int | None = None,
    random_state: int | np.random.RandomState | None = None,
) -> EmbeddingAudit: ...


def audit(
    est: Any,
    X: Any = None,
    y: Any = None,
    *,
    groups: Any = None,
    nuisance: Columns | None = None,
    labels: Columns | None = None,
    n_fits: int | None = None,
    random_state: int | np.random.RandomState | None = None,
) -> Audit | EmbeddingAudit:
    """Say what may be claimed about a fitted estimator, or about anyone's method, without ground truth.

    The estimator may have seen all samples. So the audit holds out a quarter, fits clones to the rest, and measures all
    on the quarter: whether clones beat chance, whether they agree with each other and with ``est`` up to what its
    theorem leaves open, whether assumptions hold, and whether controls turn out as they must. It makes ``n_fits`` fits
    with other seeds and initialisations, two to halves of the samples, and one to shuffled side information (to
    permuted features, if there is none; `Forget` needs neither).

    Any estimator based on `BaseEncoder` can be audited: its ``spec`` says what is measured. For `LatentAction`, X maps
    each body to its `Data`: X before, ``pairs`` after, groups, truth and floor; and y has the pairs of bodies that made
    the same motion. Without truth and floor X, y and groups may map each body to arrays, as in its ``fit``.

    Any other method can be audited, too: an object with ``fit`` and ``transform``, a function ``(X_train, side_train,
    seed) -> transform``, or an `Embedder`, which also says in what fits may differ, and which theorem applies. It is
    fitted ``n_fits`` times to three quarters of the samples, to both halves of these, and to both halves with shuffled
    side information. The result is an `EmbeddingAudit`. It claims identification only if a theorem was named and its
    checks hold, otherwise consistency.

    Parameters
    ----------
    est : estimator
        Fitted; or any other method.
    X, y
        Observations and side variable, as in ``est.fit``; best those it was fitted to. Or a `pindown.Data` with all
        side variables, such as ``given`` of `Forget`. Its ``truth``, the known latents, is compared with the latents
        found; its ``floor``, latents known to be free of the nuisance, shows what probes of the nuisance find anyway.
    groups : array (n,), optional
        Subject, session, episode …: samples of one group are never on both sides of a split.
    nuisance, labels : mapping of str to array (n,), optional
        For other methods: what should not be decodable from the embedding, and what should.
    n_fits : int or None
        Refits with other seeds, at least 2; by default 3, of other methods 2. All but the first also have another
        initialisation, so that what they agree in was learned.
    random_state : int, RandomState or None
        Seed of splits, refits and permutations.

    Examples
    --------
    >>> from pindown import Classify
    >>> from pindown.simulate import Clusters
    >>> sample = Clusters.on_sphere(3, 8, 10.0, random_state=0).sample(1_200, random_state=1)
    >>> classify = Classify(3, max_iter=150, batch_size=256, random_state=0).fit(sample.x, sample.u)
    >>> found = audit(classify, sample.x, sample.u, n_fits=2, random_state=0)
    >>> found.claims, found.scores[0].name, found.agreement[0].worst > 0.9
    (True, 'class accuracy', True)

    >>> from sklearn.decomposition import PCA
    >>> rng = np.random.default_rng(0)
    >>> X = rng.normal(size=(600, 2)) @ rng.normal(size=(2, 8)) + 0.1 * rng.normal(size=(600, 8))
    >>> audit(PCA(2), X, random_state=0).claim[:48]
    'Consistent up to an invertible affine map, which'
    """
    rng = np.random.default_rng(_random.draw_seed(random_state) % 2**63)
    if X is not None and not isinstance(est, type) and not hasattr(est, "spec"):
        check_scalar(n_fits := 2 if n_fits is None else n_fits, "n_fits", numbers.Integral, min_val=2)
        if isinstance(X, Data):
            of_data = {} if X.nuisance is None else {"nuisance": X.nuisance}
            X, y, groups, nuisance = X.X, X.signal, X.groups, nuisance or of_data
        X = X.toarray() if hasattr(X, "toarray") else X
        method, named = Embedder.of(est), Named.read(len(X), nuisance, labels)
        with stages(f"Audit of {method.title}", n_fits + 5, est) as begin:
            return audit_embedder(method, X, y, named, groups, n_fits, rng, begin)
    spec = spec_of(est, "audit")
    if nuisance is not None or labels is not None:
        raise InputError("nuisance", "audit: an estimator of pindown takes side variables as y, or in a Data.")
    check_is_fitted(est)
    if X is None:
        raise TypeError(
            f"audit: X is missing: what {type(est).__name__} has learned is measured on held-out samples. Give the "
            "observations it was fitted to, and their side variables: audit(est, X, y)."
        )
    check_scalar(n_fits := 3 if n_fits is None else n_fits, "n_fits", numbers.Integral, min_val=2)
    samples = spec.refitting.read(est, X, y, groups)
    grouped = (X.groups if isinstance(X, Data) else groups) is not None
    n_stages = n_fits + 4 + (samples.role != "nuisance")  # fits, halves, measurements; and a control
    title = f"Audit of {type(est).__name__}"
    with warnings.catch_warnings(), stages(title, n_stages, est) as begin:
        warnings.filterwarnings("ignore", message="X does not have valid feature names")  # they are in the same order
        return _audited(est, samples, n_fits=n_fits, rng=rng, grouped=grouped, begin=begin)


def _audited(
    est: Estimator,
    samples: Samples,
    *,
    n_fits: int,
    rng: np.random.Generator,
    grouped: bool,
    begin: Callable[[str], None],
) -> Audit:
    refits = refit(est, samples, n_fits=n_fits, rng=rng, begin=begin)
    begin("scores, controls and agreement")
    spec, held_out, first, noise = est.spec, refits.held_out, refits.others[0], refits.noise
    latents, other = (latent_matrix(fit, held_out.data) for fit in (est, first))
    evidence = spec.evidence(refits, rng)
    begin("which assumptions hold")
    some = samples.data.take(np.sort(rng.permutation(len(samples))[:CHECKED_SAMPLES]))
    before = spec.checks_before(est, some, est.n_components_, samples.data)
    after = with_better(spec.checks_after(first, held_out.data, evidence.verdicts), *evidence.verdicts)
    yours = {score.name: score.value for score in spec.comparison.recovery(latents, held_out)}
    found = Audit(
        estimator=f"{type(est).__name__}({latents.shape[1]})",
        theorem=est.guarantee,
        verdicts=tuple(v for v in _together(before, after) if not _by_construction(v, est, samples.X.shape[1:])),
        evidence=evidence,
        waived=tuple(spec.waived(est, held_out.data)),
        blocks=getattr(est, "blocks_", ()),
        within="" if held_out.data.given is None else "the given label",
        n_latents=latents.shape[1],
        feature_noise=noise,
        held_out=getattr(est, "held_out_", None),
        recovery=tuple(
            replace(score, of="a refit", yours=yours.get(score.name))
            for score in spec.comparison.recovery(other, held_out)
        ),
        warned=refits.warned,
        n_samples=len(samples),
        n_learned_from=len(refits.train),
        n_held_out=len(held_out),
        n_fits=n_fits + 2 + (refits.null is not None),
        pictures=pictures_of(est, refits, latents, other, grouped=grouped),
    )
    found = strongest_claim(found, est, refits, latents)
    if noise is not None and not noise.is_nil and not found.rest:  # a claim about all latents
        moved = moved_by_noise(encoder_of(first, held_out.data), held_out.X, noise, rng)
        ceiling = spec.comparison.ceiling(first, moved, held_out)
        found = replace(found, band=band(ceiling, min(each.worst for each in found.agreement), noise.fraction))
    return found


def _by_construction(verdict: Verdict, est: Estimator, shape: tuple[int, ...]) -> bool:
    """Return whether a verdict is no evidence: the number of latents was chosen by it, or a linear map keeps all."""
    if verdict.outcome != "holds":
        return False
    if est.n_components is None and (verdict.assumption == theory.INJECTIVE_MIXING or _is_count(verdict)):
        return True
    linear = getattr(est, "encoder", None) is networks.linear or getattr(
        getattr(est, "held_out_", None), "linear", False
    )
    keeps_all = linear and est.n_components_ >= math.prod(shape)
    return keeps_all and verdict.assumption in (INJECTIVE_ENCODER, STRUCTURE_KEPT)


def _is_count(verdict: Verdict) -> bool:
    return isinstance(verdict.assumption, theory.Diversity)


def _together(before: Verdicts, after: Verdicts) -> Verdicts:
    """Return both, one verdict on each condition: counts from before; of others the latter if it holds, or the worse.

    Whether classes span all directions is decided in the latents, since a nonlinear mixing distorts their span.
    """
    found = {verdict.assumption: verdict for verdict in before}
    for verdict in after:
        seen = found.get(verdict.assumption)
        if seen is None:
            found[verdict.assumption] = verdict
        elif not _is_count(verdict) and verdict.outcome != seen.outcome:
            if verdict.outcome == "holds":
                why = f"{verdict.why} Before training it looked otherwise, as a nonlinear mixing distorts spans."
                found[verdict.assumption] = replace(verdict, why=why)
            elif verdict.outcome == "fails":
                found[verdict.assumption] = verdict
    return tuple(found.values())


@contextmanager
def stages(title: str, total: int, est: object = None) -> Iterator[Callable[[str], None]]:
    """Yield ``begin(what)``, which shows the stage that begins: on a terminal, and unless ``est.verbose`` is off."""
    if not (sys.stderr.isatty() and getattr(est, "verbose", True)):
        yield lambda what: None
        return
    from rich.console import Console
    from rich.progress import BarColumn, Progress, SpinnerColumn, TextColumn, TimeElapsedColumn

    what = TextColumn("{task.fields[number]}/{task.total}  {task.fields[what]}")
    columns = (SpinnerColumn(), TextColumn(title), BarColumn(), what, TimeElapsedColumn())
    with Progress(*columns, console=Console(stderr=True), transient=True) as progress:
        task, number = progress.add_task(title, total=total, number=0, what=""), 0

        def begin(what: str) -> None:
            nonlocal number
            number += 1
            progress.update(task, completed=number - 1, number=number, what=what)

        yield begin
