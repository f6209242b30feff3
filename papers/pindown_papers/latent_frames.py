"""`LatentFrames`: a callback that keeps the latents of a few samples during training, for animations."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import torch

from pindown.training.callbacks import Callback, Report


@dataclass(eq=False)
class LatentFrames(Callback):
    """Keeps the latents of a few samples at some steps of a training.

    Of a training that is restarted, the first start is kept.

    Parameters
    ----------
    rows
        Observations, an array or a tensor (n, …).
    steps
        The steps: each stands for the first report at or after it.

    Attributes
    ----------
    frames
        Step → latents, an array (n, n_components).

    Examples
    --------
    >>> from pindown import Contrast
    >>> from pindown.simulate import Pairs
    >>> from pindown.training import Trainer
    >>> sample = Pairs.on_sphere(3, 10.0, random_state=0).sample(1_200, random_state=0)
    >>> film = LatentFrames(sample.x[:50], steps=(1, 30))
    >>> contrast = Contrast(3, batch_size=32, max_iter=50, trainer=Trainer(callbacks=(film,)), random_state=0)
    >>> fit = contrast.fit(sample.x, sample.x_pos)
    >>> {step: latents.shape for step, latents in film.frames.items()}
    {25: (50, 3), 50: (50, 3)}
    """

    rows: Any = field(repr=False)
    steps: Sequence[int] = (25, 100, 250, 500, 1_000)
    frames: dict[int, Any] = field(default_factory=dict, repr=False)

    def report(self, report: Report) -> None:
        """Keep the latents if the step is one of those wanted."""
        wanted = sorted(self.steps)[len(self.frames) :]
        if not wanted or report.step < max(wanted[0], *self.frames, 0):
            return
        encoder, was_training = getattr(report.objective, "encoder", None), report.objective.training
        if encoder is None:  # several objectives, one per fold
            return
        weight = next(encoder.parameters())
        with torch.no_grad():
            latents = encoder.eval()(torch.as_tensor(self.rows).to(weight.device, weight.dtype))
        encoder.train(was_training)
        self.frames[report.step] = latents.double().cpu().numpy()
