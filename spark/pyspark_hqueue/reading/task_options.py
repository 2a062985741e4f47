"""Splits options: some go to executors with their tasks, and the driver keeps the others."""

from __future__ import annotations

import copy
import dataclasses
from typing import Any

from hqueue import Settings, SettingsError
from hqueue.settings.connection import found_settings
from hqueue.settings.secret_fields import secret_fields
from hqueue.settings.security import KERBEROS, SIMPLE, TOKEN
from hqueue.settings.zookeeper_security import NONE

__all__ = ["TaskOptions"]

_OF_DRIVER = (
    "hbase_master_principal", "hbase_token_file", "kerberos_config", "kerberos_keytab",
    "kerberos_principal", "kerberos_ticket_cache",
)  # fmt: skip
"""By what a driver proves itself; tasks do so by tokens."""


@dataclasses.dataclass(frozen=True)
class TaskOptions:
    """What each kind of work has. Pickled, it carries no secret: a process that reads it takes the
    secrets from where `hqueue.connect` finds them there, if any was given. Nor does it carry by
    what the driver proves itself, if tasks have tokens.
    """

    queue: str
    settings: Settings
    delegation_tokens: bool = dataclasses.field(default=True, kw_only=True)
    """Whether tasks get tokens, where HBase asks for a proof."""
    missing: tuple[str, ...] = dataclasses.field(default=(), kw_only=True)
    """Secrets that the driver has, and this process does not."""

    @property
    def task_settings(self) -> Settings:
        """The settings for the client of a task.

        Raises:
            SettingsError: a secret is given nowhere in this process's reach.
        """
        if self.missing:
            raise SettingsError(
                "secrets are not sent to executors: set this one there, too, by its "
                "variable or in the settings file",
                settings=list(self.missing),
            )
        return self.settings

    @property
    def needs_tokens(self) -> bool:
        """Whether each task has a token."""
        return self.delegation_tokens and self.settings.hbase_authentication != SIMPLE

    def __getstate__(self) -> dict[str, Any]:
        left_out = [name for name in secret_fields(Settings) if getattr(self.settings, name)]
        changed: dict[str, Any] = dict.fromkeys(left_out)
        if self.needs_tokens:
            changed |= {**dict.fromkeys(_OF_DRIVER), "hbase_authentication": TOKEN}
            if self.settings.zookeeper_authentication == KERBEROS:
                # Tokens open no door there, and workers are found behind it.
                changed |= {"zookeeper_authentication": NONE, "notify_workers": False}
        return {**vars(self), "settings": _with(self.settings, changed), "left_out": left_out}

    def __setstate__(self, state: dict[str, Any]) -> None:
        left_out = state.pop("left_out")
        if left_out:
            here = found_settings(left_out, {})
            state["missing"] = tuple(name for name in left_out if not here.get(name))
            state["settings"] = _with(state["settings"], here)
        vars(self).update(state)


def _with(settings: Settings, values: dict[str, Any]) -> Settings:
    """A copy with other values for some fields. What fits together with them was checked."""
    made = copy.copy(settings)
    vars(made).update(values)
    return made
