"""A gateway with two versions of one recommender."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.support.gateway_world import World


@pytest.fixture
def world() -> Iterator[World]:
    made = World()
    made.add_version(1)
    made.add_version(2)
    yield made
    made.close()
