"""Where settings are found: in files, in the environment, among the arguments."""

from __future__ import annotations

import dataclasses
import os
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import platformdirs

from hqueue.errors import SettingsError
from hqueue.settings.names import with_closest

if sys.version_info >= (3, 11):
    import tomllib
else:
    import tomli as tomllib

__all__ = [
    "HUB_PREFIX",
    "HUB_TABLE",
    "WORKER_PREFIX",
    "WORKER_TABLE",
    "all_known",
    "file_if_there",
    "hub_settings",
    "local_connection_file",
    "settings_file",
    "user_file",
    "worker_settings",
]

WORKER_PREFIX = "HQUEUE_WORKER_"
WORKER_TABLE = "worker"
HUB_PREFIX = "HQUEUE_HUB_"
HUB_TABLE = "hub"


def worker_settings(
    kind: type[Any],
    arguments: Mapping[str, Any] | None = None,
    environ: Mapping[str, str] | None = None,
) -> dict[str, Any]:
    """Gather a worker's settings: arguments, ``HQUEUE_WORKER_*``, the file's table ``worker``.

    Args:
        kind: the dataclass that they are fields of.
        arguments: settings by name; a value of None counts as not given.
        environ: the environment; the process's own if None.

    Raises:
        SettingsError: a setting is unknown, or the settings file can't be read.
    """
    return _role_settings(kind, WORKER_TABLE, WORKER_PREFIX, arguments, environ)


def hub_settings(
    kind: type[Any],
    arguments: Mapping[str, Any] | None = None,
    environ: Mapping[str, str] | None = None,
) -> dict[str, Any]:
    """A hub's settings, as `worker_settings`: ``HQUEUE_HUB_*``, the file's table ``hub``."""
    return _role_settings(kind, HUB_TABLE, HUB_PREFIX, arguments, environ)


def _role_settings(
    kind: type[Any],
    role: str,
    prefix: str,
    arguments: Mapping[str, Any] | None,
    environ: Mapping[str, str] | None,
) -> dict[str, Any]:
    environ = os.environ if environ is None else environ
    table = user_file(environ).get(role, {})
    if not isinstance(table, dict):
        raise SettingsError(f"[{role}] is a table of the settings file", **{role: table})
    named = {
        name[len(prefix) :].lower(): value
        for name, value in environ.items()
        if name.startswith(prefix)
    }
    return all_known(kind, {**table, **named}, arguments)


def all_known(
    kind: type[Any], found: Mapping[str, Any], arguments: Mapping[str, Any] | None
) -> dict[str, Any]:
    """What was found, with the arguments over it, if all of it is known."""
    given = {k: v for k, v in (arguments or {}).items() if v is not None}
    merged = {**found, **given}
    known = [field.name for field in dataclasses.fields(kind)]
    for name in merged:
        if name not in known:
            raise with_closest(SettingsError("unknown setting", setting=name), name, known)
    return merged


def _from_file(path: Path) -> dict[str, Any]:
    try:
        return tomllib.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError, RecursionError) as exc:
        raise SettingsError("a settings file can't be read", path=str(path)) from exc


def file_if_there(path: Path) -> dict[str, Any]:
    return _from_file(path) if path.exists() else {}


def user_file(environ: Mapping[str, str]) -> dict[str, Any]:
    path = settings_file(environ)
    if "HQUEUE_CONFIG" in environ and not path.exists():
        raise SettingsError("HQUEUE_CONFIG names a file that does not exist", path=str(path))
    return file_if_there(path)


def settings_file(environ: Mapping[str, str] = os.environ) -> Path:
    """Where the user's settings file is, whether or not it exists."""
    named = environ.get("HQUEUE_CONFIG")
    return Path(named) if named else Path(platformdirs.user_config_dir("hqueue")) / "hqueue.toml"


def local_connection_file(environ: Mapping[str, str] = os.environ) -> Path:
    """Where a running local server says how to reach it, whether or not one runs."""
    home = environ.get("HQUEUE_LOCAL_HOME")
    base = Path(home) if home else Path(platformdirs.user_state_dir("hqueue")) / "local"
    return base / "connection.toml"
