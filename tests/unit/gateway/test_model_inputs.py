"""What versions are asked with beside the items: the moment, and the request's context."""

from __future__ import annotations

import json
from typing import Any

import numpy as np
import pytest
from numpy.testing import assert_array_equal

from services.gateway.gateway import Question
from services.gateway.model_inputs import column
from shared.domain.route import Route
from shared.serving.signature import Input
from tests.support.gateway_world import ITEMS, NOW

INPUTS = [
    {"name": "userId", "dtype": "int64", "side": "user"},
    {"name": "movieId", "dtype": "int64", "side": "item"},
    {"name": "t", "dtype": "int64", "side": "context"},
    {"name": "country", "dtype": "string", "side": "context"},
    {"name": "weights", "dtype": "float32", "width": 3, "side": "context"},
]
CONTEXT = {"country": "CH", "weights": (0.5, 2.0)}


def served(world: Any) -> Any:
    """A gateway of a version with such inputs."""
    world.add_version(1, **{"signature.json": json.dumps({"user": "userId", "item": "movieId", "inputs": INPUTS, "time": "t"}).encode()})
    world.routes["m"] = Route(1, None, 0.0, None, 1)
    made = world.gateway()
    made.refresh()
    return made


@pytest.mark.requirement("G-08")
def test_a_version_is_told_the_moment_and_the_context_of_each_request(world: Any) -> None:
    gateway = served(world)
    gateway.recommend("m", 2, context=CONTEXT)
    ((_, feed),) = world.feeds
    assert feed["userId"].tolist() == [2] * len(ITEMS)
    assert feed["t"].tolist() == [int(NOW.timestamp())] * len(ITEMS)
    assert feed["country"].tolist() == ["CH"] * len(ITEMS)
    assert feed["weights"].shape == (len(ITEMS), 3)
    assert_array_equal(feed["weights"][0], np.array([0.5, 2.0, np.nan], np.float32))


def test_requests_that_share_a_call_keep_their_own_context(world: Any) -> None:
    gateway = served(world)
    told = {1: {"country": "CH"}, 2: {"country": "FR"}, 3: {}}
    for one in [gateway.submit(Question("m", user, context=context)) for user, context in told.items()]:
        one.result(10)
    seen = {
        int(user): (str(country), float(first))
        for _, feed in world.feeds
        for user, country, first in zip(feed["userId"], feed["country"], feed["weights"][:, 0], strict=True)
    }
    assert {user: country for user, (country, _) in seen.items()} == {1: "CH", 2: "FR", 3: ""}
    assert all(np.isnan(first) for _, first in seen.values())


VALUES = [
    ("int64", [3, 2.0, True, 2.5, "3", None, 10**400, float("inf")], [3, 2, 1] + [-(2**63)] * 5),
    ("int64", [2**63 - 1, 2**63, 1 - 2**63, -(2**63) - 1], [2**63 - 1, -(2**63), 1 - 2**63, -(2**63)]),
    ("float32", [3, 0.1, True, "3", None, 10**400, 1e300], [3, np.float32(0.1), 1] + [np.nan] * 4),
    ("string", ["a", "日本", 3, None, ("a",)], ["a", "日本", "", "", ""]),
]


def test_what_is_unknown_or_of_another_kind_is_blank(subtests: pytest.Subtests) -> None:
    for dtype, values, expected in VALUES:
        with subtests.test(dtype=dtype, values=values):
            assert_array_equal(column(Input(name="x", dtype=dtype, side="context"), values), np.array(expected))


def test_lists_are_padded_and_cut(subtests: pytest.Subtests) -> None:
    for dtype, blank in (("int64", -(2**63)), ("float32", np.nan), ("string", "")):
        with subtests.test(dtype=dtype):
            one, two, three = ("a", "b", "c") if dtype == "string" else (1, 2, 3)
            found = column(Input(name="x", dtype=dtype, width=2, side="context"), [(one,), (one, two, three), None, one, ()])
            assert_array_equal(found, np.array([[one, blank], [one, two], [blank] * 2, [blank] * 2, [blank] * 2]))
