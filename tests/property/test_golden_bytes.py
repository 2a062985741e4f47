"""The golden bytes of every released format version: they decode, and are written, for ever."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from hqueue import Message
from hqueue.format import (
    CODECS,
    CONTROL,
    FORMAT_VERSION,
    Bodies,
    compressed,
    control_record,
    decode_bodies,
    decode_header,
    encode_bodies,
    encode_header,
    plain_cell,
    positions,
    rowkey,
)

GOLDEN = json.loads((Path(__file__).parents[1] / "golden" / "v1.json").read_text())
BATCHES = pytest.mark.parametrize("batch", GOLDEN["batches"], ids=lambda batch: batch["name"])


def messages_of(batch: dict[str, Any]) -> list[Message]:
    return [Message(topic, bytes.fromhex(value)) for topic, value in batch["messages"]]


def bodies_of(batch: dict[str, Any]) -> Bodies:
    if "control" in batch:
        return control_record(bytes.fromhex(batch["control"]))
    return encode_bodies(messages_of(batch))


@BATCHES
def test_this_release_writes_the_golden_bytes(batch: dict[str, Any]) -> None:
    assert GOLDEN["version"] == FORMAT_VERSION
    row = rowkey.encode(batch["partition"], batch["slot"])
    assert row.hex() == batch["row"]
    bodies = bodies_of(batch)
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
        nonce=bytes.fromhex(GOLDEN["nonce"]),
        published_ms=GOLDEN["published_ms"],
    )
    assert header.hex() == batch["header"]


@BATCHES
def test_this_release_reads_the_golden_bytes(batch: dict[str, Any]) -> None:
    row = bytes.fromhex(batch["row"])
    assert rowkey.decode(row) == (batch["partition"], batch["slot"])
    header = decode_header(row, bytes.fromhex(batch["header"]))
    assert (header.base, header.ordinal) == (batch["base"], batch["ordinal"])
    assert header.nonce.hex() == GOLDEN["nonce"]
    assert header.published_ms == GOLDEN["published_ms"]
    assert header.codec == CODECS[batch.get("codec", "none")]
    assert (header.kind == CONTROL) == ("control" in batch)
    assert header.control.hex() == batch.get("control", "")
    assert header.end - header.base == max(1, len(batch["messages"]))
    found: dict[int, Message] = {}
    for entry in header.topics:
        cell = plain_cell(row, header, entry, bytes.fromhex(batch["cells"][entry.topic]))
        indexes = positions(header, entry, cell)
        for position, value in zip(indexes, decode_bodies(entry, cell), strict=True):
            found[position] = Message(entry.topic, value)
    assert [found[position] for position in sorted(found)] == messages_of(batch)
    assert sorted(found) == list(range(header.count))
