"""Checks that this user can read the files in the settings, and others can't read secret ones."""

from __future__ import annotations

import os
import stat
from collections.abc import Iterator
from pathlib import Path

from hqueue.doctor.findings import Finding, ok, wrong
from hqueue.doctor.subject import Subject
from hqueue.net.tls_files import unreadable_because
from hqueue.settings.connection import setting_source
from hqueue.settings.loading import user_file

__all__ = ["check_files"]

_FILES = (
    "kerberos_config", "kerberos_keytab", "tls_ca", "tls_certificate", "tls_key",
    "zookeeper_auth_file",
)  # fmt: skip
_SECRET = ("kerberos_keytab", "tls_key", "zookeeper_auth_file")


def check_files(subject: Subject) -> Iterator[Finding]:
    """Check each file that the settings name."""
    settings = subject.settings
    for name in _FILES:
        path = getattr(settings, name)
        if path is not None:
            is_secret = name in _SECRET or (name == "tls_certificate" and settings.tls_key is None)
            yield _look_at(name, path, is_secret=is_secret)
    path = str(user_file(os.environ))
    if settings.zookeeper_auth and setting_source("zookeeper_auth").startswith(path):
        yield _look_at("the settings file, which has zookeeper_auth,", path, is_secret=True)


def _look_at(name: str, path: str, *, is_secret: bool) -> Finding:
    reason = unreadable_because(path)
    if reason is not None:
        return wrong(
            "files", f"{name}: {reason}", "give a regular file: a pipe can't be read again"
        )
    try:
        with open(path, "rb") as opened:
            opened.read(1)
            mode = os.fstat(opened.fileno()).st_mode
    except OSError as exc:
        return wrong(
            "files",
            f"{name}: {path} can't be read: {exc.strerror}",
            "correct the path, or let this user read the file and enter the folders above it",
        )
    others = mode if _is_reached(path) else mode & ~stat.S_IRWXO
    if is_secret and others & (stat.S_IROTH | stat.S_IWOTH | stat.S_IWGRP):
        return wrong(
            "files",
            f"{name}: others may read or change {path}, which contains a secret",
            f"chmod 600 {path}; if others could read it, replace the secret",
        )
    if others & stat.S_IWOTH:
        return wrong(
            "files",
            f"{name}: everybody may change {path}",
            f"chmod o-w {path}",
        )
    return ok("files", f"{name}: {path} can be read")


def _is_reached(path: str) -> bool:
    """Return whether everybody may enter all folders above a file."""
    return all(folder.stat().st_mode & stat.S_IXOTH for folder in Path(path).resolve().parents)
