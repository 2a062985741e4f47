"""Where settings are found: in files, in the environment, among the arguments."""

from __future__ import annotations

import dataclasses
import logging
import os
import re
import sys
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any, TypeVar, cast

import platformdirs

from hqueue.errors import HQueueError, SettingsError
from hqueue.settings.kubernetes import is_service_link
from hqueue.settings.names import with_closest

if sys.version_info >= (3, 11):
    import tomllib
else:
    import tomli as tomllib

__all__ = [
    "ROLES",
    "FoundSettings",
    "all_known",
    "find_role_setting",
    "load_role_settings",
    "local_connection_file",
    "prefix_of",
    "role_settings_faults",
    "user_file",
]

ROLES = ("worker", "hub", "console")
"""What has settings of its own beside those of a connection."""

_log = logging.getLogger(__name__)
_warned: set[str] = set()
"""The variables that a warning was written of: one each is enough for a process."""

_Kind = TypeVar("_Kind")


def prefix_of(role: str) -> str:
    """What the variables of a role's settings begin with."""
    return f"HQUEUE_{role.upper()}_"


class FoundSettings:
    """Settings that were found in files and in the environment, and where each was.

    What is added later stands over what was added before.

    Args:
        kind: the dataclass that they are fields of.
    """

    def __init__(self, kind: type[_Kind]) -> None:
        self._kind = kind
        self._known = [field.name for field in dataclasses.fields(kind)]  # type: ignore[arg-type]
        self._values: dict[str, Any] = {}
        self._places: dict[str, dict[str, object]] = {}

    def add_file(self, path: Path, table: str = "", *, without: Iterable[str] = ()) -> None:
        """Add a file's settings, those of its table if one is named; nothing if it isn't there.

        Raises:
            SettingsError: the file can't be read.
        """
        values = _read_file(path)
        if table:
            values = values.get(table, {})
            if not isinstance(values, dict):
                raise SettingsError(
                    f"[{table}] must be a table in the settings file",
                    **{table: values, **_place_in(path, "", table)},
                )
        for name, value in values.items():
            if name not in without:
                self._values[name] = value
                self._places[name] = {"path": path, "table": table}

    def add_environment(
        self, environ: Mapping[str, str], prefix: str, *, without: tuple[str, ...] = ()
    ) -> None:
        """Add the variables with a prefix, but those that Kubernetes made.

        Args:
            environ: the environment.
            prefix: what variables of settings begin with.
            without: variables that are not settings; one that ends with ``_`` stands for all that
                begin so.
        """
        for variable, value in environ.items():
            if not variable.startswith(prefix) or _is_one_of(variable, without):
                continue
            name = variable[len(prefix) :].lower()
            if is_service_link(variable, value):
                if name in self._known and variable not in _warned:
                    _warned.add(variable)
                    _log.warning(
                        "the variable %s is not read as a setting: Kubernetes made it of a "
                        "Service; give the setting as an option or in the settings file, or set "
                        "enableServiceLinks: false for the pod",
                        variable,
                    )
                continue
            self._values[name] = value
            self._places[name] = {"variable": variable}

    def make(self, arguments: Mapping[str, Any] | None) -> Any:
        """The settings as an object, with the arguments over what was found.

        Raises:
            SettingsError: a setting is unknown, or has a wrong value. The error says where it is
                from: ``variable``, or ``file`` and ``line``.
        """
        given = {k: v for k, v in (arguments or {}).items() if v is not None}
        self._places = {k: v for k, v in self._places.items() if k not in given}
        try:
            return self._kind(**all_known(self._kind, self._values, arguments))
        except HQueueError as exc:
            exc.facts.update(self._place_of(exc))
            raise

    def faults(self, arguments: Mapping[str, Any] | None) -> list[HQueueError]:
        """Return the error of each setting that is unknown or has a wrong value, and of those that
        don't fit together; each says where the setting is from, as in `make`.
        """
        given = {k: v for k, v in (arguments or {}).items() if v is not None}
        self._places = {k: v for k, v in self._places.items() if k not in given}
        merged = {**self._values, **given}
        faults: list[HQueueError] = [
            _unknown(name, self._known) for name in merged if name not in self._known
        ]
        made: Any = object.__new__(self._kind)
        for field in dataclasses.fields(self._kind):  # type: ignore[arg-type]
            object.__setattr__(made, field.name, merged.get(field.name, field.default))
        faults += made._faults()
        for fault in faults:
            fault.facts.update(self._place_of(fault))
        return faults

    def each_fault(self) -> Iterator[HQueueError]:
        """Yield the error of each setting that is unknown or has a wrong value. `make` raises only
        the first.
        """
        while True:
            try:
                self.make(None)
            except HQueueError as exc:
                wrong = self._wrong_one(exc)
                yield exc
                if wrong is None:
                    return  # The error is about several settings together.
                del self._values[wrong], self._places[wrong]
            else:
                return

    def has(self, name: str) -> bool:
        """Whether a setting was found."""
        return name in self._values

    def source_of(self, name: str) -> str:
        """Where a setting is from, for people."""
        place = self._places.get(name)
        if place is None:
            return "the default"
        if "variable" in place:
            return str(place["variable"])
        found = _place_in(Path(str(place["path"])), str(place["table"]), name)
        return f"{found['file']}, line {found['line']}" if "line" in found else str(found["file"])

    def _place_of(self, error: HQueueError) -> dict[str, object]:
        """Where the setting is from that an error is about; nothing if it was an argument."""
        wrong = self._wrong_one(error)
        if wrong is None:
            return {}
        place = self._places[wrong]
        if "variable" in place:
            return place
        return _place_in(Path(str(place["path"])), str(place["table"]), wrong)

    def _wrong_one(self, error: HQueueError) -> str | None:
        """The setting that an error is about; None if it was an argument."""
        named = [error.facts.get("setting"), *error.facts]
        wrong = next((name for name in named if name in self._places), None)
        if wrong is None:  # An error that names no setting: which one is wrong by itself?
            wrong = next((name for name in self._places if self._is_wrong(name, error)), None)
        return None if wrong is None else str(wrong)

    def _is_wrong(self, name: str, error: HQueueError) -> bool:
        try:
            self._kind(**{name: self._values[name]})
        except (HQueueError, TypeError) as exc:
            return str(exc) == str(error)
        return False


def _is_one_of(variable: str, names: Iterable[str]) -> bool:
    return any(
        variable.startswith(name) if name.endswith("_") else variable == name for name in names
    )


def load_role_settings(
    kind: type[_Kind],
    role: str,
    arguments: Mapping[str, Any] | None = None,
    environ: Mapping[str, str] | None = None,
) -> _Kind:
    """Gather a role's settings: arguments, ``HQUEUE_<role>_*``, the table of its name in the
    settings file, and that in the connection file of a running local server.

    Args:
        kind: the dataclass that they are fields of, and that is made of them.
        role: one of `ROLES`.
        arguments: settings by name; a value of None counts as not given.
        environ: the environment; the process's own if None.

    Raises:
        SettingsError: a setting is unknown or has a wrong value, or the settings file can't be
            read.
    """
    settings: _Kind = _find(kind, role, environ).make(arguments)
    return settings


def role_settings_faults(kind: type[Any], role: str) -> Iterator[HQueueError]:
    """Yield the error of each wrong setting of a role; `load_role_settings` raises only the first.

    Raises:
        SettingsError: a settings file can't be read.
    """
    return _find(kind, role, None).each_fault()


def _find(kind: type[Any], role: str, environ: Mapping[str, str] | None) -> FoundSettings:
    """The settings that the files and the environment have for a role."""
    environ = os.environ if environ is None else environ
    found = FoundSettings(kind)
    found.add_file(local_connection_file(environ), role)
    found.add_file(user_file(environ), role)
    found.add_environment(environ, prefix_of(role))
    return found


def find_role_setting(
    role: str, name: str, environ: Mapping[str, str] | None = None
) -> object | None:
    """Find one setting of a role where `load_role_settings` finds it; None if it is not there. Its
    value, and the role's other settings, are not checked.

    Raises:
        SettingsError: the settings file can't be read.
    """
    environ = os.environ if environ is None else environ
    variable = prefix_of(role) + name.upper()
    if variable in environ:
        return environ[variable]
    for path in (user_file(environ), local_connection_file(environ)):
        table = _read_file(path).get(role)
        if isinstance(table, dict) and name in table:
            return cast(object, table[name])
    return None


def all_known(
    kind: type[Any], found: Mapping[str, Any], arguments: Mapping[str, Any] | None
) -> dict[str, Any]:
    """What was found, with the arguments over it, if all of it is known."""
    given = {k: v for k, v in (arguments or {}).items() if v is not None}
    merged = {**found, **given}
    known = [field.name for field in dataclasses.fields(kind)]
    for name in merged:
        if name not in known:
            raise _unknown(name, known)
    return merged


def _unknown(name: str, known: Iterable[str]) -> SettingsError:
    return with_closest(SettingsError("unknown setting", setting=name), name, known)


def _read_file(path: Path) -> dict[str, Any]:
    if not path.exists():
        return {}
    try:
        return tomllib.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError, RecursionError) as exc:
        facts: dict[str, Any] = {"file": str(path), "reason": str(exc)}
        at = re.search(r"at line (\d+)", str(exc))
        if at is not None:
            facts["line"] = int(at[1])
        raise SettingsError("a settings file can't be read", **facts) from exc


def _place_in(path: Path, table: str, name: str) -> dict[str, object]:
    """The file, and the line of a setting in it, where it is written as most are."""
    facts: dict[str, object] = {"file": str(path)}
    inside = ""
    try:
        lines = path.read_text(encoding="utf-8").splitlines()
    except (OSError, ValueError):
        return facts
    for number, line in enumerate(lines, 1):
        header = re.match(r"\s*\[\s*([^\]]+?)\s*\]", line)
        if header is not None:
            inside = header[1].strip("\"'")
        written = re.match(r"""\s*["']?([\w-]+)["']?\s*=""", line)
        if inside == table and written is not None and written[1] == name:
            facts["line"] = number
            break
        if not table and inside == name:
            facts["line"] = number
            break
    return facts


def user_file(environ: Mapping[str, str]) -> Path:
    """The user's settings file, which need not exist.

    Raises:
        SettingsError: it was named, and does not exist.
    """
    named = environ.get("HQUEUE_CONFIG")
    path = Path(named) if named else Path(platformdirs.user_config_dir("hqueue")) / "hqueue.toml"
    if named is not None and not path.exists():
        raise SettingsError(
            "HQUEUE_CONFIG names a file that does not exist",
            variable="HQUEUE_CONFIG",
            path=str(path),
        )
    return path


def local_connection_file(environ: Mapping[str, str] = os.environ) -> Path:
    """Where a running local server says how to reach it, whether or not one runs."""
    home = environ.get("HQUEUE_LOCAL_HOME")
    base = Path(home) if home else Path(platformdirs.user_state_dir("hqueue")) / "local"
    return base / "connection.toml"
