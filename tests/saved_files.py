"""Make the files that must load forever: ``python tests/saved_files.py``, once for each format of files.

Run it from the root of the repository before the release that first writes a format; add the archive that it writes,
and leave those of older formats as they are. It refuses to touch one that is there.
"""

import sys
import tempfile
import warnings
import zipfile
from pathlib import Path

import numpy as np

FOLDER = Path(__file__).parent / "files"
KEPT = (
    *("contrast", "classify", "forget", "forget, linear", "dictionary", "latent action", "regress"),
    *("mean projection", "component removal", "standardiser"),
)
ROWS = 6


def make(path):
    """Write an archive with a file for each estimator, and with rows and what was said of them."""
    from saved import NEXT, X, answers, fitted

    expected = {"x": X[:ROWS], "x_next": NEXT[:ROWS]}
    path.parent.mkdir(exist_ok=True)
    with tempfile.TemporaryDirectory() as folder, zipfile.ZipFile(path, "x", zipfile.ZIP_DEFLATED) as archive:
        for name in KEPT:
            fitted(name).save(Path(folder, f"{name}.pindown"))
            archive.write(Path(folder, f"{name}.pindown"), f"{name}.pindown")
            said = answers(fitted(name), expected["x"], expected["x_next"])
            expected |= {f"{name}/{what}": np.asarray(value) for what, value in said.items()}
        np.savez_compressed(Path(folder, "expected.npz"), **expected)
        archive.write(Path(folder, "expected.npz"), "expected.npz")


if __name__ == "__main__":
    sys.path.insert(0, str(FOLDER.parent.parent / "docs"))  # own_method
    warnings.simplefilter("ignore")  # fits of a few steps recover nothing, and say so
    from pindown.saving import FORMAT

    make(FOLDER / f"format{FORMAT}.zip")
