"""The records in ZooKeeper and HBase: golden bytes, and bytes that are not a record."""

from __future__ import annotations

import json

import pytest

from hqueue import DeliveryOptions, InvalidInputError, MessageID
from hqueue.errors import UnsupportedFormatError
from hqueue.metadata import (
    Address,
    BrokerRecord,
    Checkpoint,
    WorkerRecord,
    check_name,
    encoding,
)
from hqueue.metadata.delays import Delay
from hqueue.metadata.ports import Version
from hqueue.metadata.unanswered_calls import UnansweredCalls

OPTIONS = DeliveryOptions(attempts_max=5, delay_ms=1_000)
WORKER = WorkerRecord("w1", Address("10.0.0.1", 7_000), "rs1.example", 3)
SKIPPED = [(bytes.fromhex("000700000188be5680000003"), b"noncenon")]
BROKER = BrokerRecord(Address("10.0.0.1", 7_000), "c4a1")

# What release 0.1.0 wrote. It stays readable.
GOLDEN = {
    "checkpoint": b'{"version": 1, "next": "1700000000000-7"}',
    "address": b'{"version": 1, "address": "[::1]:5000"}',
    "topics": b'{"version": 1, "topics": ["a", "\xc3\xa4"], "delivery": {"attempts_max": 5, '
    b'"backoff_ms_min": 100, "backoff_ms_max": 30000, "delay_ms": 1000, "timeout_ms": 30000, '
    b'"batch_messages_max": 1000, "batch_bytes_max": 1048576}}',
    "worker": b'{"version": 1, "address": "10.0.0.1:7000", "region_host": "rs1.example", '
    b'"load": 3}',
    "owner": b'{"version": 1, "worker": "w1"}',
    "epoch": b'{"version": 1, "number": 17, "since": "1700000000000-7"}',
    "skipped": b'{"version": 1, "batches": [{"row": "000700000188be5680000003", '
    b'"nonce": "6e6f6e63656e6f6e"}]}',
    "broker": b'{"version": 1, "address": "10.0.0.1:7000", "cluster": "c4a1"}',
    "broker_queue": b'{"version": 1, "partitions": 32767}',
}


def decode(kind: str, data: bytes) -> object:
    if kind == "checkpoint":
        return encoding.decode_checkpoint(data, "/place", Version(3))
    if kind == "worker":
        return encoding.decode_worker(data, "/place", "w1")
    return getattr(encoding, f"decode_{kind}")(data, "/place")


def test_each_record_is_written_as_it_was_by_the_first_release() -> None:
    assert encoding.encode_checkpoint(MessageID(1_700_000_000_000, 7)) == GOLDEN["checkpoint"]
    assert encoding.encode_address(Address("::1", 5_000)) == GOLDEN["address"]
    written = GOLDEN["topics"].replace(b"1048576", b'1048576, "unanswered_calls_max": 5')
    assert encoding.encode_topics(frozenset({"ä", "a"}), OPTIONS) == written
    assert encoding.encode_worker(WORKER) == GOLDEN["worker"]
    assert encoding.encode_owner("w1") == GOLDEN["owner"]
    assert encoding.encode_epoch(17, MessageID(1_700_000_000_000, 7)) == GOLDEN["epoch"]
    assert encoding.encode_skipped(SKIPPED) == GOLDEN["skipped"]
    assert encoding.encode_broker(BROKER) == GOLDEN["broker"]
    assert encoding.encode_broker_queue(32_767) == GOLDEN["broker_queue"]


def test_a_checkpoint_keeps_calls_without_an_answer() -> None:
    first = MessageID(1_700_000_000_000, 7)
    for messages_max, shown in ((4, b"4"), (None, b"null")):
        calls = UnansweredCalls(first, MessageID(1_700_000_000_000, 9), 2, messages_max)
        data = encoding.encode_checkpoint(first, calls)
        assert data == (
            GOLDEN["checkpoint"][:-1] + b', "unanswered": {"first": "1700000000000-7", '
            b'"end": "1700000000000-9", "count": 2, "messages_max": ' + shown + b"}}"
        )
        assert decode("checkpoint", data) == Checkpoint(first, Version(3), calls)
        for wrong in (b'"count": -1', b'"count": "2"', b'"count": null'):
            with pytest.raises(UnsupportedFormatError):
                decode("checkpoint", data.replace(b'"count": 2', wrong))


def test_a_checkpoint_names_the_records_of_delayed_messages() -> None:
    first, name = MessageID(1_700_000_000_000, 7), "0123456789abcdef0123456789abcdef"
    delays = (Delay(name, 1_700_000_000_000, 16),)
    data = encoding.encode_checkpoint(first, None, delays)
    assert data == (
        GOLDEN["checkpoint"][:-1] + b', "delays": [["0123456789abcdef0123456789abcdef", '
        b"1700000000000, 16]]}"
    )
    assert decode("checkpoint", data) == Checkpoint(first, Version(3), None, delays)
    for wrong in ((b", 16]", b", 0]"), (b'[["0', b'[["../'), (b"[[", b"[[1, ")):
        with pytest.raises(UnsupportedFormatError):
            decode("checkpoint", data.replace(*wrong))


def test_each_record_of_the_first_release_is_read() -> None:
    checkpoint = Checkpoint(MessageID(1_700_000_000_000, 7), Version(3))
    assert decode("checkpoint", GOLDEN["checkpoint"]) == checkpoint
    assert decode("address", GOLDEN["address"]) == Address("::1", 5_000)
    assert decode("topics", GOLDEN["topics"]) == (frozenset({"a", "ä"}), OPTIONS)
    assert decode("worker", GOLDEN["worker"]) == WORKER
    assert decode("owner", GOLDEN["owner"]) == "w1"
    assert decode("epoch", GOLDEN["epoch"]) == (17, MessageID(1_700_000_000_000, 7))
    assert decode("skipped", GOLDEN["skipped"]) == SKIPPED
    assert decode("broker", GOLDEN["broker"]) == BROKER
    assert decode("broker_queue", GOLDEN["broker_queue"]) == 32_767


@pytest.mark.parametrize("kind", GOLDEN)
@pytest.mark.parametrize("version", [0, 2, "1", None])
def test_another_version_is_an_error_that_names_it(kind: str, version: object) -> None:
    fields = {**json.loads(GOLDEN[kind]), "version": version}
    with pytest.raises(UnsupportedFormatError) as caught:
        decode(kind, json.dumps(fields).encode())
    assert (caught.value.version, caught.value.path) == (version, "/place")


@pytest.mark.parametrize("kind", GOLDEN)
@pytest.mark.parametrize(
    "data",
    [
        b"",
        b"\xff",
        b"[]",
        b"1",
        b"null",
        b"{}",
        b'{"version": 1}',
        b'"version"',
        b"[" * 100_000,
    ],
    ids=lambda data: repr(data[:20]),
)
def test_what_is_no_record_is_an_error_that_says_where(kind: str, data: bytes) -> None:
    with pytest.raises(UnsupportedFormatError) as caught:
        decode(kind, data)
    assert caught.value.path == "/place"


@pytest.mark.parametrize(
    ("kind", "data"),
    [
        ("checkpoint", b'{"version": 1, "next": 5}'),
        ("skipped", b'{"version": 1, "batches": "all"}'),
        ("skipped", b'{"version": 1, "batches": [{"row": "00"}]}'),
        ("skipped", b'{"version": 1, "batches": [{"row": "00", "nonce": "6e6f6e63656e6f6e"}]}'),
        ("checkpoint", b'{"version": 1, "next": "5"}'),
        ("checkpoint", b'{"version": 1, "next": "-1-0"}'),
        ("address", b'{"version": 1, "address": "host"}'),
        ("address", b'{"version": 1, "address": "host:0"}'),
        ("topics", b'{"version": 1, "topics": "a"}'),
        ("topics", b'{"version": 1, "topics": [1]}'),
        ("topics", b'{"version": 1, "topics": []}'),
        ("topics", b'{"version": 1, "topics": [""]}'),
        ("topics", b'{"version": 1, "topics": ["\\ud800"]}'),
        ("topics", b'{"version": 1, "topics": ["%s"]}' % (b"t" * 256)),
        ("topics", b'{"version": 1, "topics": null, "delivery": {"timeout_ms": 1}}'),
        ("topics", b'{"version": 1, "topics": null, "delivery": []}'),
        ("worker", b'{"version": 1, "address": "h:1", "region_host": "r", "load": "x"}'),
        ("worker", b'{"version": 1, "address": "h:1", "region_host": "r", "load": Infinity}'),
        ("address", b'{"version": 1, "address": "\\ud800:1"}'),
        ("owner", b'{"version": 1, "worker": null}'),
        ("broker", b'{"version": 1, "address": "h:1", "cluster": 5}'),
        ("broker", b'{"version": 1, "address": "h", "cluster": "c"}'),
        ("broker_queue", b'{"version": 1, "partitions": 0}'),
        ("broker_queue", b'{"version": 1, "partitions": "4"}'),
        ("broker_queue", b'{"version": 1, "partitions": 32768}'),
    ],
)
def test_a_wrong_field_is_an_error_and_never_a_guess(kind: str, data: bytes) -> None:
    with pytest.raises(UnsupportedFormatError):
        decode(kind, data)


def test_fields_of_later_releases_are_ignored_and_missing_options_have_their_defaults() -> None:
    data = b'{"version": 1, "topics": null, "new": 1, "delivery": {"delay_ms": 9, "newer": 2}}'
    assert decode("topics", data) == (None, DeliveryOptions(delay_ms=9))
    assert decode("topics", b'{"version": 1, "topics": null}') == (None, DeliveryOptions())


@pytest.mark.parametrize(
    "options",
    [
        {"attempts_max": 0},
        {"backoff_ms_min": 0},
        {"backoff_ms_min": 200, "backoff_ms_max": 100},
        {"delay_ms": -1},
        {"timeout_ms": 99},
        {"batch_messages_max": 0},
        {"batch_bytes_max": 2**30},
        {"delay_ms": True},
        {"delay_ms": "5"},
    ],
)
def test_delivery_options_out_of_range_are_refused(options: dict[str, object]) -> None:
    with pytest.raises(InvalidInputError):
        DeliveryOptions(**options)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    "text",
    [
        "",
        "host",
        ":1",
        "host:",
        "host:x",
        "host:70000",
        "a b:1",
        "\ud800:1",
        "a..b:1",
        "a" * 64 + ":1",
    ],
)
def test_what_is_no_address_is_refused(text: str) -> None:
    with pytest.raises(InvalidInputError):
        Address.parse(text)


@pytest.mark.parametrize("name", ["", ".", "..", "a/b", "-a", "ä", "a" * 201, 5, None, "a\0"])
def test_a_name_that_could_be_no_node_is_refused(name: object) -> None:
    with pytest.raises(InvalidInputError):
        check_name(name)
