"""Files of SAELens: a folder with ``cfg.json`` and ``sae_weights.safetensors``, written and read."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from torch import Tensor

from pindown import __version__
from pindown._files import atomic_path
from pindown.methods.sparse.autoencoder import Autoencoder, Seeds
from pindown.networks.encoder import Encoder
from pindown.networks.gates import L1, BatchTopKModule, Gate, JumpReLU, JumpReLUModule, TopK, TopKModule
from pindown.networks.preprocessing import Rescale
from pindown.networks.spaces import Reals

if TYPE_CHECKING:
    from pindown.methods.sparse.estimator import Sparse

CONFIG, WEIGHTS = "cfg.json", "sae_weights.safetensors"
KNOWN = ("topk", "jumprelu", "standard")


def write(est: Sparse, folder: str | Path) -> Path:
    """Write a fitted estimator so that SAELens reads it: `SAE.load_from_disk(folder)`; return the folder.

    Its codes are then those of `Sparse.transform`. A gate with a threshold for all codes becomes one for each, and the
    bound of four times k codes of a row, which hardly ever binds, is lost.
    """
    from safetensors.torch import save_file

    body, place = est._body, Path(folder)
    place.mkdir(parents=True, exist_ok=True)
    unit = body.unit.cpu()
    tensors = {
        "W_enc": body.weight.detach().cpu().T,
        "b_enc": body.bias.detach().cpu() * unit,  # codes are in the units of X there, and in a common unit here
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
    with atomic_path(place / WEIGHTS) as beside:
        save_file({name: tensor.float().contiguous().clone() for name, tensor in tensors.items()}, beside)
    with atomic_path(place / CONFIG) as beside:
        beside.write_text(json.dumps(config, indent=1), "utf-8")
    return place


def read(est: Sparse, folder: str | Path) -> Sparse:
    """Give an estimator the weights of a folder that SAELens, or `write`, wrote; return it, fitted."""
    config, tensors = _files(Path(folder))
    d, m = tensors["W_dec"].shape
    gate = _gate(config, Path(folder))
    body = Autoencoder(m, d).opened(gate, torch.ones(()))
    shift = tensors["b_dec"].float()
    bias = tensors["b_enc"].float()
    if not config.get("apply_b_dec_to_input", True):
        bias = bias + shift @ tensors["W_enc"].float()  # rows are centred here
    length = torch.ones(d)
    if config.get("rescale_acts_by_decoder_norm"):  # then they are chosen by what they add, of unit length
        length = tensors["W_dec"].float().norm(dim=1)
    with torch.no_grad():
        body.weight.copy_(tensors["W_enc"].float().T * length[:, None])
        body.bias.copy_(bias * length)
        body.atoms.copy_(tensors["W_dec"].float() / length[:, None])
        if isinstance(body.gate, JumpReLUModule):
            body.gate.threshold.copy_(tensors["threshold"].float())
    return around(est, Encoder(Rescale(shift.double(), torch.ones(())), body, Reals()), gate)


def around(est: Sparse, encoder: Encoder, gate: Gate) -> Sparse:
    """Give an estimator an encoder that was trained elsewhere; return it, fitted."""
    body = encoder.body
    assert isinstance(body, Autoencoder)
    d, m = body.atoms.shape
    est.set_params(n_components=d, gate=gate, n_seeds=1)
    est.encoder_ = encoder.eval()
    est.objective_ = Seeds(est.encoder_, []).eval()
    est.n_components_, est.shape_in_, est.n_features_in_ = d, (m,), m
    est.loss_curve_, est.n_iter_, est.held_out_ = np.zeros(0), 0, None
    return est


def _gate(config: dict[str, Any], place: Path) -> Gate:
    architecture = config.get("architecture", "standard")
    if architecture not in KNOWN:
        raise ValueError(f"{place}: architecture is {architecture!r}, and {', '.join(KNOWN)} can be read.")
    if config.get("normalize_activations", "none") != "none":
        raise ValueError(
            f"{place}: activations are scaled by {config['normalize_activations']!r}, which the file does not hold. "
            "Fold it into the weights before it is saved (fold_activation_norm_scaling_factor)."
        )
    if architecture == "topk":
        return TopK(int(config["k"]))
    return JumpReLU() if architecture == "jumprelu" else L1()


def _files(place: Path) -> tuple[dict[str, Any], dict[str, Tensor]]:
    from safetensors import SafetensorError
    from safetensors.torch import load_file

    for name in (CONFIG, WEIGHTS):
        if not (place / name).is_file():
            raise FileNotFoundError(f"{place} has no {name}: give a folder that SAELens, or to_saelens, wrote.")
    try:
        config, tensors = json.loads((place / CONFIG).read_text("utf-8")), load_file(place / WEIGHTS)
    except (SafetensorError, ValueError) as error:
        raise ValueError(f"{place} cannot be read ({error}). It is damaged: copy it anew.") from error
    needed = {"W_enc", "W_dec", "b_enc", "b_dec"} | (
        {"threshold"} if config.get("architecture") == "jumprelu" else set()
    )
    if missing := sorted(needed - set(tensors)):
        raise ValueError(f"{place / WEIGHTS} lacks {', '.join(missing)}: it is no dictionary that can be read here.")
    if tensors["W_enc"].T.shape != tensors["W_dec"].shape:
        raise ValueError(f"{place / WEIGHTS}: W_enc and W_dec do not go together.")
    return config, tensors
