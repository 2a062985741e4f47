"""What a check finds beyond what a real table can be made to hold easily."""

from __future__ import annotations

import dataclasses
import struct
import zlib
from typing import Any

import pytest

from hqueue import Message
from hqueue.format.cells import encode_bodies
from hqueue.log.skew import StoreClock
from hqueue.log.verify import Finding, PartitionVerifier
from hqueue.runtime.clock import Deadline, drive_each
from tests.fuzz.fuzz_store import Rows, SteppedClock
from tests.fuzz.log import chained
from tests.fuzz.rows import Stored

MESSAGES = [Message("a", b"1"), Message("b", b"2"), Message("a", b"3")]
SECOND_FIRST_AT = 52 + 18 + 1 + 4
"""Where the header says which position the first message of the second topic has."""


@pytest.fixture
def rows() -> list[Stored]:
    return list(chained(0, [encode_bodies(MESSAGES)] * 4))


def findings(rows: list[Stored]) -> list[Finding]:
    clock = SteppedClock(1_700_000_000_000)
    port: Any = Rows(rows)
    checker = PartitionVerifier(
        0, lambda: Deadline(clock, 1_000), ttl_ms=None, now_ms=StoreClock(clock).now_ms
    )
    *_, result = drive_each(checker.run(), port, clock)
    return result.findings


def test_an_intact_log_has_no_findings(rows: list[Stored]) -> None:
    assert findings(rows) == []


def test_a_topic_that_is_no_utf_8_does_not_keep_other_rows_from_being_checked(
    rows: list[Stored],
) -> None:
    rows[1] = dataclasses.replace(rows[1], cells={**rows[1].cells, b"\xff": b""})
    rows[3] = dataclasses.replace(rows[3], cells={**rows[3].cells, b"a": b""})
    assert [finding.row for finding in findings(rows)] == [rows[1].key.hex(), rows[3].key.hex()]


def test_a_row_key_that_is_none_of_a_queue_is_a_finding(rows: list[Stored]) -> None:
    stray = dataclasses.replace(rows[0], key=rows[2].key[:-1])
    (found,) = findings([*rows, stray])
    assert found.row == stray.key.hex()
    assert "can't be read any further" in found.problem


def test_two_messages_at_one_position_are_found_although_all_checksums_fit(
    rows: list[Stored],
) -> None:
    key, body = rows[1].key, bytearray(rows[1].header[:-4])
    struct.pack_into(">I", body, SECOND_FIRST_AT, 0)
    header = bytes(body) + struct.pack(">I", zlib.crc32(key + body))
    rows[1] = dataclasses.replace(rows[1], header=header)
    (found,) = findings(rows)
    assert found.row == key.hex()
    assert "do not fill" in found.problem
