"""The golden bytes of every released format version: they decode, and are written, for ever."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from hqueue import Message
from hqueue.format import rowkey
from hqueue.format.cells import (
    control_record,
    decode_bodies,
    decode_headers,
    decode_keys,
    encode_bodies,
    positions,
)
from hqueue.format.compression import CODECS, compressed, plain_cell
from hqueue.format.header import CONTROL, Bodies, decode_header, encode_header

GOLDEN = [
    json.loads((Path(__file__).parents[1] / "golden" / f"{version}.json").read_text())
    for version in ("v1", "v2")
]
BATCHES = pytest.mark.parametrize(
    ("golden", "batch"),
    [(golden, batch) for golden in GOLDEN for batch in golden["batches"]],
    ids=lambda given: given.get("name") or f"v{given['version']}",
)


def message_of(
    topic: str,
    value: str,
    key: str | None = None,
    headers: Sequence[tuple[str, str]] = (),
) -> Message:
    return Message(
        topic,
        bytes.fromhex(value),
        None if key is None else bytes.fromhex(key),
        [(name, bytes.fromhex(value)) for name, value in headers],
    )


def messages_of(batch: dict[str, Any]) -> list[Message]:
    return [message_of(*fields) for fields in batch["messages"]]


def bodies_of(batch: dict[str, Any]) -> Bodies:
    if "control" in batch:
        return control_record(bytes.fromhex(batch["control"]))
    return encode_bodies(messages_of(batch))


@BATCHES
def test_this_release_writes_the_golden_bytes(
    golden: dict[str, Any], batch: dict[str, Any]
) -> None:
    row = rowkey.encode(batch["partition"], batch["slot"])
    assert row.hex() == batch["row"]
    bodies = bodies_of(batch)
    assert bodies.version == golden["version"]
    if "codec" in batch:  # Compressed cells may differ from release to release of the codec.
        bodies = compressed(bodies, CODECS[batch["codec"]])
        assert set(bodies.cells) == {topic.encode() for topic in batch["cells"]}
    else:
        assert {k.decode(): v.hex() for k, v in bodies.cells.items()} == batch["cells"]
    header = encode_header(
        row,
        bodies,
        base=batch["base"],
        ordinal=batch["ordinal"],
        nonce=bytes.fromhex(golden["nonce"]),
        published_ms=golden["published_ms"],
    )
    assert header.hex() == batch["header"]


@BATCHES
def test_this_release_reads_the_golden_bytes(golden: dict[str, Any], batch: dict[str, Any]) -> None:
    row = bytes.fromhex(batch["row"])
    assert rowkey.decode(row) == (batch["partition"], batch["slot"])
    header = decode_header(row, bytes.fromhex(batch["header"]))
    assert (header.base, header.ordinal) == (batch["base"], batch["ordinal"])
    assert header.version == golden["version"]
    assert header.nonce.hex() == golden["nonce"]
    assert header.published_ms == golden["published_ms"]
    assert header.codec == CODECS[batch.get("codec", "none")]
    assert (header.kind == CONTROL) == ("control" in batch)
    assert header.control.hex() == batch.get("control", "")
    assert header.end - header.base == max(1, len(batch["messages"]))
    found: dict[int, Message] = {}
    for entry in header.topics:
        cell = plain_cell(row, header, entry, bytes.fromhex(batch["cells"][entry.topic]))
        indexes = positions(header, entry, cell)
        keys = decode_keys(entry, cell) or [None] * entry.count
        headers = decode_headers(entry, cell) or [()] * entry.count
        values = decode_bodies(entry, cell)
        for position, value, key, pairs in zip(indexes, values, keys, headers, strict=True):
            found[position] = Message(entry.topic, value, key, pairs)
    assert [found[position] for position in sorted(found)] == messages_of(batch)
    assert sorted(found) == list(range(header.count))
