"""The specification of `Sparse`: X is reconstructed, and dictionaries of other fits agree atom by atom."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from pindown.auditing.agreement import Measure
from pindown.auditing.checks import (
    conditioned_atoms,
    distinct_atoms,
    samples_for_atoms,
    scattered_activations,
    sparse_combination,
    sparsest_activations,
)
from pindown.auditing.checks.arrays import read
from pindown.auditing.checks.noise import Ceiling, Moved, matched_ceiling
from pindown.auditing.plans import Plan, missing_in_general
from pindown.auditing.refits import Samples
from pindown.auditing.scores import Score
from pindown.auditing.spec import Choice, Comparison, FitScore, MakePlan, MethodSpec, Roles, Verdicts
from pindown.data.data import Data
from pindown.metrics.dictionaries import chance_pw_mcc, feature_mcc, l0, pw_mcc

if TYPE_CHECKING:
    from pindown.methods.sparse.estimator import Sparse

Matrix = NDArray[np.float64]

BY_ATOMS = Measure(
    "PW-MCC of atoms",
    lambda a, b: pw_mcc(a, b),
    lambda atoms: chance_pw_mcc(*atoms.shape),
    of_codes=False,
)


class AtomComparison(Comparison["Sparse"]):
    """Fits of `Sparse` are compared atom by atom."""

    def measure(self, est: Sparse, rows: Samples) -> Measure:
        return BY_ATOMS

    def matrix(self, est: Sparse, rows: Samples) -> Matrix:
        return est.components_.astype(np.float64)

    def recovery(self, codes: Matrix, rows: Samples) -> tuple[Score, ...]:
        """Compare codes with the true ones, where these are known; chance is what codes of other rows score."""
        truth = rows.data.truth
        if truth is None:
            return ()
        elsewhere = np.random.default_rng(0).permutation(len(codes))
        return (
            Score("codes matched one to one (MCC)", feature_mcc(codes, truth), feature_mcc(codes[elsewhere], truth)),
        )

    def ceiling(self, est: Sparse, found: Moved, rows: Samples) -> Ceiling:
        return matched_ceiling(found)


class SparseSpec(MethodSpec["Sparse"]):
    """The specification of `Sparse`."""

    roles = Roles(None)
    comparison = AtomComparison()

    def latents(self, est: Sparse, data: Data) -> Any:
        """Return a sparse matrix where one is wanted, or where samples are many: those of a source."""
        return est.sparse_codes(data.X) if est.sparse_output or data.is_source else est.transform(data.X)

    def checks_before(self, est: Sparse, data: Data, d: int, whole: Data) -> Verdicts:
        return (samples_for_atoms(len(whole), d, data.X.shape[1]),)

    def checks_after(self, est: Sparse, data: Data, known: Verdicts = ()) -> Verdicts:
        rows = read("X", data.X)
        codes, atoms, centred = est.sparse_codes(rows), est.components_.astype(np.float64), rows - est.mean_
        return (
            sparse_combination(centred, atoms, max(1, round(l0(codes)))),
            distinct_atoms(atoms),
            conditioned_atoms(codes, atoms),
            scattered_activations(codes),
            sparsest_activations(centred, codes, atoms),
        )

    def score(self, est: Sparse, data: Data) -> FitScore:
        return FitScore("share of variance that is rebuilt", est.score(data.X), 0.0)

    def plan(self, est: Sparse, data: Data, n_components: int | None) -> Plan:
        d = n_components if n_components is not None else est.summarize(data).n_components
        verdicts = self.checks_before(est, data, d, data)
        rows = read("X", data.X)
        far = np.linalg.norm(rows.mean(0)) / max(float(np.sqrt(rows.var(0).sum())), 1e-300)
        notes = (
            f"rows lie {far:.2g} spreads from the origin, and are centred: where that is much, codes die.",
            "what agrees between seeds shows after training: see agreement(), and the audit.",
        )
        return Plan(f"Sparse(n_components={d})", est.guarantee, d, verdicts, missing_in_general(verdicts), notes=notes)

    def choose(self, est: Sparse, data: Data, given: frozenset[str], make_plan: MakePlan) -> Choice:
        if "n_components" in given:
            return Choice()
        d = est.summarize(data).n_components
        return Choice({"n_components": d}, (f"{d} atoms: four for each column, and at most one for ten rows.",))


class SparsePairSpec(SparseSpec):
    """The specification of `SparsePair`: as of `Sparse`, with latents of the first dictionary."""

    def latents(self, est: Any, data: Data) -> Any:
        return super().latents(est.before_, data)

    def checks_after(self, est: Any, data: Data, known: Verdicts = ()) -> Verdicts:
        return super().checks_after(est.before_, data)

    def score(self, est: Any, data: Data) -> FitScore:
        return FitScore("share of variance that is rebuilt, mean of both sides", est.score(data.X), 0.0)
