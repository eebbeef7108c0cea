"""Requests of pages to the API: a name stays one segment of a path."""

from __future__ import annotations

import asyncio
from urllib.parse import unquote

import pytest
from hypothesis import given
from hypothesis import strategies as st

from services.console.api import Api, ApiProblem, at
from tests.support.api_world import TOKEN


@given(st.text(min_size=1), st.text(min_size=1))
def test_a_name_stays_one_segment_whatever_it_holds(name, verb):
    path = at("recommenders", name, verb=verb)
    assert not set(path) & set("?#\\") and path.count("/") == 3
    last = path.rpartition("/")[2]
    assert last.count(":") == 1 and last.partition(":")[0] not in (".", "..")
    assert tuple(map(unquote, last.split(":"))) == (name, verb)


def test_an_invalid_id_is_not_found(world, subtests):
    for id in ("..", ".", "../tokens", "x?with=y", "x#y", "x:cancel", "%2e%2e", "a b", "\u0130"):
        with subtests.test(id=id):
            with pytest.raises(ApiProblem) as refused:
                asyncio.run(Api(world.app, TOKEN).get(at("runs", id)))
            assert refused.value.status == 404
