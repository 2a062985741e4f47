"""The settings that say who may do what, for every role."""

from __future__ import annotations

import dataclasses

from hqueue import InvalidInputError, SettingsError
from hqueue.metadata.managers import check_names
from hqueue.settings.names import names_in

__all__ = ["ALL", "RULES", "AccessSettings", "check_administrators"]

ALL, RULES = "all", "rules"
"""The values of `authorizer` that all roles share."""


@dataclasses.dataclass(frozen=True)
class AccessSettings:
    """Who may do what."""

    authorizer: str = "all"
    """Who may do what: ``all`` (everybody may do everything) or ``rules`` (the access rules decide,
    which ``hqueue access`` changes). Rules need the connection's ``tls``.
    """

    administrators: str = ""
    """Who may do everything, whatever the rules say: principals with commas between. A name that
    ends with ``*`` stands for all names that begin with the text before it.
    """


def check_administrators(names: str) -> list[str]:
    """The names of the setting `administrators`.

    Raises:
        SettingsError: one of them is not a name.
    """
    try:
        return list(check_names(names_in(names), option="administrators"))
    except InvalidInputError as exc:
        raise SettingsError(exc.text, administrators=names) from exc
