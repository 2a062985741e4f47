"""The demo and the other examples on a server with Kerberos, TLS and certificates on both sides, as
`test_secured` has those that go through each door.
"""

from __future__ import annotations

import json
import os
import socket
import ssl
import tempfile

import pytest

from tests.acceptance import test_cli_local, test_examples, test_secured
from tests.acceptance.commands import run_installed
from tests.acceptance.test_examples import examples  # noqa: F401  (fixtures)
from tests.acceptance.test_secured import (  # noqa: F401
    client,
    elsewhere,
    environment,
    run,
    run_process,
    server,
)

pytestmark = [pytest.mark.servers, pytest.mark.secured]

globals().update(
    {
        name: test
        for module, prefix in ((test_examples, "test_"), (test_cli_local, "test_the_demo"))
        for name, test in vars(module).items()
        if name.startswith(prefix) and test not in vars(test_secured).values()
    }
)


def test_a_server_that_is_started_secured_takes_nothing_in_clear() -> None:
    kept = {k: v for k, v in os.environ.items() if not k.startswith(("HQUEUE_", "KRB5"))}
    with tempfile.TemporaryDirectory(prefix="hqueue-secured-") as home:
        started = run_installed({**kept, "HQUEUE_LOCAL_HOME": home, "XDG_CONFIG_HOME": home})
        try:
            shown = json.loads(started("local", "start", "--secure", "--json").out)
            assert (shown["profile"], shown["ready"]) == ("secure", True)
            assert started("doctor").code == 0
            assert started("create", "q", "--partitions", "1").code == 0
            in_clear = {"HQUEUE_HBASE_TLS": "false", "HQUEUE_OPERATION_TIMEOUT_MS": "3000"}
            assert started("list", env=in_clear).code != 0
            [port] = [p["ports"]["master"] for p in shown["processes"] if p["name"] == "master"]
            unproven = ssl.create_default_context(cafile=f"{home}/conf/security/ca.pem")
            with (
                socket.create_connection(("127.0.0.1", port), 10) as opened,
                pytest.raises(ssl.SSLError, match=r"(?i)certificate"),
                unproven.wrap_socket(opened, server_hostname="127.0.0.1") as shaken,
            ):
                shaken.recv(1)
        finally:
            started("local", "stop")
