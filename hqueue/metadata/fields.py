"""What the managers of topics' metadata need of a store: records of a few fields each, changed by
compare-and-set, as in Hedwig. HBase has them as rows; any store of versioned records has them as
blobs.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any, NamedTuple, Protocol

from hqueue.errors import UnsupportedFormatError
from hqueue.metadata.ports import Version
from hqueue.runtime.steps import Work
from hqueue.runtime.stepwise import paged, stepwise

__all__ = ["ClearableRecords", "FieldChange", "FieldRecord", "FieldRecords", "Fields", "Found"]

Fields = Mapping[str, bytes]
"""The fields of a record by name. A field is a JSON object in UTF-8."""


class FieldRecord(NamedTuple):
    """A record as it is."""

    fields: Fields
    version: Version


Found = FieldRecord | UnsupportedFormatError
"""A record, or why it can't be read: it stops nothing else."""


class FieldChange(NamedTuple):
    """What a record becomes, if it is of this version.

    With `NEW` it is created, if there is none; with `ANY` it is changed, if there is one.
    """

    fields: Fields
    version: Version
    whole: bool = True
    """Whether these are all of its fields; else the other fields stay as they are, even if they
    change at the same time. Only where the store `FieldRecords.is_partial`."""


class FieldRecords(Protocol):
    """Versioned records of fields. Thread-safe, and for event loops: see `hqueue.runtime.stepwise`.

    Keys are as those of `hqueue.metadata.ports`, versions opaque: another after each change. Where
    a record was deleted and created again a store may begin again with them. Of changes that come
    at the same time with the same version one counts; a change is done at one moment between call
    and return, a read as the store reads. Each is bounded and raises as said there.
    """

    @stepwise
    def is_partial(self) -> Work[Any, bool]:
        """Whether some fields of a record can be changed without the others."""

    @stepwise
    def check_version(self, version: Version) -> Work[Any, None]:
        """Check that a record of this store may have this version.

        Raises:
            InvalidInputError: no record has this version.
        """

    @stepwise
    def read(self, keys: Iterable[str]) -> Work[Any, Mapping[str, Found]]:
        """Those of these records that exist."""

    @paged
    def scan(self, prefix: str, depth: int) -> Work[Any, None]:
        """The records this many segments below a prefix with their keys, by key: each in the state
        in which the scan finds it.
        """

    @stepwise
    def write(self, changes: Mapping[str, FieldChange]) -> Work[Any, Mapping[str, Version | None]]:
        """Change records, each on its own.

        When an answer is lost it is looked up, and never guessed.

        Returns:
            The version that each has now; None where a record that should be created
            exists, or a record does not have the version that is given.

        Raises:
            StoreUnavailableError: with an outcome; some may have been changed. Of several changes
                it is a `PartlyDoneError`, where it is known what came of each.
        """

    @stepwise
    def delete(self, versions: Mapping[str, Version]) -> Work[Any, Mapping[str, bool]]:
        """Delete records, each if it is of this version. Returns whether this call did. Raises as
        `write`.
        """


class ClearableRecords(FieldRecords, Protocol):
    """`FieldRecords` that can be deleted for good."""

    @stepwise
    def clear(self, prefix: str) -> Work[Any, None]:
        """Delete all that lies below a prefix, a bounded batch at a time: for good, whatever it
        is and whatever its versions, which may come again. When this fails half way the rest is
        there, and another call deletes that. What is written meanwhile may stay.
        """
