"""What `Sparse` says of itself: how much is rebuilt, and how well dictionaries of other fits agree, atom by atom."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from pindown.checks import (
    conditioned_atoms,
    distinct_atoms,
    rows_for_atoms,
    scattered_codes,
    sparse_combination,
    sparsest_codes,
)
from pindown.checks.arrays import read
from pindown.data import Data
from pindown.estimators.answers import Answers, FitScore, Settled, Verdicts
from pindown.evidence.agreement import Measure
from pindown.evidence.noise import Ceiling, Moved, matched_ceiling
from pindown.evidence.plans import Plan, generally_missing
from pindown.evidence.rows import Rows
from pindown.evidence.scores import Score
from pindown.metrics.dictionaries import chance_pw_mcc, pw_mcc
from pindown.metrics.sparse_codes import code_mcc, l0

if TYPE_CHECKING:
    from pindown.estimators.sparse.estimator import Sparse

Matrix = NDArray[np.float64]

BY_ATOMS = Measure(
    "PW-MCC of atoms",
    lambda a, b: pw_mcc(a, b),
    lambda atoms: chance_pw_mcc(*atoms.shape),
    of_codes=False,
)


def _codes(est: Sparse, data: Data) -> NDArray[Any]:
    codes = est.transform(data.X)
    return codes.toarray() if est.sparse_output else codes


def _exported(est: Sparse, data: Data) -> Any:
    """Return a sparse matrix where one is wanted, or where rows are many: those of a source."""
    return est.sparse_codes(data.X) if est.sparse_output or data.is_source else est.transform(data.X)


def _before(est: Sparse, data: Data, d: int, whole: Data) -> Verdicts:
    return (rows_for_atoms(len(whole), d, data.X.shape[1]),)


def _after(est: Sparse, data: Data) -> Verdicts:
    rows = read("X", data.X)
    codes, atoms, centred = est.sparse_codes(rows), est.components_.astype(np.float64), rows - est.mean_
    return (
        sparse_combination(centred, atoms, max(1, round(l0(codes)))),
        distinct_atoms(atoms),
        conditioned_atoms(codes, atoms),
        scattered_codes(codes),
        sparsest_codes(centred, codes, atoms),
    )


def _recovery(codes: Matrix, rows: Rows) -> tuple[Score, ...]:
    """Compare codes with the true ones, where these are known; chance is what codes of other rows score."""
    truth = rows.data.truth
    if truth is None:
        return ()
    elsewhere = np.random.default_rng(0).permutation(len(codes))
    return (Score("codes matched one to one (MCC)", code_mcc(codes, truth), code_mcc(codes[elsewhere], truth)),)


def _ceiling(est: Sparse, found: Moved, rows: Rows) -> Ceiling:
    return matched_ceiling(found)


def _score(est: Sparse, data: Data) -> FitScore:
    return FitScore("share of variance that is rebuilt", est.score(data.X), 0.0)


def _plan(est: Sparse, data: Data, n_components: int | None) -> Plan:
    d = n_components if n_components is not None else est.look(data).n_components
    verdicts = _before(est, data, d, data)
    rows = read("X", data.X)
    far = np.linalg.norm(rows.mean(0)) / max(float(np.sqrt(rows.var(0).sum())), 1e-300)
    notes = (
        f"rows lie {far:.2g} spreads from the origin, and are centred: where that is much, codes die.",
        "what agrees between seeds shows after training: see agreement(), and the audit.",
    )
    return Plan(f"Sparse(n_components={d})", est.guarantee, d, verdicts, generally_missing(verdicts), notes=notes)


def _settled(est: Sparse, data: Data, asked: frozenset[str], look: Any) -> Settled:
    if "n_components" in asked:
        return Settled()
    d = est.look(data).n_components
    return Settled({"n_components": d}, (f"{d} atoms: four for each column, and at most one for ten rows.",))


ANSWERS = Answers(
    side=None,
    starts_elsewhere=False,
    codes=_codes,
    exported=_exported,
    before=_before,
    after=_after,
    measure=lambda est, rows: BY_ATOMS,
    compared=lambda est, rows: est.components_.astype(np.float64),
    recovery=_recovery,
    ceiling=_ceiling,
    score=_score,
    plan=_plan,
    settled=_settled,
)
