"""The GPU kernels against a float64 reference: on a GPU, or run on the CPU by Triton's interpreter."""

import importlib.metadata
import importlib.util
import json
import os
import subprocess
import sys

import numpy as np
import pytest
import torch

CASES = [
    # n, m, d, p, diagonal, potential
    (37, 53, 5, None, None, False),
    (1, 1, 3, None, None, False),
    (70, 130, 10, None, 3, True),
    (65, 129, 17, None, None, False),
    (70, 90, 4, 1, None, True),
    (33, 40, 3, 3, 2, False),
]

# In a process of its own: the interpreter must be chosen before Triton is imported.
SCRIPT = """
import json, sys
import torch
from pindown.losses import kernels
from pindown.losses.pairwise import Similarities

device = "cuda" if torch.cuda.is_available() else "cpu"
errors = []
for n, m, d, p, diagonal, with_potential in json.loads(sys.argv[1]):
    generator = torch.Generator().manual_seed(n)
    a, b, c, g = (torch.randn(*s, generator=generator).to(device) for s in ((d, n), (m, d), (m,), (n,)))
    a = a.T  # not contiguous
    A, B, C = (t.double().requires_grad_() for t in (a, b, c))
    s = A @ B.T if p is None else -(A[:, None] - B).abs().pow(p).sum(-1)
    s = s + C if with_potential else s + 0 * C
    if diagonal is not None:
        rows, columns = (torch.arange(k, device=device) for k in (n, m))
        s = s.masked_fill(rows[:, None] + diagonal == columns, -torch.inf)
    wanted = torch.logsumexp(s, 1)
    wanted = [wanted, *torch.autograd.grad(wanted @ g.double(), (A, B, C))]
    pairs = Similarities(a, b, c if with_potential else None, p, diagonal)
    result = kernels.row_logsumexp(pairs)
    got = [result, *kernels.row_logsumexp_gradients(pairs, result, g)]
    assert with_potential or got.pop() is None
    errors.append(max(((x.double() - y).norm() / y.norm()).item() for x, y in zip(got, wanted)))
print(json.dumps(errors))
"""


@pytest.mark.skipif(importlib.util.find_spec("triton") is None, reason="Triton has no build for this platform")
def test_kernels_agree_with_the_reference_to_float32_rounding():
    alone = {"TRITON_INTERPRET": "1", "PATH": "", "PYTHONPATH": os.environ.get("PYTHONPATH", "")}
    environment = dict(os.environ) if torch.cuda.is_available() else alone  # what compiles needs a compiler
    command = [sys.executable, "-c", SCRIPT, json.dumps(CASES)]
    run = subprocess.run(command, env=environment, capture_output=True, text=True)
    if "only 0-dimensional arrays can be converted" in run.stderr:
        pytest.skip(f"Triton {importlib.metadata.version('triton')} interprets nothing with numpy {np.__version__}")
    assert run.returncode == 0, run.stderr
    assert max(json.loads(run.stdout)) < 2e-6
