"""The profile ``secure``: a KDC, and one HBase process that asks for Kerberos, over TLS alone, and
whose ZooKeeper knows Kerberos.
"""

from __future__ import annotations

import dataclasses
import getpass
import shutil
import socket
from collections.abc import Mapping
from pathlib import Path

from hqueue.local.certificates import is_valid, keep_authority, make_certificate
from hqueue.local.configuration import FULL_COMPILER, LARGE_HEAP, QUICK_COMPILER, Launcher, Xml
from hqueue.local.home import Home
from hqueue.local.layout import Layout, Profile, master_plan
from hqueue.local.process import ProcessPlan
from hqueue.local.standalone import HOST, PORTS, server_settings
from hqueue.settings.names import is_name

__all__ = ["PRINCIPALS", "SECURE"]

ORGANIZATION, DOMAIN = "HQUEUE", "LOCAL"
REALM = f"{ORGANIZATION}.{DOMAIN}"
SERVER = f"hbase/{HOST}"
ZOOKEEPER = f"zookeeper/{HOST}"
CONSOLE = ("HTTP/localhost", f"HTTP/{HOST}")
"""For which principals browsers ask at the console."""
DAY_MS = 86_400_000
USABLE_S = 3_600
TOKEN_PROVIDER = "org.apache.hadoop.hbase.security.token.TokenProvider"
"""Gives delegation tokens."""

PRINCIPALS = ("app", "worker", "hub", "ops")
"""Beside the user's own: each has a key in the keytab, and a certificate in a file of its name."""

_TAKEN = ("ca", "server", "hbase", "zookeeper")
"""The names of files and principals that no user's are."""

_KDC_IS_READY = "<CTRL-C>"
"""In what it prints when the keys are written."""

_KRB5_CONF = """\
[libdefaults]
  default_realm = {realm}
  dns_lookup_kdc = false
  dns_lookup_realm = false
  dns_canonicalize_hostname = false
  rdns = false
  udp_preference_limit = 1
[realms]
  {realm} = {{
    kdc = {host}:{port}
  }}
"""

_JAAS = """\
{section} {{
  com.sun.security.auth.module.Krb5LoginModule required
  useKeyTab=true storeKey=true useTicketCache=false
  keyTab="{keytab}" principal="{principal}";
}};
"""


def _layout(launcher: Launcher, ports: Mapping[str, int], gateways: bool) -> Layout:
    """A KDC, and ZooKeeper, master and region server in one JVM, with the data in plain files."""
    data = launcher.home.data("secure")
    folder, krb5_conf = launcher.home.conf / "security", launcher.home.conf / "krb5.conf"
    krb5_conf.write_text(
        _KRB5_CONF.format(realm=REALM, host=HOST, port=ports["kdc"]), encoding="utf-8"
    )
    keytab = folder / "keytab"
    server: Xml = {
        **server_settings(data, ports),
        **_kerberos(keytab),
        **_rights(),
        **_tls(folder),
    }
    master = master_plan(
        launcher,
        ports={name: ports[name] for name in PORTS},
        heap_mb=1_024,
        options=FULL_COMPILER,
        common_options=(
            f"-Djava.security.krb5.conf={krb5_conf}",
            *_zookeeper_options(launcher, keytab),
        ),
        collector=LARGE_HEAP,
        hbase=server,
        hdfs={"hadoop.security.authentication": "kerberos"},
        stage=1,
    )
    return Layout(
        (_kdc(launcher, ports["kdc"], folder, keytab), master),
        (),
        f"{HOST}:{ports['zookeeper']}",
        settings={
            "hbase_authentication": "kerberos",
            "hbase_principal": f"hbase/_HOST@{REALM}",
            "hbase_tls": True,
            "kerberos_config": str(krb5_conf),
            "kerberos_keytab": str(keytab),
            "kerberos_principal": f"{_user()}@{REALM}",
            "tls": True,
            "tls_ca": f"{folder}/ca.pem",
            "tls_certificate": f"{folder}/{_user()}.pem",
            "delivery_principals": f"{_user()},worker,hub",
            "zookeeper_authentication": "kerberos",
            "zookeeper_principal": f"zookeeper/_HOST@{REALM}",
        },
        roles={
            role: {"authorizer": "rules", "administrators": f"{_user()},ops"}
            for role in ("worker", "hub")
        }
        | {"console": {"spnego_keytab": str(keytab)}},
        prepare=lambda: _make_certificates(folder, launcher.home.authority),
    )


def _kerberos(keytab: Path) -> Xml:
    """Let HBase ask for Kerberos, and offer each protection."""
    roles = {}
    for role in ("master", "regionserver"):
        roles[f"hbase.{role}.keytab.file"] = str(keytab)
        roles[f"hbase.{role}.kerberos.principal"] = f"{SERVER}@{REALM}"
    return {
        **roles,
        "hbase.security.authentication": "kerberos",
        "hbase.rpc.protection": "authentication,integrity,privacy",
        # The command that stops HBase is a client of its.
        "hbase.client.keytab.file": str(keytab),
        "hbase.client.keytab.principal": f"{SERVER}@{REALM}",
    }


def _zookeeper_options(launcher: Launcher, keytab: Path) -> tuple[str, ...]:
    """ZooKeeper knows Kerberos, and HBase proves itself there. A client that proves nothing is let
    in, too: what it may do, nodes' ACLs say.
    """
    sections = {"Server": ZOOKEEPER, "Client": SERVER}
    jaas = launcher.home.conf / "jaas.conf"
    jaas.write_text(
        "".join(
            _JAAS.format(section=section, keytab=keytab, principal=f"{principal}@{REALM}")
            for section, principal in sections.items()
        ),
        encoding="utf-8",
    )
    provider = "org.apache.zookeeper.server.auth.SASLAuthenticationProvider"
    return (
        f"-Djava.security.auth.login.config={jaas}",
        f"-Dzookeeper.authProvider.1={provider}",
        f"-Dzookeeper.server.principal={ZOOKEEPER}@{REALM}",
        # An ACL names users as `sasl:user`.
        "-Dzookeeper.kerberos.removeHostFromPrincipal=true",
        "-Dzookeeper.kerberos.removeRealmFromPrincipal=true",
    )


def _rights() -> Xml:
    """Let HBase check rights: the user and ``ops`` may do everything, and grant rights."""
    controller = "org.apache.hadoop.hbase.security.access.AccessController"
    return {
        "hbase.security.authorization": True,
        "hbase.coprocessor.master.classes": controller,
        "hbase.coprocessor.region.classes": f"{TOKEN_PROVIDER},{controller}",
        "hbase.coprocessor.regionserver.classes": controller,
        "hbase.superuser": f"{_user()},ops",
    }


def _tls(folder: Path) -> Xml:
    """Let HBase speak TLS, and ask for a certificate."""
    return {
        "hbase.server.netty.tls.enabled": True,
        "hbase.client.netty.tls.enabled": True,
        "hbase.server.netty.tls.supportplaintext": False,
        "hbase.server.netty.tls.client.auth.mode": "NEED",
        "hbase.rpc.tls.enabledProtocols": "TLSv1.3,TLSv1.2",
        "hbase.rpc.tls.keystore.location": f"{folder}/server.pem",
        "hbase.rpc.tls.truststore.location": f"{folder}/ca.pem",
    }


def _kdc(launcher: Launcher, port: int, folder: Path, keytab: Path) -> ProcessPlan:
    """A KDC, which keeps its keys in memory, and writes them into a keytab when it begins."""
    folder.mkdir(mode=0o700)  # What the KDC writes, others could read.
    work = folder / "kdc"
    work.mkdir()
    values = {
        "org.name": ORGANIZATION,
        "org.domain": DOMAIN,
        "kdc.bind.address": HOST,
        "kdc.port": port,
        "transport": "TCP",
        "min.ticket.lifetime": 1,  # A client may ask for tickets that expire soon, to try that.
        "max.ticket.lifetime": DAY_MS,
        "max.renewable.lifetime": 7 * DAY_MS,
        "instance": "DefaultKrbServer",
        "debug": "false",
    }
    properties = work / "properties"
    properties.write_text(
        "".join(f"{name}={value}\n" for name, value in values.items()), encoding="utf-8"
    )
    plan = launcher.of_kdc().plan(
        "kdc",
        "org.apache.hadoop.minikdc.MiniKdc",
        *(str(work), str(properties), str(keytab), SERVER, ZOOKEEPER, *CONSOLE, *_principals()),
        host=HOST,
        ports={"kdc": port},
        heap_mb=64,
        options=QUICK_COMPILER,
        ready_text=_KDC_IS_READY,
    )
    # It would add its keys to those that are there.
    return dataclasses.replace(plan, written=(str(keytab),))


def _make_certificates(folder: Path, authority: Path) -> None:
    """Make the certificates of this start, signed by the authority that all starts share."""
    keep_authority(authority)
    for name in ("ca.pem", "ca.key"):
        shutil.copy(authority / name, folder)
    here = f"IP:{HOST},DNS:localhost,DNS:{socket.gethostname()}"
    for name in ("server", *_principals()):
        make_certificate(folder, name, hosts=here)


def _principals() -> list[str]:
    """List all principals, without the realm."""
    return list(dict.fromkeys([_user(), *PRINCIPALS]))


def _user() -> str:
    """Return the principal of this machine's user, without the realm."""
    try:
        user = getpass.getuser()
    except (KeyError, OSError):  # A process whose user has no name.
        user = ""
    return user if is_name(user) and user not in _TAKEN else "hqueue"


def _is_usable(home: Home) -> bool:
    """Return whether the certificates of the last start are there, and valid for another hour."""
    folder = home.conf / "security"
    return all(
        is_valid(folder / f"{name}.pem", USABLE_S) for name in ("ca", "server", *_principals())
    )


SECURE = Profile("secure", (*PORTS, "kdc"), (), True, _layout, _is_usable)
