"""An estimator as one file that executes nothing: safetensors and JSON, kept readable for ever.

`Saves` gives an estimator its method ``save``; `load` brings it back.
"""

import os

from pindown.saving.files import load, save

__all__ = ["Saves", "load", "save"]


class Saves:
    """An estimator that can be written to a file."""

    def save(self, path: str | os.PathLike[str]) -> None:
        """Write the estimator to one file, parameters and all that was learned; `pindown.load` brings it back.

        The file is written whole or not at all; it holds numbers and text, and nothing that is executed. What is kept
        of functions is their name, so that a lambda comes back as a word about it.
        """
        save(self, path)
