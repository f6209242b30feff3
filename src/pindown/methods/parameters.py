"""Parameters that all estimators have: what they may be, and which of them a resumed fit must agree with."""

from __future__ import annotations

import math
import numbers
from typing import TYPE_CHECKING, Any

from sklearn.utils import check_scalar

from pindown import theory
from pindown.networks.images import is_image
from pindown.networks.preprocessing import Preprocessing
from pindown.networks.spectrum import SAMPLES_PER_FEATURE
from pindown.saving.writing import Unsaved
from pindown.training import Trainer
from pindown.training.checkpoints import stable_repr

if TYPE_CHECKING:
    from pindown.methods.base import BaseEncoder

NOT_SETTINGS = {"trainer", "device", "verbose"}
"""Parameters that a fit does not depend on, beside those of its trainer."""


INJECTIVE = frozenset(
    {
        theory.INJECTIVE_MIXING,
        theory.DIFFEOMORPHIC_MIXING,
        theory.BIJECTIVE_OBSERVABLE,
        theory.INJECTIVE_GIVEN_NUISANCE,
    }
)
"""Assumptions under which there cannot be more latents than observed variables."""


RATE, RATE_OF_FEW = 1e-2, 3e-3
"""A learning rate of None: where vectors have a hundred rows for each column, and where they have fewer. These go with
the largest weight decay, and codes on a sphere, whose length says nothing, then turn by the root of both in a step:
on other splits of digits than those reported .955 and .969 of rows were recognised."""


WEIGHT_DECAY_SAMPLES, MAX_WEIGHT_DECAY = 10_000, 2.0
"""The weight decay by default is the first divided by n_samples, and at most the second."""


def rate(est: BaseEncoder, n_samples: float) -> float:
    """Return the learning rate that suits so many rows, if none was given."""
    if est.learning_rate is not None:
        return est.learning_rate
    if est.training_defaults.learning_rates is not None:
        return est.training_defaults.learning_rates[is_image(est.shape_in_)]
    few = len(est.shape_in_) == 1 and n_samples < SAMPLES_PER_FEATURE * est.n_features_in_
    return RATE_OF_FEW if few else RATE


def default_weight_decay(est: BaseEncoder, n_samples: float) -> float:
    """Return the weight decay that the method takes for so many samples, if its trainer has none."""
    defaults = est.training_defaults
    if defaults.weight_decay is not None:
        return defaults.weight_decay
    by_samples = min(MAX_WEIGHT_DECAY, WEIGHT_DECAY_SAMPLES / n_samples)
    return by_samples if is_image(est.shape_in_) else max(defaults.min_weight_decay, by_samples)


def check_common(est: BaseEncoder) -> None:
    """Raise if a parameter that all estimators have is not what it must be."""
    if est.max_iter is not None:
        check_scalar(est.max_iter, "max_iter", numbers.Integral, min_val=1)
    if est.learning_rate is not None:
        check_positive(est.learning_rate, "learning_rate")
    if est.batch_size is not None:
        check_scalar(est.batch_size, "batch_size", numbers.Integral, min_val=2)
    check_trainer(est)


def check_trainer(est: Any) -> None:
    """Raise if the trainer of an estimator is none, or has a parameter that is not what it must be."""
    if isinstance(est.trainer, Unsaved):
        est.trainer()
    if not isinstance(est.trainer, Trainer):
        raise TypeError(f"{type(est).__name__}: trainer must be a Trainer(…), got {est.trainer!r}.")
    est.trainer.check()


def check_components(est: BaseEncoder, first: Preprocessing) -> None:
    """Raise if there are more latents than observed variables, where the theorem needs an injective mixing."""
    asked, n_features = est.n_components, math.prod(first.shape_out)
    if not isinstance(asked, numbers.Integral) or asked <= n_features:
        return
    if est.needs_injective:
        raise ValueError(
            f"{type(est).__name__}: n_components={asked} is more than n_features={n_features}. "
            "No injective mixing makes fewer observed than hidden variables: ask for at most as many."
            + (f" Of what was observed {first.note}" if n_features < est.n_features_in_ else "")
        )


def check_positive(value: Any, name: str) -> None:
    """Raise unless the value is a positive, finite number."""
    check_scalar(value, name, numbers.Real, min_val=0, include_boundaries="neither")
    check_weight(value, name)


def check_weight(value: Any, name: str) -> None:
    """Raise unless the value is a finite number, 0 or more."""
    check_scalar(value, name, numbers.Real, min_val=0)
    if not math.isfinite(value):
        raise ValueError(f"{name} must be finite, got {value}.")


def check_penalty(est: BaseEncoder, penalty: Any) -> None:
    """Raise unless it is one of `pindown.losses`, something that can be called and has a weight, or None."""
    is_value = callable(penalty) and hasattr(penalty, "weight") and not isinstance(penalty, type)
    if penalty is not None and not is_value:
        raise TypeError(
            f"{type(est).__name__}: penalty must be a value such as penalties.DependencySparsity(weight=0.1), or None, "
            f"got {penalty!r}."
        )


def settings(est: BaseEncoder, digest: str) -> dict[str, Any]:
    """Return what a checkpoint must agree with: the parameters that a fit depends on, and the data."""
    if not isinstance(est.random_state, numbers.Integral):
        raise ValueError(
            f"{type(est).__name__}: checkpoint is given but random_state={est.random_state!r}. A fit can only "
            "be resumed if it draws the same numbers again: set random_state to an integer."
        )
    ours = {name: value for name, value in est.get_params(deep=False).items() if name not in NOT_SETTINGS}
    return {name: stable_repr(value) for name, value in ours.items()} | {"data": digest}
