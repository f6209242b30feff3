"""Readers that are linear in the codes: logistic and linear regression, support vector machines of one code."""

from __future__ import annotations

import numpy as np
from scipy.stats import kendalltau, rankdata
from sklearn.linear_model import LinearRegression, LogisticRegression

from pindown.data.labels import Codes
from pindown.metrics.disentanglement.rows import Factor, Rows
from pindown.metrics.reading import Matrix

SVM_C = 0.01  # of the reference


def predictive_shares(rows: Rows, rng: np.random.Generator) -> Matrix:
    """Return how much of each factor linear readers know on held-out rows: of its entropy, or R²; (d,), at least 0."""
    fit, test = rows.halves(rng)
    said = read_linearly(fit, test.codes)
    return np.array([_share(*parts) for parts in zip(said, fit.factors, test.factors, strict=True)])


def concordances(rows: Rows, rng: np.random.Generator) -> Matrix:
    """Return how often linear readers order two held-out rows rightly, by each value of a factor; (d,)."""
    fit, test = rows.halves(rng)
    return np.array([_concordance(*parts) for parts in zip(read_linearly(fit, test.codes), test.factors, strict=True)])


def read_linearly(fit: Rows, codes: Matrix) -> list[Matrix]:
    """Fit a linear reader of each factor, and apply it to codes: log-probabilities (n, values), or numbers (n, 1).

    Labels by logistic regression with the reference's penalty (C = 1), quantities by least squares.
    """
    return [_regressed(fit.codes, factor, codes) for factor in fit.factors]


def _regressed(fit: Matrix, factor: Factor, codes: Matrix) -> Matrix:
    if factor.continuous:
        return LinearRegression().fit(fit, factor.values[:, None]).predict(codes)
    said = np.full((len(codes), factor.n_values), np.log(1 / (len(fit) + 1)))  # of values that the fit has not seen
    if len(seen := np.unique(factor.labels)) == 1:
        said[:, seen] = 0.0
    else:
        said[:, seen] = LogisticRegression(max_iter=1_000).fit(fit, factor.labels).predict_log_proba(codes)
    return said


def squared_correlations(rows: Rows) -> Matrix:
    """Return the squared correlation of each code with each factor on these rows, 0 of what is constant; (d_hat, d)."""
    factors = np.stack([factor.values for factor in rows.factors], axis=1)
    return (_of_unit_length(rows.codes).T @ _of_unit_length(factors)) ** 2


def _of_unit_length(columns: Matrix) -> Matrix:
    centred = columns - columns.mean(axis=0)
    length = np.linalg.norm(centred, axis=0)
    return centred / np.where(length > 1e-12 * np.abs(columns).max(axis=0, initial=0.0), length, np.inf)


def svm_accuracies(fit: Rows, test: Rows) -> Matrix:
    """Return how often a linear SVM of one code tells a factor, one value against the rest; (d_hat, d)."""
    splits = np.cumsum([factor.n_values for factor in fit.factors])[:-1]
    found = np.zeros((fit.codes.shape[1], len(fit.factors)))
    for i, (code, new) in enumerate(zip(fit.codes.T, test.codes.T, strict=True)):
        lines = [np.split(part, splits) for part in _one_code_svms(code, fit.factors)]
        for j, (slope, offset, asked) in enumerate(zip(*lines, test.factors, strict=True)):
            found[i, j] = np.mean(_highest_line(slope, offset, new) == asked.labels)
    return found


def _one_code_svms(code: Matrix, factors: tuple[Factor, ...]) -> tuple[Matrix, Matrix]:
    r"""Minimise ½(w² + b²) + C Σ cᵢ max(0, 1 − yᵢ(w xᵢ + b))² of each value of each factor against its others.

    There are two unknowns, and the rows within the margin are those before, or after, a threshold. So running sums of
    1, x and x² give the objective's curvature at any (w, b), and Newton's method needs no pass over the rows.
    """
    sums = _RunningSums(code, factors)
    n_values = np.concatenate([np.full(f.n_values, f.n_values) for f in factors])
    # Weights as liblinear has them: "balanced" for the value, 1 for the rest, unless the rest is one value, too.
    balanced = [len(code) / (f.n_values * np.maximum(np.bincount(f.labels, minlength=f.n_values), 1)) for f in factors]
    of_rest = np.concatenate([part[::-1] for part in balanced])
    weight_in, weight_out = SVM_C * np.concatenate(balanced), SVM_C * np.where(n_values == 2, of_rest, 1.0)
    w, b = np.zeros(len(n_values)), np.zeros(len(n_values))
    for _ in range(30):
        inside, _ = sums.where_below(w, b) * weight_in  # Σ of 1, x, x² over rows that pull; (3, values)
        _, outside = sums.where_below(-w, -b) * weight_out
        n, s, q = inside + outside
        # At the optimum of this piece: (I + 2 Σ c (x, 1)(x, 1)ᵀ) (w, b) = 2 Σ c y (x, 1).
        pull, lift = 2 * (inside[1] - outside[1]), 2 * (inside[0] - outside[0])
        a, c, d = 1 + 2 * q, 2 * s, 1 + 2 * n
        determinant = a * d - c * c
        before = w, b
        w, b = (pull * d - lift * c) / determinant, (lift * a - pull * c) / determinant
        if np.abs(np.subtract((w, b), before)).max() < 1e-7:
            break
    return w, b


class _RunningSums:
    """Sums of 1, x and x² over the rows of a value, and over the others, below a threshold of each value."""

    def __init__(self, code: Matrix, factors: tuple[Factor, ...]) -> None:
        order = np.argsort(code, kind="stable")
        self.x, n = code[order], len(code)
        labels = [factor.labels[order] for factor in factors]
        self.all = _running(self.x)
        # The rows of each value, one value and one factor after another, and their sums.
        by_value = [np.argsort(one.astype(np.int32), kind="stable") for one in labels]
        self.by_value = np.concatenate([_running(self.x[rows]) for rows in by_value], axis=1)
        sizes = [np.bincount(one, minlength=f.n_values) for one, f in zip(labels, factors, strict=True)]
        self.starts = np.concatenate([j * (n + 1) + np.cumsum(size) - size for j, size in enumerate(sizes)])
        self.first = np.cumsum(flat := np.concatenate(sizes)) - flat
        self.span = (n + 1) * np.arange(len(flat))  # so that the places of one value's rows lie before the next one's
        self.places = np.concatenate(by_value) + np.repeat(self.span, flat)

    def where_below(self, w: Matrix, b: Matrix) -> Matrix:
        """Sum over rows with w x + b < 1, those of the value and the others; (2, 3, values)."""
        with np.errstate(divide="ignore", invalid="ignore"):
            threshold = np.where(w != 0, (1 - b) / w, np.inf)
        before, total = self._before(np.searchsorted(self.x, threshold)), self._before(np.full(len(w), len(self.x)))
        return np.where(w > 0, before, np.where(w < 0, total - before, np.where(b < 1, total, 0.0)))

    def _before(self, place: Codes) -> Matrix:
        count = np.searchsorted(self.places, self.span + place) - self.first
        own = self.by_value[:, self.starts + count] - self.by_value[:, self.starts]
        return np.stack([own, self.all[:, place] - own])


def _running(x: Matrix) -> Matrix:
    powers = np.stack([np.ones_like(x), x, x**2])
    return np.concatenate([np.zeros((3, 1)), np.cumsum(powers, axis=1)], axis=1)  # (3, n + 1)


def _highest_line(slope: Matrix, offset: Matrix, x: Matrix) -> Codes:
    """Return which of the lines is the highest at each x: it changes where two of them cross, and nowhere else."""
    one, other = np.triu_indices(len(slope), 1)
    parallel = slope[one] == slope[other]
    crossings = np.sort((offset[other] - offset[one])[~parallel] / (slope[one] - slope[other])[~parallel])
    if not len(crossings):
        return np.full(len(x), (slope * x.mean() + offset).argmax())
    between = np.concatenate([crossings[:1] - 1, (crossings[1:] + crossings[:-1]) / 2, crossings[-1:] + 1])
    highest = (between[:, None] * slope + offset).argmax(axis=1)
    changes = np.flatnonzero(np.diff(highest))
    return highest[np.append(changes, len(between) - 1)][np.searchsorted(crossings[changes], x)]


def _share(said: Matrix, known: Factor, asked: Factor) -> float:
    if asked.continuous:
        missed = np.sum((asked.values - said[:, 0]) ** 2)
        return float(max(0.0, 1 - missed / np.sum((asked.values - asked.values.mean()) ** 2)))
    rows = np.arange(len(asked.labels))
    share = (np.bincount(known.labels, minlength=known.n_values) + 1) / (len(known.labels) + known.n_values)
    return float(max(0.0, 1 - said[rows, asked.labels].mean() / np.log(share[asked.labels]).mean()))


def _concordance(said: Matrix, asked: Factor) -> float:
    if asked.continuous:  # an area under a curve is the chance to order two rows rightly, and so is this
        return (1 + float(np.nan_to_num(kendalltau(said[:, 0], asked.values).statistic))) / 2
    hot = asked.labels[:, None] == np.arange(said.shape[1])
    inside, outside = hot.sum(axis=0), (~hot).sum(axis=0)
    ordered = (rankdata(said, axis=0) * hot).sum(axis=0) - inside * (inside + 1) / 2
    seen = (inside > 0) & (outside > 0)
    return float(np.mean(ordered[seen] / (inside * outside)[seen])) if seen.any() else 0.5
