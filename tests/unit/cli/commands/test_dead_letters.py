"""Dead letters are shown with what their messages have."""

from __future__ import annotations

from hqueue import MessageID, ReceivedMessage
from hqueue.cli.commands.dead_letters import _as_json, _cells
from hqueue.dead_letters.wrapping import DeadLetter
from hqueue.texts.shown import headers_text, key_text


def letter(**more: object) -> DeadLetter:
    message = ReceivedMessage("t", b"v", MessageID(1), 2, **more)  # type: ignore[arg-type]
    return DeadLetter(message, "s", "rejected", 1, MessageID(7))


def test_json_has_a_key_and_headers_only_where_a_message_has_them() -> None:
    plain = _as_json(letter())
    assert not plain.keys() & {"key", "key_base64", "headers"}
    both = _as_json(letter(key=b"k", headers=[("n", b"\xff")]))
    assert both == {**plain, "key": "k", "headers": [{"name": "n", "value_base64": "/w=="}]}


def test_columns_are_added_before_the_value() -> None:
    plain = ["2", "7-0", "1-0", "t", "1", "rejected", "v"]
    assert [*map(str, _cells(letter(key=b"k"), ()))] == plain
    shown = _cells(letter(key=b"k"), (key_text, headers_text))
    assert [*map(str, shown)] == [*plain[:-1], "k", "-", "v"]
