"""What `Classify` recovers with its defaults from 100,000 samples of a hundred classes after a deep mixing.

Run ``python benchmarks/many_classes.py`` (seed 0; some minutes on one core), or in parts, as in `_parts`. Ten latents
on the sphere, clusters of concentration 10, a mixing of four layers. R² is that of a linear probe on 10,000 new
samples. The table also has R² of the observations, and the loss of the Bayes classifier.
"""

from __future__ import annotations

import time
import warnings
from typing import Any

import numpy as np
import torch
from _measure import save
from _parts import asked, runs, spans

from pindown import Classify
from pindown.metrics import linear_r2
from pindown.simulate import Clusters

REPORT = range(1)
N_ROWS, N_FRESH, D, N_CLASSES, CONCENTRATION, N_LAYERS = 100_000, 10_000, 10, 100, 10.0, 4


def measured(_: int, seed: int) -> list[dict[str, Any]]:
    """Return what a fit recovers of one simulation."""
    world = Clusters.on_sphere(D, N_CLASSES, CONCENTRATION, n_layers=N_LAYERS, random_state=seed)
    train, test = (world.sample(n, random_state=1_000 * k + seed) for k, n in ((1, N_ROWS), (2, N_FRESH)))
    start = time.perf_counter()
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        fit = Classify(verbose=False, random_state=seed).fit(train.x.numpy(), train.u.numpy())
    seconds = time.perf_counter() - start
    z, u = test.z.double(), test.u
    bayes = torch.nn.functional.cross_entropy(CONCENTRATION * z @ world.vectors.T, u).item()
    ours = -np.log(fit.predict_proba(test.x.numpy())[np.arange(N_FRESH), u.numpy()]).mean()
    assert fit.held_out_ is not None
    return [
        {
            "world": "many classes",
            "seed": seed,
            "codes": fit.n_components_,
            "r2": linear_r2(fit.transform(test.x.numpy()), z.numpy()),
            "r2_rows": linear_r2(test.x.numpy(), z.numpy()),
            "loss": float(ours),
            "bayes_loss": bayes,
            "recognised": fit.score(test.x.numpy(), u.numpy()),
            "bayes_recognised": float(((z @ world.vectors.T).argmax(1) == u).double().mean()),
            "said": fit.held_out_.score,
            "seconds": seconds,
            "steps": fit.n_iter_,
            "warned": "; ".join(sorted({warning.category.__name__ for warning in caught})) or "nothing",
        }
    ]


def main() -> None:
    wanted = asked(__doc__)
    seeds = range(*wanted.seeds) if wanted.seeds else REPORT
    found = sorted(runs(measured, [(0, seed) for seed in seeds], wanted), key=lambda run: run["seed"])
    if wanted.to is not None:
        return
    scores = [key for key, value in found[0].items() if isinstance(value, float)]
    mean = {key: float(np.mean([run[key] for run in found])) for key in scores}
    first = {key: found[0][key] for key in ("codes", "steps")}
    summary = {"seeds": spans(run["seed"] for run in found), **mean, **first}
    save("many_classes", [summary | {"warned": "; ".join(sorted({run["warned"] for run in found}))}])


if __name__ == "__main__":
    main()
