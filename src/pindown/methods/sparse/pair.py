"""`SparsePair`: sparse dictionaries before and after a map, of which few features drive few."""

from __future__ import annotations

import copy
import numbers
from collections.abc import Callable, Iterator, Sequence
from dataclasses import KW_ONLY, dataclass
from html import escape
from pathlib import Path
from typing import NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from scipy.sparse import coo_array, csr_array
from sklearn.utils import check_scalar
from sklearn.utils.validation import check_is_fitted
from torch import Tensor, nn
from torch.nn import functional as F  # noqa: N812 (the usual name)

from pindown._files import atomic_path
from pindown.data import ArraySource
from pindown.errors import InputError
from pindown.losses import feature_jacobian
from pindown.methods.inputs import SUMMARY_SAMPLES, ArrayOrTensor, DataLike, DataSummary, TrainingInput
from pindown.methods.sparse.audit import SparsePairSpec
from pindown.methods.sparse.autoencoder import Active, SparseAutoencoder, autoencoder_of, revival_samples
from pindown.methods.sparse.estimator import GatedEncoder, Sparse, SparseSummary
from pindown.methods.sparse.saelens import with_encoder
from pindown.networks.encoder import Encoder
from pindown.networks.gates import Gate, TopK
from pindown.networks.preprocessing import Preprocessing, Rescale, common_scale
from pindown.networks.spaces import Reals

Activation = Callable[[Tensor], Tensor]

ONE_IN = 32  # by default the Jacobian is penalised at one sample in so many
LARGE_COUNT = 1 << 20  # features with which a gate is checked while their number is not known
GRAPH_BLOCK = 256  # samples whose Jacobians are computed at once
LARGE = 0.01  # entries of J above this are counted, as in publications of such graphs


class Mlp(nn.Module):
    """A frozen map with one hidden layer, V φ(U x + b) + c, or gated, V (φ(U x + b) ⊙ (U' x + b')) + c.

    Its weights are buffers, so they are not trained. The second kind is that of models of the Llama family.
    """

    outer: Tensor
    outer_bias: Tensor
    activation: Activation

    def __init__(self, activation: Activation, **layers: nn.Linear) -> None:
        super().__init__()
        self.activation = activation
        for name, layer in layers.items():
            bias = torch.zeros(layer.out_features) if layer.bias is None else layer.bias
            for part, tensor in ((name, layer.weight), (_bias(name), bias)):
                self.register_buffer(part, tensor.detach().to("cpu", torch.float32, copy=True))
        widths = {len(each) for each in self.inner} | {self.outer.shape[1]}
        if len(widths) > 1:
            raise InputError(
                "map", f"SparsePair: layers of map must have as many hidden units each, got {sorted(widths)}."
            )

    @property
    def branches(self) -> tuple[str, ...]:
        """Names of the matrices before the hidden layer."""
        return ("gate", "up") if hasattr(self, "gate") else ("weight",)

    @property
    def inner(self) -> tuple[Tensor, ...]:
        """The matrices of the branches of the hidden layer; (h, n_in) each."""
        return tuple(getattr(self, name) for name in self.branches)

    @torch.no_grad()
    def forward(self, x: Tensor) -> Tensor:
        """Apply the map; (n, n_in) → (n, n_out)."""
        return F.linear(self._hidden(self._inputs(x)), self.outer, self.outer_bias)

    def slopes(self, x: Tensor) -> tuple[Tensor, ...]:
        """Return the derivatives of the hidden units with respect to each branch; (n, h) each."""
        with torch.enable_grad():
            inputs = [each.detach().requires_grad_() for each in self._inputs(x)]
            return torch.autograd.grad(self._hidden(inputs).sum(), inputs)

    def _inputs(self, x: Tensor) -> list[Tensor]:
        x = x.to(self.outer.dtype)
        return [F.linear(x, getattr(self, name), getattr(self, _bias(name))) for name in self.branches]

    def _hidden(self, inputs: Sequence[Tensor]) -> Tensor:
        hidden = self.activation(inputs[0])
        return hidden * inputs[1] if len(inputs) > 1 else hidden


def _bias(layer: str) -> str:
    return "bias" if layer == "weight" else f"{layer}_bias"


def read_map(module: nn.Module) -> Mlp:
    """Return a module as a map with one hidden layer, with copies of its weights on the CPU; raise if it is not one."""
    if isinstance(module, Mlp):
        return module
    parts: Sequence[object] = ()
    if isinstance(module, nn.Sequential):  # dropout does nothing after training
        parts = [part for part in module if not isinstance(part, nn.Dropout | nn.Identity)]
    match parts:
        case [nn.Linear() as inner, activation, nn.Linear() as outer] if callable(activation):
            return Mlp(activation, weight=inner, outer=outer)
    match [getattr(module, name, None) for name in ("gate_proj", "act_fn", "up_proj", "down_proj")]:
        case [nn.Linear() as gate, activation, nn.Linear() as up, nn.Linear() as down] if callable(activation):
            return Mlp(activation, gate=gate, up=up, outer=down)
    raise TypeError(
        "SparsePair: map must be nn.Sequential(Linear, nonlinearity, Linear), or a gated MLP with gate_proj, act_fn, "
        f"up_proj and down_proj, got {type(module).__name__}."
    )


class Edge(NamedTuple):
    """A feature before the map, one after it, how strongly it drives that, and how often both fire."""

    source: int
    target: int
    strength: float
    frequency: float


@dataclass(frozen=True, eq=False)
class FeatureGraph:
    """Which features before a map drive which after it, in some samples.

    Attributes
    ----------
    strength : csr array of shape (n_components, n_components)
        Mean over samples of the absolute Jacobian, from a feature before the map (row) to one after it (column); 0
        where one is not active. In units of the spread of X before and after the map.
    signed : csr array of shape (n_components, n_components)
        The same with its sign.
    frequency : csr array of shape (n_components, n_components)
        Fraction of samples in which both fire.
    n_large : float
        Mean number of entries of J above .01 per sample.
    n_samples : int
        Number of samples.
    """

    strength: csr_array
    signed: csr_array
    frequency: csr_array
    n_large: float
    n_samples: int

    @property
    def total(self) -> float:
        """Σ|J| of a sample, on average."""
        return float(self.strength.sum())

    def strongest(self, n_edges: int = 30) -> list[Edge]:
        """Return the strongest edges, in descending order."""
        found = coo_array(self.strength)
        order = np.lexsort((found.col, found.row, -found.data))[:n_edges]
        ends = [(int(found.row[k]), int(found.col[k])) for k in order]
        return [Edge(*pair, float(self.strength[pair]), float(self.frequency[pair])) for pair in ends]

    def save(self, path: str | Path, n_edges: int = 30) -> Path:
        """Write a self-contained page with a drawing of the strongest edges; return its path."""
        with atomic_path(Path(path)) as temporary:
            page = PAGE.format(summary=escape(str(self)), drawing=_drawing(self, n_edges))
            temporary.write_text(page, "utf-8")
        return Path(path)

    def __str__(self) -> str:
        return (
            f"Σ|J| of a sample is {self.total:.3g}, {self.n_large:.1f} entries exceed {LARGE}; "
            f"{self.strength.nnz:,} pairs of features fire together in {self.n_samples:,} samples"
        )


@torch.no_grad()
def feature_graph(pair: Pair, x: Tensor) -> FeatureGraph:
    """Return the graph of a pair in samples (n, m), block by block."""
    pair.eval()
    before, after = pair.dictionaries
    shape, n_large = (before.n_features, after.n_features), 0
    sums = [csr_array(shape, dtype=np.float64) for _ in range(3)]
    for part in x.split(GRAPH_BLOCK):
        part = part.to(pair.encoder.device)
        active, active_after = before.encode(pair.encoder.preprocess(part)), after.encode(pair.preprocess_mapped(part))
        found, at, at_after = pair.jacobian(part, active, active_after)
        fires = found != 0  # (n, k_out, k)
        ends = torch.broadcast_tensors(at[:, None], at_after[:, :, None])
        flat, where = found[fires].double().cpu().numpy(), tuple(each[fires].cpu().numpy() for each in ends)
        n_large += int((np.abs(flat) > LARGE).sum())
        for k, values in enumerate((np.abs(flat), flat, np.ones_like(flat))):
            sums[k] = sums[k] + csr_array(coo_array((values, where), shape=shape))
    strength, signed, frequency = (csr_array(each / len(x)) for each in sums)
    return FeatureGraph(strength, signed, frequency, n_large / len(x), len(x))


PAGE = """<!doctype html><html lang="en"><meta charset="utf-8"><title>Features that drive features</title>
<style>body {{ font: 15px/1.5 system-ui, sans-serif; color: #222; max-width: 50rem; margin: 2rem auto }}</style>
<h1>Features that drive features</h1><p>{summary}.</p>{drawing}
<p>Left: features before the map. Right: features after it. The wider a line, the more the feature on the right changes
with the one on the left, on average; red where it falls.</p></html>
"""


def _drawing(graph: FeatureGraph, n_edges: int) -> str:
    """Return the strongest edges as SVG: features before the map on the left, features after it on the right."""
    edges, lines = graph.strongest(n_edges), []
    left, right = (
        {feature: 22 * k + 40 for k, feature in enumerate(dict.fromkeys(side))}
        for side in ([edge.source for edge in edges], [edge.target for edge in edges])
    )
    for source, target, strength, _ in edges:
        place = f'x1="100" y1="{left[source] - 4}" x2="520" y2="{right[target] - 4}"'
        colour = "#1b6ca8" if graph.signed[source, target] >= 0 else "#d1495b"
        width = 0.5 + 5 * strength / edges[0].strength
        lines.append(f'<line {place} stroke="{colour}" stroke-width="{width:.2f}" stroke-opacity=".7"/>')
    for side, style in ((left, 'x="92" text-anchor="end"'), (right, 'x="528"')):
        lines += [f'<text {style} y="{height}" font-size="13">{feature}</text>' for feature, height in side.items()]
    height = 40 + 22 * max(1, len(left), len(right))
    return f'<svg viewBox="0 0 620 {height}" width="100%" role="img">{"".join(lines)}</svg>'


@dataclass(frozen=True, eq=False)
class PairSummary(SparseSummary):
    """The data summary, with the preprocessing of samples after the map, and whether features are revived there."""

    after: Rescale | None = None
    revive_after: bool = True


class Pair(nn.Module):
    """Two dictionaries, before and after a map, and a penalty on features that drive features."""

    encoder: Encoder

    def __init__(self, encoder: Encoder, after: Encoder, map: Mlp, weight: float, n_jacobians: int | None) -> None:
        super().__init__()
        self.encoder, self.after, self.map = encoder, after, map
        self.weight, self.n_jacobians = weight, n_jacobians

    @property
    def dictionaries(self) -> tuple[SparseAutoencoder, SparseAutoencoder]:
        """The dictionaries before and after the map."""
        return autoencoder_of(self.encoder), autoencoder_of(self.after)

    def preprocess_mapped(self, x: Tensor) -> Tensor:
        """Apply the map, and the preprocessing of samples after it."""
        return self.after.preprocess(self.map(x))

    def forward(self, x: Tensor) -> Tensor:
        """Return the mean FVU of both dictionaries, plus the penalty."""
        before, after = self.dictionaries
        loss, active = before.loss_and_active(self.encoder.preprocess(x))
        loss_after, active_after = after.loss_and_active(self.preprocess_mapped(x))
        loss = (loss + loss_after) / 2
        if not self.weight:
            return loss
        n = -(-len(x) // ONE_IN) if self.n_jacobians is None else min(self.n_jacobians, len(x))
        jacobian, *_ = self.jacobian(x[:n], active, active_after)  # batches are shuffled: the first are a sample
        return loss + self.weight * jacobian.abs().sum() / (n * before.n_expected)

    def jacobian(self, x: Tensor, active: Active, active_after: Active) -> tuple[Tensor, Tensor, Tensor]:
        """Return the Jacobian between the strongest features, (n, k_out, k), and their indices, (n, k) and (n, k_out).

        Entries are in units of the spread of samples on either side, and 0 if a feature does not fire.
        """
        before, after = self.dictionaries
        units = before.unit / after.unit
        values, at = _strongest(active, before.n_expected, len(x))
        values_after, at_after = _strongest(active_after, after.n_expected, len(x))
        slopes = [units * each for each in self.map.slopes(x)]
        found = feature_jacobian(
            before.atoms, self.map.inner, slopes, self.map.outer, after.weight, active=at, active_out=at_after
        )
        return found * ((values_after > 0)[:, :, None] & (values > 0)[:, None]), at, at_after


def _strongest(active: Active, k: int, n: int) -> tuple[Tensor, Tensor]:
    """Return the k strongest features of the first n samples, and their indices; (n, k) each."""
    assert active.indices is not None
    values, indices = active.values[:n].detach(), active.indices[:n]
    if values.shape[1] > k:
        values, place = values.topk(k, dim=1, sorted=False)
        indices = indices.gather(1, place)
    return values, indices


@dataclass(eq=False, repr=False)
class SparsePair(GatedEncoder):
    r"""Two sparse dictionaries, before and after a map, trained so that few features before it drive few after it.

    .. math:: \frac12 (\mathrm{FVU} + \mathrm{FVU}') + \frac{\lambda}{k}\, \mathrm E \sum_{ij} |J_{ij}|, \qquad
              J_{ij} = w_i'^\top \frac{\partial f}{\partial x}\, d_j

    The map f is frozen, such as an MLP of a transformer. J is taken between active features: how much a feature after
    the map changes, by one pass of its encoder, if an atom before it is added to the sample. Products of weights are
    computed once a step, and J at some samples of a batch (Farnik et al., 2025; Zheng et al., 2025).

    **Supported claims.** As of `Sparse`: the explained variance, and how well fits agree, compared with chance. A graph
    with few edges is what the penalty asks for. It is no evidence that the map works like that.

    Parameters
    ----------
    map : nn.Module
        ``nn.Sequential(Linear, nonlinearity, Linear)``, or a gated MLP: a module with ``gate_proj``, ``act_fn``,
        ``up_proj`` and ``down_proj``. Its weights are copied, and not trained.
    n_components : int or None
        Number of atoms on either side. None takes four per feature of X, and at most one per ten samples.
    gate : Gate
        ``TopK(k)``, ``BatchTopK(k)`` or ``Matryoshka(k)`` of `pindown.networks.gates`. J is taken between the k
        strongest features of a sample.
    weight : float
        λ: the penalty of a feature that drives another by one unit, relative to the variance of a sample. 0 trains both
        dictionaries without a penalty.
    n_jacobians : int or None
        Samples of a batch at which J is computed; None takes one in 32.
    revive, batch_size, max_iter, learning_rate, trainer, device, verbose, random_state
        As in `Sparse`.

    Attributes
    ----------
    before_, after_ : Sparse
        The fitted dictionaries, with their activations, atoms, scores and files.
    encoder_ : torch.nn.Module
        The trained encoder before the map, which `transform` runs.
    objective_ : torch.nn.Module
        What was minimised, with both dictionaries and the map.
    components_, mean_, held_out_, loss_curve_, n_iter_
        As in `Sparse`, before the map; the explained variance is the mean of both sides.

    References
    ----------
    Farnik et al., Jacobian sparse autoencoders, 2025. Zheng et al., Diverse dictionary learning, 2025.

    Examples
    --------
    >>> from pindown.simulate import Superposed
    >>> x = Superposed.overcomplete(32, 16, n_active=2, random_state=0).sample(4_000, random_state=1).x
    >>> mlp, rng = nn.Sequential(nn.Linear(16, 64), nn.GELU(), nn.Linear(64, 16)), torch.Generator().manual_seed(0)
    >>> for weight in mlp.parameters():
    ...     _ = nn.init.normal_(weight, std=0.2, generator=rng)
    >>> options = dict(gate=TopK(3), batch_size=256, max_iter=150, verbose=False, random_state=0)
    >>> plain, sparse = (SparsePair(mlp, 32, weight=weight, **options).fit(x) for weight in (0.0, 0.1))
    >>> sparse.graph(x).total < plain.graph(x).total / 1.3
    True
    """

    spec = SparsePairSpec()

    map: nn.Module
    n_components: int | None = None
    _: KW_ONLY
    gate: Gate = TopK()  # noqa: RUF009 (a frozen value)
    weight: float = 0.03
    n_jacobians: int | None = None
    revive: bool = True
    learning_rate: float | None = 0.08

    @property
    def before_(self) -> Sparse:
        """The fitted dictionary before the map."""
        check_is_fitted(self)
        return with_encoder(Sparse(), self.encoder_, self.gate)

    @property
    def after_(self) -> Sparse:
        """The fitted dictionary after the map."""
        return with_encoder(Sparse(), self._pair.after, self.gate)

    def apply_map(self, X: DataLike) -> NDArray[np.float32]:
        """Return samples X after the map, which `after_` encodes; (n_samples, n_features_out)."""
        check_is_fitted(self)
        mlp = self._pair.map
        x = torch.as_tensor(self._validated(X, reset=False))
        return torch.cat([mlp(part.to(mlp.outer.device)).cpu() for part in x.split(SUMMARY_SAMPLES)]).numpy()

    def graph(self, X: DataLike) -> FeatureGraph:
        """Return which features drive which in samples X before the map, and how strongly; prefer held-out samples."""
        check_is_fitted(self)
        return feature_graph(self._pair, torch.as_tensor(self._validated(X, reset=False)))

    def score(self, X: DataLike, y: ArrayOrTensor | None = None) -> float:
        """Return the explained variance, 1 − FVU, mean of both sides of the map."""
        return (self.before_.score(X) + self.after_.score(self.apply_map(X))) / 2

    @property
    def _pair(self) -> Pair:
        check_is_fitted(self)
        assert isinstance(self.objective_, Pair)
        return self.objective_

    def _check_parameters(self) -> None:
        super()._check_parameters()
        read_map(self.map)
        check_scalar(self.weight, "weight", numbers.Real, min_val=0)
        if self.n_jacobians is not None:
            check_scalar(self.n_jacobians, "n_jacobians", numbers.Integral, min_val=1)
        if self.gate(self.n_components or LARGE_COUNT).n_candidates is None:
            what = f"the number of active features of {type(self.gate).__name__} is not bounded"
            raise InputError("gate", f"SparsePair: {what}. Use TopK, BatchTopK or Matryoshka.")

    def _summarize(self, inputs: TrainingInput, preprocessing: Preprocessing, seed: int) -> PairSummary:
        mlp = read_map(self.map)
        if (n_in := mlp.inner[0].shape[1]) != self.n_features_in_:
            found = f"map takes {n_in} features, but X has {self.n_features_in_}"
            raise InputError("X", f"SparsePair: {found}. Give the samples that go into the map.")
        summary = super()._summarize(inputs, preprocessing, seed)
        mapped = mlp(torch.as_tensor(inputs.some_samples))
        few = self._few_directions(mapped.numpy(), "map(X)") if self.revive else ""
        return PairSummary(
            summary.n_components,
            warnings=(*summary.warnings, few) if few else summary.warnings,
            notes=summary.notes,
            revive=summary.revive,
            after=common_scale(ArraySource(mapped)),
            revive_after=self.revive and not few,
        )

    def _diagnose(self, x: Tensor) -> None:
        super()._diagnose(x)
        self._compare_with_components(self.after_, self.apply_map(x.numpy()), "map(X)")

    def _objective(self, encoder: Encoder, summary: DataSummary, batches: Iterator[tuple[Tensor, ...]]) -> nn.Module:
        assert isinstance(summary, PairSummary)
        assert summary.after is not None
        mlp = copy.deepcopy(read_map(self.map))
        body = SparseAutoencoder(len(mlp.outer), summary.n_components)
        pair = Pair(encoder, Encoder(copy.deepcopy(summary.after), body, Reals()), mlp, self.weight, self.n_jacobians)
        until = revival_samples(self.max_iter, batches)
        for side, revive in ((pair.encoder, summary.revive), (pair.after, summary.revive_after)):
            unit = side.preprocess.rescaling.scale
            autoencoder_of(side).configure(self.gate, unit, revive=revive, revive_until=until)
        return pair
