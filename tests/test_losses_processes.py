"""Losses over several processes: each holds some of the rows, and the whole is what one process has with all of them.

Two processes are started once; they run every case, and leave the results in a file.
"""

import itertools
import os

import numpy as np
import pytest
import torch
from test_losses import Largest
from torch import distributed, multiprocessing, nn

from pindown.losses import align_uniform, infonce, pairwise
from pindown.methods import Contrast, PairLoss

EXACT = {"rtol": 1e-12, "atol": 1e-13}
SPLITS = {"equal": (7, 7), "unequal": (1, 13)}  # rows of the first and the second process
TOGETHER, APART = True, False
RUNS = (("equal", TOGETHER), ("unequal", TOGETHER), ("equal", APART))
FLAGS = ("positive_in_denominator", "self_negatives")

CASES = {
    **{
        f"infonce p={p} {'+'.join(name for name, flag in zip(FLAGS, flags, strict=True) if flag)}": (
            infonce,
            dict(zip(FLAGS, flags, strict=True), p=p),
            None,
        )
        for p, flags in itertools.product([None, 1, 2, 3], itertools.product([False, True], repeat=2))
    },
    **{
        f"infonce p={p} potential {flag}": (infonce, {"p": p, "positive_in_denominator": flag}, "potential")
        for p, flag in itertools.product([None, 1, 2, 3], [False, True])
    },
    **{
        f"align_uniform p={p} alpha={alpha} {potentials}": (align_uniform, {"p": p, "alpha": alpha}, potentials)
        for p, alpha, potentials in itertools.product([1, 2, 3], [0.3, 0.5], [None, "potentials"])
    },
}


class Model(nn.Module):
    """Linear latents, a linear potential, a temperature: what a loss has gradients for."""

    def __init__(self, loss, options, potential, across_processes):
        super().__init__()
        self.loss, self.options, self.potential_name = loss, options | {"across_processes": across_processes}, potential
        chance = torch.Generator().manual_seed(0)
        self.matrix = nn.Parameter(torch.randn(3, 3, generator=chance, dtype=torch.float64))
        self.temperature = nn.Parameter(torch.tensor(0.7, dtype=torch.float64))
        if potential is not None:
            self.slope = nn.Parameter(torch.randn(3, generator=chance, dtype=torch.float64))

    def forward(self, x, x_pos):
        extra = {
            None: lambda: {},
            "potential": lambda: {"potential": x_pos @ self.slope},
            "potentials": lambda: {"potentials": (x @ self.slope, x_pos @ self.slope)},
        }[self.potential_name]()
        z, z_pos = x @ self.matrix, x_pos @ self.matrix
        return self.loss(z, z_pos, temperature=self.temperature, **self.options, **extra)


def batch():
    chance = torch.Generator().manual_seed(1)
    x = torch.randn(14, 3, generator=chance, dtype=torch.float64)
    return x, x + 0.5 * torch.randn(14, 3, generator=chance, dtype=torch.float64)


def rows_of(rank, sizes):
    return slice(sum(sizes[:rank]), sum(sizes[: rank + 1]))


def value_and_gradients(model, x, x_pos):
    value = model(x, x_pos)
    value.backward()
    return {"value": value.detach(), **{name: weight.grad for name, weight in model.named_parameters()}}


def alone(case):
    return value_and_gradients(Model(*CASES[case], APART), *batch())


# What the two processes do.


def run_cases(rank):
    found = {
        (case, split, together): value_and_gradients(
            Model(*what, together), *(a[rows_of(rank, SPLITS[split])] for a in batch())
        )
        for (case, what), (split, together) in itertools.product(CASES.items(), RUNS)
    }
    results = [result for each in found.values() for result in each.values()]
    total = torch.cat([result.reshape(-1) for result in results])
    distributed.all_reduce(total)  # as DistributedDataParallel does
    for result, mean in zip(results, (total / 2).split([result.numel() for result in results]), strict=True):
        result.copy_(mean.view_as(result))
    return found


def run_largest():
    """Entries of the largest tensor when each process has 125 of 250 rows."""
    pairwise.BLOCK_ENTRIES = 200
    chance = torch.Generator().manual_seed(0)
    z, z_pos = (torch.randn(125, 2, generator=chance, dtype=torch.float64).requires_grad_() for _ in range(2))
    with Largest() as watch:
        infonce(z, z_pos, p=2, across_processes=True).backward()
    pairwise.BLOCK_ENTRIES = 1 << 19
    return watch.entries


def pairs():
    chance = np.random.default_rng(0)
    x = chance.normal(size=(40, 3))
    return x, x + 0.3 * chance.normal(size=(40, 3))


def fitted(**parameters):
    options = {"device": "cpu", "random_state": 0, "max_iter": 20, "verbose": False}
    return Contrast(3, **options | parameters).fit(*pairs())


FITS = {"infonce": {}, "alpha": {"loss": PairLoss(0.5)}}


def run_fits(rank):
    fits = {name: fitted(**parameters) for name, parameters in FITS.items()}
    with pytest.raises(ValueError, match="batch_size=21 is larger than the 20 of 40 pairs"):
        fitted(batch_size=21)
    return {
        "curves": {name: contrast.loss_curve_ for name, contrast in fits.items()},
        "latents": {name: contrast.transform(pairs()[0]) for name, contrast in fits.items()},
        # Only one process asks: if it waited for the other, it would wait for ever.
        "scores": {name: contrast.score(*pairs()) for name, contrast in fits.items()} if rank == 0 else None,
    }


def work(rank, folder):
    torch.set_num_threads(1)
    launched = {"RANK": rank, "LOCAL_RANK": rank, "WORLD_SIZE": 2, "LOCAL_WORLD_SIZE": 2}
    os.environ |= {name: str(value) for name, value in launched.items()}  # as torchrun sets it
    distributed.init_process_group("gloo", init_method=f"file://{folder}/meeting", rank=rank, world_size=2)
    found = {"cases": run_cases(rank), "largest": run_largest(), "fits": run_fits(rank)}
    torch.save(found, f"{folder}/{rank}.pt")
    distributed.barrier()
    distributed.destroy_process_group()


@pytest.fixture(scope="module")
def found(tmp_path_factory):
    """What both processes found."""
    folder = tmp_path_factory.mktemp("processes")
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("GLOO_SOCKET_IFNAME", "lo")
        patch.setenv("OMP_NUM_THREADS", "1")
        patch.setenv("CUDA_VISIBLE_DEVICES", "")
        multiprocessing.spawn(work, (str(folder),), nprocs=2)
    return [torch.load(folder / f"{rank}.pt", weights_only=False) for rank in (0, 1)]


# The losses.


@pytest.mark.parametrize("split", SPLITS)
@pytest.mark.parametrize("case", CASES)
def test_two_processes_with_some_samples_each_equal_one_with_all_of_them(found, case, split):
    for rank in (0, 1):
        torch.testing.assert_close(found[rank]["cases"][case, split, TOGETHER], alone(case), **EXACT)


@pytest.mark.parametrize("case", CASES)
def test_two_processes_that_keep_to_themselves_do_not(found, case):
    apart, whole = found[0]["cases"][case, "equal", APART], alone(case)
    assert max((apart[name] - whole[name]).abs().max() for name in ("value", "matrix")) > 0.01


def test_no_process_holds_the_matrix_of_its_samples_with_all_samples(found):
    for rank in (0, 1):
        assert found[rank]["largest"] <= 250 * 3  # of 125 × 250 = 31,250


@pytest.mark.parametrize("loss", [infonce, align_uniform])
def test_without_other_processes_it_is_the_plain_loss(loss):
    x, x_pos = batch()
    assert loss(x, x_pos, across_processes=True).equal(loss(x, x_pos))


# The estimator.


@pytest.mark.parametrize("name", FITS)
def test_a_fit_by_two_processes_is_the_fit_of_one_with_the_batches_of_both(found, name):
    one, (first, second) = fitted(**FITS[name]), (part["fits"] for part in found)
    assert np.array_equal(first["latents"][name], second["latents"][name])
    assert first["curves"][name] == pytest.approx(one.loss_curve_, rel=1e-5)
    assert first["latents"][name] == pytest.approx(one.transform(pairs()[0]), abs=1e-5)


@pytest.mark.parametrize("name", FITS)
def test_a_fit_with_half_of_the_batch_is_another(found, name):
    half, whole = fitted(**FITS[name], batch_size=20), found[0]["fits"]
    assert np.abs(whole["latents"][name] - half.transform(pairs()[0])).max() > 0.05
    assert np.abs(whole["curves"][name] - half.loss_curve_).max() > 0.01


@pytest.mark.parametrize("name", FITS)
def test_a_score_is_of_the_process_that_asks_for_it(found, name):
    assert found[0]["fits"]["scores"][name] == pytest.approx(fitted(**FITS[name]).score(*pairs()), abs=1e-5)
    assert found[1]["fits"]["scores"] is None
