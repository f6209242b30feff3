"""The league of batch correction: `Forget` and its peers on real studies and simulations, each in its environment.

``make league-batches`` runs what is missing in the record and writes the page; ``--again pindown`` runs the rows of a
method again. Environments are made in ``.venv-league-*``. Studies are read from a folder (``--data``); files that it
lacks are downloaded, and never committed. What is computed stays in a folder next to the record, so that a run resumes.
Studies are in `league/studies.py`, methods in `league/peers.py`, scores in `league/scores.py`.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import urllib.request
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
from filelock import FileLock

HERE = Path(__file__).resolve().parent
sys.path.insert(0, str(HERE / "league"))

from peers import METHODS  # noqa: E402
from studies import DEBIAN, FILES, NAMES, REAL  # noqa: E402

RECORD = HERE / "results" / "league_batches.json"
PAGE = HERE.parent / "docs" / "results" / "league-batches.md"
PARTS = HERE / "results" / "league_batches.parts"
ENVIRONMENTS = {
    "peers": ("harmonypy", "scanorama", "inmoose", "scanpy", "rdata", "pandas"),
    "scvi": ("scvi-tools",),
    "scib": ("scib-metrics==0.5.10",),
}
"""Packages of each environment besides that of pindown, which runs this script."""

SCORES = ("batch", "bio", "total", "b-in-type", "type", "carried")
NEEDS_COUNTS = "scVI", "scANVI, types"
MARGIN = 0.02
"""By how much the total of another method must be larger to be called a loss."""

Row = dict[str, Any]


def python_of(environment: str) -> Path:
    """Return the Python of an environment; make it if it is missing."""
    if environment == "pindown":
        return Path(sys.executable)
    folder = HERE.parent / f".venv-league-{environment}"
    python = folder / "bin" / "python"
    if not python.exists():
        subprocess.run([sys.executable, "-m", "venv", folder], check=True)
        subprocess.run([python, "-m", "pip", "install", "--quiet", "--upgrade", "pip"], check=True)
        subprocess.run([python, "-m", "pip", "install", "--quiet", *ENVIRONMENTS[environment]], check=True)
        if environment == "peers":  # for its recordings alone
            subprocess.run([python, "-m", "pip", "install", "--quiet", "--no-deps", "geomstats"], check=True)
    return python


def started(environment: str, script: str, *words: object) -> subprocess.Popen[str]:
    """Start a script of the league in an environment."""
    settings = {"OMP_NUM_THREADS": "1", "OPENBLAS_NUM_THREADS": "1", "MKL_NUM_THREADS": "1", "JAX_PLATFORMS": "cpu"}
    settings |= {"JAX_COMPILATION_CACHE_DIR": str(PARTS / "jax"), "JAX_PERSISTENT_CACHE_MIN_COMPILE_TIME_SECS": "0"}
    command = [python_of(environment), HERE / "league" / script, *map(str, words)]
    with (PARTS / f"{environment}.log").open("w", encoding="utf-8") as log:
        return subprocess.Popen(command, env=os.environ | settings, stdout=subprocess.PIPE, stderr=log, text=True)


def call(environment: str, script: str, *words: object, limit: float = 3_600) -> None:
    """Run a script of the league in an environment; raise with its last line if it fails."""
    with started(environment, script, *words) as done:
        try:
            done.communicate(timeout=limit)
        except subprocess.TimeoutExpired:
            done.kill()
            raise
    if done.returncode:
        log = (PARTS / f"{environment}.log").read_text(encoding="utf-8")
        raise RuntimeError(log.strip().rpartition("\n")[2][:200])


def download(folder: Path) -> None:
    """Download the files of the real studies that a folder lacks."""
    folder.mkdir(parents=True, exist_ok=True)
    for name, address in FILES.items():
        if (folder / name).exists():
            continue
        print(f"downloading {address}", flush=True)
        if address == DEBIAN:
            urllib.request.urlretrieve(address, folder / "bladderbatch.deb")
            subprocess.run(["dpkg-deb", "-x", folder / "bladderbatch.deb", folder / "bladderbatch"], check=True)
            (next((folder / "bladderbatch").rglob("bladderdata.rda"))).rename(folder / name)
        else:
            urllib.request.urlretrieve(address, folder / name)


def run(jobs: Sequence[tuple[str, int]], methods: Sequence[str], data: Path) -> None:
    """Compute and score what the record lacks of studies and seeds, and add it to the record."""
    known = {(row["study"], row["seed"], row["method"]) for row in read()}
    lacking: list[tuple[Row, Path, Path]] = []
    for study, seed in jobs:
        source = PARTS / f"{NAMES.index(study)}-{seed}.npz"
        for name in methods:
            if (study, seed, name) not in known and (study.startswith("counts") or name not in NEEDS_COUNTS):
                target = PARTS / f"{source.stem}-{name.replace(' ', '-')}.npz"
                target.unlink(missing_ok=True)
                lacking.append(({"study": study, "seed": seed, "method": name}, source, target))
                if not source.exists():
                    call("peers", "studies.py", study, seed, data, source)
    for environment in ("pindown", *ENVIRONMENTS):
        own = [job for job in lacking if METHODS[job[0]["method"]][0] == environment]
        if own:
            call(environment, "peers.py", *(word for row, *paths in own for word in (row["method"], *paths)))
    made: list[Row] = []
    embeddings: dict[Path, list[Path]] = {}
    for row, source, target in lacking:
        with np.load(target) as found:
            if "error" in found:
                add([row | {"failed": str(found["error"])}])
                print(*row.values(), "failed:", found["error"], flush=True)
                continue
            about = {"seconds": float(found["seconds"]), "megabytes": float(found["megabytes"])}
            made.append(row | about | {"latents": found["z"].shape[1], "samples": len(found["z"])})
            embeddings.setdefault(source, []).append(target)
    if not made:
        return
    words = [word for source, targets in embeddings.items() for word in ("--", source, *targets)][1:]
    with started("scib", "scores.py", *words) as scoring:
        assert scoring.stdout is not None
        for row, line in zip(made, (line for line in scoring.stdout if line.startswith("{")), strict=True):
            scored = row | json.loads(line)
            add([scored])
            numbers = (f"{name} {_shown(scored[name])}" for name in SCORES)
            print(row["study"], row["seed"], row["method"], *numbers, flush=True)


def read() -> list[Row]:
    """Return the rows on record."""
    rows: list[Row] = json.loads(RECORD.read_text())["rows"] if RECORD.exists() else []
    return rows


def add(rows: Sequence[Row]) -> None:
    """Add rows to the record, which several processes may do at once."""
    with FileLock(PARTS / "record.lock"):
        write([*read(), *rows])


def write(rows: Sequence[Row]) -> None:
    """Replace the record, with the versions of what was compared."""
    code = "import importlib.metadata as m; print(*(f'{d.name} {d.version}' for d in m.distributions()), sep='\\n')"
    versions: dict[str, str] = {}
    for environment in ("pindown", *ENVIRONMENTS):
        done = subprocess.run([python_of(environment), "-c", code], capture_output=True, text=True, check=True)
        of_interest = ("pindown ", "harmonypy ", "scanorama ", "inmoose ", "scvi-tools ", "scib-metrics ")
        versions |= dict(line.split(" ") for line in done.stdout.splitlines() if line.startswith(of_interest))
    ordered = sorted(rows, key=lambda row: (NAMES.index(row["study"]), [*METHODS].index(row["method"]), row["seed"]))
    RECORD.write_text(json.dumps({"versions": versions, "rows": ordered}, indent=1) + "\n", encoding="utf-8")


# ---- the page -------------------------------------------------------------------------------------------------------


def page() -> None:
    """Write the page from the record."""
    rows = [row for row in read() if "failed" not in row]
    groups = {
        "without labels": [name for name in METHODS if not name.endswith("types")],
        "with labels": [name for name in METHODS if name.endswith("types")],
    }
    absent = [name for name in METHODS if all(row["method"] != name for row in rows)]
    lines = ["# League of batch correction", ""]
    for which, methods in groups.items():
        lines += [_verdict(rows, which, methods), ""]
    lines += [
        "*batch*, *bio*, *total*: scib-metrics with clusters by k-means, total = .4 batch + .6 bio. *b-in-type*: how",
        "well the batch is recognised within types (0: chance). *type*: how well types are recognised. *carried*: how",
        "well one batch shows the types of the others. Each number is a mean over seeds, ± their standard deviation. A",
        "seed takes nine tenths of a real study, or draws a simulation. *s* and *MB*: seconds of CPU without imports,",
        "and the most memory of the process. Methods in *italics* use the types. Types that `pindown` uses",
        "are never those of the samples that are scored (four folds); the peers see the types that they are scored on.",
        "LEACE is its closed form, by us; ComBat is that of inmoose. All methods have their default settings.",
        "",
        *([f"Not run yet: {', '.join(absent)}.", ""] if absent else []),
        "Made by `make league-batches`; the record is `benchmarks/results/league_batches.json`.",
    ]
    for study in NAMES:
        own = [row for row in rows if row["study"] == study]
        if own:
            lines += ["", f"## {study[0].upper()}{study[1:]}", "", _about(study, own), ""]
            lines += [f"| method | {' | '.join(SCORES)} | latents | s | MB |", "|---" * (len(SCORES) + 4) + "|"]
            made = {name: [row for row in own if row["method"] == name] for name in METHODS}
            lines += [_line(name, of_method) for name, of_method in made.items() if of_method]
    PAGE.write_text("\n".join([*lines, ""]), encoding="utf-8")


def _verdict(rows: Sequence[Row], which: str, methods: Sequence[str]) -> str:
    """Return where `pindown` loses, and its mean total next to those of the others."""
    ours = next(name for name in methods if name.startswith("pindown"))
    studies = [study for study in NAMES if any((row["study"], row["method"]) == (study, ours) for row in rows)]
    if not studies:
        return f"`pindown` was not run {which}."
    totals = {(study, name): _mean(rows, study, name, "total") for study in studies for name in methods}
    lost = []
    for study in studies:
        best = max((name for name in methods if totals[study, name] is not None), key=lambda m: totals[study, m] or 0)
        if (totals[study, best] or 0) > (totals[study, ours] or 0) + MARGIN:
            lost.append(f"{study} ({best} {_shown(totals[study, best])}, pindown {_shown(totals[study, ours])})")
    everywhere = [name for name in methods if all(totals[study, name] is not None for study in studies)]
    means = {name: float(np.mean([totals[study, name] or 0 for study in studies])) for name in everywhere}
    ranked = ", ".join(f"{name} {_shown(means[name])}" for name in sorted(everywhere, key=lambda m: -means[m]))
    where = "; ".join(lost) if lost else "nowhere by more than .02"
    return f"**Where we lose {which}** (total, {len(lost)} of {len(studies)} studies): {where}. Means: {ranked}."


def _about(study: str, rows: Sequence[Row]) -> str:
    kind = "A real study" if study in REAL else "A simulation"
    return f"{kind}, {rows[0]['samples']:,} samples, {len({row['seed'] for row in rows})} seeds."


def _line(name: str, rows: Sequence[Row]) -> str:
    shown = f"*{name}*" if name.endswith("types") else f"**{name}**" if name == "pindown" else name
    cells = [_spread([row[score] for row in rows if row[score] is not None]) for score in SCORES]
    seconds, memory = (float(np.mean([row[part] for row in rows])) for part in ("seconds", "megabytes"))
    return f"| {shown} | {' | '.join(cells)} | {rows[0]['latents']} | {seconds:.1f} | {memory:.0f} |"


def _mean(rows: Sequence[Row], study: str, name: str, score: str) -> float | None:
    own = [row[score] for row in rows if (row["study"], row["method"]) == (study, name)]
    return float(np.mean(own)) if own else None


def _spread(values: Sequence[float]) -> str:
    return f"{_shown(float(np.mean(values)))} ± {_shown(float(np.std(values)))}" if values else "–"


def _shown(value: float | None) -> str:
    return "–" if value is None else f"{value:.2f}".replace("0.", ".", 1) if abs(value) < 1 else f"{value:.2f}"


def main() -> None:
    """Run what is missing, and write the page."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--data", type=Path, default=PARTS / "data", help="folder of the files of real studies")
    parser.add_argument("--studies", default="", metavar="TEXT", help="studies whose name has this text")
    parser.add_argument("--methods", nargs="+", choices=[*METHODS], default=[*METHODS])
    parser.add_argument("--seeds", type=int, nargs=2, default=(0, 3), metavar=("FIRST", "STOP"))
    parser.add_argument("--again", default="", metavar="TEXT", help="forget rows of methods whose name has this text")
    parser.add_argument("--page", action="store_true", help="only write the page")
    wanted = parser.parse_args()
    PARTS.mkdir(exist_ok=True)
    if wanted.again:
        with FileLock(PARTS / "record.lock"):
            write([row for row in read() if wanted.again not in row["method"]])
    if not wanted.page:
        download(wanted.data)
        studies = [name for name in NAMES if wanted.studies in name]
        for seed in range(*wanted.seeds):
            run([(study, seed) for study in studies], wanted.methods, wanted.data)
    page()


if __name__ == "__main__":
    main()
