"""HBase's own gateways beside a local server: as they speak TLS, which is by HTTP; and before an
HBase that asks for Kerberos.
"""

from __future__ import annotations

import contextlib
import subprocess
from collections.abc import Iterable, Iterator
from functools import partial
from pathlib import Path

from hqueue import GatewayAddress, local
from hqueue.local.configuration import Launcher, Xml
from hqueue.local.freeports import choose_ports
from hqueue.local.layout import gateway_plan
from hqueue.local.process import ProcessPlan
from tests.support.added_processes import added, security_options_of, settings_of

__all__ = ["http_gateways", "kerberos_gateways"]

HOST, PASSWORD = "127.0.0.1", "of-a-test"


@contextlib.contextmanager
def http_gateways(server: local.LocalServer, certificate: Path) -> Iterator[GatewayAddress]:
    """Two gateways that have this certificate, as long as the context lasts.

    Args:
        server: HBase behind them, with gateways of its own.
        certificate: a file with it and its key.
    """
    store = certificate.with_suffix(".p12")
    _make_store(certificate, store)
    hbase = {
        **settings_of(server, "thrift1", "hbase-site.xml"),
        "hbase.regionserver.thrift.http": True,
        "hbase.thrift.ssl.enabled": True,
        "hbase.thrift.ssl.keystore.store": str(store),
        "hbase.thrift.ssl.keystore.type": "pkcs12",
        "hbase.thrift.ssl.keystore.password": PASSWORD,
        "hbase.thrift.ssl.keystore.keypassword": PASSWORD,
    }
    with _gateways(server, "http", hbase) as address:
        yield address


@contextlib.contextmanager
def kerberos_gateways(server: local.LocalServer) -> Iterator[GatewayAddress]:
    """Two gateways that prove themselves to a secure server, by its own keytab and in TLS. Their
    clients prove nothing: they are a way past hqueue's own security.
    """
    hbase = settings_of(server, "master", "hbase-site.xml")
    hbase["hbase.thrift.keytab.file"] = hbase["hbase.regionserver.keytab.file"]
    hbase["hbase.thrift.kerberos.principal"] = hbase["hbase.regionserver.kerberos.principal"]
    with _gateways(
        server,
        "kerberos",
        hbase,
        security_options_of(server, "master"),
        settings_of(server, "master", "core-site.xml"),
    ) as address:
        yield address


@contextlib.contextmanager
def _gateways(
    server: local.LocalServer,
    kind: str,
    hbase: Xml,
    options: Iterable[str] = (),
    hdfs: Xml | None = None,
) -> Iterator[GatewayAddress]:
    ports = choose_ports([f"thrift1-{kind}", f"thrift2-{kind}"])

    def planned(name: str, launcher: Launcher) -> ProcessPlan:
        return gateway_plan(
            launcher, name, host=HOST, port=ports[name], hbase=hbase, heap_mb=256, stage=0,
            options=options, hdfs=hdfs,
        )  # fmt: skip

    with added(server, *(partial(planned, name) for name in ports)):
        yield GatewayAddress(HOST, *ports.values())


def _make_store(certificate: Path, store: Path) -> None:
    """Put a certificate with its key into a store that Java reads."""
    made = subprocess.run(
        ["openssl", "pkcs12", "-export", "-in", str(certificate), "-out", str(store),
         "-passout", f"pass:{PASSWORD}"],
        stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=60, check=False,
    )  # fmt: skip
    assert made.returncode == 0, made.stderr
