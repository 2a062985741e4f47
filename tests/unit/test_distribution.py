"""The distribution's name and its version stand in one place, and what names them agrees."""

from __future__ import annotations

import configparser
import re
import sys
from importlib import metadata
from pathlib import Path

import hqueue
from hqueue.runtime.extras import DISTRIBUTION, installing

if sys.version_info >= (3, 11):
    import tomllib
else:
    import tomli as tomllib

ROOT = Path(__file__).parents[2]


def configuration() -> configparser.ConfigParser:
    found = configparser.ConfigParser()
    found.read(ROOT / "setup.cfg", "utf-8")
    return found


def test_the_name_is_that_of_the_installed_package() -> None:
    assert configuration()["metadata"]["name"] == DISTRIBUTION
    assert metadata.version(DISTRIBUTION) == hqueue.__version__
    known = {each.name for each in metadata.distributions()}
    assert known & {"hqueue", DISTRIBUTION} == {DISTRIBUTION}


def test_an_extra_that_includes_others_includes_those_of_this_distribution() -> None:
    listed = "\n".join(configuration()["options.extras_require"].values())
    included = re.findall(r"^([\w.-]+)\[([\w,]+)\]", listed, re.MULTILINE)
    ours = [name for name, extras in included if name.startswith("hqueue")]
    assert set(ours) == {DISTRIBUTION}


def test_the_version_is_written_nowhere_but_in_tags() -> None:
    assert "version" not in configuration()["metadata"]
    assert "__version__ =" not in (ROOT / "hqueue" / "__init__.py").read_text("utf-8")
    scm = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))["tool"]["setuptools_scm"]
    assert scm["fallback_version"] == "0.1.dev0"


def test_pages_install_extras_that_exist_of_the_distribution_or_of_the_clone() -> None:
    extras = set(configuration()["options.extras_require"])
    pages = [ROOT / "README.md", ROOT / "CONTRIBUTING.md", *(ROOT / "docs").rglob("*.md")]
    found = [
        (page.name, name, wanted)
        for page in pages
        for name, wanted in re.findall(
            r"pip install (?:'|\"|)([\w.-]+)\[([\w,]+)\]", page.read_text("utf-8")
        )
    ]
    assert len(found) > 5
    assert not [each for each in found if each[1] not in {".", DISTRIBUTION}]
    assert not [each for each in found if not {*each[2].split(",")} <= extras]


def test_what_is_missing_is_installed_by_the_name() -> None:
    assert installing("cli") == "pip install 'hqueue-hbase[cli]', or in a clone of HQueue '.[cli]'"
