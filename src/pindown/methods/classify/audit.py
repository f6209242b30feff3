"""The specification of `Classify`: classes are predicted, and differ in as many directions as its theorems need."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

import numpy as np
import torch
from numpy.typing import NDArray
from sklearn.base import clone
from torch import Tensor

from pindown import theory
from pindown.auditing.checks import before
from pindown.auditing.checks.arrays import Matrix
from pindown.auditing.checks.distributions import vmf_clusters, vmf_conditional
from pindown.auditing.checks.samples import diverse_levels, enough_levels, enough_samples
from pindown.auditing.checks.verdict import Verdict, with_better
from pindown.auditing.evidence import (
    N_PERMUTATIONS,
    AuditScore,
    Evidence,
    pair_test,
    permutation_score,
    side_information_evidence,
)
from pindown.auditing.plans import Count, Plan, Summary, in_words, missing_in_general, outcome_of
from pindown.auditing.refits import Refits, Samples, exchange
from pindown.auditing.spec import (
    Comparison,
    Figure,
    FitScore,
    MethodSpec,
    Part,
    Refitting,
    Roles,
    Verdicts,
    encoder_checks,
)
from pindown.data.batches import Augment
from pindown.data.data import Data
from pindown.data.labels import as_numbers, read_labels
from pindown.methods.classify.classes import fisher, spanned
from pindown.networks.spaces import Sphere
from pindown.theory import Theorem

if TYPE_CHECKING:
    from pindown.methods.classify.estimator import Classify

K_STATISTICS = 2
"""Sufficient statistics per latent assumed by `theory.IVAE`: mean and variance, as in a normal distribution."""

_COUNTED = (
    *(theory.CLASSIFY_NORMALISED, theory.ROEDER, theory.TCL, theory.IVAE, theory.AUXILIARY_ICA),
    *(theory.INTERVENTIONS, theory.INTERVENTIONS_UNKNOWN),
)


class ClassifyComparison(Comparison["Classify"]):
    """What `Classify` can claim if X has more than the latents, or if fits agree in some directions only."""

    def features(self, est: Classify, data: Data, latents: Matrix) -> Part | None:
        """Return the claim about the features of p(class | X), which need not be all latents behind X."""
        if data.signal is None:
            return None
        labels = np.asarray(data.signal).reshape(-1)
        enough = enough_levels(labels, theory.ROEDER, latents.shape[1])
        return Part(theory.ROEDER, (enough, diverse_levels(latents, labels, theory.ROEDER)))

    def leading(self, est: Classify, train: Data, data: Data) -> Matrix:
        """Return log-odds of classes along the directions in which class means differ most.

        p(class | X) determines log-odds for any number of classes, and these directions do not depend on a rotation of
        the latents.
        """
        labels = np.asarray(train.signal).reshape(-1)
        train, labels = train.take(seen := np.flatnonzero(np.isin(labels, est.classes_))), labels[seen]
        known, new = (est.transform(part.X) @ est.class_vectors_.T for part in (train, data))
        known, new = (odds - odds.mean(1, keepdims=True) for odds in (known, new))
        numbers = torch.as_tensor(np.searchsorted(est.classes_, labels))
        member = torch.nn.functional.one_hot(numbers, len(est.classes_)).double()
        along = fisher(torch.as_tensor(known).double(), member / member.sum(0).clamp_min(1)).numpy()
        return np.asarray((new - known.mean(0)) @ along[: est.n_components_].T, dtype=np.float64)

    def predictions(self, est: Classify, data: Data) -> Matrix:
        """Return the probabilities of the classes in the data, 0 of those that a fit has not seen."""
        every = np.unique(np.asarray(data.signal).reshape(-1))
        known = np.isin(est.classes_, every)
        found = np.zeros((len(data), len(every)))
        found[:, np.isin(every, est.classes_)] = est.predict_proba(data.X)[:, known]
        return found


class ClassifyRefitting(Refitting["Classify"]):
    """Refits of `Classify` learn from all classes, or from views of each sample."""

    def samples(self, est: Classify, rows: Samples) -> Samples:
        """Split each class evenly; without classes, a sample and a view of it are a positive pair."""
        if rows.side is not None:
            labels = rows.side.reshape(-1)
            return replace(rows, data=replace(rows.data, signal=labels), strata=as_numbers(labels))
        assert est.augment is not None  # or the fit would have refused
        with torch.no_grad():
            views = est.augment(torch.as_tensor(rows.X), torch.Generator().manual_seed(0)).numpy(force=True)
        return replace(rows, data=replace(rows.data, pairs=views), role="pairs")

    def null(self, est: Classify, rows: Samples, rng: np.random.Generator) -> tuple[Classify, Samples]:
        if est.augment is not None:
            est = clone(est).set_params(augment=ViewsOfOthers(est.augment))
        return est, rows.shuffled(rng)


class ClassifySpec(MethodSpec["Classify"]):
    """The specification of `Classify`."""

    roles = Roles("signal", categorical=True)
    refitting = ClassifyRefitting()
    comparison = ClassifyComparison()

    def evidence(self, refits: Refits, rng: np.random.Generator) -> Evidence:
        return side_information_evidence(refits, pair_test if refits.held_out.role == "pairs" else label_test, rng)

    def checks_before(self, est: Classify, data: Data, d: int, whole: Data) -> Verdicts:
        verdicts = before(data.X, d, signal=data.signal, pairs=data.pairs)
        if data.signal is None:
            return verdicts
        counted = enough_samples(len(whole), d, whole.signal), enough_levels(whole.signal, est.guarantee, d)
        return with_better(verdicts, *counted)

    def checks_after(self, est: Classify, data: Data, known: Verdicts = ()) -> Verdicts:
        if data.signal is None:
            return encoder_checks(est, data)
        z, labels = est.transform(data.X), np.asarray(data.signal).reshape(-1)
        if len(unknown := np.setdiff1d(labels, est.classes_)):
            some = unknown[:5].tolist()
            raise ValueError(f"after: y has class(es) that were not there in fit: {some}. Leave these rows out.")
        verdicts = [
            enough_levels(labels, est.guarantee, est.n_components_),
            diverse_levels(z, labels, est.guarantee),
        ]
        if est.encoder_.space == Sphere():
            verdicts.append(_vmf_around_vectors_or_means(z, labels, est))
        return (*verdicts, *encoder_checks(est, data))

    def figure(self, est: Classify) -> Figure:
        prior = np.asarray(est.class_prior_)
        return Figure(est.loss_curve_, float(-(prior * np.log(prior)).sum()))

    def score(self, est: Classify, data: Data) -> FitScore:
        # Labels of any kind, mixed ones too, which scikit-learn's accuracy rejects.
        truth = np.arange(len(data)) if data.signal is None else data.signal.reshape(-1)
        value = float((est.predict(data.X) == truth).mean())
        return FitScore("class accuracy", value, float(est.class_prior_.max()))

    def plan(self, est: Classify, data: Data, summary: Summary) -> Plan:
        d, signal, n_spanned = summary.n_components, data.signal, spanned(data.X, data.signal)
        theorem = theory.CLASSIFY_FREE if d == 1 else theory.CLASSIFY_NORMALISED
        verdicts = before(data.X, d, signal=signal)
        lack = max(0, d - n_spanned)
        if est.n_components is None and d > max(1, n_spanned):  # the count uses more than means
            verdicts, lack = tuple(map(_seen_again, verdicts)), 0
        n_values = int(read_labels("signal", signal, len(data)).max()) + 1
        counts = tuple(_count(counted, n_values, d) for counted in _COUNTED)
        more = max(counts[0].missing, lack if outcome_of(verdicts, theory.AFFINE_GENERATORS) != "holds" else 0)
        classes = "class" if more == 1 else "classes"
        needs = [f"{in_words(more)} more {classes} in general position"] if more else []
        needs += missing_in_general(verdicts)
        return Plan(f"Classify(n_components={d})", theorem, d, verdicts, tuple(needs), counts, summary.notes)


@dataclass(frozen=True)
class ViewsOfOthers:
    """Views of other samples of the batch, which have no information about the sample."""

    augment: Augment

    def __call__(self, x: Tensor, generator: torch.Generator) -> Tensor:
        """Return a view of another sample for each."""
        return self.augment(x[torch.randperm(len(x), generator=generator, device=generator.device)], generator)


def label_test(fit: Classify, rows: Samples, rng: np.random.Generator) -> AuditScore:
    """Return the accuracy, compared with that for permuted classes."""
    said, true = fit.predict(rows.X), rows.side
    assert true is not None
    permuted = [float((said == true[exchange(true, rows.units, rng)]).mean()) for _ in range(N_PERMUTATIONS)]
    return permutation_score("class accuracy", float((said == true).mean()), np.array(permuted))


def _vmf_around_vectors_or_means(z: Matrix, labels: NDArray[np.generic], est: Classify) -> Verdict:
    """Return the better of two verdicts, since a distribution that is not vMF shows in both."""
    around_vectors = vmf_conditional(z, est.class_vectors_[np.searchsorted(est.classes_, labels)], theory.VMF_CLUSTERS)
    around_means = vmf_clusters(z, labels)
    return min(around_vectors, around_means, key=lambda v: math.inf if math.isnan(v.statistic) else v.statistic)


def _seen_again(verdict: Verdict) -> Verdict:
    """Return an undecided verdict if class means in X span too few directions: the latents may show more."""
    if verdict.assumption != theory.AFFINE_GENERATORS or verdict.outcome != "fails":
        return verdict
    seen = verdict.why.partition(" Give levels")[0]
    return replace(verdict, outcome="undecided", why=f"{seen} With a nonlinear mixing the latents may show more.")


def _count(theorem: Theorem, n_values: int, d: int) -> Count:
    assert theorem.diversity is not None
    return Count(theorem, theorem.diversity.needed(d, K_STATISTICS if theorem.diversity.k_means else None), n_values)
