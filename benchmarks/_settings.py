"""Environment variables that choose the kernels of MKL, ATen and OpenBLAS, as other machines would choose them."""

from __future__ import annotations

import os
import platform
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]

NUMERICS = {
    "default": {},
    "compatible": {"MKL_CBWR": "COMPATIBLE", "ATEN_CPU_CAPABILITY": "default"},
    "haswell": {"MKL_CBWR": "AVX2", "ATEN_CPU_CAPABILITY": "avx2", "OPENBLAS_CORETYPE": "Haswell"},
    "zen": {"ATEN_CPU_CAPABILITY": "avx2", "OPENBLAS_CORETYPE": "Zen"},
    "skylakex": {"MKL_CBWR": "AVX512", "OPENBLAS_CORETYPE": "SkylakeX"},
    "two-threads": {"OMP_NUM_THREADS": "2"},
}
"""Name → variables; all but the last with one thread. Each is a machine: torch computes with MKL and ATen, numpy and
scipy with OpenBLAS, and a processor chooses for all three at once."""

VARIABLES = {"MKL_CBWR", "ATEN_CPU_CAPABILITY", "OPENBLAS_CORETYPE", "OMP_NUM_THREADS"}


def environment(numerics: str, **more: str) -> dict[str, str]:
    """Return the environment of a process with one numerical setting and no other."""
    kept = {name: value for name, value in os.environ.items() if name not in VARIABLES}
    paths = [str(ROOT / "src"), str(ROOT / "benchmarks"), *filter(None, [kept.get("PYTHONPATH")])]
    return kept | {"OMP_NUM_THREADS": "1", "PYTHONPATH": os.pathsep.join(paths)} | NUMERICS[numerics] | more


def where() -> dict[str, str]:
    """Return the versions and the processor that results belong to."""
    code = (
        "import numpy, scipy, sklearn, torch; print(*(m.__version__ for m in (numpy, scipy, sklearn, torch)));"
        "print(torch.cuda.get_device_name() if torch.cuda.is_available() else '')"
    )
    versions, gpu = subprocess.check_output([sys.executable, "-c", code], text=True).split("\n")[:2]
    named = dict(zip(("numpy", "scipy", "scikit-learn", "torch"), versions.split(), strict=True))
    return {"processor": processor(), "python": platform.python_version(), **named} | ({"gpu": gpu} if gpu else {})


def processor() -> str:
    """Return the processor's name as the system has it."""
    info = Path("/proc/cpuinfo")
    lines = info.read_text(encoding="utf-8").splitlines() if info.exists() else []
    named = [line.partition(":")[2].strip() for line in lines if line.startswith("model name")]
    return named[0] if named else platform.processor() or platform.machine()
