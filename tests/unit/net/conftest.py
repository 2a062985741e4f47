from __future__ import annotations

from pathlib import Path

import pytest

from tests.support.tls_servers import make_certificates


@pytest.fixture(scope="session")
def tls_folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder of tls_folder of each kind that one may meet."""
    return make_certificates(tmp_path_factory.mktemp("certificates"))
