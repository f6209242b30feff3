"""Transitions of one or several bodies: reading, episodes, and pairs of transitions of the same motion."""

from __future__ import annotations

from collections.abc import Collection, Hashable, Iterable, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from numpy.typing import ArrayLike, NDArray
from scipy.sparse import coo_array
from scipy.sparse.csgraph import connected_components
from sklearn.utils import check_array
from torch import Tensor

from pindown.data.data import as_array, from_torch
from pindown.data.labels import Numbered, as_numbers, is_quantity, numbered
from pindown.errors import InputError
from pindown.methods.forget.nuisance import MIN_LEVEL_SAMPLES
from pindown.methods.inputs import CHANNELS
from pindown.metrics.arrays import Labels, Mask, Matrix

HELD_OUT = 0.2  # fraction of each body's episodes that is held out from body-specific maps
SAMPLES_PER_FEATURE = 5  # transitions that a body needs for each of its features
MIN_FRAMES = 60  # transitions of frames that a body needs

Body = Hashable
Observations = NDArray[np.floating]
"""Vectors (n, d), or frames (n, c, h, w)."""

Pairs = Mapping[tuple[Body, Body], ArrayLike]
"""For two bodies, numbers of transitions of the first and of the second that made the same motion; (n, 2)."""


@dataclass(frozen=True, eq=False)
class Transitions:
    """Transitions of a body: observations before and after, and the number of each one's episode, (n,)."""

    before: Observations
    after: Observations
    episode: Labels
    motion: Matrix | None = None  # what moved in frames, (n, m), once `SlowFeatures` made vectors of them

    def __len__(self) -> int:
        return len(self.before)

    @property
    def are_frames(self) -> bool:
        """Whether observations are frames."""
        return self.before.ndim == 4

    @property
    def change(self) -> Observations:
        """What latents are computed from: displacements (n, d), or what moved in frames, (n, m)."""
        return self.after - self.before if self.motion is None else self.motion

    def take(self, which: NDArray[np.generic]) -> Transitions:
        """Return some transitions."""
        motion = None if self.motion is None else self.motion[which]
        return Transitions(self.before[which], self.after[which], self.episode[which], motion)

    def follows(self) -> Mask:
        """Return which transitions begin where the previous one ended, in the same episode; (n,)."""
        size = np.abs(self.after - self.before).max(initial=0.0)
        gap = np.abs(self.before[1:] - self.after[:-1]).reshape(max(0, len(self) - 1), -1)
        same = self.episode[1:] == self.episode[:-1]
        return np.concatenate([[False], (gap.max(1, initial=0.0) <= 1e-6 * size) & same])

    def held_out(self, rng: np.random.Generator) -> Mask:
        """Choose whole episodes to hold out; (n,)."""
        numbers = np.unique(self.episode)
        return np.isin(self.episode, rng.permutation(numbers)[: max(1, round(HELD_OUT * len(numbers)))])


def explained(before: Observations, after: Observations, predicted: Observations) -> float:
    """Return the fraction of squared displacements that predictions explain: 1 if exact, 0 without motion."""
    return 1 - float(((after - predicted) ** 2).sum() / ((after - before) ** 2).sum())


def like(given: object, values: Observations) -> NDArray[np.floating] | Tensor:
    """Return values as an array or tensor, in the precision and on the device of the input."""
    single = getattr(given, "dtype", None) in (np.float32, torch.float32)
    if isinstance(given, Tensor):
        return torch.as_tensor(values, dtype=torch.float32 if single else torch.float64, device=given.device)
    return values.astype(np.float32 if single else np.float64)


# ---- bodies and episodes ----------------------------------------------------------------------------------------


def read_bodies(body: ArrayLike, n_samples: int) -> Numbered:
    """Return the bodies and the number of each transition's body; raise if the bodies are missing or no labels."""
    column = as_array(body, "body")
    if column.shape != (n_samples,):
        raise InputError("body", f"body must have shape {(n_samples,)}, one label per transition, got {column.shape}.")
    if column.dtype.kind == "O" and not any(isinstance(value, str) for value in column):
        column = np.array(column.tolist())
    found = numbered(column, "body", "body")
    if is_quantity(column) or (column.dtype.kind == "f" and not np.isfinite(column).all()):
        raise InputError("body", "body has fractions or infinity, so it is no label. Cut it into a few bins.")
    if len(found.counts) > 1 and (found.counts.max() < MIN_LEVEL_SAMPLES or 2 * (found.counts == 1).sum() > n_samples):
        message = f"{len(found.counts)} bodies in {n_samples} transitions, most of them in fewer than"
        raise InputError("body", f"body has {message} {MIN_LEVEL_SAMPLES}. Give all transitions of a body one label.")
    return found


def read_episodes(groups: ArrayLike | None, n_samples: int) -> NDArray[np.generic] | None:
    """Return the episode of each transition, (n,); None if there are none."""
    episodes = None if groups is None else as_array(groups, "groups")
    if episodes is not None and episodes.shape != (n_samples,):
        message = f"groups must have shape {(n_samples,)}, the episode of each transition, got {episodes.shape}."
        raise InputError("groups", message)
    return episodes


def read_transitions(
    X_t: Mapping[Body, ArrayLike], X_next: object, groups: object, *, min_episodes: int = 2
) -> dict[Body, Transitions]:
    """Return the transitions of each body, or raise; with ``min_episodes=0`` their number is not checked."""
    if not X_t:
        raise InputError("X_t", "LatentAction: X_t has no body. Map each body to its observations.")
    after, episode = (
        read_mapping(name, part, X_t)
        for name, part in (("X_next", X_next), ("groups", dict.fromkeys(X_t) if groups is None else groups))
    )
    found = {body: _read_body(body, X_t[body], after[body], episode[body]) for body in X_t}
    if len({each.are_frames for each in found.values()}) > 1:
        raise InputError("X_t", "LatentAction: some bodies have frames, and others vectors. Give frames of all bodies.")
    for body, each in found.items() if min_episodes else ():
        _check_enough(body, each, min_episodes)
    return found


def read_mapping(argument: str, values: object, bodies: Collection[Body] | None = None) -> Mapping[Any, Any]:
    """Return a mapping from body, or raise if it is none, or is one of other bodies."""
    if not isinstance(values, Mapping) or (bodies is not None and set(values) != set(bodies)):
        which = "body" if bodies is None else f"the bodies {listed(bodies)}"
        raise InputError(argument, f"LatentAction: {argument} must be a mapping from {which} to arrays.")
    return values


def _read_body(body: Body, X_t: ArrayLike, X_next: ArrayLike, groups: ArrayLike | None) -> Transitions:
    before, after = (_read_observations(name, body, values) for name, values in (("X_t", X_t), ("X_next", X_next)))
    if before.shape != after.shape:
        shapes = f"X_t of {body} has shape {before.shape}, and X_next {after.shape}"
        raise InputError("X_next", f"LatentAction: {shapes}. Give an observation after each one before.")
    episodes = read_episodes(groups, len(before))
    if episodes is not None:
        return Transitions(before, after, as_numbers(episodes))
    follows = Transitions(before, after, np.zeros(len(before), dtype=np.int64)).follows()
    return Transitions(before, after, np.cumsum(~follows))


def _read_observations(name: str, body: Body, values: ArrayLike) -> Observations:
    try:
        array = np.asarray(from_torch(values))
        if array.ndim in (2, 4):
            kind = np.float64 if array.ndim == 2 else np.float32
            array = check_array(array, dtype=kind, allow_nd=True, input_name=name)
    except ValueError as error:
        message = f"LatentAction: {name} of {body}: {error} A body has the same features in all episodes."
        raise InputError(name, message) from error
    colours_last = array.ndim == 4 and array.shape[3] in CHANNELS and array.shape[1] not in CHANNELS
    if array.ndim not in (2, 4) or colours_last:
        message = f"{name} of {body} must have shape (n, d), or (n, c, h, w) if it has frames, got {array.shape}"
        raise InputError(name, f"LatentAction: {message}. `groups` says where episodes end.")
    return array


def _check_enough(body: Body, transitions: Transitions, min_episodes: int) -> None:
    lengths = np.unique(transitions.episode, return_counts=True)[1]
    frames, shape = transitions.are_frames, transitions.before.shape
    least = MIN_FRAMES if frames else SAMPLES_PER_FEATURE * shape[1]
    for argument, wrong, message in (
        ("groups", len(lengths) < min_episodes, f"needs {min_episodes} episodes, or joins by `adopt`"),
        ("X_t", len(transitions) < least, f"has {len(transitions)} transitions, but needs {least}"),
        ("groups", frames and lengths.max() == 1, "needs episodes of several transitions, in the order of time"),
        ("X_t", frames and min(shape[2:]) < 2, "needs frames of two rows and columns of pixels at least"),
        ("X_next", not np.ptp(transitions.change, axis=0).any(), "does not move: X_next equals X_t"),
    ):
        if wrong:
            raise InputError(argument, f"LatentAction: {body} {message}.")


def listed(bodies: Iterable[Body]) -> str:
    """Return names of bodies in a sentence."""
    return ", ".join(sorted(map(str, bodies)))


# ---- pairs ------------------------------------------------------------------------------------------------------


def read_pairs(pairs: object, transitions: Mapping[Body, Transitions]) -> dict[Body, Labels]:
    """Return for each body the number of the motion that each transition makes, −1 if it is in no pair; or raise.

    Examples
    --------
    >>> still = Transitions(np.zeros((7, 2)), np.ones((7, 2)), np.zeros(7))
    >>> motions = read_pairs({("a", "b"): [[0, 5], [1, 6]], ("b", "c"): [[6, 2]]}, dict.fromkeys("abc", still))
    >>> {body: numbers.tolist() for body, numbers in motions.items()}
    {'a': [0, 1, -1, -1, -1, -1, -1], 'b': [-1, -1, -1, -1, -1, 0, 1], 'c': [-1, -1, 1, -1, -1, -1, -1]}
    """
    if not (pairs := read_mapping("pairs", pairs)):
        raise InputError("pairs", "LatentAction: pairs are empty. Leave them out, or give some for two bodies.")
    ends = np.cumsum([len(each) for each in transitions.values()])
    start = {body: end - len(transitions[body]) for body, end in zip(transitions, ends, strict=True)}
    links = np.concatenate(
        [_read_links(key, value, transitions) + [start[b] for b in key] for key, value in pairs.items()]
    )
    component, first = components_of_bodies(pairs, transitions), next(iter(pairs))[0]
    if alone := [body for body in transitions if component[body] != component[first]]:
        message = f"no pairs connect {alone[0]} to {first}, directly or through other bodies. Give some"
        raise InputError("pairs", f"LatentAction: {message}, or leave all pairs out and use `align` afterwards.")
    motion, paired = np.full(int(ends[-1]), -1), np.unique(links)
    motion[paired] = as_numbers(components(len(motion), links)[paired])
    return dict(zip(transitions, np.split(motion, ends[:-1]), strict=True))


def _read_links(key: object, value: ArrayLike, transitions: Mapping[Body, Transitions]) -> Labels:
    if not isinstance(key, tuple) or len(key) != 2 or key[0] == key[1] or not {*key} <= {*transitions}:
        message = f"keys of pairs must be two of {listed(transitions)}, (first, second), got {key!r}"
        raise InputError("pairs", f"LatentAction: {message}.")
    return read_numbers("pairs", value, {body: len(transitions[body]) for body in key})


def components_of_bodies(pairs: Pairs, bodies: Collection[Body]) -> dict[Body, int]:
    """Return the number of each body's component: those of one are connected by pairs, directly or through others."""
    number = {body: i for i, body in enumerate(bodies)}
    links = np.array([[number[a], number[b]] for a, b in pairs], dtype=np.int64).reshape(-1, 2)
    return dict(zip(bodies, components(len(number), links).tolist(), strict=True))


def components(n: int, links: Labels) -> Labels:
    """Return the number of the connected component of each of n nodes, given links between two of them; (n,)."""
    graph = coo_array((np.ones(len(links)), (links[:, 0], links[:, 1])), shape=(n, n))
    return connected_components(graph, directed=False)[1]


# ---- numbers and tables -----------------------------------------------------------------------------------------


def read_numbers(argument: str, values: ArrayLike, sizes: Mapping[Body, int]) -> Labels:
    """Return numbers of transitions of some bodies, (n, n_bodies), or raise."""
    found = np.asarray(from_torch(values))
    if found.ndim != 2 or found.shape[1] != len(sizes) or found.dtype.kind not in "iu" or not len(found):
        message = f"must be whole numbers of shape (n, {len(sizes)}), got shape {found.shape} of {found.dtype}"
        raise InputError(argument, f"LatentAction: {argument} {message}.")
    for (body, size), column in zip(sizes.items(), found.T, strict=True):
        if column.min() < 0 or column.max() >= size:
            message = f"must be from 0 to {size - 1} for {body}, got {column.min()} to {column.max()}"
            raise InputError(argument, f"LatentAction: {argument} {message}. Are they numbers of episodes?")
    return found.astype(np.int64)


def read_table(argument: str, values: ArrayLike, shape: tuple[int, ...]) -> Observations:
    """Return a finite float array of this shape, or raise."""
    found = check_array(from_torch(values), dtype=[np.float64, np.float32], order="C", input_name=argument)
    if found.shape != shape:
        raise InputError(argument, f"{argument} must have shape {shape}, one row per transition, got {found.shape}.")
    return found
