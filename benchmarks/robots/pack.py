"""Keep what tests need of a recording: joints and hand of some episodes of each robot, in one small file.

    python benchmarks/robots/pack.py recordings/ tests/recordings/robots.npz --episodes 30

Of each robot R are kept ``R/joints`` (episodes, steps + 1, joints) and ``R/position`` (…, 3), of so many paired
episodes and then of as many that are the robot's own, and ``paired`` (episodes,), which is the same for all.
"""

from __future__ import annotations

import argparse
import json
from pathlib import Path

import numpy as np


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("folder", type=Path)
    parser.add_argument("file", type=Path)
    parser.add_argument("--episodes", type=int, default=30, help="paired ones, and as many others")
    options = parser.parse_args()
    kept = {}
    for robot in json.loads((options.folder / "manifest.json").read_text())["robots"]:
        with np.load(options.folder / f"{robot}.npz") as recorded:
            paired = recorded["paired"]
            parts = [np.flatnonzero(paired == which)[: options.episodes] for which in (True, False)]
            if min(map(len, parts)) < options.episodes:
                parser.error(f"{robot} has fewer than {options.episodes} episodes that are paired, or that are not.")
            chosen = np.concatenate(parts)
            kept |= {f"{robot}/{name}": recorded[name][chosen] for name in ("joints", "position")}
            kept["paired"] = paired[chosen]
    np.savez_compressed(options.file, **kept)


if __name__ == "__main__":
    main()
