"""Steps of an encoder of pictures on a CPU, with the memory of one step kept for the next, and without.

``python benchmarks/kept_memory.py`` trains the default encoder on sprites of 32 × 32 pixels, each time in a process of
its own, since what the C library was told stays; the times are medians over repetitions that take turns.
"""

from __future__ import annotations

import contextlib
import multiprocessing
import statistics
import time

from _measure import save

STEPS, REPETITIONS = 100, 3


def seconds(kept: bool) -> float:
    """Return the seconds of a step."""
    from pindown_papers.simulations import Sprites

    from pindown import Contrast
    from pindown.networks.spaces import Box, Reals
    from pindown.simulate import Pairs
    from pindown.simulate.distributions import Truncated, Uniform, laplace
    from pindown.training import devices

    if not kept:
        devices.kept_memory = contextlib.nullcontext
    squares = Sprites(32, factors=("x", "y", "size", "rotation"), fixed={"shape": 0})
    drawn = Pairs(Uniform(4, Box()), Truncated(laplace(0.1)), squares).sample(4_000, random_state=0)
    est = Contrast(4, space=Reals(), p=1, max_iter=STEPS, random_state=0, device="cpu", verbose=False)
    start = time.perf_counter()
    est.fit(drawn.x.numpy(), drawn.x_pos.numpy())
    return (time.perf_counter() - start) / STEPS


def once(kept: bool) -> float:
    with multiprocessing.get_context("spawn").Pool(1) as pool:
        return pool.apply(seconds, (kept,))


if __name__ == "__main__":
    taken = [(once(True), once(False)) for _ in range(REPETITIONS)]
    kept, given_back = (statistics.median(each) for each in zip(*taken, strict=True))
    row = {"seconds_of_a_step": kept, "seconds_if_given_back": given_back, "times_faster": given_back / kept}
    save("kept_memory", [row])
