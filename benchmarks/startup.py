"""How long a user waits before anything happens: importing the package, and the help of the command line.

Run ``make bench``. The baseline is Python itself.
"""

from __future__ import annotations

import subprocess
import sys

from _measure import save, seconds


def wait(*arguments: str) -> float:
    return seconds(lambda: subprocess.run([sys.executable, *arguments], capture_output=True, check=True))


if __name__ == "__main__":
    python = wait("-c", "pass")
    commands = {"import pindown": ("-c", "import pindown"), "pindown --help": ("-m", "pindown", "--help")}
    times = {name: wait(*arguments) for name, arguments in commands.items()}
    save(
        "startup",
        [{"what": name, "seconds": t, "python_alone": python, "ratio": t / python} for name, t in times.items()],
    )
