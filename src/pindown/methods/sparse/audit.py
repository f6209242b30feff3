"""Specifications of `Sparse`, `SparsePair` and `SparseBasis` for plans and audits, and the agreement of seeds."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import combinations
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray
from scipy.sparse import csr_array

from pindown import theory
from pindown.auditing.agreement import Measure
from pindown.auditing.checks.arrays import read
from pindown.auditing.checks.dictionaries import (
    conditioned_atoms,
    distinct_atoms,
    samples_for_atoms,
    scattered_activations,
    sparse_combination,
    sparsest_activations,
)
from pindown.auditing.checks.noise import Ceiling, Moved, matched_ceiling
from pindown.auditing.checks.verdict import Verdict, at_least
from pindown.auditing.evidence import AuditScore, Control, Evidence, Objection
from pindown.auditing.plans import Plan, Summary, missing_in_general
from pindown.auditing.refits import Refits, Samples
from pindown.auditing.spec import Comparison, FitScore, MethodSpec, Roles, Verdicts
from pindown.data.data import Data
from pindown.metrics.arrays import Matrix
from pindown.metrics.dictionaries import FiringBand, by_frequency, chance_pw_mcc, feature_mcc, l0, match_atoms, pw_mcc

if TYPE_CHECKING:
    from pindown.methods.sparse.estimator import Sparse, SparseBasis
    from pindown.methods.sparse.pair import SparsePair

SAME_ATOM = 0.9  # cosine from which on two atoms are the same
MIN_GAIN = 0.1  # in sparsity, over a fit to permuted features
ACTIVE = 0.1  # size from which on a latent is active, in units of its RMS
ZEROS, NO_ZEROS = 0.35, 0.2  # fractions of inactive latents that suffice or fail
REGULAR = 0.02  # smallest singular value of the atoms, relative to the largest, from which on they are independent


@dataclass(frozen=True, eq=False)
class SeedAgreement:
    """How well dictionaries of several seeds agree. This is consistency, not recovery: all of them may be wrong.

    Attributes
    ----------
    values : tuple of float
        Mean cosine of matched atoms (PW-MCC) for each pair of seeds.
    chance : float
        PW-MCC of as many random directions.
    cosine : array of shape (n_components,)
        For each atom of the fit, the lowest cosine with its match in another seed.
    bands : tuple of FiringBand
        The mean of these by firing frequency; empty if no samples were given.
    n_seeds : int
        Number of dictionaries.

    Examples
    --------
    >>> print(compare_seeds([np.eye(4), np.eye(4)[::-1]], None))
    PW-MCC of seeds: at least 1.000 (chance ...); 100% of the atoms are found by all 2 seeds
    """

    values: tuple[float, ...]
    chance: float
    cosine: Matrix
    bands: tuple[FiringBand, ...]
    n_seeds: int

    @property
    def worst(self) -> float:
        """The lowest PW-MCC over pairs of seeds."""
        return min(self.values)

    @property
    def found(self) -> float:
        """Fraction of the atoms of the fit that all other seeds have found, with a cosine of at least .9."""
        return float((self.cosine >= SAME_ATOM).mean())

    def __str__(self) -> str:
        lines = [
            f"PW-MCC of seeds: at least {self.worst:.3f} (chance {self.chance:.3f}); {self.found:.0%} of the atoms are "
            f"found by all {self.n_seeds} seeds"
        ]
        return "\n".join([*lines, *(f"  {band}" for band in self.bands)])


def compare_seeds(dictionaries: Sequence[NDArray[np.floating]], frequency: Matrix | None) -> SeedAgreement:
    """Compare dictionaries pairwise, and the atoms of the first with those of all others."""
    first, *others = dictionaries
    with_first = [match_atoms(other, first).cosine for other in others]
    among_others = [match_atoms(b, a).cosine for a, b in combinations(others, 2)]
    values = tuple(float(cosine.mean()) for cosine in with_first + among_others)
    lowest = np.min(with_first, axis=0)
    bands = () if frequency is None else by_frequency(lowest, frequency)
    return SeedAgreement(values, chance_pw_mcc(*first.shape), lowest, bands, len(dictionaries))


class AtomComparison(Comparison["Sparse"]):
    """Fits of `Sparse` are compared atom by atom."""

    def measure(self, est: Sparse, samples: Samples) -> Measure:
        return Measure("PW-MCC of atoms", pw_mcc, lambda atoms: chance_pw_mcc(*atoms.shape), of_latents=False)

    def matrix(self, est: Sparse, samples: Samples) -> Matrix:
        return est.components_.astype(np.float64)

    def recovery(self, latents: Matrix, samples: Samples) -> tuple[AuditScore, ...]:
        """Compare feature activations with the true ones, if these are known; chance is that of other samples."""
        truth = samples.data.truth
        if truth is None:
            return ()
        shuffled = latents[np.random.default_rng(0).permutation(len(latents))]
        return (
            AuditScore("features matched one to one (MCC)", feature_mcc(latents, truth), feature_mcc(shuffled, truth)),
        )

    def ceiling(self, est: Sparse, found: Moved, samples: Samples) -> Ceiling:
        return matched_ceiling(found)


class SparseSpec(MethodSpec["Sparse"]):
    """The specification of `Sparse`: X is reconstructed, and dictionaries of other fits agree atom by atom."""

    roles = Roles(None)
    comparison = AtomComparison()

    def latents(self, est: Sparse, data: Data) -> csr_array | NDArray[np.floating]:
        """Return a sparse matrix if the estimator does, or if samples come from a source, which may be many."""
        return est.transform_sparse(data.X) if est.sparse_output or data.is_source else est.transform(data.X)

    def checks_before(self, est: Sparse, data: Data, d: int, whole: Data) -> Verdicts:
        return (samples_for_atoms(len(whole), d, data.X.shape[1]),)

    def checks_after(self, est: Sparse, data: Data, known: Verdicts = ()) -> Verdicts:
        X = read("X", data.X)
        activations, atoms, centred = est.transform_sparse(X), est.components_.astype(np.float64), X - est.mean_
        return (
            sparse_combination(centred, atoms, max(1, round(l0(activations)))),
            distinct_atoms(atoms),
            conditioned_atoms(activations, atoms),
            scattered_activations(activations),
            sparsest_activations(centred, activations, atoms),
        )

    def score(self, est: Sparse, data: Data) -> FitScore:
        return FitScore("explained variance", est.score(data.X), 0.0)

    def plan(self, est: Sparse, data: Data, summary: Summary) -> Plan:
        d = summary.n_components
        verdicts = self.checks_before(est, data, d, data)
        X = read("X", data.X)
        distance = np.linalg.norm(X.mean(0)) / max(float(np.sqrt(X.var(0).sum())), 1e-300)
        notes = (
            *summary.notes,
            f"the mean of X is {distance:.2g} standard deviations from 0. X is centred, or features would die.",
            "whether seeds agree shows after training: see agreement() and the audit.",
        )
        return Plan(f"Sparse(n_components={d})", est.guarantee, d, verdicts, missing_in_general(verdicts), notes=notes)


class SparsePairSpec(SparseSpec):
    """The specification of `SparsePair`: as of `Sparse`, with latents of the dictionary before the map."""

    def latents(self, est: SparsePair, data: Data) -> csr_array | NDArray[np.floating]:
        return super().latents(est.before_, data)

    def checks_after(self, est: SparsePair, data: Data, known: Verdicts = ()) -> Verdicts:
        return super().checks_after(est.before_, data)

    def score(self, est: SparsePair, data: Data) -> FitScore:
        return FitScore("explained variance, mean of both sides", est.score(data.X), 0.0)


class SparseBasisSpec(MethodSpec["SparseBasis"]):
    """The specification of `SparseBasis`: latents are sparser than those of data with permuted features."""

    roles = Roles(None)

    def evidence(self, refits: Refits, rng: np.random.Generator) -> Evidence:
        held_out, permuted = refits.held_out, refits.held_out.with_permuted_columns(rng)
        value = min(fit.score(held_out.X) for fit in refits.others)
        chance, on_permuted = refits.null.score(permuted.X), refits.others[0].score(permuted.X)
        score = AuditScore("sparsity of the latents", value, chance)
        control = Control(
            "permuted X",
            "if each feature is permuted on its own, latents are less sparse.",
            f"sparsity {on_permuted:.3f}.",
            on_permuted < (value + max(chance, 0.0)) / 2 or value <= chance + MIN_GAIN,
        )
        reason = f"latents of permuted features are about as sparse ({score})"
        why = Objection(
            reason, "Give samples that are sparse in some basis; with these, more steps or samples may help."
        )
        return Evidence((score,), (control,), () if value > chance + MIN_GAIN else (why,))

    def checks_before(self, est: SparseBasis, data: Data, d: int, whole: Data) -> Verdicts:
        return (samples_for_atoms(len(whole), d, max(d, data.X.shape[1])),)

    def checks_after(self, est: SparseBasis, data: Data, known: Verdicts = ()) -> Verdicts:
        latents = np.asarray(est.transform(data.X), dtype=np.float64)
        active = np.abs(latents) > ACTIVE * np.sqrt((latents**2).mean(0))
        return (_check_sparse(active), _check_independent(est.components_), scattered_activations(active))

    def score(self, est: SparseBasis, data: Data) -> FitScore:
        return FitScore("sparsity of the latents", est.score(data.X), 0.0)

    def plan(self, est: SparseBasis, data: Data, summary: Summary) -> Plan:
        d = summary.n_components
        verdicts = self.checks_before(est, data, d, data)
        needs = () if all(v.outcome == "holds" for v in verdicts) else ("more samples",)
        notes = ("whether latents are sparse and scattered shows after training: see the audit.",)
        return Plan(f"SparseBasis(n_components={d})", est.guarantee, d, verdicts, needs, notes=notes)


def _check_sparse(active: NDArray[np.bool_]) -> Verdict:
    zeros = float(1 - active.mean())
    found = f"{zeros:.0%} of the latents are almost 0; of normal ones 8% would be."
    fails = "Samples are not sparse in any basis, or the best was not found: try more steps or more samples."
    return at_least(theory.SPARSE_COMBINATION, zeros, ZEROS, found, fails=fails, unless_below=NO_ZEROS)


def _check_independent(atoms: NDArray[np.floating]) -> Verdict:
    values = np.linalg.svd(atoms, compute_uv=False)
    ratio = float(values[-1] / values[0])
    found = f"the smallest singular value of the atoms is {ratio:.2g} of the largest."
    return at_least(theory.INDEPENDENT_ATOMS, ratio, REGULAR, found)
