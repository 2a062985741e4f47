"""Reads, changes and watches the record of the access rules."""

from __future__ import annotations

from collections.abc import Callable, Mapping

from hqueue.errors import BadVersionError, InvalidInputError, UnsupportedFormatError
from hqueue.metadata.access_rules import AccessRules, Login
from hqueue.metadata.encoding import decode_access_rules, encode_access_rules
from hqueue.metadata.paths import Paths
from hqueue.metadata.ports import NEW, VALUE_BYTES_MAX, Change, MetadataStore, Record, Watch
from hqueue.metadata.steps import OnStore, Read, Work, Write
from hqueue.runtime.stepwise import stepwise

__all__ = ["AccessRecord"]

ACCESS_DEPTH = 1
TRIES_MAX = 10


class AccessRecord(OnStore):
    """The record of the access rules. Thread-safe.

    Those that ``zookeeper_acl`` lets write the record can change the rules.
    """

    def __init__(self, store: MetadataStore, paths: Paths) -> None:
        super().__init__(store)
        self._prefix = paths.access
        self._path = paths.access_rules

    @stepwise
    def read(self) -> Work[AccessRules | None]:
        """Read the rules; None if there is no record.

        Raises:
            UnsupportedFormatError: the record can't be read.
        """
        record = (yield Read([self._path])).get(self._path)
        return None if record is None else self._rules(record)

    @stepwise
    def change(
        self, edit: Callable[[AccessRules], AccessRules], by: Login | None = None
    ) -> Work[AccessRules]:
        """Change the rules. Whatever others change meanwhile stays.

        Args:
            edit: makes the new rules of the current ones. Called again if others changed them
                meanwhile.
            by: who changes them, for the audit of those who apply them.

        Returns:
            The rules that are there now.

        Raises:
            BadVersionError: others change the record again and again.
            InvalidInputError: the rules are larger than a record can be.
            UnsupportedFormatError: the record can't be read; nothing was changed.
        """
        for _ in range(TRIES_MAX):
            known: AccessRules | None = yield from self.read.steps()
            rules = edit(known or AccessRules())
            if rules == (known or AccessRules()):
                return rules
            value = encode_access_rules(rules, by)
            if len(value) > VALUE_BYTES_MAX:
                raise InvalidInputError(
                    "the access rules are larger than a record can be: use prefixes",
                    bytes=len(value),
                    bytes_max=VALUE_BYTES_MAX,
                )
            version = NEW if known is None else known.revision
            done = yield Write({self._path: Change(value, version)})
            if done[self._path] is not None:
                return AccessRules(rules, done[self._path], by)
        raise BadVersionError("other programs keep changing the access rules: try again later")

    def watch(
        self, listener: Callable[[AccessRules | UnsupportedFormatError | None], None]
    ) -> Watch:
        """Report the rules to a listener, as `MetadataStore.watch`: None if there is no record; the
        error if it can't be read.
        """

        def on_change(found: Mapping[str, Record]) -> None:
            record = found.get(self._path)
            try:
                rules = None if record is None else self._rules(record)
            except UnsupportedFormatError as exc:
                listener(exc)
            else:
                listener(rules)

        return self._store.watch(self._prefix, ACCESS_DEPTH, on_change)

    def _rules(self, record: Record) -> AccessRules:
        return decode_access_rules(record.value, self._path, record.version)
