"""Writes the files: ``make monitoring``."""

from __future__ import annotations

from tests.monitoring.files import FILES, ROOT

for name, text in FILES.items():
    path = ROOT / name
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text(), encoding="utf-8")
    print(name)
