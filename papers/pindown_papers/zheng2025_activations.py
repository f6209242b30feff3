"""Zheng et al., Diverse Dictionary Learning, Table 3: features of sparse autoencoders that never fire.

The paper's model is GPT2-small, and width, k, layer, tokens and the window in which a feature counts as dead are not
given: what can be compared is the ordering. Ours is MiniLM, whose weights come in a package.

Torch is imported where a dictionary is trained, not where the table is read.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from math import nan
from typing import TYPE_CHECKING, Any

import numpy as np

from pindown_papers._experiment import Experiment, Profile, Published

if TYPE_CHECKING:
    from pindown.methods import Sparse
    from pindown_papers._minilm import MlpRows


@dataclass(frozen=True)
class Width(Profile):
    """How many tokens, how wide, and how long.

    Parameters
    ----------
    n_tokens
        Tokens, of which texts with a tenth are held out.
    n_codes
        Of a dictionary.
    k
        Codes of a token.
    batch_size, max_iter
        Of the training.
    """

    n_tokens: int
    n_codes: int
    k: int
    batch_size: int
    max_iter: int


@dataclass(frozen=True)
class Row:
    """A row of the table: a gate, and whether dictionaries come in a pair with a price on their Jacobian."""

    number: int
    method: str
    train: Callable[[MlpRows, int, int, dict[str, Any]], Sparse]
    revive: bool
    published: tuple[Published, ...]

    @property
    def setting(self) -> tuple[str, ...]:
        """Cells under the headings."""
        return self.method, "revived" if self.revive else "left dead", "no"

    def measure(self, profile: Width, seed: int, device: str) -> dict[str, float]:
        """Train on the rows that go into an MLP, and count codes that never fire; the table shows a hundredfold."""
        from pindown.metrics import dead_fraction, l0
        from pindown.training import Trainer
        from pindown_papers import _minilm

        rows = _minilm.mlp_rows(profile.n_tokens)
        held_out = rows.texts % 10 == 0
        how = {
            "batch_size": profile.batch_size,
            "max_iter": profile.max_iter,
            "trainer": Trainer(validation_fraction=0),
            "device": device,
            "verbose": False,
            "revive": self.revive,
            "random_state": seed,
        }
        learned_from = _minilm.MlpRows(rows.x[~held_out], rows.texts[~held_out], rows.mlp)
        sparse = self.train(learned_from, profile.k, profile.n_codes, how)
        codes = sparse.transform_sparse(rows.x)
        return {
            "dead codes": round(dead_fraction(codes).fraction * profile.n_codes) / 100,
            "window in tokens": len(rows.x) / 100,
            "dead, held out": round(dead_fraction(codes[np.flatnonzero(held_out)]).fraction * profile.n_codes) / 100,
            "its window": int(held_out.sum()) / 100,
            "variance rebuilt": sparse.score(rows.x[held_out]),
            "L0": l0(codes) / 100,
        }


# How the dictionary of rows before the MLP is trained.


def top_k(rows: MlpRows, k: int, n_codes: int, how: dict[str, Any]) -> Sparse:
    """Let the largest codes of each token through."""
    from pindown.methods import Sparse
    from pindown.networks.gates import TopK

    return Sparse(n_codes, gate=TopK(k), **how).fit(rows.x)


def batch_top_k(rows: MlpRows, k: int, n_codes: int, how: dict[str, Any]) -> Sparse:
    """Let the largest codes of each batch through."""
    from pindown.methods import Sparse
    from pindown.networks.gates import BatchTopK

    return Sparse(n_codes, gate=BatchTopK(k), **how).fit(rows.x)


def jacobian(rows: MlpRows, k: int, n_codes: int, how: dict[str, Any]) -> Sparse:
    """Train it next to one of rows after the MLP, with a price for codes that drive codes."""
    from pindown.methods import SparsePair
    from pindown.networks.gates import TopK

    return SparsePair(rows.mlp, n_codes, gate=TopK(k), **how).fit(rows.x).before_


TABLE_3 = Experiment(
    name="zheng2025/table3",
    title="dead features of sparse autoencoders, counts",
    source="Zheng et al., Diverse Dictionary Learning, Table 3",
    headings=("method", "silent codes are", "assumptions hold"),
    scores=("dead codes",),
    further=("window in tokens", "dead, held out", "its window", "variance rebuilt", "L0"),
    rows=(
        Row(1, "TopK", top_k, False, (Published(439),)),
        Row(2, "BatchTopK", batch_top_k, False, (Published(207),)),
        Row(3, "Jacobian", jacobian, False, (Published(62),)),
        Row(4, "TopK", top_k, True, (Published(nan),)),
    ),
    quick=Width("quick", (0,), n_tokens=8_000, n_codes=1_536, k=16, batch_size=512, max_iter=150),
    full=Width("full", (0, 1, 2, 3, 4), n_tokens=15_900, n_codes=6_144, k=32, batch_size=1_024, max_iter=500),
    notes=(
        "Theirs: GPT2-small on OpenWebText; width, k, layer, tokens and window are not given, so that the ordering"
        " alone can be compared. Ours: what goes into the MLP of MiniLM's layer 3 (384 columns), on docstrings of"
        " Python's library; the full profile has 16 features for each column.",
        "A feature is dead if it never fires in a window: all tokens, or those of texts held out, whose number stands"
        " beside it. Dead features, windows and L0 are counts, not percent; variance rebuilt is in percent, on texts"
        " held out.",
        "By default ours revives features that stay dead in training, with every gate (row 4); theirs are not said to."
        " With more features than a third of the rows, as in the full profile, that costs more than it brings.",
        "Of the paper's ordering the full profile has half: BatchTopK leaves fewer dead than TopK. With the price on"
        " the Jacobian there are no fewer than without.",
    ),
)

EXPERIMENTS = (TABLE_3,)
