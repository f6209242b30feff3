"""Transitions of several bodies, each with columns of its own: read from mappings, checked, divided by episode."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
from scipy.sparse import coo_array
from scipy.sparse.csgraph import connected_components
from sklearn.utils import check_array

from pindown.data.data import from_torch
from pindown.methods.latent_action.dynamics import read_groups
from pindown.methods.observing import COLOURS

HELD_OUT = 0.2
"""Share of each body's episodes that charts are not fitted to, and all that is decided is measured on."""

SAMPLES_PER_FEATURE = 5
"""Transitions that a body needs, for each of its columns."""

LEAST_FILMED = 60
"""Transitions that a body needs of which there are frames."""

Pairs = Mapping[tuple[Any, Any], Any]
"""For two bodies, numbers of transitions of the first and of the second that made the same motion; (n, 2)."""


@dataclass(frozen=True, eq=False)
class Recording:
    """A body's transitions: observations before and after, and the number of each one's episode, (n,).

    Observations are columns, (n, d), or frames, (n, c, h, w), until a `Sight` makes columns of them, and says what
    moved, (n, m).
    """

    before: np.ndarray
    after: np.ndarray
    episode: np.ndarray
    moved: np.ndarray | None = None

    def __len__(self) -> int:
        return len(self.before)

    @property
    def filmed(self) -> bool:
        """Whether observations are frames."""
        return self.before.ndim == 4

    @property
    def change(self) -> np.ndarray:
        """What each transition changed, which codes are read off; (n, d), or what moved, (n, m)."""
        return self.after - self.before if self.moved is None else self.moved

    def take(self, rows: np.ndarray) -> Recording:
        """Return some transitions."""
        moved = None if self.moved is None else self.moved[rows]
        return Recording(self.before[rows], self.after[rows], self.episode[rows], moved)

    def follows(self) -> np.ndarray:
        """Say of each transition whether it begins where the one above it ended, in the same episode; (n,)."""
        size = np.abs(self.after - self.before).max(initial=0.0)
        apart = np.abs(self.before[1:] - self.after[:-1]).reshape(max(0, len(self) - 1), -1)
        goes_on = apart.max(1, initial=0.0) <= 1e-6 * size
        return np.concatenate([[False], goes_on & (self.episode[1:] == self.episode[:-1])])

    def divided(self, rng: np.random.Generator) -> np.ndarray:
        """Say of each transition whether it is held out, by whole episodes; (n,)."""
        numbers = np.unique(self.episode)
        n_held = max(1, round(HELD_OUT * len(numbers)))
        return np.isin(self.episode, rng.permutation(numbers)[:n_held])


def read_recordings(X_t: Mapping, X_next: Any, groups: Any, *, least_episodes: int = 2) -> dict[Any, Recording]:
    """Return the transitions of each body, or say which has something wrong; with 0 episodes, any number will do."""
    if not X_t:
        raise ValueError("LatentAction: X_t has no body. Give a mapping from each body to its observations.")
    for name, other in (("X_next", X_next), ("groups", groups)):
        if name == "groups" and other is None:
            continue
        if not isinstance(other, Mapping) or set(other) != set(X_t):
            found = sorted(map(str, other)) if isinstance(other, Mapping) else type(other).__name__
            raise ValueError(
                f"LatentAction: X_t is a mapping of the bodies {_listed(X_t)}, and {name} must be one of the same "
                f"bodies, got {found}."
            )
    read = {
        body: _read_one(body, X_t[body], X_next[body], None if groups is None else groups[body], least_episodes)
        for body in X_t
    }
    if len({each.filmed for each in read.values()}) > 1:
        with_frames, without = (next(body for body in read if read[body].filmed == which) for which in (True, False))
        raise ValueError(
            f"LatentAction: there are frames of {with_frames}, and of {without} there are none, but "
            f"{read[without].before.shape[1]} columns. Give frames of all bodies, or columns of all."
        )
    return read


def _read_one(body: Any, X_t: Any, X_next: Any, groups: Any, least_episodes: int) -> Recording:
    before, after = (_array(body, name, values) for name, values in (("X_t", X_t), ("X_next", X_next)))
    if before.shape != after.shape:
        raise ValueError(
            f"LatentAction: X_t of {body} has shape {before.shape} and X_next {after.shape}. Give a row after for each "
            "row before, with the same columns."
        )
    episode = np.zeros(len(before), dtype=np.int64)
    if groups is not None:
        episode = np.unique(_named(body, groups, len(before)), return_inverse=True)[1].reshape(-1)
    recording = Recording(before, after, episode)
    if groups is None:
        recording = Recording(before, after, np.cumsum(~recording.follows()))
    if least_episodes:
        _check_enough(body, recording, least_episodes)
    return recording


def _named(body: Any, groups: Any, n_samples: int) -> np.ndarray:
    try:
        return np.asarray(read_groups(groups, n_samples))
    except ValueError as error:
        raise ValueError(f"LatentAction: of {body}, {error}") from error


def _check_enough(body: Any, recording: Recording, least_episodes: int) -> None:
    lengths = np.unique(recording.episode, return_counts=True)[1]
    if recording.filmed and lengths.max() == 1:
        raise ValueError(
            f"LatentAction: every episode of {body} has one transition only, so that nobody can see which changes of "
            "its frames last. Give episodes of several, their rows in the order of time, or say by groups where one "
            "ends."
        )
    if len(lengths) < least_episodes:
        raise ValueError(
            f"LatentAction: {body} has one episode only, so that none can be held out. Give it two at least, say by "
            "groups where one ends, or let it join the others by adopt."
        )
    _check_rows(body, recording)
    if not np.ptp(recording.change, axis=0).any():
        raise ValueError(f"LatentAction: X_next of {body} is X_t in every row, so that nothing moved.")


def _check_rows(body: Any, recording: Recording) -> None:
    n_samples, n_columns = len(recording), recording.before.shape[1]
    if recording.filmed and min(recording.before.shape[2:]) < 2:
        raise ValueError(
            f"LatentAction: frames of {body} have shape {recording.before.shape[1:]}, and motion is seen in two rows "
            "and two columns of pixels at least. Are they (n, c, h, w)?"
        )
    if recording.filmed and n_samples < LEAST_FILMED:
        raise ValueError(
            f"LatentAction: {body} has {n_samples} transitions of frames, and its chart takes {LEAST_FILMED} at least."
        )
    if not recording.filmed and n_samples < SAMPLES_PER_FEATURE * n_columns:
        raise ValueError(
            f"LatentAction: {body} has {n_samples} transitions of {n_columns} columns. Give {SAMPLES_PER_FEATURE} for "
            f"each column at least, or let it join those that have more by adopt."
        )


def _array(body: Any, name: str, values: Any) -> np.ndarray:
    values = from_torch(values)
    if not isinstance(values, np.ndarray):
        shapes = {np.shape(row) for row in values}
        if () in shapes and any(row is None for row in values):
            raise ValueError(
                f"LatentAction: rows of {name} of {body} are missing. Leave out the transitions before and after them."
            )
        if len(shapes) > 1:
            what, whole = (
                ("size", "frames of one size") if max(map(len, shapes)) == 3 else ("width", "the same columns")
            )
            raise ValueError(
                f"LatentAction: rows of {name} of {body} differ in {what}. A body has {whole} in all of its episodes: "
                "give those of another build or camera as another body."
            )
    shape = np.shape(values)
    if len(shape) in (3, 5):
        raise ValueError(
            f"LatentAction: {name} of {body} has shape {shape}. Are they episodes? A row is a transition: give "
            "q[:, :-1].reshape(-1, *q.shape[2:]) for X_t, q[:, 1:] likewise for X_next, and episodes by groups."
        )
    if len(shape) == 4 and shape[3] in COLOURS and shape[1] not in COLOURS:
        raise ValueError(
            f"LatentAction: {name} of {body} has shape {shape}, and frames are (n, c, h, w). Are colours last? Give "
            "np.moveaxis(frames, -1, 1)."
        )
    try:
        if len(shape) == 4:
            return check_array(values, dtype=np.float32, allow_nd=True, input_name=name)
        return check_array(values, dtype=np.float64, input_name=name)
    except ValueError as error:
        raise ValueError(f"LatentAction: {name} of {body}: {error}") from error


@dataclass(frozen=True, eq=False)
class Ties:
    """Which transitions are of one motion: for each body numbers of transitions, and of the motions they make."""

    rows: dict[Any, np.ndarray]
    motions: dict[Any, np.ndarray]
    n_motions: int


def read_pairs(pairs: Pairs, recordings: Mapping[Any, Recording]) -> Ties:
    """Join pairs to motions that two or more bodies make, or say what is wrong with them.

    Examples
    --------
    >>> still = Recording(np.zeros((9, 2)), np.ones((9, 2)), np.zeros(9))
    >>> ties = read_pairs({("a", "b"): [[0, 5], [1, 6]], ("b", "c"): [[6, 2]]}, {"a": still, "b": still, "c": still})
    >>> ties.n_motions, {body: rows.tolist() for body, rows in ties.rows.items()}
    (2, {'a': [0, 1], 'b': [5, 6], 'c': [2]})
    >>> {body: motions.tolist() for body, motions in ties.motions.items()}
    {'a': [0, 1], 'b': [0, 1], 'c': [1]}
    """
    if not isinstance(pairs, Mapping) or not pairs:
        raise ValueError(
            "LatentAction: pairs must map two bodies to the numbers of their transitions that made the same motion: "
            '{("Panda", "UR5e"): array of shape (n, 2)}.'
        )
    bodies = list(recordings)
    starts = dict(zip(bodies, np.cumsum([0, *(len(recordings[body]) for body in bodies)]), strict=False))
    links = [_links(key, value, recordings) + [starts[each] for each in key] for key, value in pairs.items()]
    joined = np.concatenate(links)
    n = sum(len(each) for each in recordings.values())
    motion = components(n, joined)
    used = np.unique(joined)
    numbers = np.unique(motion[used], return_inverse=True)[1].reshape(-1)
    own = {body: (used >= starts[body]) & (used < starts[body] + len(recordings[body])) for body in bodies}
    _check_connected(pairs, bodies)
    return Ties(
        {body: used[own[body]] - starts[body] for body in bodies},
        {body: numbers[own[body]] for body in bodies},
        int(numbers.max()) + 1,
    )


def _links(key: Any, value: Any, recordings: Mapping[Any, Recording]) -> np.ndarray:
    if not isinstance(key, tuple) or len(key) != 2 or key[0] == key[1]:
        raise ValueError(f"LatentAction: pairs are of two bodies, got {key!r}. Write (first, second) for the key.")
    if missing := [body for body in key if body not in recordings]:
        raise ValueError(
            f"LatentAction: pairs name {missing[0]}, of whom there are no transitions. Bodies are "
            f"{_listed(recordings)}."
        )
    rows = np.asarray(from_torch(value))
    if rows.ndim != 2 or rows.shape[1] != 2 or rows.dtype.kind not in "iu" or not len(rows):
        raise ValueError(
            f"LatentAction: pairs of {key[0]} and {key[1]} must be whole numbers of shape (n, 2), got shape "
            f"{rows.shape} of {rows.dtype}."
        )
    for body, column in zip(key, rows.T, strict=True):
        if column.min() < 0 or column.max() >= len(recordings[body]):
            nowhere = column.min() if column.min() < 0 else column.max()
            raise ValueError(
                f"LatentAction: pairs of {key[0]} and {key[1]} point to transition {nowhere} of {body}, which has "
                f"{len(recordings[body])}, numbered from 0. Are they numbers of episodes, or of other rows?"
            )
    return rows.astype(np.int64)


def _check_connected(pairs: Pairs, bodies: list[Any]) -> None:
    part = _parts(pairs, bodies)
    first = next(iter(pairs))[0]
    if alone := [body for body in bodies if part[body] != part[first]]:
        raise ValueError(
            f"LatentAction: no pairs tie {alone[0]} to {first}, directly or through other bodies. Give "
            "some, leave the body out, or leave all pairs out and align codes afterwards."
        )


def are_connected(pairs: Pairs, bodies: Collection[Any]) -> bool:
    """Return whether pairs tie all bodies together, directly or through others."""
    return len(set(_parts(pairs, bodies).values())) == 1


def _parts(pairs: Pairs, bodies: Collection[Any]) -> dict[Any, int]:
    """Return the number of the connected component of each body."""
    number = {body: i for i, body in enumerate(bodies)}
    links = np.array([[number[a], number[b]] for a, b in pairs], dtype=np.int64).reshape(-1, 2)
    return dict(zip(bodies, components(len(number), links).tolist(), strict=True))


def components(n: int, links: np.ndarray) -> np.ndarray:
    """Return the number of the connected component of each of n things, given pairs of linked ones; (n,).

    Examples
    --------
    >>> components(4, np.array([[0, 2], [2, 3]])).tolist()
    [0, 1, 0, 0]
    """
    graph = coo_array((np.ones(len(links)), (links[:, 0], links[:, 1])), shape=(n, n))
    return connected_components(graph, directed=False)[1]


def read_rows(body: Any, rows: Any, n_samples: int) -> np.ndarray:
    """Return numbers of some of a body's transitions, or say what is wrong with them."""
    found = np.asarray(from_torch(rows))
    if found.ndim != 1 or found.dtype.kind not in "iu" or len(np.unique(found)) < len(found):
        raise ValueError(
            f"LatentAction: rows must be the numbers of transitions of {body}, each once, of shape (n,), got shape "
            f"{found.shape} of {found.dtype}."
        )
    if len(found) and (found.min() < 0 or found.max() >= n_samples):
        nowhere = found.min() if found.min() < 0 else found.max()
        raise ValueError(
            f"LatentAction: rows point to transition {nowhere} of {body}, which has {n_samples}, numbered from 0."
        )
    return found.astype(np.int64)


def read_codes(name: str, codes: Any, n_samples: int, n_codes: int) -> np.ndarray:
    """Return codes, (n_samples, n_codes), or say what is wrong with them."""
    found = check_array(from_torch(codes), dtype=np.float64, input_name=name)
    if found.shape != (n_samples, n_codes):
        raise ValueError(f"LatentAction: {name} must have shape {(n_samples, n_codes)}, got {found.shape}.")
    return found


def _listed(bodies: Any) -> str:
    return ", ".join(sorted(map(str, bodies)))
