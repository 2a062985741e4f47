"""What the managers of topics' metadata have in common."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Generic, TypeVar

from hqueue.errors import BadVersionError, InvalidInputError, MetadataError
from hqueue.metadata.fields import FieldChange, FieldRecord, Fields, Found
from hqueue.metadata.managers.infos import Versioned
from hqueue.metadata.managers.pipeline import Pipeline
from hqueue.metadata.ports import ANY, NEW, VALUE_BYTES_MAX, Version
from hqueue.runtime.steps import Work
from hqueue.runtime.stepwise import asked
from hqueue.settings.numbers import is_whole

__all__ = ["Kind"]

Value = TypeVar("Value")

BESIDES_BYTES = 1_024
"""What a store needs of a value's room besides the fields."""


class Kind(Generic[Value]):
    """Records of one kind, by the rules of Hedwig's managers: what is missing, and what is not of
    the version that is known, are errors of their own. All calls are work: see
    `hqueue.metadata.managers.following`.

    Args:
        pipeline: to the store.
        of: what each value is.
        encode: a value's fields.
        decode: the value of a record's fields; its key is for errors.
        name: what the errors call such a record.
        missing: what is raised where a record is needed, and isn't there.
        exists: what is raised where a record that should be created is there.
    """

    def __init__(
        self,
        pipeline: Pipeline,
        of: type[object],
        encode: Callable[[Value], Fields],
        decode: Callable[[Fields, str], Value],
        *,
        name: str,
        missing: type[MetadataError],
        exists: type[MetadataError] = BadVersionError,
    ) -> None:
        self._pipeline = pipeline
        self._of = of
        self._encode = encode
        self._decode = decode
        self._name = name
        self._missing = missing
        self._exists = exists

    def read(self, key: str) -> Work[Any, Versioned[Value] | None]:
        """What is there, if anything is."""
        return self.decoded(key, (yield self._pipeline.read(key)))

    def write(
        self, key: str, value: Value, version: Version, *, whole: bool = True
    ) -> Work[Any, Version]:
        """Write it if it is of this version; the version that it has then."""
        yield from self._check_version(version)
        if not isinstance(value, self._of):
            raise InvalidInputError(
                f"the value to write must be a {self._of.__name__}", type=type(value).__name__
            )
        fields = self._encode(value)
        size = sum(map(len, fields.values()))
        if size > VALUE_BYTES_MAX - BESIDES_BYTES:
            raise InvalidInputError(
                f"the {self._name} is larger than the maximum size of a record",
                bytes=size,
                bytes_max=VALUE_BYTES_MAX - BESIDES_BYTES,
            )

        done: Version | None = yield self._pipeline.write(key, FieldChange(fields, version, whole))
        if done is not None:
            return done
        if version == NEW:
            raise self._exists(f"the topic's {self._name} exists already", path=key)
        raise (yield from self._refusal(key, version))

    def delete(self, key: str, version: Version) -> Work[Any, None]:
        """Delete it if it is of this version."""
        yield from self._check_version(version)
        if version == NEW:
            raise InvalidInputError("give the version of the record to delete", version=version)

        if not (yield self._pipeline.delete(key, version)):
            raise (yield from self._refusal(key, version))

    def decoded(self, key: str, found: Found | None) -> Versioned[Value] | None:
        """A record as its value.

        Raises:
            UnsupportedFormatError: it can't be read.
        """
        if found is None:
            return None
        if not isinstance(found, FieldRecord):
            raise found
        return Versioned(self._decode(found.fields, key), found.version)

    def _check_version(self, version: Version) -> Work[Any, None]:
        if not is_whole(version):
            raise InvalidInputError(
                "this store never assigns such a version: pass the version of a record "
                "that was read or written",
                version=version,
            )
        yield asked(self._pipeline.store.check_version, version)

    def _refusal(self, key: str, version: Version) -> Work[Any, MetadataError]:
        """Why something was not done."""
        found: Found | None = None if version == ANY else (yield self._pipeline.read(key))
        if found is None:
            return self._missing(f"the topic has no {self._name}", path=key)
        there = found.version if isinstance(found, FieldRecord) else None
        if there == version:
            # It was deleted, or never had this version, and has come to it since.
            return BadVersionError(
                f"the {self._name} had another version when the change arrived, and other "
                "programs have changed it since: read it again",
                path=key,
                given=version,
            )
        return BadVersionError(
            f"the {self._name} changed since this version of it was read: read it again",
            path=key,
            given=version,
            version=there,
        )
