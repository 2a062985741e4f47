"""A document gives its message back, and an invalid one is refused before anything is made of
it.
"""

from __future__ import annotations

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hqueue.cli.formats import Format, encoder
from hqueue.errors import InvalidInputError, MessageTooLargeError
from hqueue.message import Headers, Message, ReceivedMessage
from hqueue.message_id import MessageID
from hqueue.settings.limits import BATCH_BYTES_MAX
from hqueue.settings.reserved import is_reserved
from hqueue.texts.documents import message_of

names = st.text(st.characters(codec="utf-8"), max_size=20).filter(
    lambda name: not is_reserved(name)
)
"""Of messages that users send: those of HQueue's own are passed by when they are put again."""
data = st.binary(max_size=60) | names.map(str.encode)


@given(
    names.filter(bool),
    data,
    st.none() | data,
    st.lists(st.tuples(names, data), max_size=4).map(tuple),
)
def test_what_scan_writes_is_read_as_it_was(
    topic: str, value: bytes, key: bytes | None, headers: Headers
) -> None:
    message = ReceivedMessage(topic, value, MessageID(7), 3, key=key, headers=headers)
    line = encoder(Format.JSON)(message)
    assert message_of(line) == Message(topic, value, key, headers)
    assert message_of(b'{"queue":"q",' + line[1:]) == Message(topic, value, key, headers)


def test_a_topic_may_be_given_for_documents_without_one_and_null_is_nothing() -> None:
    assert message_of(b'{"value":"v","key":null,"headers":null}', "t") == Message("t", b"v")
    assert message_of(b'{"value":"v","topic":"own"}', "t").topic == "own"
    assert message_of(b'{"value":"v","topic":null,"key_base64":""}', "t").key == b""
    with pytest.raises(InvalidInputError, match="no topic"):
        message_of(b'{"value":"v"}')


@pytest.mark.parametrize(
    ("line", "said"),
    [
        (b"", "not JSON"),
        (b"hello", "not JSON"),
        (b"\xff", "not JSON"),
        (b"[" * 100_000, "not JSON"),
        (b'{"value":' + b"9" * 5_000 + b"}", "not JSON"),
        (b'{"value":"a"} {}', "not JSON"),
        (b'["value"]', "must be an object"),
        (b"{}", "needs a value"),
        (b'{"value":null}', "needs a value"),
        (b'{"value":"a","kye":"k"}', "no such field"),
        (b'{"value":1}', "must be a string"),
        (b'{"value":"a","value_base64":"YQ=="}', "not both"),
        (b'{"value_base64":"?"}', "not base64"),
        (b'{"value_base64":"a"}', "not base64"),
        ('{"value_base64":"ü"}'.encode(), "not base64"),
        (b'{"value_base64":1}', "must be a string"),
        (b'{"value":"\\ud800"}', "UTF-8"),
        (b'{"value":"a","topic":7}', "a topic must be a str"),
        (b'{"value":"a","topic":""}', "a topic must have"),
        (b'{"value":"a","topic":"\\ud800"}', "UTF-8"),
        (b'{"value":"a","key":["k"]}', "must be a string"),
        (b'{"value":"a","headers":{"n":"v"}}', "a list"),
        (b'{"value":"a","headers":["n"]}', "must be an object"),
        (b'{"value":"a","headers":[{"name":"n"}]}', "needs a name"),
        (b'{"value":"a","headers":[{"value":"v"}]}', "needs a name"),
        (b'{"value":"a","headers":[{"name":1,"value":"v"}]}', "needs a name"),
        (b'{"value":"a","headers":[{"key":"n","value":"v"}]}', "no such field"),
        (b'{"value":"a","headers":[{"name":"\\ud800","value":"v"}]}', "UTF-8"),
    ],
)
def test_what_is_no_message_is_told(line: bytes, said: str) -> None:
    with pytest.raises(InvalidInputError, match=said):
        message_of(line, "t")


def test_a_message_of_any_size_that_a_batch_has_is_read() -> None:
    value = "\0" * (BATCH_BYTES_MAX - 1)
    document = {"value": value, "key": "k"}
    assert message_of(json.dumps(document).encode(), "t").size == BATCH_BYTES_MAX
    with pytest.raises(MessageTooLargeError):
        message_of(json.dumps({**document, "key": "kk"}).encode(), "t")
