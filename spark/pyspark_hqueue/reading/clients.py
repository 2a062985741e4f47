"""Makes the clients of HBase in Spark: the driver's, and those of tasks.

What tasks have of the options is pickled, and Spark keeps it where it likes: so options leave the
driver without what it proves itself by. Tasks prove themselves by a delegation token, which goes
with each task: with the partitions of a read, and with the writer of a write.
"""

from __future__ import annotations

import dataclasses
import functools

from hqueue import Client, Settings, StoreUnavailableError, connect
from hqueue.runtime.clock import SYSTEM_CLOCK, Clock
from hqueue.runtime.logs import Log
from hqueue.typing import DelegationToken
from pyspark_hqueue.reading.task_options import TaskOptions

__all__ = ["TokenSupply", "client_of", "task_token"]

logger = Log(__name__)

CLIENTS_MAX = 8

RENEWED_AFTER = 0.75
"""Of a token's life. Tasks that have it go on with it for the rest."""

RETRY_MS = 60_000


def client_of(settings: Settings, token: bytes | None = None) -> Client:
    """This process's client with these settings; Spark uses a process for many tasks.

    Args:
        settings: the settings.
        token: the task's, as `task_token` gave it.
    """
    if token is None:
        return _client(settings, None)
    given = DelegationToken.from_bytes(token)
    client = _client(settings, given.principal)
    client.use_token(given)
    return client


@functools.lru_cache(maxsize=CLIENTS_MAX)
def _client(settings: Settings, principal: str | None) -> Client:
    return connect(settings)


def task_token(options: TaskOptions) -> bytes | None:
    """A token for tasks that begin now, as bytes that are a secret; None if they need none.

    Raises:
        RequestRefusedError: HBase gives none.
        StoreUnavailableError: HBase did not answer.
    """
    return _supply(options.settings).current() if options.needs_tokens else None


@functools.lru_cache(maxsize=CLIENTS_MAX)
def _supply(settings: Settings) -> TokenSupply:
    return TokenSupply(client_of(settings))


@dataclasses.dataclass(frozen=True)
class _HeldToken:
    """A token, and its times by the monotonic clock."""

    token: bytes = dataclasses.field(repr=False)
    renewed_ms: float
    """When to get another one."""
    ends_ms: float
    """When it expires."""


_NO_TOKEN = _HeldToken(b"", float("-inf"), float("-inf"))


class TokenSupply:
    """The token that tasks get: one, until three quarters of its life are over, then another one.
    Thread-safe: threads that find it old at the same time each get another one, and the last one
    stays.

    Args:
        client: gets them.
        clock: where time comes from.
    """

    def __init__(self, client: Client, clock: Clock = SYSTEM_CLOCK) -> None:
        self._client = client
        self._clock = clock
        self._held = _NO_TOKEN
        """Replaced as a whole, so that no thread sees one token with another one's times."""

    def current(self) -> bytes:
        """The token, with its secret. While HBase is away, the earlier one as long as it lives.

        Raises:
            RequestRefusedError: HBase gives none.
            StoreUnavailableError: HBase did not answer.
        """
        held, now_ms = self._held, self._clock.monotonic_ms()
        if now_ms < held.renewed_ms:
            return held.token
        try:
            got = self._client.delegation_token()
        except StoreUnavailableError as exc:
            if now_ms >= held.ends_ms:
                raise
            logger.warning("can't get another delegation token; trying again in a minute: %s", exc)
            if self._held is held:
                self._held = dataclasses.replace(held, renewed_ms=now_ms + RETRY_MS)
            return held.token
        logger.info("Spark tasks authenticate with %r from now on", got)
        # One that was issued long ago is the one of a file, which others replace.
        left_ms = max(0, got.expires_ms - max(got.issued_ms, self._clock.wall_ms()))
        token = got.to_bytes()
        self._held = _HeldToken(token, now_ms + RENEWED_AFTER * left_ms, now_ms + left_ms)
        return token
