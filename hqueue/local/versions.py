"""Which HBase a local server runs: for development, a version other than the one in pom.xml."""

from __future__ import annotations

import os
import re
from collections.abc import Mapping
from xml.etree import ElementTree

from hqueue.errors import LocalServerError
from hqueue.local.jars import HBASE, JarSet

__all__ = ["ENVIRONMENT_NAME", "KNOWN", "hbase_jars"]

ENVIRONMENT_NAME = "HQUEUE_LOCAL_HBASE"
"""Names a version; see `hbase_jars`."""

KNOWN = {"2.5": "2.5.13-hadoop3", "2.6": "2.6.4-hadoop3", "3.0": "3.0.0-alpha-4"}
"""The newest version of each line that Maven Central has whole, where only the line is named."""

_POM = "http://maven.apache.org/POM/4.0.0"
_VERSION = re.compile(r"\d+(\.\d+)+(-[\w.]+)*")


def hbase_jars(environ: Mapping[str, str] = os.environ) -> JarSet:
    """The jars of the server's own processes: those of pom.xml; or those of the version that
    ``HQUEUE_LOCAL_HBASE`` names, as ``2.5`` or ``2.5.13-hadoop3``. Gateways always have those of
    pom.xml: most other versions have no gateways there.

    Raises:
        LocalServerError: that is not a version.
    """
    wanted = environ.get(ENVIRONMENT_NAME, "")
    if not wanted:
        return HBASE
    version = KNOWN.get(wanted, wanted)
    if not _VERSION.fullmatch(version):
        raise LocalServerError(f"{ENVIRONMENT_NAME} must be a version of HBase", version=wanted)
    keys = tuple(key for key in HBASE.keys if key != "hbase-thrift")
    return JarSet(f"HBase {version}", _pom_of(version), keys, HBASE.megabytes)


def _pom_of(version: str) -> bytes:
    """pom.xml for this version, without the gateways."""
    ElementTree.register_namespace("", _POM)
    root = ElementTree.fromstring(HBASE.pom)
    names = {"": _POM}
    properties, dependencies = (root.find(name, names) for name in ("properties", "dependencies"))
    assert properties is not None
    assert dependencies is not None
    for each in properties.findall("hbase.version", names):
        each.text = version
    for each in dependencies.findall("dependency", names):
        if each.findtext("artifactId", namespaces=names) == "hbase-thrift":
            dependencies.remove(each)
    return bytes(ElementTree.tostring(root, encoding="UTF-8", xml_declaration=True))
