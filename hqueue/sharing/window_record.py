"""Encodes a share group's window of a partition as the bytes of a record."""

from __future__ import annotations

import base64
import json
import zlib
from typing import Any

from hqueue.message_id import MessageID
from hqueue.metadata.delays import delays_of, name_of
from hqueue.metadata.encoding import decode_fields, encode_fields, list_of, text_of
from hqueue.settings.limits import MESSAGE_ID_MAX, NAME_LENGTH_MAX, TIMESTAMP_MS_MAX
from hqueue.settings.numbers import check_whole
from hqueue.sharing.window import Fate, LetterCounts, Mark, Move, Span, Window

__all__ = ["WINDOW_MESSAGES_MAX", "decode_window", "encode_window"]

WINDOW_MESSAGES_MAX = 10_000
"""The most unfinished messages in a window. The limit keeps the record below the size that every
store can keep, even if each message has its own mark."""

SLOTS = 4_096
"""The number of slots that keys are hashed to where they are kept in order. Messages whose keys
share a slot wait for each other."""

PACKED_FROM = 8 * 1024
UNPACKED_BYTES_MAX = 16 * 1024 * 1024
COUNT_MAX = 2**31
STAMP_MAX = 2**53
LETTERS_MAX = 2**53
LOCK_MS_MAX = 86_400_000


def encode_window(window: Window, writer: str) -> bytes:
    """The bytes of a window's record.

    Args:
        window: the window.
        writer: an ID of this write, which no other write has.
    """
    holders: dict[tuple[str, int], int] = {}
    spans = [_text(span, span.end - span.begin, holders) for span in window.spans]
    late = [_text(span, span.begin, holders) for span in window.late]
    text = f'{{"spans":[{",".join(spans)}]'
    if late:
        text += f',"late":[{",".join(late)}]'
    if window.delays:
        text += f',"delays":{_json(window.delays)}'
    if window.moves:
        text += f',"moves":{_json(window.moves)}'
    if any(window.dead_letters):
        text += f',"dead_letters":{_json(window.dead_letters)}'
    text += f',"holders":{_json(list(holders))}}}'
    begin = str(MessageID.from_int(window.begin))
    if len(text) < PACKED_FROM:
        return encode_fields(begin=begin, writer=writer, **json.loads(text))
    packed = zlib.compress(text.encode(), 1)
    return encode_fields(begin=begin, writer=writer, packed=base64.b64encode(packed).decode())


def _text(span: Span, place: int, holders: dict[tuple[str, int], int]) -> str:
    """A span as JSON text. A write may have 20,000 spans: so many lists would keep the garbage
    collector busy.
    """
    _, _, messages, (fate, deliveries, holder, stamp, lock_ms), slots = span
    text = f"[{place},{fate:d},{messages}"
    if fate is not Fate.DONE:
        text += f",{deliveries}"
    if fate is Fate.ACQUIRED:
        known = holders.setdefault((holder, lock_ms), len(holders))
        text += f",{known},{stamp}"
    if slots:
        text += f",{_json(sorted(slots))}"
    return text + "]"


def _json(value: object) -> str:
    return json.dumps(value, separators=(",", ":"))


def decode_window(data: bytes, path: str) -> Window:
    """The window of a record. `path` is the record's, for errors.

    Raises:
        UnsupportedFormatError: the bytes are not a window's record, or a later version wrote them.
    """
    return decode_fields(data, path, _window)


def _window(fields: dict[str, Any]) -> Window:
    begin = at = int(MessageID.parse(text_of(fields["begin"])))
    content = _unpacked(fields["packed"]) if "packed" in fields else fields
    holders = [_holder(each) for each in list_of(content["holders"])]
    spans = []
    for each in list_of(content["spans"]):
        length, *rest = list_of(each)
        end = at + check_whole(length, 1, MESSAGE_ID_MAX - at)
        spans.append(_span(at, end, rest, holders))
        at = end
    late = []
    for each in list_of(content.get("late", [])):
        place, *rest = list_of(each)
        place = check_whole(place, 0, MESSAGE_ID_MAX)
        late.append(_span(place, place + 1, rest, holders))
    delays = delays_of(list_of(content.get("delays", [])))
    moves = [_move(*list_of(each)) for each in list_of(content.get("moves", []))]
    counts = _letter_counts(*list_of(content.get("dead_letters", [0, 0])))
    window = Window.of(begin, spans, late)
    return window._replace(delays=delays, moves=tuple(moves), dead_letters=counts)


def _letter_counts(rejected: object, exhausted: object) -> LetterCounts:
    rejected = check_whole(rejected, 0, LETTERS_MAX)
    return LetterCounts(rejected, check_whole(exhausted, 0, LETTERS_MAX))


def _move(name: object, due_ms: object, message_id: object) -> Move:
    due_ms = check_whole(due_ms, 0, TIMESTAMP_MS_MAX)
    return Move(name_of(name), due_ms, check_whole(message_id, 0, MESSAGE_ID_MAX))


def _unpacked(packed: object) -> dict[str, Any]:
    unpacking = zlib.decompressobj()
    data = unpacking.decompress(base64.b64decode(text_of(packed)), UNPACKED_BYTES_MAX)
    if not unpacking.eof:
        raise ValueError("the record is too long, or was cut off")
    content = json.loads(data)
    if not isinstance(content, dict):
        raise TypeError("the packed content must be an object")
    return content


def _holder(fields: object) -> tuple[str, int]:
    name, lock_ms = list_of(fields)
    if not 1 <= len(text_of(name)) <= 2 * NAME_LENGTH_MAX:
        raise ValueError("a holder's name has a wrong length")
    return name, check_whole(lock_ms, 1, LOCK_MS_MAX)


def _span(begin: int, end: int, fields: list[Any], holders: list[tuple[str, int]]) -> Span:
    fate, messages, *rest = fields
    mark = Mark(Fate(check_whole(fate, 0, 2)))
    if mark.fate is not Fate.DONE:
        mark = mark._replace(deliveries=check_whole(rest.pop(0), 0, COUNT_MAX))
    if mark.fate is Fate.ACQUIRED:
        holder, lock_ms = holders[check_whole(rest.pop(0), 0, len(holders) - 1)]
        stamp = check_whole(rest.pop(0), 0, STAMP_MAX)
        mark = mark._replace(holder=holder, stamp=stamp, lock_ms=lock_ms)
    slots = frozenset(check_whole(each, 0, SLOTS - 1) for each in list_of(rest[0])) if rest else ()
    return Span(begin, end, check_whole(messages, 0, COUNT_MAX), mark, frozenset(slots))
