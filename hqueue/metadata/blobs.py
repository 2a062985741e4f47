"""Records of fields on any store of versioned records: all fields of one as one blob."""

from __future__ import annotations

import contextlib
import json
import secrets
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from typing import Any

from hqueue.errors import (
    InvalidInputError,
    Outcome,
    StoreUnavailableError,
    UnsupportedFormatError,
)
from hqueue.metadata.fields import FieldChange, FieldRecord, Fields, Found
from hqueue.metadata.outcomes import (
    PartlyDoneError,
    answers_of,
    like,
    partly_done,
    unknown_if_made,
)
from hqueue.metadata.ports import (
    ANY,
    NEW,
    VALUE_BYTES_MAX,
    Change,
    ChangeableRecords,
    Record,
    Version,
)
from hqueue.metadata.steps import Delete, Keys, Work
from hqueue.runtime.loop import computing, is_much
from hqueue.runtime.steps import Give
from hqueue.runtime.stepwise import Stepwise, asked, paged, stepwise
from hqueue.settings.numbers import is_whole

__all__ = ["BlobRecords", "encode_blob", "is_gone"]

FORMAT = 1
WRITER = "writer"
WRITER_BYTES = 6
GONE = b"gone "
"""How a node begins whose record was deleted. A node that only leads to others is empty."""

TRIES_MAX = 100
"""How often a record may be changed by others while it is changed whatever its version."""

KNOWN_MAX = 16_384
"""Versions that are known to be a record's: about 4 MB."""

PORTION = 256
"""Records that a scan reads at a time."""


class BlobRecords(Stepwise):
    """`FieldRecords` on any store of versioned records: all fields of one as one blob.

    The blob is ``{"version": 1, "writer": "<hex>", "<field>": {…}, …}``. Each write has a writer
    of its own, so that it knows what it wrote itself when an answer was lost. A record that others
    lie below, or are to, is not deleted but emptied, and counts as none: so are nodes that only
    lead to others. Such a node is never removed, for its versions must not come again.

    Reads are as the store's: on ZooKeeper they have all that this session did, and may lack what
    another did a moment before. Changes never stand on such a view.

    Args:
        records: the store's.
        version_max: the largest version that a record can have there.
        leading: the keys that are created with one, empty, for others to lie below. Of a key with
            such ones nothing but its value is deleted.
    """

    def __init__(
        self,
        records: ChangeableRecords,
        version_max: int = 2**63 - 1,
        leading: Callable[[str], Sequence[str]] = lambda key: (),
    ) -> None:
        self._records = records
        self._leading = leading
        self._version_max = version_max
        self._known = _Known()

    @stepwise
    def is_partial(self) -> Work[bool]:
        """Like `FieldRecords.is_partial`."""
        yield from ()
        return False

    @stepwise
    def check_version(self, version: Version) -> Work[None]:
        """Like `FieldRecords.check_version`."""
        yield from ()
        if not is_whole(version, NEW, self._version_max):
            raise InvalidInputError(
                "this store never assigns such a version: pass the version of a record "
                "that was read or written",
                version=version,
            )

    @stepwise
    def read(self, keys: Iterable[str]) -> Work[dict[str, Found]]:
        """Like `FieldRecords.read`."""
        found = yield from _decoded_all((yield asked(self._records.read, keys)))
        self._known.update(
            {key: each.version for key, each in found.items() if isinstance(each, FieldRecord)}
        )
        return found

    @paged
    def scan(self, prefix: str, depth: int) -> Work[None]:
        """Like `FieldRecords.scan`. All keys are known before the first record is read."""
        keys = sorted((yield asked(self._records.keys, prefix, depth)))
        for first in range(0, len(keys), PORTION):
            portion = yield asked(self._records.read, keys[first : first + PORTION])
            found = yield from _decoded_all(portion)
            yield Give(sorted(found.items(), key=lambda item: item[0]))

    @stepwise
    def write(self, changes: Mapping[str, FieldChange]) -> Work[dict[str, Version | None]]:
        """Like `FieldRecords.write`."""
        if not all(change.whole for change in changes.values()):
            raise InvalidInputError("this store can't change single fields of a record")
        written = yield from self._change(
            {key: Change(encode_blob(each.fields), each.version) for key, each in changes.items()}
        )
        self._known.update(
            {key: version for key, version in written.items() if version is not None}
        )
        return written

    @stepwise
    def delete(self, versions: Mapping[str, Version]) -> Work[dict[str, bool]]:
        """Like `FieldRecords.delete`."""
        changes = {
            key: Change(GONE + _writer().encode(), version)
            for key, version in versions.items()
            if version != NEW
        }
        try:
            deleted = yield from self._change(changes)
        except PartlyDoneError as exc:
            answers = {
                key: answer if isinstance(answer, StoreUnavailableError) else answer is not None
                for key, answer in exc.answers.items()
            }
            raise partly_done(exc, dict.fromkeys(versions, False) | answers) from exc
        return {key: deleted.get(key) is not None for key in versions}

    def _change(self, changes: Mapping[str, Change]) -> Work[dict[str, Version | None]]:
        """Change those that are records, or become some, each if it is of its version."""
        done: dict[str, Version | None] = {}
        try:
            with unknown_if_made(done):
                return (yield from self._changed(changes, done))
        except StoreUnavailableError as exc:
            answers = answers_of(exc, changes.keys() - done.keys())
            for key, answer in answers.items():
                if answer is None and changes[key].version in (NEW, ANY):  # It needs another try.
                    answers[key] = like(exc, Outcome.NOT_APPLIED)
            raise partly_done(exc, answers | done) from exc

    def _changed(
        self, changes: Mapping[str, Change], done: dict[str, Version | None]
    ) -> Work[dict[str, Version | None]]:
        left = set(changes)
        look = {
            key
            for key, (_, version) in changes.items()
            if version == ANY or (version != NEW and not self._known.has(key, version))
        }
        for _ in range(TRIES_MAX):
            there: Mapping[str, Record] = {}
            if look:
                there = yield asked(self._records.read, sorted(look))
            empty = {key: record.version for key, record in there.items() if is_gone(record)}
            send: dict[str, Change] = {}
            for key in left:
                value, version = changes[key]
                is_live = key in there and key not in empty
                if version == NEW:
                    expected = None if is_live else empty.get(key, NEW)
                elif version == ANY:
                    expected = there[key].version if is_live else None
                else:
                    expected = None if empty.get(key) == version else version
                if expected is None:
                    done[key] = None
                else:
                    send[key] = Change(value, expected)
            answers = (yield from self._send(send)) if send else {}
            left = look = {
                key for key in send if answers[key] is None and changes[key].version in (NEW, ANY)
            }
            done |= {key: version for key, version in answers.items() if key not in left}
            if not left:
                return {key: done[key] for key in changes}
        raise StoreUnavailableError(
            "other programs keep changing the record: try again",
            outcome=Outcome.NOT_APPLIED,
            path=min(left),
        )

    def _send(self, changes: Mapping[str, Change]) -> Work[dict[str, Version | None]]:
        """What the store answers; for what was deleted the version that it had."""
        removed = {
            key: change.version
            for key, change in changes.items()
            if change.value.startswith(GONE) and not self._leading(key)
        }
        done: dict[str, Version | None] = {}
        if removed:
            done = yield from self._removed(removed, changes.keys() - removed.keys())
        rest = {key: change for key, change in changes.items() if key not in done}
        try:
            with unknown_if_made(done):
                return {**done, **(yield from self._write(rest))} if rest else done
        except StoreUnavailableError as exc:
            raise partly_done(exc, answers_of(exc, rest) | done) from exc

    def _write(self, changes: Mapping[str, Change]) -> Work[Mapping[str, Version | None]]:
        led = [
            each
            for key, change in changes.items()
            if change.version == NEW
            for each in self._leading(key)
        ]
        done = yield asked(self._records.write, {**changes, **dict.fromkeys(led, Change(b"", NEW))})
        return {key: done[key] for key in changes}

    def _remove(self, versions: Mapping[str, Version]) -> Work[Mapping[str, bool | None]]:
        removed: Mapping[str, bool | None] = yield asked(self._records.remove, versions)
        return removed

    def _removed(
        self, versions: Mapping[str, Version], later: Collection[str]
    ) -> Work[dict[str, Version | None]]:
        """Delete records: the version that each had, None where that was refused. Those that others
        lie below are not among them.

        Args:
            versions: as `Records.remove`.
            later: what is sent when this is done.
        """

        def said(key: str, answer: object) -> Any:
            """By what the store says of a removal."""
            if isinstance(answer, StoreUnavailableError):
                return answer
            return versions[key] if answer else None

        try:
            removed = yield from self._remove(versions)
        except StoreUnavailableError as exc:
            answers = answers_of(exc, versions)
            stay = {*later, *(key for key, answer in answers.items() if answer is None)}
            not_sent = {key: like(exc, Outcome.NOT_APPLIED) for key in stay}
            raise partly_done(
                exc, {key: said(key, answer) for key, answer in answers.items()} | not_sent
            ) from exc
        return {key: said(key, answer) for key, answer in removed.items() if answer is not None}


def clear_nodes(prefix: str) -> Work[None]:
    """Delete a node and all that lies below it, as `ClearableRecords.clear` promises: one level of
    the tree after the other, the lowest first.
    """
    levels: list[Sequence[str]] = [(yield Keys(prefix, 1))]
    while levels[-1]:
        levels.append((yield Keys(prefix, len(levels) + 1)))
    for keys in reversed(levels):
        for first in range(0, len(keys), PORTION):
            yield Delete(dict.fromkeys(keys[first : first + PORTION], ANY))
    yield Delete({prefix: ANY})


class _Known:
    """Versions of records, not of empty nodes: the latest that were read or written."""

    def __init__(self) -> None:
        self._versions: dict[str, Version] = {}

    def has(self, key: str, version: Version) -> bool:
        return self._versions.get(key) == version

    def update(self, versions: Mapping[str, Version]) -> None:
        # Each step is atomic. What is lost when two come at once is looked up again.
        if len(self._versions) + len(versions) > KNOWN_MAX:
            self._versions = {}
        if len(versions) <= KNOWN_MAX:
            self._versions.update(versions)


def encode_blob(fields: Fields) -> bytes:
    """A record's fields as one blob, by a writer of its own."""
    members = [f'"version": {FORMAT}', f'"{WRITER}": "{_writer()}"']
    members += [f"{json.dumps(name)}: {value.decode()}" for name, value in fields.items()]
    blob = f"{{{', '.join(members)}}}".encode()
    if len(blob) > VALUE_BYTES_MAX:
        raise InvalidInputError(
            "the fields are larger than the maximum size of a record",
            bytes=len(blob),
            bytes_max=VALUE_BYTES_MAX,
        )
    return blob


def _decoded_all(found: Mapping[str, Record]) -> Work[dict[str, Found]]:
    def decode() -> dict[str, Found]:
        return {key: _decode(each, key) for key, each in found.items() if not is_gone(each)}

    if not is_much(len(found), lambda: sum(len(each.value) for each in found.values())):
        return decode()
    decoded: dict[str, Found] = yield computing(decode)
    return decoded


def is_gone(record: Record) -> bool:
    """Whether a node is not a record: it was one, or only leads to others."""
    return not record.value or record.value.startswith(GONE)


def _writer() -> str:
    return secrets.token_hex(WRITER_BYTES)


def _decode(record: Record, key: str) -> Found:
    members: object = None
    with contextlib.suppress(ValueError, RecursionError):
        members = json.loads(record.value)
    if not isinstance(members, dict) or "version" not in members:
        return UnsupportedFormatError("this node or row is not a record of hqueue", path=key)
    if members["version"] != FORMAT:
        return UnsupportedFormatError(
            "a record has a version that this release does not know",
            path=key,
            version=members["version"],
        )
    try:
        fields = {
            name: json.dumps(value, ensure_ascii=False).encode()
            for name, value in members.items()
            if name not in ("version", WRITER)
        }
    except (ValueError, RecursionError):  # A text that has no UTF-8.
        return UnsupportedFormatError("this node or row is not a record of hqueue", path=key)
    return FieldRecord(fields, record.version)
