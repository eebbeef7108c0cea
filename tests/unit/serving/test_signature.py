"""What a served unit says of its inputs."""

from __future__ import annotations

from typing import Any

import pytest
from pydantic import ValidationError

from shared.serving.signature import Signature

KEYS = [{"name": "userId", "dtype": "int64", "side": "user"}, {"name": "movieId", "dtype": "int64", "side": "item"}]


def signature(*more: dict[str, Any], **said: Any) -> Signature:
    return Signature.model_validate({"user": "userId", "item": "movieId", "inputs": [*KEYS, *more], **said})


def test_a_signature_from_before_there_were_sources_reads_as_it_was_meant() -> None:
    found = signature({"name": "genres", "dtype": "string", "width": 2, "side": "item"})
    assert [one.origin for one in found.inputs] == ["request", "catalogue", "catalogue"]
    assert found.time is None
    assert [request_input.name for request_input in found.request_inputs()] == ["userId"]


def test_what_a_request_is_asked_with_comes_in_the_order_of_the_inputs() -> None:
    found = signature(
        {"name": "age", "dtype": "float32", "side": "user", "source": "store", "view": "profile"},
        {"name": "year", "dtype": "int64", "side": "item"},
        {"name": "t", "dtype": "int64", "side": "context"},
        time="t",
    )
    assert [request_input.name for request_input in found.request_inputs()] == ["userId", "age", "t"]


INVALID_SOURCES = [
    ({"side": "user"}, "no request contains"),
    ({"side": "user", "source": "catalogue"}, "comes from the request, not from the catalogue"),
    ({"side": "item", "source": "request"}, "comes from the catalogue, not from the request"),
    ({"side": "context", "source": "store", "view": "v"}, "comes from the request, not from the store"),
    ({"side": "user", "source": "store"}, "expected a view for an input from the store, and for no other"),
    ({"side": "context", "view": "v"}, "expected a view for an input from the store, and for no other"),
]


def test_a_source_that_knows_nothing_of_the_side_is_refused(subtests: pytest.Subtests) -> None:
    for one, said in INVALID_SOURCES:
        with subtests.test(one=one), pytest.raises(ValidationError, match=said):
            signature({"name": "x", "dtype": "float32", **one})


INVALID_TIME_INPUTS = [
    {"name": "t", "dtype": "float32", "side": "context"},
    {"name": "t", "dtype": "int64", "width": 1, "side": "context"},
    {"name": "t", "dtype": "int64", "side": "item"},
    {"name": "other", "dtype": "int64", "side": "context"},
]


def test_the_moment_of_the_request_is_one_int64_of_the_context(subtests: pytest.Subtests) -> None:
    for one in INVALID_TIME_INPUTS:
        with subtests.test(one=one), pytest.raises(ValidationError):
            signature(one, time="t")
