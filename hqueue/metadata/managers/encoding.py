"""Topics' metadata as bytes. Each is a JSON object in UTF-8, a field of a record:

owner        {"version": 1, "address": "host:port", "incarnation": "…"}
ranges       {"version": 1, "ranges": [{"partition": 0, "first": "1700000000000-0",
                                        "last": "1700000000000-9" or null, "epoch": 3,
                                        "marked": true (left out where it is false)}, …]}
access       {"version": 1, "publish": ["name", "prefix*", …], "subscribe": ["*"],
              "manage": […]}: beside the ranges; left out if everybody may do everything
preferences  {"version": 1, "message_bound": 100, "consume_interval": null,
              "delivery_window": null, "application": {"name": "value", …}}, perhaps
              with "unanswered_calls_max": 5
state        {"version": 1, "consumed": "1700000000000-0"}
principal    {"version": 1, "name": "loader"}: of a subscription; left out if it is the
             subscriber's name
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from hqueue.message_id import MessageID
from hqueue.metadata.encoding import decode_fields, encode_fields, list_of, text_of
from hqueue.metadata.fields import Fields
from hqueue.metadata.managers.infos import (
    HubInfo,
    LogRange,
    SubscriptionData,
    SubscriptionPreferences,
    SubscriptionState,
    TopicACL,
    TopicPersistenceInfo,
)
from hqueue.metadata.records import check_name
from hqueue.metadata.unanswered_calls import unanswered_fields, unanswered_of
from hqueue.settings.addresses import Address

__all__ = [
    "ACL",
    "OWNER",
    "PREFERENCES",
    "PRINCIPAL",
    "RANGES",
    "STATE",
    "decode_owner_info",
    "decode_persistence_info",
    "decode_subscription",
    "encode_owner_info",
    "encode_persistence_info",
    "encode_subscription",
]

OWNER, RANGES, ACL = "owner", "ranges", "access"
PREFERENCES, STATE, PRINCIPAL = "preferences", "state", "principal"
"""The fields' names. That of the ACL is ``access`` in the records that are there."""

_EVERYBODY = TopicACL()
"""One for all topics without an ACL: most have none."""


def encode_owner_info(owner: HubInfo) -> dict[str, bytes]:
    """An owner's record."""
    return {OWNER: encode_fields(address=str(owner.address), incarnation=owner.incarnation)}


def decode_owner_info(fields: Fields, path: str) -> HubInfo:
    """Reads it; `path` is where it lies, for errors."""
    return decode_fields(
        fields.get(OWNER, b""),
        path,
        lambda owner: HubInfo(
            Address.parse(text_of(owner["address"])), text_of(owner["incarnation"])
        ),
    )


def encode_persistence_info(info: TopicPersistenceInfo) -> dict[str, bytes]:
    """The record of a topic as a whole."""
    listed = [
        {
            "partition": each.partition,
            "first": str(each.first),
            "last": None if each.last is None else str(each.last),
            "epoch": each.epoch,
            **({"marked": True} if each.marked else {}),
        }
        for each in info.ranges
    ]
    fields = {RANGES: encode_fields(ranges=listed)}
    if info.acl != TopicACL():
        fields[ACL] = encode_fields(
            publish=list(info.acl.publish),
            subscribe=list(info.acl.subscribe),
            manage=list(info.acl.manage),
        )
    return fields


def decode_persistence_info(fields: Fields, path: str) -> TopicPersistenceInfo:
    """Reads it."""

    def ranges(given: Mapping[str, Any]) -> tuple[LogRange, ...]:
        return tuple(
            LogRange(
                each["partition"],
                MessageID.parse(text_of(each["first"])),
                None if each["last"] is None else MessageID.parse(text_of(each["last"])),
                each["epoch"],
                each.get("marked", False),
            )
            for each in list_of(given["ranges"])
        )

    def acl(given: Mapping[str, Any]) -> TopicACL:
        return TopicACL(
            list_of(given["publish"]), list_of(given["subscribe"]), list_of(given["manage"])
        )

    return TopicPersistenceInfo(
        decode_fields(fields.get(RANGES, b""), path, ranges),
        decode_fields(fields[ACL], path, acl) if ACL in fields else _EVERYBODY,
    )


def encode_subscription(data: SubscriptionData) -> dict[str, bytes]:
    """Those parts of a subscription's record that are given."""
    fields: dict[str, bytes] = {}
    if data.preferences is not None:
        wanted = data.preferences
        calls_max = wanted.unanswered_calls_max
        fields[PREFERENCES] = encode_fields(
            message_bound=wanted.message_bound,
            consume_interval=wanted.consume_interval,
            delivery_window=wanted.delivery_window,
            application=dict(sorted(wanted.application.items())),
            **({} if calls_max is None else {"unanswered_calls_max": calls_max}),
        )
    if data.state is not None:
        fields[STATE] = encode_fields(
            consumed=str(data.state.consumed), **unanswered_fields(data.state.unanswered)
        )
    if data.owner is not None:
        fields[PRINCIPAL] = encode_fields(name=data.owner)
    return fields


def decode_subscription(fields: Fields, path: str) -> SubscriptionData:
    """Reads it. Preferences and state are there."""

    def preferences(given: Mapping[str, Any]) -> SubscriptionPreferences:
        return SubscriptionPreferences(
            given["message_bound"],
            given["consume_interval"],
            given["delivery_window"],
            {text_of(name): text_of(value) for name, value in given["application"].items()},
            given.get("unanswered_calls_max"),
        )

    def state(given: Mapping[str, Any]) -> SubscriptionState:
        consumed = MessageID.parse(text_of(given["consumed"]))
        return SubscriptionState(consumed, unanswered_of(given))

    return SubscriptionData(
        decode_fields(fields.get(PREFERENCES, b""), path, preferences),
        decode_fields(fields.get(STATE, b""), path, state),
        decode_fields(fields[PRINCIPAL], path, lambda owner: check_name(owner["name"]))
        if PRINCIPAL in fields
        else None,
    )
