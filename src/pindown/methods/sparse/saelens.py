"""Files of SAELens: read and write a folder with ``cfg.json`` and ``sae_weights.safetensors``."""

from __future__ import annotations

import json
from collections.abc import Set
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from pindown import __version__
from pindown._files import atomic_path
from pindown._names import printable
from pindown.errors import InputError
from pindown.methods.sparse.autoencoder import Seeds, SparseAutoencoder, autoencoder_of
from pindown.networks.encoder import Encoder
from pindown.networks.gates import L1, BatchTopKModule, Gate, JumpReLU, JumpReLUModule, TopK, TopKModule
from pindown.networks.preprocessing import Rescale
from pindown.networks.spaces import Reals

if TYPE_CHECKING:
    from pindown.methods.sparse.estimator import Sparse

    Est = TypeVar("Est", bound=Sparse)

CONFIG, WEIGHTS = "cfg.json", "sae_weights.safetensors"
ARCHITECTURES = ("topk", "jumprelu", "standard")
TENSORS = frozenset({"W_enc", "W_dec", "b_enc", "b_dec"})


def write(est: Sparse, folder: str | Path) -> Path:
    """Write a fitted estimator for `SAE.load_from_disk(folder)` of SAELens; return the folder.

    Activations are those of `Sparse.transform`. A gate with one threshold for all features becomes one for each, and
    its bound of 4 k active features per sample, which is rarely reached, is dropped.
    """
    from safetensors.torch import save_file

    body, place = autoencoder_of(est.encoder_), Path(folder)
    place.mkdir(parents=True, exist_ok=True)
    unit = body.unit.cpu()
    tensors = {
        "W_enc": body.weight.detach().cpu().T,
        "b_enc": body.bias.detach().cpu() * unit,  # activations are in the units of X there, in a common unit here
        "W_dec": body.atoms.detach().cpu(),
        "b_dec": torch.as_tensor(est.mean_),
    }
    config: dict[str, Any] = {
        "d_in": est.n_features_in_,
        "d_sae": est.n_components_,
        "dtype": "float32",
        "device": "cpu",
        "apply_b_dec_to_input": True,
        "normalize_activations": "none",
        "reshape_activations": "none",
        "metadata": {"pindown": __version__, "gate": repr(est.gate)},
    }
    match body.gate:
        case TopKModule():
            config |= {"architecture": "topk", "k": int(body.gate.n_expected), "rescale_acts_by_decoder_norm": False}
        case BatchTopKModule():
            config |= {"architecture": "jumprelu"}
            tensors["threshold"] = (body.gate.threshold.cpu() * unit).expand(est.n_components_)
        case JumpReLUModule():
            config |= {"architecture": "jumprelu"}
            tensors["threshold"] = body.gate.threshold.detach().cpu() * unit
        case _:
            config |= {"architecture": "standard"}
    with atomic_path(place / WEIGHTS) as temporary:
        save_file({name: tensor.float().contiguous().clone() for name, tensor in tensors.items()}, temporary)
    with atomic_path(place / CONFIG) as temporary:
        temporary.write_text(json.dumps(config, indent=1), "utf-8")
    return place


def read(est: Est, folder: str | Path) -> Est:
    """Set the weights of an estimator from a folder that SAELens or `write` wrote; return it, fitted."""
    config, tensors = _load(Path(folder))
    d, m = tensors["W_dec"].shape
    gate = _gate(config, Path(folder))
    body = SparseAutoencoder(m, d).configure(gate, torch.ones(()))
    mean, bias = tensors["b_dec"], tensors["b_enc"]
    if not config.get("apply_b_dec_to_input", True):
        bias = bias + mean @ tensors["W_enc"]  # samples are centred here
    length = torch.ones(d)
    if config.get("rescale_acts_by_decoder_norm"):  # then the gate compares activations of atoms of unit length
        length = tensors["W_dec"].norm(dim=1)
    with torch.no_grad():
        body.weight.copy_(tensors["W_enc"].T * length[:, None])
        body.bias.copy_(bias * length)
        body.atoms.copy_(tensors["W_dec"] / length[:, None])
        if isinstance(body.gate, JumpReLUModule):
            body.gate.threshold.copy_(tensors["threshold"])
    return with_encoder(est, Encoder(Rescale(mean.double(), torch.ones(())), body, Reals()), gate)


def read_atoms(folder: str | Path) -> NDArray[np.floating]:
    """Return the atoms of a folder that SAELens wrote, whatever its gate; (n_components, n_features)."""
    return _load(Path(folder), {"W_dec"})[1]["W_dec"].numpy()


def with_encoder(est: Est, encoder: Encoder, gate: Gate) -> Est:
    """Give an estimator an encoder that was trained elsewhere; return it, fitted."""
    d, m = autoencoder_of(encoder).atoms.shape
    est.set_params(n_components=d, gate=gate, n_seeds=1)
    est.encoder_ = encoder.eval()
    est.objective_ = Seeds(est.encoder_, []).eval()
    est.n_components_, est.shape_in_, est.n_features_in_ = d, (m,), m
    est.loss_curve_, est.n_iter_, est.held_out_ = np.zeros(0), 0, None
    return est


def _gate(config: dict[str, Any], place: Path) -> Gate:
    architecture = config.get("architecture", "standard")
    if architecture not in ARCHITECTURES:
        known = ", ".join(ARCHITECTURES)
        raise InputError("folder", f"{place}: architecture is {printable(repr(architecture))}, must be one of {known}.")
    if config.get("normalize_activations", "none") != "none":
        raise InputError(
            "folder",
            f"{place}: activations are scaled by {printable(repr(config['normalize_activations']))}, but the scale is "
            "not in the file. Fold it into the weights before saving (fold_activation_norm_scaling_factor).",
        )
    if architecture == "topk":
        return TopK(int(config["k"]))
    return JumpReLU() if architecture == "jumprelu" else L1()


def _load(place: Path, needed: Set[str] = TENSORS) -> tuple[dict[str, Any], dict[str, Tensor]]:
    from safetensors import SafetensorError
    from safetensors.torch import load_file

    for name in (CONFIG, WEIGHTS):
        if not (place / name).is_file():
            raise FileNotFoundError(f"{place} has no {name}: give a folder that SAELens or to_saelens wrote.")
    try:
        config, tensors = json.loads((place / CONFIG).read_text("utf-8")), load_file(place / WEIGHTS)
    except (SafetensorError, ValueError) as error:
        raise InputError("folder", f"{place} cannot be read ({error}). It is damaged: copy it again.") from error
    if needed is TENSORS and config.get("architecture") == "jumprelu":
        needed = needed | {"threshold"}
    if missing := sorted(needed - set(tensors)):
        raise InputError("folder", f"{place / WEIGHTS} lacks {', '.join(missing)}: it is not a dictionary of SAELens.")
    if "W_enc" in needed and tensors["W_enc"].T.shape != tensors["W_dec"].shape:
        raise InputError("folder", f"{place / WEIGHTS}: the shapes of W_enc and W_dec do not match.")
    return config, {name: tensor.float() for name, tensor in tensors.items()}
