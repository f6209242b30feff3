"""A whole audit to look at: made with the site, and put into it as ``audit-example.html``."""

from pathlib import Path

from sphinx.application import Sphinx

from pindown import Classify, audit
from pindown.simulate import Clusters


def write(path: Path) -> None:
    """Fit a simulation of eight classes and three latents, audit the fit, and save the page."""
    sample = Clusters.on_sphere(3, n_classes=8, concentration=10.0, random_state=0).sample(4_000, random_state=1)
    classify = Classify(n_components=3, max_iter=400, verbose=False, random_state=0).fit(sample.x, sample.u)
    audit(classify, sample.x, sample.u, random_state=0).save(path)


def _write(app: Sphinx, error: Exception | None) -> None:
    if error is None and not app.tags.has("prose"):
        write(Path(app.outdir) / "audit-example.html")


def setup(app: Sphinx) -> dict[str, bool]:
    """Write the page beside the others."""
    app.connect("build-finished", _write)
    return {"parallel_read_safe": True, "parallel_write_safe": True}
