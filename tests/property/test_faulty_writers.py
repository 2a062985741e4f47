"""What a faulty writer could have written: its checksums fit, and its content is malformed."""

from __future__ import annotations

import dataclasses
import struct
import zlib
from array import array
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import pytest

from hqueue import CorruptLogError, Message, Scan, Scanner
from hqueue.consume.arrow import SMALL_BATCH, record_batch
from hqueue.consume.decode import each_message_of, messages_of
from hqueue.format.cells import check_cell, encode_bodies
from hqueue.format.header import decode_header
from hqueue.log import Batch
from hqueue.runtime.steps import Work, carry_out
from tests.support.batches import ROW, header_bytes, read, signed

COUNT = 2 * SMALL_BATCH
TOGETHER = [Message("t", b"%d" % n) for n in range(COUNT)]
MIXED = [Message("ab"[n % 2], b"%d" % n) for n in range(COUNT)]
KEYED = [Message("t", b"%d" % n, b"k%d" % n if n % 3 else None) for n in range(COUNT)]
HEADED = [Message("t", b"%d" % n, None, [("n", b"v")] * (n % 3)) for n in range(COUNT)]
NAMES_AT = 4 * (COUNT + 1)
VALUES_AT = NAMES_AT + 4 * (sum(n % 3 for n in range(COUNT)) + 1)
ENTRY_AT, SECOND_ENTRY_AT = 52, 52 + 18 + 1


@pytest.mark.parametrize(
    ("at", "field", "value"),
    [
        pytest.param(8, ">Q", 1_699_999_999_999 << 15, id="it begins below its row key"),
        pytest.param(16, ">II", (2**32 - 1, 2**32 - 1), id="it promises four billion messages"),
        pytest.param(ENTRY_AT, ">I", 0, id="a topic without messages"),
        pytest.param(ENTRY_AT + 4, ">I", COUNT, id="messages beyond its end"),
        pytest.param(ENTRY_AT + 16, ">B", 0, id="a raw cell of several messages"),
        pytest.param(SECOND_ENTRY_AT + 18, "1s", b"a", id="a topic twice"),
        pytest.param(ENTRY_AT + 18, "1s", b"c", id="topics in another order"),
    ],
)
def test_a_header_that_contradicts_itself_is_an_error(at: int, field: str, value: Any) -> None:
    body = bytearray(header_bytes(encode_bodies(MIXED))[:-4])
    struct.pack_into(field, body, at, *(value if isinstance(value, tuple) else (value,)))
    with pytest.raises(CorruptLogError) as raised:
        decode_header(ROW, signed(bytes(body)))
    assert raised.value.row == ROW.hex()


def test_more_messages_than_a_batch_may_have_are_not_believed() -> None:
    body = bytearray(header_bytes(encode_bodies(TOGETHER))[:-4])
    struct.pack_into(">II", body, 16, 65_537, 65_537)
    struct.pack_into(">I", body, ENTRY_AT, 65_537)
    with pytest.raises(CorruptLogError):
        decode_header(ROW, signed(bytes(body)))


def forged(messages: list[Message], at: int, number: int) -> Batch:
    """A batch with one number of its first cell changed, and everything else made to fit."""
    batch = read(messages)
    (entry, cell), *others = batch.cells
    numbers = array("i", cell[: at + 4])
    numbers[at // 4] = number
    changed = numbers.tobytes() + cell[at + 4 :]
    mended = dataclasses.replace(entry, checksum=zlib.crc32(changed))
    return dataclasses.replace(batch, cells=((mended, changed), *others))


IMPOSSIBLE = pytest.mark.parametrize(
    "batch",
    [
        pytest.param(forged(TOGETHER, 40, 2**31 - 1), id="an offset far beyond the cell"),
        pytest.param(forged(TOGETHER, 40, -(2**31)), id="an offset before the cell"),
        pytest.param(forged(TOGETHER, 40, 1), id="offsets that do not ascend"),
        pytest.param(forged(MIXED, 4, 2**31 - 1), id="a position beyond the batch"),
        pytest.param(forged(MIXED, 4, 0), id="a position twice"),
        pytest.param(forged(MIXED, 0, 1), id="another first position than the header says"),
        pytest.param(forged(KEYED, 0, 1), id="a first key that does not begin at 0"),
        pytest.param(forged(KEYED, 40, 2**31 - 1), id="a key far beyond the cell"),
        pytest.param(forged(KEYED, 40, -1), id="a key before the cell"),
        pytest.param(forged(KEYED, 4 * COUNT, 2**31 - 1), id="keys that end beyond the cell"),
        pytest.param(forged(KEYED, 4 * COUNT, -(2**31)), id="keys that end before the cell"),
        pytest.param(forged(HEADED, 0, 1), id="first headers that do not begin at 0"),
        pytest.param(forged(HEADED, 40, 2**31 - 1), id="headers far beyond the cell"),
        pytest.param(forged(HEADED, 4 * COUNT, 2**31 - 1), id="two billion headers"),
        pytest.param(forged(HEADED, 4 * COUNT, -1), id="fewer headers than none"),
        pytest.param(forged(HEADED, NAMES_AT + 40, 2**30), id="a name far beyond the cell"),
        pytest.param(forged(HEADED, VALUES_AT - 4, -4), id="names that end before the cell"),
        pytest.param(forged(HEADED, VALUES_AT + 40, 1), id="header values that do not ascend"),
    ],
)


@IMPOSSIBLE
def test_impossible_offsets_and_positions_are_errors_that_name_the_row(batch: Batch) -> None:
    # Of the messages that are made one by one, none is given before all are known to be right.
    for decode in (messages_of, each_message_of, lambda one: record_batch([one])):
        with pytest.raises(CorruptLogError) as raised:
            decode(batch)
        assert raised.value.row == ROW.hex()
        assert raised.value.topic == batch.cells[0][0].topic


def test_keys_and_headers_larger_than_their_cell_are_not_believed() -> None:
    body = bytearray(header_bytes(encode_bodies(KEYED))[:-4])
    for key_bytes, header_bytes_ in ((2**32 - 1, 0), (0, 2**32 - 1), (2**31, 2**31)):
        struct.pack_into(">II", body, ENTRY_AT + 18, key_bytes, header_bytes_)
        with pytest.raises(CorruptLogError):
            decode_header(ROW, signed(bytes(body)))


def test_a_name_that_is_no_utf_8_is_an_error() -> None:
    batch = read([Message("t", b"", None, [("ab", b"")])] * COUNT)
    ((entry, cell),) = batch.cells
    changed = cell.replace(b"ab", b"a\xff", 1)
    mended = dataclasses.replace(entry, checksum=zlib.crc32(changed))
    for decode in (messages_of, lambda one: record_batch([one])):
        with pytest.raises(CorruptLogError):
            decode(dataclasses.replace(batch, cells=((mended, changed),)))


def test_a_first_offset_that_leaves_bytes_out_is_an_error() -> None:
    entry, cell = forged(TOGETHER, 0, 1).cells[0]
    with pytest.raises(CorruptLogError):
        check_cell(ROW, entry, cell)


@IMPOSSIBLE
def test_a_scanner_gives_that_error_again_and_never_an_end(batch: Batch) -> None:
    class Reader:
        at_tail = False
        partition = cursor = expired = 0
        next_slot = 0, 0
        holds = False

        def read(self, deadline: object) -> list[Batch]:
            self.at_tail = True
            return [batch]

        @property
        def steps(self) -> Any:
            return SimpleNamespace(read=self._work)

        def _work(self, deadline: object) -> Work[Any, list[Batch]]:
            return self.read(deadline)
            yield

    async def do(decide: Callable[[object], Work[Any, Any]]) -> object:
        result: object = carry_out(decide(None), lambda step: None)
        return result

    log: Any = SimpleNamespace(
        open=lambda *_: Reader(), deadline=lambda: None, in_loop=SimpleNamespace(do=do)
    )
    for merge_sorted in (False, True):
        scanner = Scanner(log, {0: Scan()}, merge_sorted=merge_sorted)
        for _ in range(2):
            with pytest.raises(CorruptLogError):
                scanner.next()
    scanner = Scanner(log, {0: Scan()})
    for _ in range(2):
        with pytest.raises(CorruptLogError):
            next(scanner.arrow_batches())
