"""All targets, by name."""

from __future__ import annotations

from typing import Any

from . import (
    api,
    cells,
    command_line,
    handshakes,
    hub,
    log,
    native,
    native_loop,
    ports,
    texts,
    tickets,
    wire,
)
from .target import Target

__all__ = ["TARGETS"]

TARGETS: dict[str, Target[Any]] = {
    target.name: target
    for module in (
        cells,
        log,
        wire,
        native,
        native_loop,
        handshakes,
        ports,
        api,
        hub,
        tickets,
        texts,
        command_line,
    )
    for target in module.TARGETS
}
