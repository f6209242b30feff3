"""How long a user waits before anything happens: importing the package, and the help of the command line.

Run ``make bench``. The baseline is Python itself. Seconds are CPU seconds: nothing here waits, so an idle machine takes
as long, and other processes do not count.
"""

from __future__ import annotations

import resource
import subprocess
import sys
from statistics import median

from _measure import save

LIMITS = {"import pindown": 0.05, "pindown --help": 0.3}
"""Seconds that are promised."""


def busy(*arguments: str, repeat: int = 15) -> float:
    """Return the median CPU seconds of a Python process, after one that warms up."""
    times = []
    for _ in range(repeat + 1):
        before = resource.getrusage(resource.RUSAGE_CHILDREN)
        subprocess.run([sys.executable, *arguments], capture_output=True, check=True)
        after = resource.getrusage(resource.RUSAGE_CHILDREN)
        times.append(after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime)
    return median(times[1:])


if __name__ == "__main__":
    python = busy("-c", "pass")
    commands = {"import pindown": ("-c", "import pindown"), "pindown --help": ("-m", "pindown", "--help")}
    times = {name: busy(*arguments) for name, arguments in commands.items()}
    save(
        "startup",
        [{"what": name, "seconds": t, "python_alone": python, "ratio": t / python} for name, t in times.items()],
    )
    late = [name for name, limit in LIMITS.items() if times[name] > limit]
    sys.exit(f"{', '.join(late)}: more than the seconds promised, {LIMITS}." if late else None)
