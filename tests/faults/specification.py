"""What a process of a run gets: the one argument of its command line."""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Mapping
from pathlib import Path

from hqueue import Settings

from .ways import install

__all__ = ["Specification", "shares_queue", "topics_queue"]

STOP, DRAINED, CONSUMED, DELIVERED = "stop", "drained", "consumed", "delivered"


def topics_queue(queue: str) -> str:
    """The queue of a run's topics."""
    return f"{queue}-topics"


def shares_queue(queue: str) -> str:
    """The queue of a run's share groups."""
    return f"{queue}-shares"


@dataclasses.dataclass(frozen=True)
class Specification:
    """What one process does.

    Args:
        name: of the process, and of its files.
        style: one of its module's ``STYLES``.
        queue: the queue.
        folder: of the history, and of the marks by which the run tells when it is over.
        seed: of its random choices.
        settings: of its client.
        partition: the one that it fills, for a producer that fills one.
        consumers: how many consumers are in it, for a process of consumers.
        ways: the proxies that stand before region servers, by these.
        hubs: the addresses of the hubs, in the order of their styles.
        metrics_port: where a worker or a hub serves its metrics; 0 for any port.
    """

    name: str
    style: str
    queue: str
    folder: Path
    seed: int
    settings: Mapping[str, object]
    partition: int | None = None
    consumers: int = 1
    ways: Mapping[str, str] = dataclasses.field(default_factory=dict)
    hubs: tuple[str, ...] = ()
    metrics_port: int = 0

    def to_json(self) -> str:
        """The form on the command line."""
        return json.dumps({**dataclasses.asdict(self), "folder": str(self.folder)})

    @classmethod
    def from_json(cls, text: str) -> Specification:
        """Read the form on the command line."""
        values = json.loads(text)
        changed = {"folder": Path(values["folder"]), "hubs": tuple(values["hubs"])}
        return cls(**{**values, **changed})

    @classmethod
    def begin(cls, text: str) -> Specification:
        """As `from_json`, in the process that it is for: its clients go through the proxies."""
        specification = cls.from_json(text)
        install(specification.ways)
        return specification

    def client_settings(self, **changes: object) -> Settings:
        """The settings of the client, with changes."""
        return Settings(**{**self.settings, **changes})  # type: ignore[arg-type]

    @property
    def topics_queue(self) -> str:
        """The queue whose topics hubs own: apart, so that each checker sees what is its own."""
        return topics_queue(self.queue)

    @property
    def shares_queue(self) -> str:
        """The queue of the share groups: apart, since their dead letters lie in it."""
        return shares_queue(self.queue)

    def stopped(self) -> bool:
        """Whether no more must be put."""
        return (self.folder / STOP).exists()

    def drained(self) -> bool:
        """Whether all producers have ended, so that what is there now is all there will be."""
        return (self.folder / DRAINED).exists()

    def consumed(self) -> bool:
        """Whether a consumer has found that its group is done with all there is."""
        return (self.folder / CONSUMED).exists()

    def delivered(self) -> bool:
        """Whether all subscribers have ended, so that nothing is left to be delivered."""
        return (self.folder / DELIVERED).exists()
