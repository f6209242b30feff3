"""What tests expect of errors: their type and the argument at fault, not the sentence."""

import pytest

from pindown.errors import InputError


def input_error(argument: str) -> pytest.RaisesExc[InputError]:
    """Expect an InputError about an argument."""
    return pytest.raises(InputError, check=lambda error: error.argument == argument)
