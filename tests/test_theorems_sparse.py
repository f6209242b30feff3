"""Known worlds of sparse codes: atoms and codes come back where the world is as assumed, and not where it is not.

No theorem speaks of the gates, so that what is tested is what is measured. Steps and bounds were chosen on seeds 10 to
15, where six fits gave a mean cosine of .978 ± .007 and an F1 of .942 ± .011 in the first world, .603 ± .030 and
.158 ± .012 with coherent atoms, .435 ± .004 and .087 ± .001 with dense codes. Chance is .36.
"""

import pytest

from pindown import Sparse
from pindown.gates import TopK
from pindown.metrics import chance_pw_mcc, firing_f1, match_atoms
from pindown.processes import Exactly, Superposed
from pindown.processes.superposed import atoms

D, M, K = 96, 48, 3


def recovered(world, seed, *, gate=TopK(K), n=8_000, n_steps=300, batch_size=512):  # noqa: B008
    train, test = world.sample(n, random_state=seed + 100), world.sample(2_000, random_state=seed + 200)
    options = {"max_iter": n_steps, "batch_size": batch_size, "verbose": False, "random_state": seed}
    sparse = Sparse(world.d, gate=gate, **options).fit(train.x)
    found = match_atoms(sparse.components_, world.truth)
    return found.cosine.mean(), firing_f1(sparse.transform(test.x).numpy(), test.z.numpy(), found.partner)


def test_features_in_superposition_come_back():
    cosine, f1 = recovered(Superposed.overcomplete(D, M, n_active=K, random_state=0), seed=0)
    assert cosine > 0.94 > 0.4 > chance_pw_mcc(D, M)
    assert f1 > 0.88


def test_atoms_that_lie_side_by_side_do_not():
    cosine, f1 = recovered(Superposed.overcomplete(D, M, n_active=K, coherence=0.9, random_state=0), seed=0)
    assert cosine < 0.75
    assert f1 < 0.3


def test_codes_that_are_dense_do_not():
    cosine, f1 = recovered(Superposed(atoms(D, M, random_state=0), Exactly(D, D // 2)), seed=0)
    assert cosine < 0.5
    assert f1 < 0.2


@pytest.mark.slow
@pytest.mark.parametrize("seed", [0, 1])
def test_a_thousand_features_in_256_dimensions_come_back(seed):
    world = Superposed.overcomplete(1_024, 256, n_active=10, random_state=seed)
    cosine, f1 = recovered(world, seed, gate=TopK(10), n=200_000, n_steps=1_200, batch_size=1_024)
    assert cosine > 0.95 > 0.3 > chance_pw_mcc(1_024, 256)
    assert f1 > 0.9
