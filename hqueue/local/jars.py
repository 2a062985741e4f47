"""The cache of servers' jars, shared by all checkouts of a user.

    <cache>/jars/<digest of pom.xml>/*.jar, manifest.json

A folder of that name is complete or absent: jars are fetched into a folder of another name,
checked, listed with their sizes in ``manifest.json``, and renamed into place. A download that was
interrupted at any point leaves nothing that could be taken for a whole one.
"""

from __future__ import annotations

import dataclasses
import hashlib
import importlib.resources
import json
import os
import shutil
import tempfile
import zipfile
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path

import filelock
import platformdirs

from hqueue.errors import LocalServerError
from hqueue.local.resolvers import Resolver, default_resolver
from hqueue.runtime.logs import Log

__all__ = ["HBASE", "KDC", "JarSet", "cache_folder", "ensure_jars"]

logger = Log(__name__)

LOCK_TIMEOUT_S = 1_800.0
MANIFEST = "manifest.json"


@dataclasses.dataclass(frozen=True)
class JarSet:
    """The jars of a kind of server.

    Args:
        name: what the server is called.
        pom: the bytes of the pom.xml that names the jars; the cache is keyed by their digest.
        keys: prefixes of jars' names: the set is complete only with each of these.
        megabytes: what is downloaded, about.
    """

    name: str
    pom: bytes = dataclasses.field(repr=False)
    keys: tuple[str, ...]
    megabytes: int


_POMS = importlib.resources.files("hqueue.local")

HBASE = JarSet(
    "HBase",
    _POMS.joinpath("pom.xml").read_bytes(),
    (
        "hbase-server",
        "hbase-thrift",
        "hbase-zookeeper",
        "zookeeper",
        "hadoop-common",
        "hadoop-hdfs",
    ),
    120,
)

KDC = JarSet(
    "a KDC",
    _POMS.joinpath("kdc-pom.xml").read_bytes(),
    ("hadoop-minikdc", "kerb-simplekdc", "kerb-server", "slf4j-api"),
    5,
)


def cache_folder(environ: Mapping[str, str] = os.environ) -> Path:
    """Where jars are kept: ``HQUEUE_CACHE``, or the user's cache folder."""
    named = environ.get("HQUEUE_CACHE")
    return Path(named) if named else Path(platformdirs.user_cache_dir("hqueue"))


def ensure_jars(
    wanted: JarSet = HBASE,
    *,
    cache: Path | None = None,
    resolver: Resolver | None = None,
    progress: Callable[[str], None] | None = None,
) -> Path:
    """Return the folder of the jars, fetching them first if they are not there yet.

    Once they are there no network is used. Of several callers at once, in any processes, one
    fetches and the others wait for it.

    Args:
        wanted: the server whose jars are fetched.
        cache: the cache; `cache_folder` if None.
        resolver: what fetches; `default_resolver` if None.
        progress: called with a line of text when a download begins.

    Raises:
        LocalServerError: the jars could not be fetched, or are incomplete.
    """
    cache = cache_folder() if cache is None else cache
    digest = hashlib.sha256(wanted.pom).hexdigest()[:16]
    jars = cache / "jars" / digest
    if _is_whole(jars):
        return jars
    jars.parent.mkdir(parents=True, exist_ok=True)
    try:
        with filelock.FileLock(f"{jars}.lock", timeout=LOCK_TIMEOUT_S):
            if not _is_whole(jars):
                if progress:
                    progress(
                        f"fetching the jars of {wanted.name} "
                        f"(about {wanted.megabytes} MB, once for each user)"
                    )
                _fetch(wanted, jars, default_resolver() if resolver is None else resolver)
    except filelock.Timeout as exc:
        raise LocalServerError(
            "another process has been fetching the server's jars for too long; "
            "end it and start again",
            lock=f"{jars}.lock",
        ) from exc
    return jars


def _fetch(wanted: JarSet, jars: Path, resolver: Resolver) -> None:
    for left_over in jars.parent.glob(f"{jars.name}.part-*"):
        shutil.rmtree(left_over, ignore_errors=True)
    work = Path(tempfile.mkdtemp(prefix=f"{jars.name}.part-", dir=jars.parent))
    try:
        (work / "pom.xml").write_bytes(wanted.pom)
        folder = work / "jars"
        folder.mkdir()
        resolver(work / "pom.xml", folder)
        sizes = _checked_sizes(folder, wanted.keys)
        (folder / MANIFEST).write_text(json.dumps(sizes, indent=1), encoding="utf-8")
        if jars.exists():
            shutil.rmtree(jars)
        os.rename(folder, jars)
        logger.info("fetched %d jars into %s", len(sizes), jars)
    finally:
        shutil.rmtree(work, ignore_errors=True)


def _checked_sizes(folder: Path, keys: Iterable[str]) -> dict[str, int]:
    sizes: dict[str, int] = {}
    for jar in sorted(folder.glob("*.jar")):
        try:
            with zipfile.ZipFile(jar) as archive:
                whole = archive.testzip() is None
        except (OSError, zipfile.BadZipFile):
            whole = False
        if not whole:
            raise LocalServerError(
                "a jar that was fetched is incomplete; start again to fetch it", jar=jar.name
            )
        sizes[jar.name] = jar.stat().st_size
    missing = [key for key in keys if not any(n.startswith(f"{key}-") for n in sizes)]
    if missing:
        raise LocalServerError(
            "some jars were not fetched; start again to fetch them",
            missing=missing,
        )
    return sizes


def _is_whole(jars: Path) -> bool:
    try:
        sizes = json.loads((jars / MANIFEST).read_text(encoding="utf-8"))
        return bool(sizes) and all((jars / n).stat().st_size == s for n, s in sizes.items())
    except (OSError, ValueError, AttributeError):
        return False
