"""Links from a page to a file of the repository lead to a page that shows that file.

Where Markdown is viewed in the repository, ``[Makefile](../Makefile)`` works as it is. A site has
only what lies in ``docs/``; so each file that is linked to becomes a page of its own, and the link
goes there. A folder's page lists what is in it. A link to nothing is left as it is: MkDocs reports
it, and a strict build fails.
"""

from __future__ import annotations

import posixpath
import re
from pathlib import Path

from mkdocs.config.defaults import MkDocsConfig
from mkdocs.structure.files import File, Files
from mkdocs.structure.pages import Page

_LINK = re.compile(r"(?<=\]\()(?P<path>\.\./[^)#\s]+)(?P<anchor>#[^)\s]*)?(?=\))")
_LANGUAGES = {".py": "python", ".thrift": "thrift", ".toml": "toml", ".md": "markdown"}


def on_files(files: Files, config: MkDocsConfig) -> Files:
    """Add a page for each file or folder that a page links to."""
    for page in list(files.documentation_pages()):
        for link in _LINK.finditer(page.content_string):
            target = _target(page.src_uri, link["path"], config)
            if target is not None and files.get_file_from_path(_page_of(target)) is None:
                shown = _shown(Path(config.docs_dir).parent / target, target)
                files.append(File.generated(config, _page_of(target), content=shown))
    return files


def on_page_markdown(markdown: str, *, page: Page, config: MkDocsConfig, files: Files) -> str:
    """Let the links of a page lead to those pages."""
    here = page.file.src_uri

    def led(link: re.Match[str]) -> str:
        target = _target(here, link["path"], config)
        if target is None:
            return link[0]
        return posixpath.relpath(_page_of(target), posixpath.dirname(here) or ".")

    return _LINK.sub(led, markdown)


def _target(page: str, link: str, config: MkDocsConfig) -> str | None:
    """What a link means, as a path in the repository; None if nothing outside of ``docs/``."""
    docs = Path(config.docs_dir)
    target = (docs / posixpath.dirname(page) / link).resolve()
    root = docs.parent.resolve()
    if not target.exists() or not target.is_relative_to(root) or target.is_relative_to(docs):
        return None
    return target.relative_to(root).as_posix()


def _page_of(target: str) -> str:
    return f"source/{target}.md"


def _shown(path: Path, name: str) -> str:
    if path.is_dir():
        entries = sorted(p.name for p in path.iterdir() if not p.name.startswith(("__", ".")))
        return f"# {name}/\n\n" + "".join(f"- `{entry}`\n" for entry in entries)
    language = _LANGUAGES.get(path.suffix, "text")
    return f"# {path.name}\n\n`{name}`\n\n````{language}\n{path.read_text('utf-8')}````\n"
