"""Small fits of every estimator, and what each of them says of rows, for the tests of saving."""

from functools import cache, partial

import numpy as np
import torch
from own_method.regress import Regress
from pindown_papers.erasers import ComponentRemoval, PerValueStandardiser, Untouched
from pindown_papers.muon import muon
from torch import nn

from pindown import (
    Classify,
    Contrast,
    Dictionary,
    Forget,
    LatentAction,
    Sparse,
    SparseBasis,
    SparsePair,
    networks,
)
from pindown._files import pack_tensors, unpack_tensors
from pindown.losses import DependencySparsity
from pindown.methods import PairLoss
from pindown.methods.forget import LinearErasure
from pindown.methods.latent_action import InverseDynamics
from pindown.networks.gates import JumpReLU, Matryoshka, TopK
from pindown.networks.spaces import Reals
from pindown.training import Trainer

RNG = np.random.default_rng(0)
MAP = nn.Sequential(nn.Linear(4, 8), nn.GELU(), nn.Linear(8, 3))
for number, weight in enumerate(MAP.parameters()):
    nn.init.normal_(weight.data, generator=torch.Generator().manual_seed(number))
X = RNG.normal(size=(240, 4)) @ RNG.normal(size=(4, 4)) + 1e3  # far from zero, where float32 would lose it
NEXT = X + 0.1 * RNG.normal(size=X.shape)
NUMBERS = np.arange(240) % 4
WORDS = np.array(["one", "two", "three"])[np.arange(240) % 3]
AMOUNTS = X[:, 0] - 1e3 + RNG.normal(size=240)

small = partial(networks.skip_mlp, hidden=(8,))
bent = partial(networks.smooth, hidden=(8,))
reader = partial(networks.mlp, hidden=(8,))
quick = {"max_iter": 12, "random_state": 0, "verbose": False, "device": "cpu"}
forget = partial(Forget, 2, encoder=small, decoder=small, classifier=reader, **quick)
straight = partial(Forget, 2, encoder=networks.linear, classifier=reader, **quick)

FITS = {
    "contrast": lambda: Contrast(2, encoder=small, **quick).fit(X, NEXT),
    "contrast in the reals": lambda: Contrast(
        2, space=Reals(), p=1, temperature=0.5, loss=PairLoss(0.5, any_marginal=False), encoder=small, **quick
    ).fit(X, NEXT),
    "classify": lambda: Classify(2, encoder=small, **quick).fit(X, WORDS),
    "classify with muon": lambda: Classify(2, encoder=reader, scale=3.0, trainer=Trainer(optimizer=muon), **quick).fit(
        X, NUMBERS[::-1] % 3
    ),
    "forget": lambda: forget().fit(X, WORDS),
    "forget, closed form": lambda: Forget(verbose=False, random_state=0).fit(
        X + 3 * (NUMBERS % 2)[:, None], NUMBERS % 2
    ),
    "forget two columns": lambda: forget().fit(X, np.stack([WORDS, np.array(["a", "b"])[NUMBERS % 2]], 1)),
    "forget an amount": lambda: forget(n_bins=3).fit(X, AMOUNTS),
    "forget given": lambda: forget().fit(X, NUMBERS, WORDS),
    "forget, linear": lambda: straight().fit(X, WORDS),
    "dictionary": lambda: Dictionary(2, encoder=bent, decoder=bent, n_restarts=2, **quick).fit(X),
    "dictionary of columns": lambda: Dictionary(
        2, penalty=DependencySparsity(0.1, n_columns=1), encoder=bent, decoder=bent, n_restarts=1, **quick
    ).fit(X),
    "inverse dynamics": lambda: InverseDynamics(2, encoder=bent, forward=bent, **quick).fit(X, NEXT),
    "latent action": lambda: LatentAction(
        1, dynamics=InverseDynamics(2, encoder=bent, forward=bent, **quick), forget=forget(), random_state=0
    ).fit(X, NEXT, NUMBERS % 2),
    "sparse": lambda: Sparse(6, gate=TopK(2), **quick).fit(X),
    "sparse in order": lambda: Sparse(6, gate=Matryoshka(2), **quick).fit(X),
    "sparse, jumping": lambda: Sparse(6, gate=JumpReLU(2), **quick).fit(X),
    "sparse basis": lambda: SparseBasis(3, **quick).fit(X),
    "sparse pair": lambda: SparsePair(MAP, 6, gate=TopK(2), n_jacobians=4, **quick).fit(X),
    "regress": lambda: Regress(2, encoder=small, **quick).fit(X, NEXT),
    "mean projection": lambda: LinearErasure().fit(X, WORDS),
    "component removal": lambda: ComponentRemoval().fit(X, WORDS),
    "untouched": lambda: Untouched().fit(X, WORDS),
    "standardiser": lambda: PerValueStandardiser().fit(X, WORDS),
}


@cache
def fitted(name):
    """Return a fit; nobody may change it."""
    return FITS[name]()


def answers(estimator, x=X[:40], x_next=NEXT[:40]):
    """Return all that an estimator says of rows."""
    if isinstance(estimator, InverseDynamics):
        codes = estimator.transform(x, x_next)
        return {"transform": codes, "predict_next": estimator.predict_next(x, codes)}
    if isinstance(estimator, LatentAction):
        codes = estimator.transform(x, x_next)
        return {"transform": codes, "predict_next": estimator.predict_next(x, codes, NUMBERS[: len(x)] % 2)}
    if isinstance(estimator, PerValueStandardiser):
        return {"transform": estimator.transform(x, WORDS[: len(x)])}
    said = {"transform": estimator.transform(x)}
    match estimator:
        case Contrast():
            said["score"] = estimator.score(x, x_next)
        case Classify():
            said |= {"predict_proba": estimator.predict_proba(x), "predict": estimator.predict(x)}
        case Forget():
            values = [column.values[:1] for column in estimator.columns_]
            y = np.repeat(np.stack(values, 1), len(x), axis=0)
            said["inverse_transform"] = estimator.inverse_transform(said["transform"], y)
        case Dictionary():
            said |= {"score": estimator.score(x), "jacobian": estimator.jacobian(x)}
            said["inverse_transform"] = estimator.inverse_transform(said["transform"])
    return said


def edited(path, change, **entries):
    """Rewrite a file with its content and tensors changed, and a checksum that agrees: what an attacker would do."""
    tensors, entry = unpack_tensors(path.read_bytes())
    change(entry["content"], tensors)
    path.write_bytes(pack_tensors(tensors, entry | entries))
