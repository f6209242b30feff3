"""Why latents of muscle recordings predict gestures no better than principal components: they contain the session, too.

Run ``python benchmarks/muscle_codes.py`` (some two minutes on one core), or in parts, as in `_parts`. Windows and
held-out repetitions are those of benchmarks/sessions.py; seeds 10 and 11, which that benchmark does not report. A
linear probe predicts the gesture (chance .2) and the session (chance .25) from three and from five latents, with
negatives from all sessions and from the same session, and from as many principal components. Scores are balanced
accuracies. Saved in results/.
"""

from __future__ import annotations

import warnings
from typing import Any

import numpy as np
from _measure import save
from _parts import asked, runs
from sessions import gesture_read, muscles
from sklearn.decomposition import PCA
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

from pindown import Contrast, Data
from pindown.networks.spaces import Reals

SEEDS, N_CODES = (10, 12), (3, 5)


def measured(n_codes: int, seed: int) -> list[dict[str, Any]]:
    """Return the scores of probes of this number of latents and components."""
    warnings.simplefilter("ignore")
    train, test = muscles(seed)
    within = Data(train.X, pairs="next", groups=train.stretch, nuisance=train.session).paired()
    contrast = {"negatives of all sessions": train.data, "negatives of the same session": within}
    encoders = {"components": make_pipeline(StandardScaler(), PCA(n_codes)).fit(train.X)}
    for name, data in contrast.items():
        encoders[name] = Contrast(n_codes, space=Reals(), verbose=False, random_state=seed).fit(data)
    found = []
    for name, encoder in encoders.items():
        own, other = encoder.transform(train.X), encoder.transform(test.X)
        read = {"gesture": (train.truth, test.truth), "session": (train.session, test.session)}
        scores = {what: gesture_read(own, known, other, true) for what, (known, true) in read.items()}
        found.append({"world": f"{n_codes} codes", "condition": name, "seed": seed, **scores})
    return found


def main() -> None:
    wanted = asked(__doc__)
    found = runs(measured, [(k, seed) for seed in range(*wanted.seeds or SEEDS) for k in N_CODES], wanted)
    if wanted.to is not None:
        return
    kinds = dict.fromkeys((run["world"], run["condition"]) for run in found)
    means = []
    for world, condition in sorted(kinds):
        own = [run for run in found if (run["world"], run["condition"]) == (world, condition)]
        scores = {what: float(np.mean([run[what] for run in own])) for what in ("gesture", "session")}
        means.append({"mean over": len(own), "world": world, "condition": condition, **scores})
    save("muscle_codes", [*found, *means])


if __name__ == "__main__":
    main()
