"""Options that go to executors with their tasks, and the secrets that don't."""

from __future__ import annotations

import copy
import dataclasses
from typing import Any

from hqueue import Settings, SettingsError
from hqueue.settings.secret_fields import secret_fields

__all__ = ["TaskOptions"]


@dataclasses.dataclass(frozen=True)
class TaskOptions:
    """What each kind of work has. Pickled, it carries no secret: a process that reads it takes the
    secrets from where `hqueue.connect` finds them there, if any was given.

    Raises:
        SettingsError: when it is unpickled, and a secret is given nowhere.
    """

    queue: str
    settings: Settings

    def __getstate__(self) -> dict[str, Any]:
        left_out = {name: None for name in secret_fields(Settings) if getattr(self.settings, name)}
        return {**vars(self), "settings": _with(self.settings, left_out), "left_out": [*left_out]}

    def __setstate__(self, state: dict[str, Any]) -> None:
        left_out = state.pop("left_out")
        if left_out:
            carried = vars(state["settings"]).items()
            here = Settings.load({name: value for name, value in carried if name not in left_out})
            missing = [name for name in left_out if not getattr(here, name)]
            if missing:
                raise SettingsError(
                    "a secret does not go to executors with a task: set it there, too, by its "
                    "variable or in the settings file",
                    settings=missing,
                )
            state["settings"] = _with(
                state["settings"], {name: getattr(here, name) for name in left_out}
            )
        vars(self).update(state)


def _with(settings: Settings, values: dict[str, Any]) -> Settings:
    """A copy with other values for some fields. What fits together with them was checked."""
    made = copy.copy(settings)
    vars(made).update(values)
    return made
