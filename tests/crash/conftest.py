"""Simulated platforms for kills in process."""

from __future__ import annotations

from tests.support.simulated_platform_fixtures import new_world, world

__all__ = ["new_world", "world"]
