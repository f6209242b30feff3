"""`Data`: samples with their side variables. The one container, from files to audits."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from typing import Any, TypedDict

import numpy as np
from numpy.typing import ArrayLike, NDArray

from pindown.errors import InputError

NEXT = "next"
"""Instead of positives: the positive of each sample is the next sample, of the same group if there are groups."""

LARGEST = 1e150  # numbers beyond it have no square in float64, and numbers below its inverse have none above zero
ROLES = ("signal", "nuisance", "pairs", "given", "groups", "truth", "floor")  # roles of side variables


class Sides(TypedDict, total=False):
    """Side variables of a source, or where they are read from, by role; ``y`` has the role that is learned from."""

    signal: object
    nuisance: object
    pairs: object
    given: object
    groups: object
    truth: object
    floor: object
    y: object


def roles_of(sides: Sides) -> dict[str, Any]:
    """Return the side variables that are not None, or raise if one is named by no role."""
    if unknown := sides.keys() - Sides.__annotations__.keys():
        raise TypeError(f"{unknown.pop()!r} is no role. There are {', '.join(Sides.__annotations__)}.")
    return {role: side for role, side in sides.items() if side is not None}


@dataclass(frozen=True, eq=False)
class Data:
    """Samples, and the role of each side variable.

    Parameters
    ----------
    X : array (n, …) or Source
        The samples: vectors, images (n, c, h, w), sequences (n, t, c), or a source that gives them in batches.
    signal : array (n,) or (n, k), optional
        A label, or measurements, to learn from.
    nuisance : array (n,) or (n, k), optional
        What to remove: one column, or several.
    pairs : array like X, array (n,), or "next", optional
        The positive of each sample; or groups whose samples are positives of each other; or the next sample.
    given : array (n,), optional
        A label that must survive: the nuisance is removed within its levels.
    groups : array (n,), optional
        Subjects, sessions, episodes …: samples of one group are never on both sides of a split.
    truth : array (n, d), optional
        Latents, where they are known. No fit sees them.
    floor : array (n, k), optional
        Latents that are known to be free of the nuisance, to compare with.
    names : tuple of str
        Names of the features.
    notes : tuple of str
        What was left out, and why.
    ids : array (n,), optional
        Names of the samples. No fit sees them.
    id_name : str
        What these names are called.

    Examples
    --------
    >>> data = Data(np.zeros((4, 2)), nuisance=["a", "a", "b", "b"], groups=[1, 1, 2, 2])
    >>> len(data), sorted(data.side_variables), len(data.take([0, 2]))
    (4, ['groups', 'nuisance'], 2)
    >>> Data(np.zeros((4, 2)), signal=[1, 2])
    Traceback (most recent call last):
    pindown.errors.InputError: signal has 2 samples, but X has 4. Pass one for each.
    """

    X: Any
    signal: Any = None
    nuisance: Any = None
    pairs: Any = None
    given: Any = None
    groups: Any = None
    truth: Any = None
    floor: Any = None
    names: tuple[str, ...] = ()
    notes: tuple[str, ...] = ()
    ids: Any = None
    id_name: str = "id"

    def __post_init__(self) -> None:
        require_numbers("X", self.X)
        for role in (*ROLES, "ids"):
            values = getattr(self, role)
            if values is None or isinstance(values, str):
                continue
            array = as_array(values, role)
            object.__setattr__(self, role, array)
            n = len(array) if array.ndim else 0
            if self.n_samples is not None and n != self.n_samples:
                raise InputError(role, f"{role} has {n} samples, but X has {self.n_samples}. Pass one for each.")
        if isinstance(self.pairs, str) and self.pairs != NEXT:
            raise InputError("pairs", f"pairs must be an array or {NEXT!r}, got {self.pairs!r}.")

    def __len__(self) -> int:
        if self.n_samples is None:
            raise TypeError("The length of these data is not known: their source is a stream.")
        return self.n_samples

    @property
    def n_samples(self) -> int | None:
        """Number of samples; None if a source does not know."""
        return self.X.n_samples if self.is_source else len(self.X)

    @property
    def is_source(self) -> bool:
        """Whether X is a source."""
        return hasattr(self.X, "n_samples")

    @property
    def n_features(self) -> int:
        """Number of features: of images, pixels times channels."""
        return math.prod(self.X.shape if self.is_source else np.shape(self.X)[1:])

    @property
    def side_variables(self) -> dict[str, Any]:
        """The side variables, by role."""
        return {role: getattr(self, role) for role in ROLES if getattr(self, role) is not None}

    def take(self, rows: ArrayLike) -> Data:
        """Return the samples with these numbers."""
        rows = np.asarray(rows)
        parts = {"X": self.X, **{role: side for role, side in self.side_variables.items() if not isinstance(side, str)}}
        parts |= {} if self.ids is None else {"ids": self.ids}
        return replace(self, **{name: part[rows] for name, part in parts.items()})

    def paired(self) -> Data:
        """Return the samples that have a next sample in their group, paired with it, if pairs are ``"next"``.

        >>> data = Data(np.arange(5.0)[:, None], pairs="next", groups=[1, 1, 1, 2, 2]).paired()
        >>> data.X.ravel().tolist(), data.pairs.ravel().tolist()
        ([0.0, 1.0, 3.0], [1.0, 2.0, 4.0])
        """
        if not isinstance(self.pairs, str):
            return self
        rows = samples_with_next(len(self), self.groups)
        return replace(self.take(rows), pairs=self.X[rows + 1])

    def sample(self, n_samples: int) -> Data:
        """Return about this many samples, drawn at random, or all if there are fewer; positives stay together."""
        data = self.paired()
        if len(data) <= n_samples:
            return data
        rng = np.random.default_rng(0)
        if data.pairs is None or data.pairs.ndim > 1:
            return data.take(np.sort(rng.permutation(len(data))[:n_samples]))
        group = np.unique(data.pairs, return_inverse=True)[1].reshape(-1)
        counts = np.bincount(group)
        order = rng.permutation(len(counts))
        chosen = order[: max(2, int((counts[order].cumsum() <= n_samples).sum()))]
        return data.take(np.flatnonzero(np.isin(group, chosen)))

    def only(self, *roles: str) -> Data:
        """Return the same samples with these side variables alone."""
        none: dict[str, Any] = dict.fromkeys({*ROLES} - {*roles})
        return replace(self, **none)


def samples_with_next(n_samples: int, groups: NDArray[np.generic] | None = None) -> NDArray[np.int64]:
    """Return the samples that have a next sample, of the same group if there are groups."""
    rows = np.arange(n_samples - 1) if groups is None else np.flatnonzero(groups[:-1] == groups[1:])
    if len(rows) < 2:
        message = f"There is {len(rows)} pair in n_samples={n_samples}. Give at least 2. Are the samples in order?"
        raise InputError("pairs", message)
    return rows


def as_array(values: object, name: str = "values") -> NDArray[Any]:
    """Return values as a numpy array: of a tensor its numbers, of text mixed with numbers both as they are.

    >>> as_array(["a", 1]).tolist()
    ['a', 1]
    """
    values = from_torch(values)
    _refuse_masked(name, values)
    if isinstance(values, list | tuple) and any(isinstance(value, str) for value in values):
        mixed = not all(isinstance(value, str) for value in values)
        return np.asarray(values, dtype=object if mixed else None)  # numpy would make text of the numbers
    return np.asarray(values)


def from_torch(values: Any) -> Any:
    """Return a tensor as a numpy array, anything else as it is."""
    if not hasattr(values, "detach"):
        return values
    values = values.detach().cpu()
    return (values.float() if str(values.dtype) == "torch.bfloat16" else values).numpy()  # numpy has no bfloat16


def require_numbers(name: str, values: object) -> None:
    """Raise if values would be misread as numbers: a masked array, or dates."""
    _refuse_masked(name, values)
    whole = [getattr(values, "dtype", None)]
    dtypes = getattr(values, "dtypes", whole) if hasattr(values, "columns") else whole  # of a data frame, by column
    if any(getattr(dtype, "kind", None) in ("m", "M") for dtype in dtypes):
        days = f"({name} - {name}.min()) / np.timedelta64(1, 'D')"
        raise InputError(name, f"{name} has dates or durations. Turn them into numbers, such as days: {days}.")


def _refuse_masked(name: str, values: object) -> None:
    if isinstance(values, np.ma.MaskedArray) and (n_masked := np.ma.getmaskarray(values).sum()):
        remedy = f"Leave out samples with masked values, or fill these: {name}.filled(0)"
        raise InputError(name, f"{name} is a masked array, whose {n_masked} masked values would be used. {remedy}.")
