"""What people and programs write: settings, moments, TTLs, lines of the shell, framed messages."""

from __future__ import annotations

import io
import tempfile
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import tomli_w
from hypothesis import strategies as st

from hqueue import GatewayAddress, HQueueError, MessageID, ReceivedMessage, Settings
from hqueue.cli.formats import Format, encoder
from hqueue.cli.framing import Framing, read_values
from hqueue.cli.shell.syntax import parse_line
from hqueue.position import as_message_id, parse_position
from hqueue.settings.attributes import ATTRIBUTES, check_attributes, check_queue_name, ttl_seconds
from hqueue.settings.connection import NATIVE
from hqueue.settings.limits import BATCH_BYTES_MAX, MESSAGE_ID_MAX
from hqueue.texts.documents import message_of
from hqueue.texts.shown import printable

from .damage import Damage, damaged, damages
from .target import Target

__all__ = ["TARGETS", "damaged_texts", "framed", "texts"]

EXAMPLES: Mapping[str, Sequence[str]] = {
    "line": (
        "create 'q1', 32, 86400, {'hbase.hstore.compaction.min' => '16'}",
        "hqueue(main):013:0> put ‘q1′, “t”, 'v'",
        "scan q1 --start -10m --limit 5 # all",
        "help create",
    ),
    "moment": ("1700000000000-0", "2024-05-01T12:00:00.5+02:00", "1h30m ago", "-10m", "now"),
    "ttl": ("86400", "90s", "15m", "2w", "forever"),
    "gateways": ("host:9090/9091,other", "[::1]:9090/9091", " host "),
    "name": ("space:q-1", "q"),
    "document": (
        '{"partition":3,"id":"1-0","timestamp":"","topic":"t","key":"k","value":"hello"}',
        '{"topic":"t","headers":[{"name":"n","value_base64":"/w=="}],"value_base64":"AA=="}',
    ),
}


LONG = ("9" * 5_000, "1-" + "9" * 5_000, "[" * 5_000, "9" * 5_000 + "s", "h:" + "1" * 5_000 + "/1")
"""More digits than Python makes a number of, and deeper than it parses."""


def _altered(examples: Sequence[str]) -> st.SearchStrategy[str]:
    def alter(drawn: tuple[str, list[Damage], str]) -> str:
        example, done, errors = drawn
        return damaged(example.encode(), done, b"'\"{}=>,-:[]/ \n\xe2").decode(errors=errors)

    errors = st.sampled_from(["replace", "surrogateescape", "ignore"])
    return st.tuples(st.sampled_from(examples), damages(), errors).map(alter)


def damaged_texts(kind: str) -> st.SearchStrategy[str]:
    """Texts that are nearly right, and any."""
    return st.one_of(_altered(EXAMPLES[kind]), st.text(max_size=40), st.sampled_from(LONG))


texts = st.one_of([damaged_texts(kind) for kind in EXAMPLES])


def _attributes(text: str) -> None:
    names = list(ATTRIBUTES)
    check_attributes({names[len(text) % len(names)]: text, text: text})


def _encode(text: str) -> None:
    value = text.encode("utf-8", "surrogateescape")
    for number in (0, MESSAGE_ID_MAX):
        plain = ReceivedMessage(text, value, MessageID.from_int(number), 0)
        headers = [(text, value)] * 2
        extra = ReceivedMessage(
            text, value, MessageID.from_int(number), 0, key=value, headers=headers
        )
        for message in (plain, extra):
            for chosen in Format:
                for aligned in (False, True):
                    assert encoder(chosen, aligned=aligned)(message)
            text_line = encoder(Format.TEXT, print_key=True, print_headers=True)(message)
            assert text_line.count(b"\n") == 1
            again = message_of(encoder(Format.JSON)(message))
            assert (again.key, again.headers) == (message.key, message.headers)
            assert (again.topic, again.value) == (message.topic, message.value)
    assert "\n" not in printable(value) + printable(text)


def _read_document(text: str) -> None:
    message = message_of(text.encode("utf-8", "surrogateescape"), "t")
    assert message.topic


PARSERS: dict[str, Callable[[str], object]] = {
    "document": _read_document,
    "line": parse_line,
    "moment": parse_position,
    "number": lambda text: as_message_id(int.from_bytes(text.encode(errors="replace")[:9], "big")),
    "id": MessageID.parse,
    "ttl": ttl_seconds,
    "name": check_queue_name,
    "gateway": GatewayAddress.parse,
    "gateways": lambda text: Settings(gateways=text),  # type: ignore[arg-type]
    "attributes": _attributes,
    "encode": _encode,
}


def _parse(given: tuple[str, str]) -> None:
    parser, text = given
    try:
        PARSERS[parser](text)
    except HQueueError as exc:
        assert str(exc)


def _toml(given: Mapping[str, Any]) -> bytes:
    kept = {}
    for name, value in given.items():
        try:
            tomli_w.dumps({name: value}).encode()
        except UnicodeEncodeError:
            continue
        kept[name] = value
    return tomli_w.dumps(kept).encode()


values = st.one_of(texts, st.integers(), st.booleans(), st.lists(texts, max_size=2), st.none())
names = st.sampled_from(list(Settings.__dataclass_fields__)) | st.text(max_size=8)
files = st.tuples(
    st.dictionaries(names, values.filter(lambda value: value is not None), max_size=4).map(_toml)
    | st.just(b"transport = " + b"[" * 5_000),
    damages(2) | st.just([]),
)


def _load(given: tuple[Any, Any, Mapping[str, str], Mapping[str, Any]]) -> None:
    with tempfile.TemporaryDirectory(prefix="hqueue-fuzz-") as folder:
        environ = {"HQUEUE_LOCAL_HOME": folder, "HQUEUE_CONFIG": f"{folder}/hqueue.toml"}
        for name, (data, done) in zip(("connection", "hqueue"), given[:2], strict=True):
            Path(folder, f"{name}.toml").write_bytes(damaged(data, done))
        environ |= {f"HQUEUE_{name.upper()}": value for name, value in given[2].items()}
        try:
            settings = Settings.load(given[3], environ)
        except HQueueError as exc:
            assert str(exc)
        else:
            assert settings.gateways or settings.hbase == NATIVE
            assert settings == Settings.load({**vars(settings)}, environ)


lengths = st.sampled_from([0, 1, 5, BATCH_BYTES_MAX, BATCH_BYTES_MAX + 1, 2**31, 2**32 - 1])
framed = st.lists(
    st.one_of(
        st.binary(max_size=9).map(lambda value: len(value).to_bytes(4, "big") + value),
        st.binary(max_size=9).map(lambda value: value + b"\n"),
        lengths.map(lambda length: length.to_bytes(4, "big")),
    ),
    max_size=4,
).map(b"".join)
"""Streams of messages in either framing, some of which end too early or promise too much."""


def _frames(given: tuple[bytes, list[Damage], Framing]) -> None:
    data, done, framing = given
    data = damaged(data, done)
    read = 0
    try:
        for value in read_values(io.BufferedReader(io.BytesIO(data)), framing, "it"):
            read += len(value)
    except HQueueError as exc:
        assert exc.input == "it"
    assert read <= len(data)


TARGETS: list[Target[Any]] = [
    Target(
        "texts",
        st.sampled_from(list(PARSERS)).flatmap(
            lambda parser: st.tuples(
                st.just(parser),
                damaged_texts(parser) if parser in EXAMPLES else texts,
            )
        ),
        _parse,
    ),
    Target(
        "settings",
        st.tuples(
            files,
            files,
            st.dictionaries(names, texts, max_size=2),
            st.dictionaries(names, values, max_size=2),
        ),
        _load,
    ),
    Target("framing", st.tuples(framed, damages(2), st.sampled_from(Framing)), _frames),
]
