"""
Two bodies, one motion
======================

Two arms of different build make the same motions, each seen by a camera of its own. We recover the
motion from the observations, such that nothing in it reveals the arm. But the same latent then need not
mean the same motion in both arms: invariance is not unification. A handful of pairs unifies them.
"""

import matplotlib.pyplot as plt
import numpy as np
from matplotlib.colors import hsv_to_rgb
from pindown_papers.scores import recovery_across_levels
from pindown_papers.simulations import Bodies

from pindown import Forget, LatentAction, Trainer, align
from pindown.methods import InverseDynamics
from pindown.metrics import Effort, leakage, recovery_by_level

N_ROWS, STEPS = 10_000, 1_500

# %%
# A simulation: hands start somewhere in a square and move by z, uniform on a disc. Observed are six
# numbers before and six after the motion: three markers of an arm, through a nonlinear camera.
simulation = Bodies.different(2, random_state=0)
train, test = (simulation.sample(N_ROWS, random_state=seed) for seed in (1, 2))

# %%
# Two stages. `InverseDynamics` infers an action from two observations, with one distribution for both
# arms. `Forget` then removes what still reveals the arm. ``validation_fraction=0``: no samples are held
# out, since we probe the latents ourselves below.
act = LatentAction(
    n_components=2,
    dynamics=InverseDynamics(max_iter=STEPS, verbose=False),
    forget=Forget(max_iter=STEPS, trainer=Trainer(validation_fraction=0), verbose=False),
    random_state=0,
).fit(train.x, train.x_pos, train.u)

# %%
# Can the arm be predicted from the latents? Probes are trained afterwards, on held-out transitions. The
# true motion is independent of the arm, so their score there is chance.
latents = act.transform(test.x, test.x_pos)
seen = np.hstack([test.x, test.x_pos])
probed = {"observations": seen, "latents": latents, "the true motion": test.z}
for name, array in probed.items():
    leak = leakage(array, test.u, probes=["linear", "quadratic", "kernel"], effort=Effort(n_seeds=1), random_state=0)
    print(f"arm predicted from {name:16} {leak.worst:.3f} (chance {leak.chance:.2f})")

# %%
# Is the motion still there? Within each arm nearly all of it. A probe that was trained on one arm
# predicts much less of the other (0 is the mean).
for body, r2 in recovery_by_level(latents, test.z, test.u).items():
    print(f"motion predicted within arm {body}: R² {r2:.2f}")
print(f"by a probe trained on the other arm: R² {recovery_across_levels(latents, test.z, test.u).elsewhere:.2f}")

# %%
# Now both arms make the same motions, each from its own starting point. We map latents of the first to
# those of the second: unchanged (no pairs), or by an affine map fitted to k pairs.
same = simulation.same_motions(2_000, random_state=3)
first, second = (act.transform(moves.x, moves.x_pos) for moves in same)
alignment = align(first, second, random_state=0)
print(alignment)

# %%
# Each dot is a motion; its hue is the true direction, its saturation the true length. Both arms keep
# the colour wheel, each with a rotation of its own.
motion = same[0].z.numpy()
hue = np.arctan2(motion[:, 1], motion[:, 0]) / (2 * np.pi) % 1
length = np.hypot(*motion.T)
colour = hsv_to_rgb(np.stack([hue, 0.15 + 0.8 * length / length.max(), np.full_like(hue, 0.85)], 1))

figure, axes = plt.subplots(1, 4, figsize=(12.5, 3.3), width_ratios=(1, 1, 1, 1.25), layout="constrained")
titles = ("the true motion", "latents of the first arm", "latents of the second arm")
for ax, points, title in zip(axes, (motion, first, second), titles, strict=False):
    ax.scatter(*points.T, c=colour, s=7, lw=0)
    ax.set_title(title, fontsize=11)
    ax.set_aspect("equal", "datalim")
    ax.axis("off")
pairs, r2 = np.array([(point.n_pairs, point.r2) for point in alignment.curve]).T
axes[3].plot(range(len(pairs)), r2, "o-", color="#2b2b33", ms=5)
axes[3].axhline(0, color="#8a8a92", lw=0.8, ls=":")
axes[3].set_xticks(range(len(pairs)), pairs.astype(int))
axes[3].set(xlabel="pairs; dotted: the mean")
axes[3].set_title("transfer, held-out R²", fontsize=11)
axes[3].spines[["top", "right"]].set_visible(False)
plt.show()

# %%
# Supported: the latents predict the motion within each arm, and hardly predict the arm. Not supported
# without pairs: that one latent means one motion in both.
