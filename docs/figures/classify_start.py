"""Print what the start of the class vectors is worth: R² from short vectors in random directions, and from unit ones.

Run ``python docs/figures/classify_start.py`` (a few minutes on one thread). Clusters of κ = 10 overlap; clusters of
κ = 50 hardly do, so that the loss says less about which of them are neighbours. Vectors are normalised, so a step turns
short ones further than long ones.
"""

from __future__ import annotations

from typing import Any
from unittest.mock import patch

import torch

from pindown import Classify
from pindown.methods.classify.estimator import _Objective
from pindown.metrics import linear_r2
from pindown.networks.spaces import Sphere
from pindown.simulate import Clusters

D, N_CLASSES, SEEDS = 5, 50, (0, 1, 2)


class UnitStart(_Objective):
    """The objective of `Classify`, with class vectors that start at unit length."""

    def __init__(self, *args: Any) -> None:
        super().__init__(*args)
        with torch.no_grad():
            self.weight.copy_(Sphere()(self.weight))


STARTS = {"length .04 (default)": _Objective, "length 1": UnitStart}


def recovered(kappa: float, seed: int) -> tuple[float, float, float]:
    """Return R² of the latents and of the class vectors, and the accuracy; all held-out."""
    world = Clusters.on_sphere(D, N_CLASSES, kappa, random_state=seed)
    train, test = world.sample(20_000, random_state=100 + seed), world.sample(10_000, random_state=200 + seed)
    classify = Classify(D, max_iter=1_000, random_state=seed, device="cpu", verbose=False).fit(train.x, train.u)
    z_hat = classify.transform(test.x)
    return (
        linear_r2(z_hat, test.z),
        linear_r2(classify.class_vectors_, world.vectors),
        classify.score(test.x, test.u),
    )


if __name__ == "__main__":
    torch.set_num_threads(1)
    print(f"d = {D}, {N_CLASSES} classes, seeds {SEEDS}")
    print("| κ | start | R² of z | R² of v_c | accuracy |\n| --- | --- | --- | --- | --- |")
    for kappa in (10.0, 50.0):
        for name, objective in STARTS.items():
            with patch("pindown.methods.classify.estimator._Objective", objective):
                scores = zip(*(recovered(kappa, seed) for seed in SEEDS), strict=True)
            print(
                f"| {kappa:g} | {name} | " + " | ".join(" ".join(f"{v:.3f}" for v in some) for some in scores) + " |",
                flush=True,
            )
