"""Shared settings of the test suite."""

import torch

# Two cores share the suite with whatever else runs: threads that wait for each other cost more than they bring.
torch.set_num_threads(1)
