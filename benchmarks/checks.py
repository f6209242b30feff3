"""How often checks are wrong, on simulations in which it is known which conditions hold and which fail.

Run ``python benchmarks/checks.py`` (seeds 0 to 99, all cores), or in parts whose runs are written to files,
``python benchmarks/checks.py --seeds 0 20 --to some.jsonl``, and ``--parts *.jsonl`` for the table of all of them.
Thresholds were chosen on seeds 100 to 129. The table is printed, written to docs/results/checks.md, and saved in
results/.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterable
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import torch
from _measure import save
from _parts import asked, put_into, runs, spans
from pindown_papers import supports
from pindown_papers.simulations import Confounded, Instances, Projected, ShapeNuisance, in_hyperplane
from torch import Tensor

from pindown import networks, theory
from pindown._random import generator
from pindown.auditing.checks import after, before, conditions
from pindown.auditing.checks.verdict import Outcome, Verdict
from pindown.methods import Classify, Contrast, Dictionary, Forget
from pindown.networks.spaces import Box, Reals
from pindown.simulate import Clusters, Nuisance, Pairs, Sample, Structured
from pindown.simulate.distributions import Around, Uniform, VonMisesFisher, laplace, normal
from pindown.simulate.mixing import leaky_relu_mlp, orthogonal, sparse

REPORT = 0, 100
PAGE = Path(__file__).parents[1] / "docs" / "results" / "checks.md"
N_TRAIN, N_TEST = 4_000, 4_000

COUNT = theory.CLASSIFY_NORMALISED.diversity
SMALL = partial(networks.skip_mlp, hidden=(64, 64))  # enough for simulations of two layers and five latents


@dataclass(frozen=True)
class Case:
    """A simulation, how it is checked, and its truth; ``verdicts`` maps a seed to verdicts."""

    when: str
    world: str
    verdicts: Callable[[int], Iterable[Verdict]]
    holds: tuple[Any, ...] = ()
    fails: tuple[Any, ...] = ()

    def judged(self, seed: int) -> list[dict[str, Any]]:
        """Return the verdict on each condition whose truth is known, and the truth."""
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # fits should warn of violated assumptions
            said = {verdict.assumption: verdict for verdict in self.verdicts(seed)}
        truths: list[tuple[Any, Outcome]] = [(a, "holds") for a in self.holds] + [(a, "fails") for a in self.fails]
        return [
            {
                "when": self.when,
                "world": self.world,
                "condition": said[about].name,
                "truth": truth,
                "said": said[about].outcome,
                "statistic": float(said[about].statistic),
                "seed": seed,
            }
            for about, truth in truths
        ]


def dimensions(seed: int) -> int:
    """Return 3, 4 or 5, so that every row of the table averages over them."""
    return 3 + seed % 3


# Simulations: seed → process.


def mixed(seed: int, d: int) -> Any:
    return leaky_relu_mlp(d, n_layers=2, random_state=seed)


def sphere(seed: int, conditional: Any = VonMisesFisher(10.0)) -> Pairs:  # noqa: B008 (a frozen value)
    d = dimensions(seed)
    return Pairs(Uniform(d), conditional, mixed(seed, d))


def around_pole(seed: int) -> Pairs:
    d = dimensions(seed)
    pole = (1.0,) + (0.0,) * (d - 1)
    return Pairs(Around(pole, Projected(normal(1.0))), VonMisesFisher(10.0), mixed(seed, d))


def box(seed: int, base: Any = normal(0.1)) -> Pairs:  # noqa: B008
    return Pairs.on_box(dimensions(seed), base, random_state=seed)


def reals(seed: int) -> Pairs:
    d = dimensions(seed)
    return Pairs(Around((0.0,) * d, normal(1.0)), normal(0.5), mixed(seed, d))


@dataclass(frozen=True)
class Uneven:
    """A normal distribution whose spread grows along the first axis: no single metric fits."""

    space: Box = Box()  # noqa: RUF009

    def sample(self, loc: Tensor, *, random_state: Any = None) -> Tensor:
        """Draw one point around each row of loc."""
        noise = torch.randn(loc.shape, generator=generator(random_state, loc.device), dtype=loc.dtype)
        return self.space.project(loc + (0.02 + 0.25 * loc[:, :1] ** 2) * noise)


def uneven(seed: int) -> Pairs:
    d = dimensions(seed)
    return Pairs(Uniform(d, Box()), Uneven(), mixed(seed, d))


def clusters(seed: int, per_latent: int = 4) -> Clusters:
    d = dimensions(seed)
    return Clusters.on_sphere(d, per_latent * d, 10.0, random_state=seed)


def flat_clusters(seed: int) -> Clusters:
    return replace(clusters(seed), vectors=in_hyperplane(clusters(seed).vectors))


def heavy_clusters(seed: int) -> Clusters:
    return replace(clusters(seed), conditional=Projected(laplace(0.3)))


def instances(seed: int) -> Instances:
    return Instances(clusters(seed), 160)


def flat_instances(seed: int) -> Instances:
    return Instances(flat_clusters(seed), 160)


def nuisance(seed: int, concentration: float = 5.0) -> Nuisance:
    """Return a linear simulation in which d of d + 2 dimensions are invariant to a nuisance of three levels."""
    return Nuisance.on_sphere(dimensions(seed) + 2, 3, concentration, n_layers=1, random_state=seed)


def shapes(seed: int) -> ShapeNuisance:
    return ShapeNuisance.spread(dimensions(seed) + 2, 2, 3, n_layers=1, random_state=seed)


def labelled(seed: int, crossed: float) -> Confounded:
    """Return a label that equals the nuisance in all but a fraction of the samples."""
    d = dimensions(seed)
    joint = torch.tensor([[1 - crossed, crossed], [crossed, 1 - crossed]])
    rng = generator(seed)
    vectors = torch.randn(2, d, generator=rng)
    return Confounded(vectors, torch.tensor([[-1.0], [1.0]]), joint, orthogonal(d + 1, random_state=rng))


def structured(seed: int) -> Structured:
    """Return a simulation with a margin in the assumptions of the theorem."""
    support = supports.diverse(6, 3, random_state=seed)
    return Structured.well_posed(support, n_candidates=5, random_state=seed)


def dense(seed: int) -> Structured:
    return Structured.well_posed(np.ones((6, 3)), n_candidates=5, random_state=seed)


def linear(seed: int) -> Structured:
    support = supports.diverse(6, 3, random_state=seed)
    return replace(structured(seed), mixing=sparse(support, strength=0.0, random_state=seed))


# Checks of a simulation: seed → verdicts.


def drawn(world: Any, seed: int, n_train: int = N_TRAIN) -> tuple[Sample, Sample]:
    return world.sample(n_train, random_state=10_000 + seed), world.sample(N_TEST, random_state=20_000 + seed)


def look_before(
    make: Callable[[int], Any], side: Callable[[Sample], dict[str, Any]], seed: int, *, extra: int = 0
) -> Iterable[Verdict]:
    world = make(seed)
    sample = drawn(world, seed)[0]
    return before(sample.x, world.d + extra, **side(sample))


def look_after(
    make: Callable[[int], Any], est: Callable[[int], Any], seed: int, *, n_train: int = N_TRAIN
) -> Iterable[Verdict]:
    world = make(seed)
    train, test = drawn(world, seed, n_train)
    sides = [sample.u if sample.x_pos is None else sample.x_pos for sample in (train, test)]
    fitted = est(world.d).set_params(random_state=seed, verbose=False, device="cpu")
    fitted.fit(train.x, sides[0])
    return after(fitted, test.x, sides[1])


def embedded(seed: int, extra: int) -> Iterable[Verdict]:
    """Check d latents in 2d features, all of them linear combinations of d."""
    sample = drawn(sphere(seed), seed)[0]
    d = dimensions(seed)
    into = torch.randn(d, 2 * d, generator=generator(seed))
    return before(sample.x.double() @ into.double(), d + extra)


def rare_value(seed: int) -> Iterable[Verdict]:
    """Check a nuisance with three samples of one level."""
    world = nuisance(seed)
    sample = drawn(world, seed)[0]
    rows = torch.cat([(sample.u == 0).nonzero()[:3, 0], (sample.u != 0).nonzero()[:, 0]])
    return before(sample.x[rows], world.d, nuisance=sample.u[rows])


def shuffled(sample: Sample) -> Tensor:
    order = torch.randperm(len(sample.x), generator=generator(0))
    assert sample.x_pos is not None
    return sample.x_pos[order]


def as_pairs(sample: Sample) -> dict[str, Any]:
    return {"pairs": sample.x_pos}


def as_strangers(sample: Sample) -> dict[str, Any]:
    return {"pairs": shuffled(sample)}


def as_signal(sample: Sample) -> dict[str, Any]:
    return {"signal": sample.u}


def as_nuisance(sample: Sample) -> dict[str, Any]:
    return {"nuisance": sample.u}


def as_both(sample: Sample) -> dict[str, Any]:
    return {"signal": sample.label, "nuisance": sample.u}


def contrast(d: int, **options: Any) -> Contrast:
    quick = {"encoder": SMALL, "batch_size": 256, "learning_rate": 1e-2, "max_iter": 200}
    return Contrast(d, **(quick | options))


def classify(d: int) -> Classify:
    return Classify(d, max_iter=300)


def forget(d: int, *, extra: int = 0) -> Forget:
    return Forget(d + extra, encoder=networks.linear, max_iter=300)


def dictionary(d: int) -> Dictionary:
    return Dictionary(d, n_restarts=2, max_iter=300, batch_size=256)


def cases() -> tuple[Case, ...]:
    t, c = theory, conditions
    data = (t.INJECTIVE_MIXING, c.ENOUGH_SAMPLES)
    sound = (c.INJECTIVE_ENCODER, c.STRUCTURE_KEPT)

    def seen(world: str, make: Any, side: Any, holds: Any = (), fails: Any = (), **options: Any) -> Case:
        return Case("before", world, partial(look_before, make, side, **options), holds, fails)

    def fitted(world: str, make: Any, est: Any, holds: Any = (), fails: Any = (), **options: Any) -> Case:
        return Case("after", world, partial(look_after, make, est, **options), holds, fails)

    pairs = partial(contrast, max_iter=150)
    on_reals = partial(contrast, space=Reals())
    on_axes = partial(contrast, space=Reals(), p=1)
    random_encoder = partial(contrast, encoder=networks.mlp, max_iter=1)
    return (
        seen("pairs on the sphere", sphere, as_pairs, (*data, c.RELATED_PAIRS)),
        seen("pairs in the box", box, as_pairs, (*data, c.RELATED_PAIRS)),
        seen("pairs in the reals", reals, as_pairs, (*data, c.RELATED_PAIRS)),
        seen("pairs, shuffled", sphere, as_strangers, data, (c.RELATED_PAIRS,)),
        Case("before", "d latents in 2d columns", partial(embedded, extra=0), (t.INJECTIVE_MIXING,)),
        Case("before", "the same, d + 1 asked for", partial(embedded, extra=1), (), (t.INJECTIVE_MIXING,)),
        seen("clusters", clusters, as_signal, (*data, COUNT, t.AFFINE_GENERATORS)),
        seen("clusters in a hyperplane", flat_clusters, as_signal, (*data, COUNT), (t.AFFINE_GENERATORS,)),
        seen("as many classes as latents", partial(clusters, per_latent=1), as_signal, data,
             (COUNT, t.AFFINE_GENERATORS)),
        seen("instances", instances, as_signal, (*data, COUNT, t.AFFINE_GENERATORS)),
        seen("instances in a hyperplane", flat_instances, as_signal, (*data, COUNT), (t.AFFINE_GENERATORS,)),
        seen("nuisance", nuisance, as_nuisance,
             (*data, c.COMMON_LEVELS, t.LINEAR_ENCODER, t.NUISANCE_VMF, c.OVERLAPPING_LEVELS)),
        seen("nuisance, d + 1 asked for", nuisance, as_nuisance, (), (t.LINEAR_ENCODER,), extra=1),
        Case("before", "nuisance with a rare value", rare_value, (), (c.COMMON_LEVELS,)),
        seen("nuisance of shape", shapes, as_nuisance, (c.OVERLAPPING_LEVELS,), (t.NUISANCE_VMF,)),
        seen("nuisance, values apart", partial(nuisance, concentration=500.0), as_nuisance, (),
             (c.OVERLAPPING_LEVELS,)),
        seen("label beside a nuisance", partial(labelled, crossed=0.5), as_both, (t.NUISANCE_INDEPENDENT,)),
        seen("label with a nuisance", partial(labelled, crossed=0.2), as_both, (), (t.NUISANCE_INDEPENDENT,)),
        seen("structured", structured, lambda sample: {}, data),
        fitted("pairs on the sphere", sphere, pairs, (t.VMF_CONDITIONAL, t.UNIFORM_SPHERE, t.MANY_NEGATIVES, *sound)),
        fitted("pairs on the sphere, Laplace", partial(sphere, conditional=Projected(laplace(0.2))), pairs,
               (t.UNIFORM_SPHERE, *sound), (t.VMF_CONDITIONAL,)),
        fitted("pairs around a pole", around_pole, pairs, (t.VMF_CONDITIONAL, *sound), (t.UNIFORM_SPHERE,)),
        fitted("pairs, d − 1 components", sphere, lambda d: contrast(d - 1, max_iter=100), (), (c.STRUCTURE_KEPT,)),
        fitted("pairs, untrained perceptron", sphere, random_encoder, (), (c.INJECTIVE_ENCODER,)),
        fitted("pairs, batches of 4", partial(sphere, conditional=VonMisesFisher(50.0)), partial(pairs, batch_size=4),
               (), (t.MANY_NEGATIVES,)),
        fitted("pairs in the box", box, on_reals,
               (t.MATCHING_MODEL, t.METRIC_CONDITIONAL, t.UNIFORM_CONVEX_BODY, *sound)),
        fitted("pairs in the box, Laplace, p = 1", partial(box, base=laplace(0.1)), on_axes,
               (t.MATCHING_MODEL, t.METRIC_CONDITIONAL, t.LP_CONDITIONAL, *sound)),
        fitted("pairs in the box, Laplace, p = 2", partial(box, base=laplace(0.1)), on_reals,
               (t.METRIC_CONDITIONAL,), (t.MATCHING_MODEL,)),
        fitted("pairs in the box, normal, p = 1", box, on_axes,
               (t.METRIC_CONDITIONAL,), (t.MATCHING_MODEL, t.LP_CONDITIONAL)),
        fitted("pairs in the box, uneven", uneven, on_reals, (), (t.METRIC_CONDITIONAL,)),
        fitted("pairs in the reals", reals, on_reals,
               (t.MATCHING_MODEL, t.METRIC_CONDITIONAL, *sound), (t.UNIFORM_CONVEX_BODY,)),
        fitted("clusters", clusters, classify, (COUNT, t.AFFINE_GENERATORS, t.VMF_CLUSTERS, *sound)),
        fitted("clusters in a hyperplane", flat_clusters, classify, (COUNT,), (t.AFFINE_GENERATORS,)),
        fitted("clusters, Laplace", heavy_clusters, classify, (COUNT, t.AFFINE_GENERATORS), (t.VMF_CLUSTERS,)),
        fitted("instances", instances, classify, (COUNT, t.AFFINE_GENERATORS, t.VMF_CLUSTERS, *sound)),
        fitted("instances in a hyperplane", flat_instances, classify, (COUNT,), (t.AFFINE_GENERATORS,)),
        # With fewer samples the latents are so far off V^⊥ that a faint leak is true.
        fitted("nuisance", nuisance, forget, (t.INFORMATION_KEPT, c.INVARIANT_LATENTS), n_train=20_000),
        fitted("nuisance, d + 1 components", nuisance, partial(forget, extra=1), (), (c.INVARIANT_LATENTS,)),
        fitted("structured", structured, dictionary,
               (t.DIVERSE_SUPPORT, t.SUFFICIENT_NONLINEARITY, c.STRUCTURE_KEPT)),
        fitted("structured, dense", dense, dictionary, (), (t.DIVERSE_SUPPORT,)),
        fitted("structured, linear", linear, dictionary, (), (t.SUFFICIENT_NONLINEARITY,)),
    )  # fmt: skip


def judged(number: int, seed: int) -> list[dict[str, Any]]:
    return cases()[number].judged(seed)


def counted(verdicts: Iterable[dict[str, Any]]) -> list[dict[str, Any]]:
    """Return a row per simulation and condition: how often each outcome occurred, and the seeds where it was wrong."""
    rows: dict[tuple[str, ...], dict[str, Any]] = {}
    order = {(case.when, case.world): number for number, case in enumerate(cases())}
    for verdict in sorted(verdicts, key=lambda v: (order[v["when"], v["world"]], v["seed"])):
        about = {name: verdict[name] for name in ("when", "world", "condition", "truth")}
        row = rows.setdefault(
            tuple(about.values()), about | {"holds": 0, "fails": 0, "undecided": 0, "seeds": [], "wrong_seeds": []}
        )
        row[verdict["said"]] += 1
        row["seeds"].append(verdict["seed"])
        if verdict["said"] not in (verdict["truth"], "undecided"):
            row["wrong_seeds"].append(verdict["seed"])
    return list(rows.values())


def summary(rows: list[dict[str, Any]]) -> str:
    """Return the fractions of right, wrong and undecided verdicts, and in how many rows nearly all are right."""
    total = sum(row[said] for row in rows for said in ("holds", "fails", "undecided"))
    wrong, undecided = sum(len(row["wrong_seeds"]) for row in rows), sum(row["undecided"] for row in rows)
    right, seeds = [row[row["truth"]] / len(row["seeds"]) for row in rows], [len(row["seeds"]) for row in rows]
    return (
        f"Seeds {spans(seed for row in rows for seed in row['seeds'])}, {min(seeds)} to {max(seeds)} of them in a row, "
        f"{total:,} verdicts: "
        f"{1 - (wrong + undecided) / total:.1%} right, {wrong / total:.2%} wrong, {undecided / total:.1%} undecided. "
        f"In {sum(share >= 0.95 for share in right)} of {len(rows)} rows at least 95 % are right; the least is "
        f"{min(right):.0%}."
    )


def table(rows: list[dict[str, Any]]) -> str:
    """Return the confusion table in Markdown."""
    names = ("when", "world", "condition", "truth", "holds", "fails", "undecided")
    lines = [f"| {' | '.join(names)} |", "|---|---|---|---|---:|---:|---:|"]
    return "\n".join([*lines, *(f"| {' | '.join(str(row[name]) for name in names)} |" for row in rows)])


def report(verdicts: Iterable[dict[str, Any]]) -> None:
    """Save the counts, and put the table into its page."""
    rows = counted(verdicts)
    save("checks", [row | {"seeds": spans(row["seeds"])} for row in rows])
    text = f"{summary(rows)}\n\n{table(rows)}"
    put_into(PAGE, text)
    print(text)


def main() -> None:
    wanted = asked(__doc__)
    chosen = [k for k, case in enumerate(cases()) if wanted.only in f"{case.when} {case.world}"]
    verdicts = runs(judged, [(k, seed) for seed in range(*wanted.seeds or REPORT) for k in chosen], wanted)
    if wanted.to is None:
        report(verdicts)


if __name__ == "__main__":
    main()
