"""Slices of a spec: conditions on what requests say of users, few, and named so that they can be labels."""

from __future__ import annotations

import json

import pytest

from shared.contracts.spec import RecommenderSpec, parse_spec
from shared.domain.errors import Invalid
from tests.unit.contracts.test_spec import SPEC


def sliced(slices: object, **serve: object) -> RecommenderSpec:
    return parse_spec(SPEC + f"\nmonitor: {json.dumps({'slices': slices})}\nserve: {json.dumps(serve)}\n")


@pytest.mark.requirement("G-13")
def test_slices_are_conditions_on_what_the_request_says() -> None:
    spec = sliced({"germany": "user.country  ==  'de'", "young": "user.age < 25"}, context={"country": "text", "age": "number"})
    assert spec.monitor.compiled().of({"country": "de", "age": 30.0}) == ("germany",)
    assert parse_spec(json.dumps(spec.document())) == spec
    assert parse_spec(SPEC).monitor.compiled().of({"country": "de"}) == ()


INVALID_SLICES = [
    ({"Germany": "user.age < 3"}, {}, "a slice's name: lower-case letters"),
    ({"x" * 41: "user.age < 3"}, {}, "at most 40"),
    ({"known_users": "user.age < 3"}, {}, "'known_users' is a built-in slice"),
    ({"young": "age < 3"}, {}, "'age' is an item attribute, but a slice selects answers; use 'user.age' for a request attribute"),
    ({"young": "user.age <"}, {}, "column 11"),
    ({"young": 3}, {}, "expected an expression over user attributes of the request"),
    ({"young": "user.age < 'x'", "old": "user.age > 3"}, {}, "monitor.slices: "),
    ({"young": "user.age < 3"}, {"filter": ["region == user.age and region == 'x'"]}, "monitor.slices: "),
    ({"young": "user.agee < 3"}, {"context": {"age": "number"}}, "serve.context declares no 'agee': did you mean 'age'?"),
    ({f"s{n}": "user.age < 3" for n in range(17)}, {}, "slices: expected at most 16 entries"),
]


def test_a_slice_that_means_nothing_is_refused_in_a_line(subtests: pytest.Subtests) -> None:
    for slices, serve, said in INVALID_SLICES:
        with subtests.test(slices=slices, serve=serve):
            with pytest.raises(Invalid) as caught:
                sliced(slices, **serve)
            assert said in str(caught.value)
            assert "\n" not in str(caught.value)
