"""The specification of `SparseBasis`: latents are sparser than those of data with permuted features."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from pindown import theory
from pindown.auditing.checks import Estimate, Verdict, samples_for_atoms, scattered_activations
from pindown.auditing.checks.verdict import above
from pindown.auditing.plans import Plan
from pindown.auditing.refits import Refits
from pindown.auditing.scores import Control, Evidence, Score
from pindown.auditing.spec import FitScore, MethodSpec, Roles, Verdicts
from pindown.data.data import Data

if TYPE_CHECKING:
    from pindown.methods.sparse.basis import SparseBasis

MORE = 0.1
"""Sparsity by which codes must exceed those of a fit to permuted columns."""


FIRES = 0.1
"""Size of a code, relative to its root mean square, from which on it fires; normal codes do at 92 % of rows."""


ZEROS, NO_ZEROS = 0.35, 0.2
"""Share of codes that must be as good as 0, and below which rows are no sparse combination."""


REGULAR = 0.02
"""Least singular value of the atoms, relative to the largest, from which on they are independent."""


class SparseBasisSpec(MethodSpec["SparseBasis"]):
    """The specification of `SparseBasis`."""

    roles = Roles(None)

    def evidence(self, refits: Refits, rng: np.random.Generator) -> Evidence:
        held_out, permuted = refits.held_out, refits.held_out.with_permuted_columns(rng)
        value = min(fit.score(held_out.X) for fit in refits.others)
        chance, elsewhere = refits.null.score(permuted.X), refits.others[0].score(permuted.X)
        score = Score("sparsity of the codes", value, chance)
        control = Control(
            "permuted X",
            "codes of columns that were permuted, each on its own, are less sparse.",
            f"sparsity {elsewhere:.3f}.",
            elsewhere < (value + max(chance, 0.0)) / 2 or value <= chance + MORE,
        )
        why = () if value > chance + MORE else (f"columns that were permuted have codes about as sparse ({score})",)
        return Evidence((score,), (control,), why)

    def checks_before(self, est: SparseBasis, data: Data, d: int, whole: Data) -> Verdicts:
        return (samples_for_atoms(len(whole), d, max(d, data.X.shape[1])),)

    def checks_after(self, est: SparseBasis, data: Data, known: Verdicts = ()) -> Verdicts:
        codes = np.asarray(est.transform(data.X), dtype=np.float64)
        return (_many_zeros(codes), _independent(est.components_), scattered_activations(fires(codes)))

    def score(self, est: SparseBasis, data: Data) -> FitScore:
        return FitScore("sparsity of the codes", est.score(data.X), 0.0)

    def plan(self, est: SparseBasis, data: Data, n_components: int | None) -> Plan:
        d = n_components if n_components is not None else est.summarize(data).n_components
        verdicts = self.checks_before(est, data, d, data)
        needs = () if all(v.outcome == "holds" for v in verdicts) else ("more samples",)
        notes = ("whether codes are sparse, and scattered, shows after training: see the audit.",)
        return Plan(f"SparseBasis(n_components={d})", est.guarantee, d, verdicts, needs, notes=notes)


def fires(codes: NDArray[np.float64]) -> NDArray[np.bool_]:
    """Say which codes are more than a tenth of their root mean square; (n, d)."""
    return np.abs(codes) > FIRES * np.sqrt((codes**2).mean(0))


def _many_zeros(codes: NDArray[np.float64]) -> Verdict:
    share = float(1 - fires(codes).mean())
    outcome = above(Estimate(share, share, share), ZEROS, unless_below=NO_ZEROS)
    why = f"{share:.0%} of the codes are as good as 0; of normal ones 8% would be."
    if outcome != "holds":
        why += " Rows are not sparse in any basis, or the best one was not found: try more steps, or more rows."
    return Verdict(theory.SPARSE_COMBINATION, share, ZEROS, outcome, why)


def _independent(atoms: NDArray[np.float64]) -> Verdict:
    values = np.linalg.svd(atoms, compute_uv=False)
    ratio = float(values[-1] / values[0])
    outcome = above(Estimate(ratio, ratio, ratio), REGULAR)
    why = f"the least singular value of the atoms is {ratio:.2g} of the largest."
    return Verdict(theory.INDEPENDENT_ATOMS, ratio, REGULAR, outcome, why)
