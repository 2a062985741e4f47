"""Records in ZooKeeper and in HBase as bytes.

Each is a JSON object in UTF-8 with a version, so that a subscriber in any language can write its
own:

    checkpoint   {"version": 1, "next": "1700000000000-0"}, after calls without an answer also
                  "unanswered": {"first": "1700000000000-0", "end": "1700000000000-9",
                                 "count": 2, "messages_max": null};
                  while messages wait for their time also
                  "delays": [["<32 hex digits>", 1700000000000, 16], …]
    address      {"version": 1, "address": "host:port"}
    topics       {"version": 1, "topics": ["a", "b"] or null,
                  "delivery": {"attempts_max": 5, "backoff_ms_min": 100, …}}
    worker       {"version": 1, "address": "host:port", "region_host": "host", "load": 3}
    owner        {"version": 1, "worker": "name"}, of a group {"version": 1, "consumer": "id"}
    broker       {"version": 1, "address": "host:port", "cluster": "id"}
    its queues   {"version": 1, "partitions": 4}
    member       {"version": 1, "streams": {"queue": 1, …}}, of one that has left and keeps its
                 place for a successor also "left": true, of a share group also "kind": "share"
    plan         {"version": 1, "members": ["id", …], "queues": {"queue": [0, 1, null, …], …}}
    offset       {"version": 1, "next": "1700000000000-0", "ordinal": 17, "consumer": "id"}
    epoch        {"version": 1, "number": 17, "since": "1700000000000-0"}
    skipped      {"version": 1, "batches": [{"row": "<hex>", "nonce": "<hex>"}, …]}
    append keys  {"version": 1, "keys": [{"id": "<hex>", "secret": "<hex>",
                                          "created_ms": 1700000000000}, …]}
    access rules {"version": 1, "rules": [{"principal": "loader-*",
                                           "operations": ["create", "publish"],
                                           "queue": "events", "topic": "*",
                                           "name": "batch-*" (left out where only own names
                                                              are allowed)}, …],
                  "changed_by": {"name": "ops", "kind": "certificate"} (if that is known)}

``delays`` has for each record of delayed messages its name, the time at which the first of them is
due, and their number. ``queues`` has for each partition the index of a member. ``keys`` has the key
to sign with, then the one before it. ``delivery`` and each option in it may be missing: then the
defaults of `DeliveryOptions` apply. A release ignores fields that it doesn't know; a field that
must not be ignored gets a new version.
"""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, TypeVar

from hqueue.errors import HQueueError, UnsupportedFormatError
from hqueue.format.header import NONCE_BYTES
from hqueue.format.rowkey import ROW_KEY_BYTES
from hqueue.message_id import MessageID
from hqueue.metadata.access_rules import AccessRule, AccessRules, Login, Operation
from hqueue.metadata.append_keys import KEY_ID_BYTES, SECRET_BYTES, AppendKey, AppendKeys
from hqueue.metadata.delays import Delay, delays_of
from hqueue.metadata.ports import Version
from hqueue.metadata.records import (
    BrokerRecord,
    Checkpoint,
    DeliveryOptions,
    PartitionKey,
    WorkerRecord,
    check_topics,
)
from hqueue.metadata.unanswered_calls import UnansweredCalls, unanswered_fields, unanswered_of
from hqueue.settings.addresses import Address
from hqueue.settings.limits import PARTITIONS_MAX
from hqueue.settings.numbers import check_whole, is_whole

__all__ = [
    "decode_access_rules",
    "decode_address",
    "decode_append_keys",
    "decode_broker",
    "decode_broker_queue",
    "decode_checkpoint",
    "decode_epoch",
    "decode_fields",
    "decode_member",
    "decode_offset",
    "decode_owner",
    "decode_plan",
    "decode_skipped",
    "decode_topics",
    "decode_worker",
    "encode_access_rules",
    "encode_address",
    "encode_append_keys",
    "encode_broker",
    "encode_broker_queue",
    "encode_checkpoint",
    "encode_epoch",
    "encode_fields",
    "encode_member",
    "encode_offset",
    "encode_owner",
    "encode_plan",
    "encode_skipped",
    "encode_topics",
    "encode_worker",
    "list_of",
    "member_left",
    "member_shares",
    "offset_writer",
    "text_of",
]

VERSION = 1
STREAMS_MAX = 1_000
NUMBER_MAX = 2**63 - 1
REASON_LENGTH_MAX = 300

_Decoded = TypeVar("_Decoded")


def encode_checkpoint(
    next_id: MessageID, unanswered: UnansweredCalls | None = None, delays: Sequence[Delay] = ()
) -> bytes:
    waiting = {"delays": [list(each) for each in delays]} if delays else {}
    return encode_fields(next=str(next_id), **unanswered_fields(unanswered), **waiting)


def decode_checkpoint(data: bytes, path: str, revision: Version) -> Checkpoint:
    """The checkpoint that a record of this revision has. `path` is the record's, for errors."""
    return decode_fields(
        data,
        path,
        lambda fields: Checkpoint(
            MessageID.parse(text_of(fields["next"])),
            revision,
            unanswered_of(fields),
            delays_of(list_of(fields.get("delays", []))),
        ),
    )


def encode_address(address: Address) -> bytes:
    return encode_fields(address=str(address))


def decode_address(data: bytes, path: str) -> Address:
    return decode_fields(data, path, lambda fields: Address.parse(text_of(fields["address"])))


def encode_topics(topics: frozenset[str] | None, delivery: DeliveryOptions) -> bytes:
    return encode_fields(
        topics=None if topics is None else sorted(topics), delivery=dataclasses.asdict(delivery)
    )


def decode_topics(data: bytes, path: str) -> tuple[frozenset[str] | None, DeliveryOptions]:
    def read(fields: dict[str, Any]) -> tuple[frozenset[str] | None, DeliveryOptions]:
        topics = fields["topics"]
        wanted = None if topics is None else check_topics(frozenset(list_of(topics)))
        known = {field.name for field in dataclasses.fields(DeliveryOptions)}
        options = {k: v for k, v in fields.get("delivery", {}).items() if k in known}
        return wanted, DeliveryOptions(**options)

    return decode_fields(data, path, read)


def encode_worker(worker: WorkerRecord) -> bytes:
    return encode_fields(
        address=str(worker.address), region_host=worker.region_host, load=worker.load
    )


def decode_worker(data: bytes, path: str, name: str) -> WorkerRecord:
    return decode_fields(
        data,
        path,
        lambda fields: WorkerRecord(
            name,
            Address.parse(text_of(fields["address"])),
            text_of(fields["region_host"]),
            _number_of(fields["load"]),
        ),
    )


def encode_owner(owner: str, role: str = "worker") -> bytes:
    return encode_fields(**{role: owner})


def decode_owner(data: bytes, path: str, role: str = "worker") -> str:
    return decode_fields(data, path, lambda fields: text_of(fields[role]))


def encode_broker(broker: BrokerRecord) -> bytes:
    return encode_fields(address=str(broker.address), cluster=broker.cluster)


def decode_broker(data: bytes, path: str) -> BrokerRecord:
    return decode_fields(
        data,
        path,
        lambda fields: BrokerRecord(
            Address.parse(text_of(fields["address"])), text_of(fields["cluster"])
        ),
    )


def encode_broker_queue(partitions: int) -> bytes:
    return encode_fields(partitions=partitions)


def decode_broker_queue(data: bytes, path: str) -> int:
    """How many partitions a broker has of a queue."""
    return decode_fields(
        data, path, lambda fields: check_whole(fields["partitions"], 1, PARTITIONS_MAX)
    )


def encode_member(streams: Mapping[str, int], *, left: bool = False, shares: bool = False) -> bytes:
    said = {**({"left": True} if left else {}), **({"kind": "share"} if shares else {})}
    return encode_fields(streams=dict(sorted(streams.items())), **said)


def decode_member(data: bytes, path: str) -> dict[str, int]:
    """How many streams a member of a group has of each queue."""
    return decode_fields(
        data,
        path,
        lambda fields: {
            text_of(queue): check_whole(streams, 1, STREAMS_MAX)
            for queue, streams in fields["streams"].items()
        },
    )


def member_left(data: bytes, path: str) -> bool:
    """Whether a member of a group has left cleanly, and keeps its place for a successor."""
    return decode_fields(data, path, lambda fields: fields.get("left") is True)


def member_shares(data: bytes, path: str) -> bool:
    """Whether the group of a member is a share group."""
    return decode_fields(data, path, lambda fields: fields.get("kind") == "share")


def encode_plan(plan: Mapping[PartitionKey, str]) -> bytes:
    members = sorted(set(plan.values()))
    index = {member: number for number, member in enumerate(members)}
    queues: dict[str, list[int | None]] = {}
    for key in sorted(plan):
        listed = queues.setdefault(key.queue, [])
        listed += [None] * (key.partition - len(listed))
        listed.append(index[plan[key]])
    return encode_fields(members=members, queues=queues)


def decode_plan(data: bytes, path: str) -> dict[PartitionKey, str]:
    """The plan of a group: the member that gets each partition."""

    def read(fields: dict[str, Any]) -> dict[PartitionKey, str]:
        members = [text_of(member) for member in list_of(fields["members"])]
        return {
            PartitionKey(text_of(queue), partition): members[check_whole(index, 0, len(members))]
            for queue, listed in fields["queues"].items()
            for partition, index in enumerate(list_of(listed))
            if index is not None
        }

    return decode_fields(data, path, read)


def encode_offset(next_id: MessageID, ordinal: int | None, consumer: str) -> bytes:
    return encode_fields(next=str(next_id), ordinal=ordinal, consumer=consumer)


def decode_offset(data: bytes, path: str) -> tuple[MessageID, int | None]:
    """The first ID that a group has not consumed yet, and how many messages there were before."""
    return decode_fields(
        data,
        path,
        lambda fields: (
            MessageID.parse(text_of(fields["next"])),
            None if fields.get("ordinal") is None else _number_of(fields["ordinal"]),
        ),
    )


def offset_writer(data: bytes, path: str) -> str:
    """The consumer that last committed or took over an offset."""
    return decode_fields(data, path, lambda fields: text_of(fields["consumer"]))


def encode_epoch(epoch: int, since: MessageID) -> bytes:
    # The field is on disk, and keeps its name: "number" is the epoch.
    return encode_fields(number=epoch, since=str(since))


def decode_epoch(data: bytes, path: str) -> tuple[int, MessageID]:
    """The latest epoch of a producer, and when it was claimed."""
    return decode_fields(
        data,
        path,
        lambda fields: (_number_of(fields["number"]), MessageID.parse(text_of(fields["since"]))),
    )


def encode_skipped(batches: Iterable[tuple[bytes, bytes]]) -> bytes:
    """The batches that readers skip: the row and the nonce of each."""
    return encode_fields(
        batches=[{"row": row.hex(), "nonce": nonce.hex()} for row, nonce in sorted(batches)]
    )


def decode_skipped(data: bytes, path: str) -> list[tuple[bytes, bytes]]:
    return decode_fields(
        data,
        path,
        lambda fields: [
            (_hex(each["row"], ROW_KEY_BYTES), _hex(each["nonce"], NONCE_BYTES))
            for each in list_of(fields["batches"])
        ],
    )


def encode_append_keys(keys: AppendKeys) -> bytes:
    known = [keys.current] if keys.previous is None else [keys.current, keys.previous]
    return encode_fields(
        keys=[
            {"id": key.id.hex(), "secret": key.secret.hex(), "created_ms": key.created_ms}
            for key in known
        ]
    )


def decode_append_keys(data: bytes, path: str, revision: Version) -> AppendKeys:
    """The keys of this revision."""

    def read(fields: dict[str, Any]) -> AppendKeys:
        known = [
            AppendKey(
                _hex(key["id"], KEY_ID_BYTES),
                _hex(key["secret"], SECRET_BYTES),
                _number_of(key["created_ms"]),
            )
            for key in list_of(fields["keys"])[:2]
        ]
        return AppendKeys(known[0], known[1] if len(known) > 1 else None, revision)

    return decode_fields(data, path, read)


def encode_access_rules(rules: Iterable[AccessRule], changed_by: Login | None = None) -> bytes:
    changed = {} if changed_by is None else {"changed_by": changed_by._asdict()}
    return encode_fields(
        rules=[
            {
                "principal": rule.principal,
                "operations": rule.operation_names,
                "queue": rule.queue,
                "topic": rule.topic,
                **({} if rule.name is None else {"name": rule.name}),
            }
            for rule in rules
        ],
        **changed,
    )


def decode_access_rules(data: bytes, path: str, revision: Version) -> AccessRules:
    """The rules of this revision."""

    def rule(fields: dict[str, Any]) -> AccessRule:
        return AccessRule(
            text_of(fields["principal"]),
            frozenset(map(Operation, list_of(fields["operations"]))),
            text_of(fields["queue"]),
            text_of(fields["topic"]),
            text_of(fields["name"]) if "name" in fields else None,
        )

    def read(fields: dict[str, Any]) -> AccessRules:
        by = fields.get("changed_by")
        login = None if by is None else Login(text_of(by["name"]), text_of(by["kind"]))
        return AccessRules(map(rule, list_of(fields["rules"])), revision, login)

    return decode_fields(data, path, read)


_encode = json.JSONEncoder(ensure_ascii=False).encode


def encode_fields(**fields: object) -> bytes:
    """A record of version 1 with these fields."""
    return _encode({"version": VERSION, **fields}).encode()


def decode_fields(data: bytes, path: str, read: Callable[[dict[str, Any]], _Decoded]) -> _Decoded:
    """Read a record.

    Raises:
        UnsupportedFormatError: the record has another version, or is not one of HQueue.
    """
    try:
        fields = json.loads(data)
        version = fields["version"]
    except (ValueError, KeyError, TypeError, RecursionError) as exc:
        raise UnsupportedFormatError(
            "this node or row is not a record of hqueue", path=path
        ) from exc
    if not is_whole(version) or version != VERSION:
        raise UnsupportedFormatError(
            "a record has a version that this release does not know", path=path, version=version
        )
    try:
        return read(fields)
    except (
        LookupError, ArithmeticError, ValueError, TypeError, AttributeError, HQueueError
    ) as exc:  # fmt: skip
        raise UnsupportedFormatError(
            "a record of version 1 lacks a field, or has a wrong one",
            path=path,
            reason=f"{type(exc).__name__}: {exc}"[:REASON_LENGTH_MAX],
        ) from exc


def text_of(value: object) -> str:
    """Check that a value is a text that can be encoded as UTF-8, and return it.

    Raises:
        TypeError, ValueError: it is not.
    """
    if not isinstance(value, str):
        raise TypeError("the value must be a string")
    value.encode()
    return value


def _hex(value: object, length: int) -> bytes:
    if not isinstance(value, str) or len(value) != 2 * length:
        raise ValueError(f"{length} bytes are needed")  # Not which they are: it may be a secret.
    return bytes.fromhex(value)


def list_of(value: object) -> list[Any]:
    """Check that a value is a list, and return it.

    Raises:
        TypeError: it is not.
    """
    if not isinstance(value, list):
        raise TypeError("the value must be a list")
    return value


def _number_of(value: object) -> int:
    """A whole number that is not negative, as all that are written."""
    return check_whole(value, 0, NUMBER_MAX)
