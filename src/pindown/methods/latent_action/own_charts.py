"""Bodies with a chart each, fitted together: one law of codes, tied by pairs if there are some, blind to the body."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np

from pindown.methods.forget import Forget
from pindown.methods.held_out import HeldOut
from pindown.methods.latent_action.body_charts import (
    BodyChart,
    adopted,
    by_innovations,
    by_pairs,
    counted,
    evened,
    led,
    sizes,
)
from pindown.methods.latent_action.recordings import Pairs, Recording, read_pairs
from pindown.methods.latent_action.second_stage import Codes, Paired, SecondStage, decided
from pindown.methods.latent_action.sight import N_CODES, Sight, find_sight


@dataclass(frozen=True, eq=False)
class OwnCharts:
    """The chart of each body, the second stage if it was worth it, and what is seen of bodies that were filmed."""

    charts: dict[Any, BodyChart]
    forget: Forget | None
    second_stage: SecondStage
    sights: dict[Any, Sight] = field(default_factory=dict)

    @property
    def n_codes(self) -> int:
        """Number of codes."""
        return next(iter(self.charts.values())).inputs.shape[1]

    def encode(self, body: Any, recording: Recording) -> np.ndarray:
        """Return the codes of a body's transitions; (n, k)."""
        seen, chart = self.seen(body, recording), self.charts[body]
        codes = chart.encode(seen)
        return codes if self.forget is None or chart.by == "codes" else self.forget.transform(codes)

    def seen(self, body: Any, recording: Recording) -> Recording:
        """Return a body's transitions as its chart takes them: columns as they are, of frames what is seen of them."""
        self._check_known(body, recording.before)
        return self.sights[body].seen(recording) if self.sights else recording

    def lead(self, body: Any, before: np.ndarray, codes: np.ndarray) -> np.ndarray:
        """Return where codes lead from a body's observations: columns, or frames."""
        self._check_known(body, before)
        if not self.sights:
            return self.charts[body].lead(before, codes)
        sight = self.sights[body]
        return sight.draw(before, self.charts[body].lead(sight.see(before), codes))

    def _check_known(self, body: Any, before: np.ndarray) -> None:
        """Say that there is no chart of a body, or none for what is observed of it."""
        if body not in self.charts:
            raise ValueError(
                f"LatentAction: there was no {body} in fit, but {', '.join(sorted(map(str, self.charts)))}. A body has "
                "a chart of its own: let it join by adopt, with some motions that another made, too."
            )
        if self.sights:
            if before.shape[1:] != self.sights[body].shape:
                raise ValueError(
                    f"LatentAction: {body} had frames of shape {self.sights[body].shape} in fit, and now has "
                    f"{before.shape[1:]}."
                )
        elif before.shape[1:] != self.charts[body].place.shape:
            now = "frames" if before.ndim == 4 else before.shape[1]
            raise ValueError(
                f"LatentAction: {body} had {len(self.charts[body].place)} columns in fit, and now has {now}."
            )

    def with_body(self, body: Any, recording: Recording, rows: np.ndarray, codes: np.ndarray) -> OwnCharts:
        """Return the same, with a body that joins by codes of some of its transitions."""
        if recording.filmed != bool(self.sights):
            had, has = ("frames", "columns")[:: 1 if self.sights else -1]
            raise ValueError(f"LatentAction: bodies had {had} in fit, and {body} has {has}. Give what they had.")
        sights = self.sights
        if recording.filmed:
            sight = find_sight(recording)
            recording, sights = sight.seen(recording), {**sights, body: sight}
        chart = adopted(recording, recording.take(rows), codes)
        return replace(self, charts={**self.charts, body: chart}, sights=sights)


def fit_own_charts(
    recordings: Mapping[Any, Recording], pairs: Pairs | None, n_codes: int | None, forget: Forget, seed: int
) -> tuple[OwnCharts, HeldOut]:
    """Find charts on most episodes of each body, and decide on the others whether a second stage is worth it."""
    rng = np.random.default_rng(seed)
    out = {body: each.divided(rng) for body, each in recordings.items()}
    learned = {body: each.take(~out[body]) for body, each in recordings.items()}
    sights: dict[Any, Sight] = {}
    if any(each.filmed for each in recordings.values()):
        sights = {body: find_sight(each) for body, each in learned.items()}
        recordings = {body: sights[body].seen(each) for body, each in recordings.items()}
        learned = {body: each.take(~out[body]) for body, each in recordings.items()}
        n_codes = min(N_CODES, *(each.change.shape[1] for each in learned.values())) if n_codes is None else n_codes
    held = {body: each.take(out[body]) for body, each in recordings.items()}
    n_codes = counted([sizes(each) for each in learned.values()]) if n_codes is None else n_codes
    narrow, width = min(((body, each.change.shape[1]) for body, each in recordings.items()), key=lambda pair: pair[1])
    if n_codes > width:
        has = f"frames of {narrow} show {width} motions" if sights else f"{narrow} has {width} columns"
        raise ValueError(f"LatentAction: n_components={n_codes}, but {has}. Ask for as many codes at most.")
    if pairs is None:
        charts = evened({body: by_innovations(each, n_codes) for body, each in learned.items()}, learned)
        paired: Paired = []
    else:
        ties = read_pairs(pairs, recordings)
        of_pairs = {body: recordings[body].take(rows) for body, rows in ties.rows.items()}
        charts = evened(by_pairs(learned, of_pairs, ties, n_codes), learned)
        paired = [_paired(charts, recordings, *bodies, np.asarray(rows)) for bodies, rows in pairs.items()]
    forget.set_params(n_components=n_codes, charts=False)
    stage, played = decided(forget, _codes(charts, learned), _codes(charts, held), paired, seed)
    own = OwnCharts(charts, played, stage)  # of what is seen
    own = replace(own, charts={body: led(charts[body], each, own.encode(body, each)) for body, each in learned.items()})
    score, trained = (
        float(np.mean([_told(own, body, each) for body, each in part.items()])) for part in (held, learned)
    )
    name, n_samples = (
        "share of the squared displacement that codes tell, mean over bodies",
        sum(map(len, held.values())),
    )
    return replace(own, sights=sights), HeldOut(name, score, trained, 0.0, n_samples=n_samples, n_folds=1, n_steps=0)


def _paired(
    charts: Mapping[Any, BodyChart], recordings: Mapping[Any, Recording], first: Any, second: Any, rows: np.ndarray
) -> tuple[Any, np.ndarray, Any, np.ndarray]:
    parts = [recordings[body].take(own) for body, own in ((first, rows[:, 0]), (second, rows[:, 1]))]
    codes = [charts[body].encode(part) for body, part in zip((first, second), parts, strict=True)]
    return first, codes[0], second, codes[1]


def _codes(charts: Mapping[Any, BodyChart], recordings: Mapping[Any, Recording]) -> Codes:
    parts = [charts[body].encode(each) for body, each in recordings.items()]
    number = np.repeat(np.arange(len(parts)), [len(part) for part in parts])
    episodes = np.concatenate([each.episode for each in recordings.values()])
    return Codes(np.concatenate(parts), number, episodes * len(parts) + number)


def _told(own: OwnCharts, body: Any, recording: Recording) -> float:
    missed = recording.after - own.lead(body, recording.before, own.encode(body, recording))
    return 1 - float((missed**2).sum() / ((recording.after - recording.before) ** 2).sum())
