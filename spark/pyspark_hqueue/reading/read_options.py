"""The options of a read. Options that Kafka's source has too have the same names here.

Spark gives all options as texts, with their names in lower case. The driver reads and checks them
once, together with the connection's settings. The result is frozen, and goes to the executors.
"""

from __future__ import annotations

import dataclasses
import datetime
import functools
import json
import re
from collections.abc import Callable, Iterable, Mapping
from typing import Any, Literal

from pyspark.sql.types import StructType

from hqueue import InvalidInputError, MessageID, Settings
from hqueue.message import topic_bytes
from hqueue.position import as_message_id
from hqueue.settings.attributes import check_queue_name
from hqueue.settings.limits import MESSAGE_ID_MAX, NAME_LENGTH_MAX
from hqueue.settings.names import with_closest
from hqueue.settings.numbers import is_whole, read_whole, whole_number
from hqueue.settings.secret_fields import secret_fields
from pyspark_hqueue.reading.pushdown import Narrowing
from pyspark_hqueue.reading.schema import COLUMNS, WITH_HEADERS
from pyspark_hqueue.reading.task_options import TaskOptions

__all__ = [
    "Bound",
    "Boundary",
    "Option",
    "ReadOptions",
    "duration_ms",
    "flag",
    "parse_options",
    "queue_name",
    "whole",
]

SETTINGS_PREFIX = "hqueue."
"""``hqueue.gateways`` and so on: a setting of the connection, as `hqueue.Settings` names it."""

BATCH_TASK_MESSAGES = 500_000
STREAM_TASK_MESSAGES = 100_000
"""The most messages that a task reads by default: half a second's work, and a tenth of one."""

Boundary = Literal["earliest", "latest"] | MessageID
"""Where a read begins or ends: at one of a partition's ends, or at the first message with this ID
or a later one."""


@dataclasses.dataclass(frozen=True)
class Bound:
    """Where a read begins or ends, in each partition.

    Args:
        everywhere: the boundary of partitions without one of their own; None if each has its own.
        by_partition: the boundaries of single partitions.
        exact: whether the boundaries are messages, which must exist, rather than times.
    """

    everywhere: Boundary | None
    by_partition: Mapping[int, Boundary] = dataclasses.field(default_factory=dict)
    exact: bool = False

    def of(self, partition: int) -> Boundary:
        """The boundary in a partition.

        Raises:
            InvalidInputError: boundaries were given for other partitions only.
        """
        boundary = self.by_partition.get(partition, self.everywhere)
        if boundary is None:
            raise InvalidInputError(
                "offsets given by partition must name every partition that is read",
                missing=partition,
                given=sorted(self.by_partition),
            )
        return boundary


@dataclasses.dataclass(frozen=True, slots=True)
class Option:
    """An option: its name, the field that it sets, and how its text is read."""

    name: str
    field: str
    parse: Callable[[str], Any]
    only: Literal["batch", "stream"] | None = None


def _wrong(must: str) -> InvalidInputError:
    return InvalidInputError(must)


def queue_name(text: str) -> str:
    """Read a queue's name."""
    if not text:
        raise _wrong("the option queue must be the name of a queue")
    return check_queue_name(text)


def _group(text: str) -> str:
    if not 1 <= len(text) <= NAME_LENGTH_MAX:
        raise _wrong(f"a consumer group's name must have 1 to {NAME_LENGTH_MAX} characters")
    return text


def _topics(text: str) -> frozenset[str]:
    topics = frozenset(topic.strip() for topic in text.split(","))
    for topic in topics:
        topic_bytes(topic)
    return topics


def _pattern(text: str) -> re.Pattern[str]:
    try:
        return re.compile(text)
    except re.error as exc:
        raise _wrong("subscribePattern must be a regular expression of Python's re") from exc


def _partitions(text: str) -> frozenset[int]:
    """``[0, 1, 2]``, or ``0-2,5``."""
    found: set[int] = set()
    for part in text.strip().removeprefix("[").removesuffix("]").split(","):
        first, dash, last = part.partition("-")
        low = whole_number(first.strip())
        high = whole_number(last.strip()) if dash else low
        if low is None or high is None or not low <= high <= low + 32_767:
            raise _wrong("assign must be a list of partitions, such as [0, 1, 2] or 0-2,5")
        found.update(range(low, high + 1))
    return frozenset(found)


def whole(least: int, text: str) -> int:
    """Read a whole number that is not below `least`."""
    return read_whole(text, least)


def flag(text: str) -> bool:
    """Read ``true`` or ``false``."""
    if text.lower() not in ("true", "false"):
        raise _wrong("this option must be true or false")
    return text.lower() == "true"


_MILLISECONDS = {"": 1, "ms": 1, "s": 1_000, "m": 60_000, "min": 60_000, "h": 3_600_000}
_DURATION = re.compile(r"(\d{1,12})\s*([a-z]*)", re.ASCII)


def duration_ms(text: str) -> int:
    """Read a length of time, into milliseconds."""
    match = _DURATION.fullmatch(text.strip().lower())
    if match is None or match[2] not in _MILLISECONDS:
        raise _wrong("a duration must be written like 500ms, 30s, 15m or 2h")
    return int(match[1]) * _MILLISECONDS[match[2]]


def _moment(value: object) -> MessageID:
    """A time: milliseconds since the epoch, or ISO 8601 with a time zone."""
    number = whole_number(value.strip()) if isinstance(value, str) else value
    try:
        if is_whole(number):
            return as_message_id(number)
        return as_message_id(datetime.datetime.fromisoformat(str(value).replace("Z", "+00:00")))
    except ValueError as exc:
        raise _wrong(
            "a time must be milliseconds since the epoch, or ISO 8601 with a time zone, such as "
            "2026-01-31T12:00:00Z"
        ) from exc


_OFFSETS = (
    "offsets must be earliest, latest, a MessageID such as 1767225600000-0, or JSON with one for "
    'each partition, such as {"0": "1767225600000-0", "1": -2, "2": -1}, where -2 is earliest and '
    "-1 latest; for times use startingTimestamp and endingTimestamp"
)

_NO_COUNT = (
    "an offset is a MessageID here, not a number of messages: give one such as 1767225600000-0, or "
    "give a time with startingTimestamp or endingTimestamp; earliest is the oldest message"
)
_COUNTS_END = int(MessageID(946_684_800_000))
"""A smaller integer would be an ID of the last century: it is meant as a Kafka offset."""


def _boundary(value: object) -> Boundary:
    name = value.lower() if isinstance(value, str) else ""
    if name in ("earliest", "latest"):
        return "earliest" if name == "earliest" else "latest"
    number = whole_number(value.strip()) if isinstance(value, str) else value
    if is_whole(number) and 0 <= number < _COUNTS_END:
        raise _wrong(_NO_COUNT)
    try:
        if isinstance(value, str):
            return MessageID.from_int(number) if is_whole(number) else MessageID.parse(value)
        if is_whole(value):
            return {-2: "earliest", -1: "latest"}.get(value) or MessageID.from_int(value)  # type: ignore[return-value]
    except ValueError as exc:
        raise _wrong(_OFFSETS) from exc
    raise _wrong(_OFFSETS)


def _by_partition(text: str, read: Callable[[object], Boundary], must: str) -> dict[int, Boundary]:
    try:
        given = json.loads(text)
    except (ValueError, RecursionError) as exc:
        raise _wrong(must) from exc
    if not isinstance(given, dict) or not given:
        raise _wrong(must)
    boundaries = {}
    for name, value in given.items():
        partition = whole_number(name)
        if partition is None:
            raise _wrong(must)
        boundaries[partition] = read(value)
    return boundaries


def _offsets(forbidden: str, text: str) -> Bound:
    if text.strip().startswith("{"):
        boundaries = _by_partition(text, _boundary, _OFFSETS)
        bound = Bound(None, boundaries, exact=True)
    else:
        boundary = _boundary(text.strip())
        bound = Bound(boundary, exact=isinstance(boundary, MessageID))
    if forbidden in (bound.everywhere, *bound.by_partition.values()):
        raise _wrong(f"this read can't have {forbidden} here, because it would read nothing")
    return bound


def _timestamp(text: str) -> Bound:
    return Bound(_moment(text))


def _offsets_by_timestamp(text: str) -> Bound:
    must = (
        'times by partition must be JSON, such as {"0": 1767225600000, "1": "2026-01-31T12:00:00Z"}'
    )
    return Bound(None, _by_partition(text, _moment, must))


_START: dict[str, Callable[[str], Bound]] = {
    "startingTimestamp": _timestamp,
    "startingOffsetsByTimestamp": _offsets_by_timestamp,
}
_END: dict[str, Callable[[str], Bound]] = {
    "endingOffsets": functools.partial(_offsets, "earliest"),
    "endingTimestamp": _timestamp,
    "endingOffsetsByTimestamp": _offsets_by_timestamp,
}

_POSITIVE = functools.partial(whole, 1)

_OPTIONS = (
    Option("queue", "queue", queue_name),
    Option("path", "queue", queue_name),
    Option("subscribe", "topics", _topics),
    Option("subscribePattern", "topics", _pattern),
    Option("topicRanges", "topic_ranges", flag, "batch"),
    Option("assign", "partitions", _partitions),
    Option("startingGroup", "start_group", _group),
    Option("commitGroup", "commit_group", _group, "stream"),
    Option("startingOffsets", "start", functools.partial(_offsets, ""), "stream"),
    Option("startingOffsets", "start", functools.partial(_offsets, "latest"), "batch"),
    *(Option(name, "start", parse) for name, parse in _START.items()),
    *(Option(name, "stop", parse, "batch") for name, parse in _END.items()),
    Option("maxOffsetsPerTrigger", "trigger_messages_max", _POSITIVE, "stream"),
    Option("minOffsetsPerTrigger", "trigger_messages_min", _POSITIVE, "stream"),
    Option("maxTriggerDelay", "trigger_delay_ms_max", duration_ms, "stream"),
    Option("rangesOnly", "ranges_only", flag, "stream"),
    Option("includeHeaders", "include_headers", flag),
    Option("minPartitions", "tasks_min", _POSITIVE),
    Option("maxRecordsPerPartition", "task_messages_max", _POSITIVE),
    Option("failOnDataLoss", "fail_on_data_loss", flag),
    Option("delegationTokens", "delegation_tokens", flag),
)

_OF_STREAMS = {option.name.lower() for option in _OPTIONS if option.only == "stream"} - {
    option.name.lower() for option in _OPTIONS if option.only != "stream"
}
"""Options, in lower case, that only streams have."""

_GROUPS = (
    "a read does not join a group: use startingGroup to begin at a group's offsets, and "
    "commitGroup to commit a stream's offsets to a group"
)
_HINTS = {
    "kafka.bootstrap.servers": "give the gateways with hqueue.gateways",
    "kafka.group.id": _GROUPS,
    "groupidprefix": _GROUPS,
    "startingoffsetsbytimestampstrategy": "a time beyond the last message is the end of the log",
    "commitgroup": "pyspark_hqueue.read_group commits what a batch has read, when its block ends",
}
"""Hints for options that Kafka's source has, and for options of only one kind of read."""


def parse_options(
    given: Mapping[str, str], options: tuple[Option, ...], kind: Literal["batch", "stream"]
) -> dict[str, Any]:
    """Read the given options into the fields that they set.

    Options that begin with ``hqueue.`` are settings of the connection, and set the field
    ``settings``. The other settings come from the sources of `hqueue.connect`.

    Raises:
        InvalidInputError: an option is unknown (the error names the closest), has a wrong value, is
            not for this kind of work, contradicts another, or is a secret; or no queue is named.
        SettingsError: a setting is unknown or has a wrong value.
    """
    by_name: dict[str, Option] = {}
    for option in options:
        if option.only in (None, kind) or option.name.lower() not in by_name:
            by_name[option.name.lower()] = option
    settings: dict[str, str] = {}
    fields: dict[str, Any] = {}
    set_by: dict[str, str] = {}
    for written, text in given.items():
        name = written.lower()
        if name.startswith(SETTINGS_PREFIX):
            if name.removeprefix(SETTINGS_PREFIX) in secret_fields(Settings):
                raise InvalidInputError(
                    "a secret can't be an option, because Spark shows options in plans: set it by "
                    "its variable or in the settings file, for the driver and for executors",
                    option=written,
                )
            settings[name.removeprefix(SETTINGS_PREFIX)] = text
            continue
        if name not in by_name:
            if name in _HINTS:
                raise InvalidInputError("unknown option", option=written, hint=_HINTS[name])
            names = [option.name for option in by_name.values()]
            raise with_closest(InvalidInputError("unknown option", option=written), name, names)
        option = by_name[name]
        if option.only not in (None, kind):
            error = InvalidInputError(
                f"this option is only for a {option.only}", option=option.name, given_to=kind
            )
            if name in _HINTS:
                error.facts["hint"] = _HINTS[name]
            raise error
        if option.field in fields:
            raise InvalidInputError(
                "two options set the same thing: give one of them",
                options=[set_by[option.field], option.name],
            )
        try:
            fields[option.field] = option.parse(text)
        except InvalidInputError as exc:
            exc.facts.update(option=option.name, value=text)
            raise
        set_by[option.field] = option.name
    found = Settings.load(settings)
    if "queue" not in fields:
        raise InvalidInputError("the option queue is missing: give the name of a queue")
    return {**fields, "settings": found}


@dataclasses.dataclass(frozen=True)
class ReadOptions(TaskOptions):
    """What is read, and how. See docs/spark-reference.md for each."""

    start: Bound
    """Where the read begins; with a `start_group`, only in partitions where it has no offset."""
    stop: Bound = Bound("latest")
    start_group: str | None = None
    """The group at whose offsets the read begins."""
    commit_group: str | None = None
    """The group to which a stream commits what it has finished."""
    topics: frozenset[str] | re.Pattern[str] | None = None
    partitions: frozenset[int] | None = None
    tasks_min: int = 1
    task_messages_max: int = BATCH_TASK_MESSAGES
    fail_on_data_loss: bool = True
    trigger_messages_max: int | None = None
    trigger_messages_min: int | None = None
    trigger_delay_ms_max: int = 900_000
    ranges_only: bool = False
    topic_ranges: bool = False
    include_headers: bool = False
    narrowing: Narrowing = dataclasses.field(default_factory=Narrowing)

    @property
    def columns(self) -> StructType:
        """The columns of the messages that are read."""
        return WITH_HEADERS if self.include_headers else COLUMNS

    def start_in(self, partition: int) -> Boundary:
        """Where the read begins in a partition."""
        boundary, least = self.start.of(partition), self.narrowing.start
        if isinstance(boundary, MessageID):
            return max(boundary, MessageID.from_int(least))
        return MessageID.from_int(least) if least and boundary == "earliest" else boundary

    def stop_in(self, partition: int) -> Boundary:
        """Where the read ends in a partition."""
        boundary, beyond = self.stop.of(partition), self.narrowing.stop
        if isinstance(boundary, MessageID):
            return MessageID.from_int(min(boundary, beyond))
        return MessageID.from_int(beyond) if beyond <= MESSAGE_ID_MAX else boundary

    def wanted_topics(self, named: Callable[[], Iterable[str]]) -> frozenset[str] | None:
        """The topics to read; None for all. A pattern selects from those that `named` gives."""
        topics = self.topics
        if isinstance(topics, re.Pattern):
            topics = frozenset(filter(topics.fullmatch, named()))
        if self.narrowing.topics is None or topics is None:
            return self.narrowing.topics if topics is None else topics
        return topics & self.narrowing.topics

    @classmethod
    def check(cls, given: Mapping[str, str]) -> None:
        """Refuse options that are wrong in a batch and in a stream alike: Spark asks for the
        columns before it says which of the two it reads. Raises as `parse_options`.
        """
        try:
            cls.of(given, "batch")
        except InvalidInputError as of_batch:
            try:
                cls.of(given, "stream")
            except InvalidInputError as of_stream:
                is_stream = any(name.lower() in _OF_STREAMS for name in given)
                raise (of_stream if is_stream else of_batch) from None

    @classmethod
    def of(cls, given: Mapping[str, str], kind: Literal["batch", "stream"]) -> ReadOptions:
        """The options of a read, checked. Raises as `parse_options`."""
        fields = parse_options(given, _OPTIONS, kind)
        from_earliest = kind == "batch" or "start_group" in fields
        fields.setdefault("start", Bound("earliest" if from_earliest else "latest"))
        if kind == "stream":
            fields.setdefault("task_messages_max", STREAM_TASK_MESSAGES)
        options = cls(**fields)
        if options.topic_ranges and not (
            isinstance(options.topics, frozenset) and len(options.topics) == 1
        ):
            raise InvalidInputError("topicRanges needs exactly one topic: name it with subscribe")
        if options.topic_ranges and options.start_group is not None:
            raise InvalidInputError(
                "a group's offsets belong to partitions, not to topics: leave out topicRanges or "
                "startingGroup"
            )
        most, least = options.trigger_messages_max, options.trigger_messages_min
        if most is not None and least is not None and least > most:
            raise InvalidInputError(
                "minOffsetsPerTrigger must not be greater than maxOffsetsPerTrigger",
                least=least,
                most=most,
            )
        return options
