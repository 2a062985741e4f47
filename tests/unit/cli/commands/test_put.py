"""Names of files that no file has."""

from __future__ import annotations

import pytest

from hqueue import InvalidInputError
from hqueue.cli.commands.inputs import open_input


@pytest.mark.parametrize("name", ["missing", ".", "a\0b", "~nobody-of-this-name/file"])
def test_a_file_that_can_not_be_opened_is_named(name: str) -> None:
    with pytest.raises(InvalidInputError) as raised:
        open_input(name)
    assert raised.value.file == name
    assert raised.value.reason
