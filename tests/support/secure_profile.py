"""The profile with Kerberos and TLS, whose HBase lets in who speaks no TLS, too: so one server is
there for all that tests try.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from functools import partial
from xml.etree import ElementTree

from hqueue.local.configuration import Launcher
from hqueue.local.layout import Layout
from hqueue.local.secure import SECURE

__all__ = ["SECURE_OR_CLEAR", "SECURE_OR_UNPROVEN"]

_OR_CLEAR = {
    "hbase.server.netty.tls.supportplaintext": "true",
    "hbase.server.netty.tls.client.auth.mode": "WANT",
    "hbase.server.netty.tls.verify.client.hostname": "false",
}
_OR_UNPROVEN = {**_OR_CLEAR, "hbase.ipc.server.fallback-to-simple-auth-allowed": "true"}


def _layout(
    changed: Mapping[str, str], launcher: Launcher, ports: Mapping[str, int], gateways: bool
) -> Layout:
    made = SECURE.layout(launcher, ports, gateways)
    for site in launcher.home.conf.glob("*/hbase-site.xml"):
        tree = ElementTree.parse(site)
        root = tree.getroot()
        for entry in [each for each in root if each.findtext("name") in changed]:
            root.remove(entry)
        for name, value in changed.items():
            entry = ElementTree.SubElement(root, "property")
            ElementTree.SubElement(entry, "name").text = name
            ElementTree.SubElement(entry, "value").text = value
        tree.write(site, encoding="utf-8", xml_declaration=True)
    return made


SECURE_OR_CLEAR = dataclasses.replace(SECURE, layout=partial(_layout, _OR_CLEAR))
SECURE_OR_UNPROVEN = dataclasses.replace(SECURE, layout=partial(_layout, _OR_UNPROVEN))
"""Lets in those who prove nothing, too, by the names that they give."""
