"""
Gestures without the session
============================

Eight electrodes around a forearm, five gestures, four sessions, by their names two people, twice
each. Electrodes sit a little differently every time, so that the signal tells the session as well
as the gesture. We want codes that keep the gesture, from which nobody can read the session, and we
want to *know* that.
"""

import importlib.util
import warnings
from pathlib import Path

import matplotlib.pyplot as plt
import numpy as np
import pandas as pd
from pindown_papers.erasers import PerValueStandardiser, Untouched
from sklearn.linear_model import LogisticRegression
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

from pindown import Forget, Trainer
from pindown.methods.forget import LinearErasure
from pindown.metrics import PROBES, Effort, leakage

WINDOW, STEPS = 125, 800

# %%
# The recordings lie inside the geomstats package, which is looked up, not imported.
package = importlib.util.find_spec("geomstats")
if package is None:
    raise ImportError('The recordings come with geomstats: pip install "pindown[examples]"')
samples = pd.read_csv(Path(package.origin).parent / "datasets" / "data" / "emg" / "emg.csv")

# %%
# Windows of half a second within each recording; of every window, how strongly each electrode
# swings, on a logarithmic scale. A third of the windows is held out.
kind = samples[["label", "exp"]]
recording = (kind != kind.shift()).any(axis=1).cumsum()
windows = samples.groupby([recording, samples.groupby(recording).cumcount() // WINDOW])
whole = windows.size() == WINDOW
X = np.log(windows[[f"c{channel}" for channel in range(8)]].std()[whole].to_numpy() + 0.5)
gesture, session = (windows[name].first()[whole].to_numpy() for name in ("label", "exp"))
test = np.random.default_rng(0).random(len(X)) < 1 / 3
train = ~test
print(f"{len(X)} windows, {test.sum()} held out")

# %%
# First what costs nothing. Each eraser is told the session and looks at means, or at means and
# spreads. Per-session standardisation must be told the session of new windows, too.
codes = {
    "as recorded": Untouched().fit(X[train], session[train]).transform(X),
    "means projected off": LinearErasure().fit(X[train], session[train]).transform(X),
    "standardised per session": PerValueStandardiser().fit(X[train], session[train]).transform(X, session),
}

# %%
# Then what is learned, from the recordings as they are. ``given=gesture`` names what must survive:
# codes of one gesture must look alike in all sessions, so that hiding a session cannot swap
# gestures, and a linear reader must tell the gestures from them. Of a held-out window `Forget` is
# told neither the gesture nor the session. It warns: the session moves every direction of these
# data, so that no theorem promises a blind code, and probes must judge. It keeps four codes, since
# that many tell five gestures apart.
forget = Forget(max_iter=STEPS, trainer=Trainer(validation_fraction=0), verbose=False, random_state=0)
with warnings.catch_warnings(record=True) as warned:
    warnings.simplefilter("always")
    forget.fit(X[train], session[train], given=gesture[train])
print(*(warning.message for warning in warned))
codes["session forgotten,\ngesture kept"] = forget.transform(X)

# %%
# Leakage is judged by probes trained afterwards, on half of the held-out windows and scored on the
# other half. A linear probe is easily deceived; boosted trees are not. Beside it, how often a
# linear reader recognises the gesture.
found = {}
probes = [probe for probe in PROBES if probe.name in ("linear", "boosting")]
for name, code in codes.items():
    told = leakage(
        code[test], session[test], probes=probes, effort=Effort(n_seeds=1, n_permutations=99), random_state=0
    )
    linear, boosted = (told.by_probe[probe.name].score for probe in probes)
    reader = make_pipeline(StandardScaler(), LogisticRegression(max_iter=1_000)).fit(code[train], gesture[train])
    found[name] = linear, boosted, reader.score(code[test], gesture[test])
    print(f"{' '.join(name.split()):32} session {linear:.2f} linear, {boosted:.2f} boosted   ", end="")
    print(f"gesture {found[name][2]:.2f}")
halfway = (0.25 + found["as recorded"][1]) / 2
print(f"chance: session 0.25, gesture 0.20; half way from chance to the recordings: session {halfway:.2f}")

# %%
# The picture: to the right is good, down is blind.
figure, axes = plt.subplots(figsize=(8, 4.4), layout="constrained")
axes.axhspan(0.25, halfway, color="#3a8a4f", alpha=0.08, lw=0)
axes.axhline(0.25, color="#8a8a92", lw=1, ls=":")
for name, (linear, boosted, kept) in found.items():
    ours = "forgotten" in name
    axes.vlines(kept, linear, boosted, color="#c8553d" if ours else "#b9b9c0", lw=2)
    axes.plot(kept, linear, "_", color="#c8553d" if ours else "#8a8a92", ms=12, mew=2)
    axes.plot(kept, boosted, "o", color="#c8553d" if ours else "#2b2b33", ms=9)
    axes.annotate(name, (kept, boosted), xytext=(-9, 4), textcoords="offset points", ha="right", fontsize=9)
axes.text(0.56, halfway - 0.03, "less than half way", color="#3a8a4f", fontsize=9)
axes.text(0.56, 0.265, "chance", color="#8a8a92", fontsize=9)
axes.set(xlim=(0.55, 1), ylim=(0.2, 1.02), xlabel="gesture recognised (chance 0.20)", ylabel="session recognised")
axes.set_title("dots: boosted trees; bars below: a linear probe, which is easily deceived", fontsize=10)
axes.spines[["top", "right"]].set_visible(False)
plt.show()

# %%
# What may be claimed: of windows from *these* sessions, boosted trees read the session less than
# half as far above chance as before, and a linear reader recognises the gesture more often than
# before. The session is not gone, and held-out windows have neighbours in time that were seen;
# ``benchmarks/emg.py`` holds out whole repetitions, too. Of a fifth session nothing is known.
