"""Names the settings that are secrets."""

from __future__ import annotations

import dataclasses
from typing import Any

__all__ = ["secret_fields"]


def secret_fields(kind: Any) -> list[str]:
    """Name the settings of a class that are secrets: those that its ``repr`` leaves out. Nothing
    shows them, and no task of Spark carries them.
    """
    return [field.name for field in dataclasses.fields(kind) if not field.repr]
