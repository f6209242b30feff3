"""
Two bodies, one motion
======================

Two arms of different build make the same motions, each filmed by a camera of its own. From the
films alone, can we find a code of the *motion* that does not tell whose it is? And does a code then
mean the same for both arms? Yes, and no: invariance is not unification. What unifies is a handful
of pairs.
"""

import matplotlib.pyplot as plt
import numpy as np
from matplotlib.colors import hsv_to_rgb

from pindown import Forget, LatentAction, Trainer, align
from pindown.methods import InverseDynamics
from pindown.metrics import Effort, leakage, recovery_across_levels, recovery_by_level
from pindown.simulate import Bodies

N_ROWS, STEPS = 10_000, 1_500

# %%
# A world whose truth is known: hands start somewhere in a square and move by z, uniform on a disc.
# What is seen are six numbers before and six after, three markers of an arm through a camera that
# turns and bends them.
world = Bodies.different(2, random_state=0)
train, test = (world.sample(N_ROWS, random_state=seed) for seed in (1, 2))

# %%
# Two stages. `InverseDynamics` asks what must be known beside the first picture to tell the second,
# an action, and holds the codes of both arms to one law. `Forget` then takes what still tells the arm.
# ``trainer=Trainer(validation_fraction=0)``: we probe the codes ourselves below.
act = LatentAction(
    n_components=2,
    dynamics=InverseDynamics(max_iter=STEPS, verbose=False),
    forget=Forget(max_iter=STEPS, trainer=Trainer(validation_fraction=0), verbose=False),
    random_state=0,
).fit(train.x, train.x_pos, train.u)

# %%
# Is the code blind to the body? Probes trained afterwards on held-out transitions say how well the
# body can be read. The true motion is independent of it, so what they score there is luck.
codes = act.transform(test.x, test.x_pos)
seen = np.hstack([test.x, test.x_pos])
probed = {"what is seen": seen, "the code": codes, "the true motion": test.z}
for name, array in probed.items():
    told = leakage(array, test.u, probes=["linear", "quadratic", "kernel"], effort=Effort(n_seeds=1), random_state=0)
    print(f"body read off {name:16} {told.worst:.3f} (chance {told.chance:.2f})")

# %%
# Is the motion still there? Within each body nearly all of it; a reader that learned on one body and
# is asked about the other finds much less (0 would be a guess of the mean).
for body, r2 in recovery_by_level(codes, test.z, test.u).items():
    print(f"motion read within body {body}: R² {r2:.2f}")
print(f"by a reader that learned on the other body: R² {recovery_across_levels(codes, test.z, test.u).elsewhere:.2f}")

# %%
# Now let both arms make the same motions, each from a place of its own, and carry codes from the
# first to the second: as they are (no pairs), or by an affine map learned from k pairs.
same = world.same_motions(2_000, random_state=3)
first, second = (act.transform(moves.x, moves.x_pos) for moves in same)
alignment = align(first, second, random_state=0)
print(alignment)

# %%
# The picture: every dot is a motion, its hue the true direction, its strength the true length. Both
# arms keep the wheel whole, each in a turn of its own.
motion = same[0].z.numpy()
hue = np.arctan2(motion[:, 1], motion[:, 0]) / (2 * np.pi) % 1
length = np.hypot(*motion.T)
colour = hsv_to_rgb(np.stack([hue, 0.15 + 0.8 * length / length.max(), np.full_like(hue, 0.85)], 1))

figure, axes = plt.subplots(1, 4, figsize=(12.5, 3.3), width_ratios=(1, 1, 1, 1.25), layout="constrained")
titles = ("the true motion", "codes of the first arm", "codes of the second arm")
for ax, points, title in zip(axes, (motion, first, second), titles, strict=False):
    ax.scatter(*points.T, c=colour, s=7, lw=0)
    ax.set_title(title, fontsize=11)
    ax.set_aspect("equal", "datalim")
    ax.axis("off")
pairs, r2 = np.array([(point.n_pairs, point.r2) for point in alignment.curve]).T
axes[3].plot(range(len(pairs)), r2, "o-", color="#2b2b33", ms=5)
axes[3].axhline(0, color="#8a8a92", lw=0.8, ls=":")
axes[3].set_xticks(range(len(pairs)), pairs.astype(int))
axes[3].set(xlabel="pairs; dotted: a guess of the mean")
axes[3].set_title("codes carried over, held-out R²", fontsize=11)
axes[3].spines[["top", "right"]].set_visible(False)
plt.show()

# %%
# What may be claimed: the code tells the motion within each arm and hardly tells the arm. That one
# code means one motion in both, nothing promises before there are pairs.
