"""Parameters that all estimators have: their checks, their defaults, and those that a resumed fit must agree with."""

from __future__ import annotations

import math
import numbers
from typing import TYPE_CHECKING, SupportsFloat

from sklearn.utils import check_scalar

from pindown import theory
from pindown.networks.images import is_image
from pindown.networks.preprocessing import SAMPLES_PER_FEATURE, Preprocessing
from pindown.saving.values import Unsaved
from pindown.training import Trainer
from pindown.training.checkpoints import stable_repr

if TYPE_CHECKING:
    from pindown.methods.base import BaseEncoder
    from pindown.methods.latent_action import InverseDynamics

NOT_SETTINGS = {"trainer", "device", "verbose"}
"""Parameters that the result of a fit does not depend on, or that are compared as part of the trainer."""

_OBSERVED = theory.BIJECTIVE_OBSERVABLE, theory.INJECTIVE_GIVEN_NUISANCE
INJECTIVE = frozenset((theory.INJECTIVE_MIXING, theory.DIFFEOMORPHIC_MIXING, *_OBSERVED))
"""Assumptions under which there cannot be more latents than features."""

LEARNING_RATE, LEARNING_RATE_OF_FEW = 1e-2, 3e-3  # of vectors with a hundred samples per feature, and with fewer

WEIGHT_DECAY_SAMPLES, MAX_WEIGHT_DECAY = 10_000, 2.0
"""The default weight decay is the first divided by n_samples, and at most the second."""


def default_learning_rate(est: BaseEncoder, n_samples: float) -> float:
    """Return the learning rate: as requested, or what suits so many samples."""
    if est.learning_rate is not None:
        return est.learning_rate
    if est.training_defaults.learning_rates is not None:
        return est.training_defaults.learning_rates[is_image(est.shape_in_)]
    few = len(est.shape_in_) == 1 and n_samples < SAMPLES_PER_FEATURE * est.n_features_in_
    return LEARNING_RATE_OF_FEW if few else LEARNING_RATE


def default_weight_decay(est: BaseEncoder, n_samples: float) -> float:
    """Return the method's weight decay for so many samples, which is used if its trainer has none."""
    defaults = est.training_defaults
    if defaults.weight_decay is not None:
        return defaults.weight_decay
    by_samples = min(MAX_WEIGHT_DECAY, WEIGHT_DECAY_SAMPLES / n_samples)
    return by_samples if is_image(est.shape_in_) else max(defaults.min_weight_decay, by_samples)


def check_common(est: BaseEncoder | InverseDynamics) -> None:
    """Raise if a parameter that all estimators have is invalid."""
    if est.max_iter is not None:
        check_scalar(est.max_iter, "max_iter", numbers.Integral, min_val=1)
    if est.learning_rate is not None:
        check_positive_number(est.learning_rate, "learning_rate")
    if est.batch_size is not None:
        check_scalar(est.batch_size, "batch_size", numbers.Integral, min_val=2)
    if isinstance(est.trainer, Unsaved):
        est.trainer()
    if not isinstance(est.trainer, Trainer):
        raise TypeError(f"{type(est).__name__}: trainer must be a Trainer(…), got {est.trainer!r}.")
    est.trainer.check()


def check_components(est: BaseEncoder, preprocessing: Preprocessing) -> None:
    """Raise if there are more latents than features, and the theorem needs an injective mixing."""
    d, n_features = est.n_components, math.prod(preprocessing.shape_out)
    if isinstance(d, numbers.Integral) and int(d) > n_features and est.needs_injective:
        raise ValueError(
            f"{type(est).__name__}: n_components={d} is more than n_features={n_features}. An injective mixing has at "
            "least as many features as latents: ask for fewer latents."
            + (f" Preprocessing: {preprocessing.note}" if n_features < est.n_features_in_ else "")
        )


def check_positive_number(value: SupportsFloat, name: str) -> None:
    """Raise unless the value is a positive, finite number."""
    check_scalar(value, name, numbers.Real, min_val=0, include_boundaries="neither")
    check_weight(value, name)


def check_weight(value: SupportsFloat, name: str) -> None:
    """Raise unless the value is a finite number, 0 or more."""
    check_scalar(value, name, numbers.Real, min_val=0)
    if not math.isfinite(float(value)):
        raise ValueError(f"{name} must be finite, got {value}.")


def check_penalty(est: BaseEncoder, penalty: object) -> None:
    """Raise unless it is None or a penalty: something that can be called and has a weight."""
    is_value = callable(penalty) and hasattr(penalty, "weight") and not isinstance(penalty, type)
    if penalty is not None and not is_value:
        must = "a value such as penalties.DependencySparsity(weight=0.1), or None"
        raise TypeError(f"{type(est).__name__}: penalty must be {must}, got {penalty!r}.")


def settings(est: BaseEncoder, digest: str) -> dict[str, object]:
    """Return what a checkpoint must agree with: the parameters that the result depends on, and the data."""
    if not isinstance(est.random_state, numbers.Integral):
        must = f"an integer with a checkpoint, got {est.random_state!r}. A resumed fit must draw the same numbers again"
        raise ValueError(f"{type(est).__name__}: random_state must be {must}.")
    ours = {name: value for name, value in est.get_params(deep=False).items() if name not in NOT_SETTINGS}
    return {name: stable_repr(value) for name, value in ours.items()} | {"data": digest}
