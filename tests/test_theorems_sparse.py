"""Simulations of sparse latents: atoms and latents are recovered if the assumptions hold, and not if one is broken.

No theorem covers the gates, so the tests pin what is measured, and that a check names the broken assumption. Steps and
bounds were chosen on seeds 10 to 15. Six fits had a mean cosine of .972 ± .007 and an F1 of .933 ± .013 in the first
simulation, .628 ± .019 and .136 ± .010 with coherent atoms, .435 ± .004 and .087 ± .001 with dense latents, and
.901 ± .011 and .765 ± .018 with half of the samples that are needed. Chance is .33. A theorem covers `SparseBasis`.
"""

import numpy as np
import pytest
from pindown_papers.firing import firing_f1

from pindown import Sparse, SparseBasis, audit, theory
from pindown.auditing import checks
from pindown.auditing.checks.dictionaries import samples_for_atoms
from pindown.metrics import chance_pw_mcc, match_atoms, pw_mcc
from pindown.networks.gates import TopK
from pindown.simulate import KSparse, Superposed
from pindown.simulate.structured import atoms

D, M, K = 96, 48, 3
ENOUGH = theory.SPARSE_OVERCOMPLETE.diversity.needed(D, M)


def fitted(simulation, seed, *, gate=TopK(K), n=8_000, n_steps=300, batch_size=512):  # noqa: B008
    """Return a fit, the mean cosine of its atoms with the truth, the F1 of its latents, and what checks say."""
    train, test = simulation.sample(n, random_state=seed + 100), simulation.sample(2_000, random_state=seed + 200)
    options = {"max_iter": n_steps, "batch_size": batch_size, "verbose": False, "random_state": seed}
    sparse = Sparse(simulation.d, gate=gate, **options).fit(train.x.numpy())
    found, x = match_atoms(sparse.components_, simulation.truth), test.x.numpy()
    said = (samples_for_atoms(n, *simulation.dictionary.shape), *checks.after(sparse, x))
    outcomes = {verdict.assumption: verdict.outcome for verdict in said}
    return found.cosine.mean(), firing_f1(sparse.transform_sparse(x), test.z.numpy(), found.matching), outcomes


def broken(outcomes):
    return {
        assumption.name if hasattr(assumption, "name") else "samples"
        for assumption in outcomes
        if outcomes[assumption] == "fails"
    }


def test_features_in_superposition_come_back_and_nothing_stands_against_them():
    cosine, f1, outcomes = fitted(Superposed.overcomplete(D, M, n_active=K, random_state=0), seed=0)
    assert cosine > 0.93 > 0.4 > chance_pw_mcc(D, M)
    assert f1 > 0.85
    assert set(outcomes.values()) == {"holds"}


def test_atoms_that_lie_side_by_side_do_not_and_are_seen():
    cosine, f1, outcomes = fitted(Superposed.overcomplete(D, M, n_active=K, coherence=0.9, random_state=0), seed=0)
    assert cosine < 0.75
    assert f1 < 0.3
    assert broken(outcomes) == {"distinct atoms"}


def test_dense_latents_are_not_recovered_and_a_check_fails():
    cosine, f1, outcomes = fitted(Superposed(atoms(D, M, random_state=0), KSparse(D, D // 2)), seed=0)
    assert cosine < 0.5
    assert f1 < 0.2
    assert "sparse combination" in broken(outcomes)
    assert "distinct atoms" not in broken(outcomes)


def test_half_of_the_samples_recover_less_and_the_audit_says_so():
    simulation = Superposed.overcomplete(D, M, n_active=K, random_state=0)
    cosine, f1, outcomes = fitted(simulation, seed=0, n=ENOUGH // 2, batch_size=ENOUGH // 4)
    assert cosine < 0.94
    assert f1 < 0.83
    assert "samples" in broken(outcomes)


@pytest.mark.slow
@pytest.mark.parametrize("seed", [0, 1])
def test_a_thousand_features_in_256_dimensions_come_back(seed):
    simulation = Superposed.overcomplete(1_024, 256, n_active=10, random_state=seed)
    cosine, f1, _ = fitted(simulation, seed, gate=TopK(10), n=200_000, n_steps=1_200, batch_size=1_024)
    assert cosine > 0.95 > 0.3 > chance_pw_mcc(1_024, 256)
    assert f1 > 0.9


# ---- L1 and volume --------------------------------------------------------------------------------------------------


def basis(share, seed):
    simulation = Superposed.complete(8, probability=share, random_state=seed)
    sample = simulation.sample(2_000, random_state=seed + 100)
    fit = SparseBasis(8, max_iter=200, batch_size=512, verbose=False, random_state=seed).fit(sample.x.numpy())
    return simulation, sample, fit


def test_a_basis_comes_back_by_l1_and_volume_and_may_be_claimed():
    simulation, sample, fit = basis(0.2, seed=0)
    assert set(theory.SPARSE_COMPLETE.assumes) - {theory.LEAST_VOLUME} <= simulation.assumptions
    assert pw_mcc(fit.components_, simulation.truth, signed=False) > 0.99 > chance_pw_mcc(8, 8, signed=False)
    assert np.allclose(fit.inverse_transform(fit.transform(sample.x)), sample.x, atol=1e-4)
    found = audit(fit, sample.x.numpy(), n_fits=2, random_state=0)
    assert found.claims
    assert "the dictionary is recovered" in found.claim


def test_normal_latents_have_no_basis_and_nothing_is_claimed():
    simulation, sample, fit = basis(1.0, seed=0)
    assert theory.SCATTERED_ACTIVATIONS not in simulation.assumptions
    assert pw_mcc(fit.components_, simulation.truth, signed=False) < 0.85
    found = audit(fit, sample.x.numpy(), n_fits=2, random_state=0)
    assert not found.claims
    assert "sparse combination fails" in found.claim
