"""Hubs: topics with owners (seed 000)."""

from __future__ import annotations
