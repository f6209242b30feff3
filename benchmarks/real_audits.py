"""Audits of real tables: what is claimed of each, or which assumption fails; nothing may be claimed of shuffled tables.

Run ``python benchmarks/real_audits.py`` (all cores), or in parts, with ``--only``, ``--to`` and ``--parts`` as in
`_parts`. Every table is fitted and audited with what ``pindown fit`` would choose. Seed 0 is the table as it is; from
seed 1 on the side variable belongs to other samples. The table is written to docs/results/audits.md and saved in
results/.

The data are those of scikit-learn, and `palmerpenguins` if it is installed.
"""

from __future__ import annotations

import importlib.util
import re
import time
import warnings
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from _measure import save
from _parts import asked, put_into, runs
from sklearn import datasets

from pindown.auditing.audit import audit
from pindown.data.data import Data
from pindown.data.tables import Columns
from pindown.runs.recipe import Recipe, estimator_for

PAGE = Path(__file__).parents[1] / "docs" / "results" / "audits.md"
REPORT = 0, 41
"""The table as it is, and forty times with the side variable of other rows."""

Table = tuple[np.ndarray, np.ndarray]
"""Columns that vary, and a side variable."""


def labelled(name: str) -> Table:
    """Return a table of scikit-learn with its target."""
    table = getattr(datasets, f"load_{name}")()
    return table.data[:, table.data.std(0) > 0], table.target


def diabetes_by_sex() -> Table:
    """Return all features except the sex, and the sex."""
    table = datasets.load_diabetes(scaled=False)
    sex = table.feature_names.index("sex")
    return np.delete(table.data, sex, axis=1), table.data[:, sex].astype(int)


def penguins_by_sex() -> Table:
    """Return four measurements of penguins, and the sex."""
    from palmerpenguins import load_penguins

    table = load_penguins().dropna()
    return table[[name for name in table.columns if name.endswith(("_mm", "_g"))]].to_numpy(float), np.array(table.sex)


@dataclass(frozen=True)
class Study:
    """A table, and the role of its side variable."""

    name: str
    load: Callable[[], Table]
    role: str


STUDIES = (
    *(Study(name, lambda name=name: labelled(name), "signal") for name in ("iris", "wine", "breast_cancer", "digits")),
    Study("wine, class forgotten", lambda: labelled("wine"), "nuisance"),
    Study("breast_cancer, diagnosis forgotten", lambda: labelled("breast_cancer"), "nuisance"),
    Study("diabetes, sex forgotten", diabetes_by_sex, "nuisance"),
    Study("penguins, sex forgotten", penguins_by_sex, "nuisance"),
)


def audited(number: int, seed: int) -> list[dict[str, Any]]:
    """Audit one table; return the result."""
    study, start = STUDIES[number], time.perf_counter()
    X, side = study.load()
    side = np.random.default_rng(seed).permutation(side) if seed else side
    data = Data(X, **{study.role: side})
    about = {"world": study.name, "condition": "shuffled" if seed else "as it is", "seed": seed, "shape": list(X.shape)}
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        est = Recipe(estimator_for(Columns(**{study.role: ("side",)})), seed=seed).build()
        est.fit(data.only(*est.spec.roles.used))
        try:
            found = audit(est, data.only(*est.spec.roles.used), n_fits=2, random_state=seed)
        except ValueError as error:  # too few rows to divide
            kind = f"{type(est).__name__}({est.n_components_})"
            return [about | {"estimator": kind, "claims": False, "reasons": [str(error)], "refused": True}]
    score = found.scores[0]
    return [
        about
        | {
            "estimator": found.estimator,
            "theorem": None if found.theorem is None else found.theorem.name,
            "claims": found.claims,
            "claim": found.claim,
            "reasons": list(found.reasons),
            "score": [score.name, score.value, score.chance],
            "agreement": min(each.worst for each in found.agreement),
            "chance": found.agreement[0].chance,
            "noise": found.noise,
            "seconds": time.perf_counter() - start,
        }
    ]


def line(run: dict[str, Any], others: list[dict[str, Any]]) -> str:
    """Return a row of the page: the claim or the reason against it, scores with chance, and claims if shuffled."""
    n, p = run["shape"]
    why = _claimed(run["claim"]) if run["claims"] else "; ".join(_in_short(reason) for reason in run["reasons"])
    name, value, chance = run.get("score", ("", 0, 0))
    cells = (
        f"{run['world']}, {n:,} × {p}",
        run["estimator"],
        why,
        f"{name} {value:.3f} ({chance:.3f})" if name else "–",
        f"{run['agreement']:.2f} ({run['chance']:.2f})" if name else "–",
        f"{sum(other['claims'] for other in others)} of {len(others)}" if others else "not run",
    )
    return f"| {' | '.join(cells)} |"


def _claimed(sentence: str) -> str:
    """Return the claim of a sentence, without its conditions, its source and its numbers.

    Examples
    --------
    >>> _claimed("If these hold: that, then all (of it) is recovered (Roeder 2021); on 9 held-out rows, …")
    '**claim**: all (of it) is recovered'
    """
    return f"**claim**: {re.split(r' [(](?=[A-Z])', sentence.partition('then ')[2])[0]}".replace("|", r"\|")


def _in_short(reason: str) -> str:
    text = reason.removeprefix("audit: ").split(":")[0].split(", and")[0].replace(" only", "")
    return text.split(", so that fits")[0]


def report(found: list[dict[str, Any]]) -> None:
    """Save what was found, and put the table into its page."""
    save("real_audits", found)
    lines = [
        "| file | estimator | claimed, or what refuses | score (chance) | agreement (chance) | claims if shuffled |",
        "|---|---|---|---|---|---:|",
    ]
    for study in STUDIES:
        own = [run for run in found if run["world"] == study.name]
        lines += [line(run, [r for r in own if r["seed"]]) for run in own if not run["seed"]]
    put_into(PAGE, "\n".join(lines), "real tables")


def main() -> None:
    wanted = asked(__doc__)
    here = [k for k, study in enumerate(STUDIES) if wanted.only in study.name]
    if importlib.util.find_spec("palmerpenguins") is None:
        here = [k for k in here if STUDIES[k].load is not penguins_by_sex]
    found = runs(audited, [(k, seed) for seed in range(*wanted.seeds or REPORT) for k in here], wanted)
    if wanted.to is None:
        report(found)


if __name__ == "__main__":
    main()
