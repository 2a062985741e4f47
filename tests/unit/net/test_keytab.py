"""Whose keys are in a keytab."""

from __future__ import annotations

import struct
from pathlib import Path

import pytest

from hqueue.net.keytab import principals_in
from tests.support.keytabs import keytab


def entry_of(principal: str) -> bytes:
    return keytab(principal)[2:]


def test_each_principal_is_named_once_and_holes_are_stepped_over(tmp_path: Path) -> None:
    path = tmp_path / "keytab"
    hole = struct.pack(">i", -7) + bytes(7)
    path.write_bytes(keytab("app@TEST") + hole + entry_of("hbase/here@TEST") + entry_of("app@TEST"))
    assert principals_in(str(path)) == ["app@TEST", "hbase/here@TEST"]


@pytest.mark.parametrize("data", [b"", b"\x05\x01", b"no keytab"])
def test_other_files_are_refused(tmp_path: Path, data: bytes) -> None:
    path = tmp_path / "keytab"
    path.write_bytes(data)
    with pytest.raises(ValueError, match="not a keytab"):
        principals_in(str(path))


def test_one_that_is_cut_off_is_refused_or_has_fewer(tmp_path: Path) -> None:
    whole = keytab("app@TEST")
    path = tmp_path / "keytab"
    for end in range(2, len(whole)):
        path.write_bytes(whole[:end])
        try:
            assert principals_in(str(path)) in ([], ["app@TEST"])
        except ValueError:
            pass
