"""A run on servers with Kerberos and TLS shows no secret: no log, no error, no process."""

from __future__ import annotations

import asyncio
import base64
import contextlib
import faulthandler
import logging
import re
import traceback
import uuid
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

import hqueue
import hqueue.aio
from hqueue import Message, local

pytestmark = pytest.mark.servers

MARK = "mark-7f3a91-of-a-secret"
AES256, AES128 = (18, 32), (17, 16)
SHORT: dict[str, Any] = {"operation_timeout_ms": 3_000, "connect_timeout_ms": 1_000}


def keys_of(keytab: bytes) -> list[bytes]:
    """The keys in a keytab: each behind its type and its length."""
    found: list[bytes] = []
    for kind, size in (AES256, AES128):
        head = kind.to_bytes(2, "big") + size.to_bytes(2, "big")
        found += [keytab[at.end() : at.end() + size] for at in re.finditer(re.escape(head), keytab)]
    return found


def written(secret: bytes) -> Iterator[str]:
    """How it could be shown."""
    yield secret.hex()
    yield base64.b64encode(secret).decode().rstrip("=")
    yield repr(secret)[2:-1]


def command_lines() -> str:
    """Of all processes."""
    lines = []
    for file in Path("/proc").glob("[0-9]*/cmdline"):
        with contextlib.suppress(OSError):
            lines.append(file.read_bytes().replace(b"\0", b" ").decode(errors="replace"))
    return "\n".join(lines)


def test_no_log_error_or_process_shows_a_secret(
    secure_server: local.LocalServer,
    caplog: pytest.LogCaptureFixture,
    capfd: pytest.CaptureFixture[str],
    tmp_path: Path,
) -> None:
    with caplog.at_level(1):
        for name in list(logging.Logger.manager.loggerDict):
            caplog.set_level(1, name)
        settings = secure_server.settings(zookeeper_auth=f"digest:app:{MARK}")
        name, texts = f"shown-{uuid.uuid4().hex[:8]}", [repr(settings)]
        with hqueue.connect(settings) as client:
            queue = client.create_queue(name, partitions=1)
            queue.put(Message("t", b"v"))
            client.coordination.workers.list()
            token = client.delegation_token()
            texts += [repr(token), repr(client)]

            async def put_in_loop() -> None:
                looped = await hqueue.aio.Client(client).queue(name)
                await looped.put(Message("t", b"v"))

            asyncio.run(put_in_loop())
        file = tmp_path / "token"
        file.write_bytes(token.to_bytes())
        by_token: dict[str, Any] = {
            "hbase_authentication": "token", "hbase_token_file": str(file),
            "kerberos_principal": None, "kerberos_keytab": None, "kerberos_config": None,
        }  # fmt: skip
        broken = tmp_path / "broken"
        broken.write_bytes(token.to_bytes()[:-30] + bytes(30))
        for wrong in (
            by_token,
            {**by_token, "hbase_token_file": str(broken)},
            {"kerberos_keytab": str(file)},
            {"hbase_principal": "nobody/_HOST"},
            {"tls_certificate": str(file)},
            {"tls_ca": None},
        ):
            try:
                with hqueue.connect(secure_server.settings(**{**SHORT, **wrong})) as other:
                    other.queue(name).put(Message("t", b"v"))
            except hqueue.HQueueError as exc:
                found = traceback.TracebackException.from_exception(exc, capture_locals=True)
                frames = [each for each in found.stack if "test_shown" not in each.filename]
                texts += [repr(frames), str(exc), repr(exc.facts), *traceback.format_exception(exc)]
        dumped = tmp_path / "dumped"
        with dumped.open("w") as stream:
            faulthandler.dump_traceback(stream)
        texts += [dumped.read_text(), command_lines(), str(capfd.readouterr())]
        texts += [f"{each.getMessage()} {each.args!r} {each.exc_text}" for each in caplog.records]
        for log in secure_server.home.rglob("*.log"):
            texts.append(log.read_text(errors="replace"))
    shown = "\n".join(texts)
    assert any("kazoo" in each.name for each in caplog.records)
    keys = keys_of(Path(settings.kerberos_keytab or "").read_bytes())
    lines = Path(settings.tls_certificate or "").read_text().splitlines()
    private = lines[1 : lines.index("-----END PRIVATE KEY-----")]
    assert keys
    assert private
    secrets = [each for secret in (*keys, token.password) for each in written(secret)]
    assert not [each for each in (*secrets, *private, MARK) if each in shown]
