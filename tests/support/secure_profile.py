"""The profile with Kerberos and TLS, whose HBase lets in who speaks no TLS, too: so one server is
there for all that tests try.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from xml.etree import ElementTree

from hqueue.local.configuration import Launcher
from hqueue.local.layout import Layout
from hqueue.local.secure import SECURE

__all__ = ["SECURE_OR_CLEAR"]

_CHANGED = {
    "hbase.server.netty.tls.supportplaintext": "true",
    "hbase.server.netty.tls.client.auth.mode": "WANT",
    "hbase.server.netty.tls.verify.client.hostname": "false",
}


def _layout(launcher: Launcher, ports: Mapping[str, int], gateways: bool) -> Layout:
    made = SECURE.layout(launcher, ports, gateways)
    for site in launcher.home.conf.glob("*/hbase-site.xml"):
        tree = ElementTree.parse(site)
        root = tree.getroot()
        for entry in [each for each in root if each.findtext("name") in _CHANGED]:
            root.remove(entry)
        for name, value in _CHANGED.items():
            entry = ElementTree.SubElement(root, "property")
            ElementTree.SubElement(entry, "name").text = name
            ElementTree.SubElement(entry, "value").text = value
        tree.write(site, encoding="utf-8", xml_declaration=True)
    return made


SECURE_OR_CLEAR = dataclasses.replace(SECURE, layout=_layout)
