"""The demo and the other examples on a server with Kerberos, TLS and certificates on both sides, as
`test_secured` has those that go through each door.
"""

from __future__ import annotations

import pytest

from tests.acceptance import test_cli_local, test_examples, test_secured
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
