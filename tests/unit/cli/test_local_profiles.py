"""The profiles of `hqueue local start`."""

from __future__ import annotations

import pytest

from hqueue.cli.commands.local import start_server
from hqueue.errors import InvalidInputError


def test_a_secured_server_is_asked_for_by_its_own_option() -> None:
    with pytest.raises(InvalidInputError, match="give --secure instead"):
        start_server("secure")
    with pytest.raises(InvalidInputError, match="unknown profile"):
        start_server("secured")
