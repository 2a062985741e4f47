"""Options by keyword: each is one that its owner has, of the same type, and no other is taken."""

from __future__ import annotations

import dataclasses
import inspect
from collections.abc import Callable
from typing import Any, cast

import pytest

import hqueue
from hqueue import (
    InvalidInputError,
    Queue,
    Settings,
    SettingsError,
    Subscriber,
    Subscription,
)
from hqueue.consume.scanners import CheckedOptions
from hqueue.handle import QueueLog
from hqueue.produce.gathering import Gathering
from hqueue.settings.attributes import ATTRIBUTES
from hqueue.typing import (
    ConnectOptions,
    ProducerOptions,
    QueueAttributes,
    ScannerOptions,
    SubscriberOptions,
)

INTERNAL = {"coordinate", "loop", "serving"}
"""Keywords that are no options: what the library passes on itself."""


@pytest.mark.parametrize(
    ("options", "owner"),
    [
        (ProducerOptions, Gathering),
        (SubscriberOptions, Subscriber),
        (ScannerOptions, CheckedOptions.of),
    ],
)
def test_options_are_those_that_their_owner_takes(options: type, owner: type) -> None:
    keywords = {
        name: parameter.annotation
        for name, parameter in inspect.signature(owner).parameters.items()
        if parameter.kind is parameter.KEYWORD_ONLY and name not in INTERNAL
    }
    given = {name: kind.__forward_arg__ for name, kind in options.__annotations__.items()}
    assert given == keywords


def test_connecting_takes_every_setting() -> None:
    assert ConnectOptions.__annotations__.keys() == {
        field.name for field in dataclasses.fields(Settings)
    }


def test_a_queue_is_created_with_any_attribute_and_altered_with_those_that_are_not_fixed() -> None:
    assert QueueAttributes.__annotations__.keys() == ATTRIBUTES.keys()
    fixed = {name for name, attribute in ATTRIBUTES.items() if attribute.fixed}
    assert hqueue.typing.AlterableAttributes.__annotations__.keys() == ATTRIBUTES.keys() - fixed


QUEUE = Queue(cast(QueueLog, None), cast(Any, None), cast(Any, None))
"""Its log is not reached: the options are looked at first."""


@pytest.mark.parametrize(
    ("call", "owner", "option", "closest"),
    [
        (QUEUE.producer, "Producer", "linger", "linger_ms"),
        (
            lambda **given: QUEUE.subscriber(Subscription("s"), [print], **given),
            "Subscriber", "calls_maximum", "calls_max",
        ),
        (QUEUE.scan, "Scanner", "bytesmax", "bytes_max"),
        (lambda **given: QUEUE.scan(partition=0, **given), "Scanner", "Follow", "follow"),
        (QUEUE.queue_scanner, "QueueScanner", "idle_ms", "idle_ms_max"),
        (
            lambda **given: QUEUE.partition_scanner(0, **given),
            "PartitionScanner", "merge_sort", "merge_sorted",
        ),
        (
            lambda **given: QUEUE.combined_partition_scanner({}, **given),
            "CombinedPartitionScanner", "bytes_maximum", "bytes_max",
        ),
    ],
)  # fmt: skip
def test_an_unknown_option_is_an_error_that_names_its_owner_and_the_closest_one(
    call: Callable[..., object], owner: str, option: str, closest: str
) -> None:
    with pytest.raises(InvalidInputError) as caught:
        call(**{option: 1})
    assert caught.value.text == f"{owner} has no such option"
    assert caught.value.facts == {"option": option, "closest": closest}
    with pytest.raises(InvalidInputError) as caught:
        call(xyz=1)
    assert caught.value.facts == {"option": "xyz"}


def test_an_unknown_setting_is_an_error_that_names_the_closest_one() -> None:
    with pytest.raises(SettingsError) as caught:
        hqueue.connect(gateway="localhost")  # type: ignore[call-arg]
    assert caught.value.facts == {"setting": "gateway", "closest": "gateways"}
