"""Every operation of the client against docs/openapi.json: paths, queries, bodies and answers."""

from __future__ import annotations

import ast
import asyncio
import inspect
import json
import re
import sys
from pathlib import Path
from typing import Any

import eyas_client
import httpx
import jsonschema
import pytest
from eyas_client import AsyncClient, Client, answers, platform
from eyas_client.answers import Answer
from eyas_client.operation import Group, Operation

import eyas
from tests.support.openapi_samples import ROOT, answer_schema, openapi, operation, references, sample, schema
from tests.tools.code_rules import VAGUE
from tests.unit.client.conftest import TOKEN, URL

SPEC = "apiVersion: eyas/v1\nname: movies\n"
CALLS: dict[str, list[tuple[tuple[Any, ...], dict[str, Any]]]] = {
    "recommend": [
        (("movies", 42), {}),
        (("movies", "u-1", 3), {"exclude": [1], "context": {"age": 9}, "items": ["a"], "explain": True, "trial": True}),
        (("movies", 42), {"slots": {"hero": 1}}),
    ],
    "similar": [(("movies", 7), {"k": 2, "exclude": ["x"], "context": {"age": 9}})],
    "score": [(("movies", 42, [1, "a"]), {})],
    "events": [(("movies", [{"user": 1, "item": 2}, {"user": 1, "page": "home", "kind": "page"},
                            {"kind": "impression", "user": 1, "items": [1], "request_id": "own"}]), {})],
    "kpis": [(("movies", "6h"), {})],
    "drift": [(("movies",), {})],
    "items.put": [(("movies", [{"item": 1, "attributes": {"price": 2.5}, "available": False}]), {})],
    "items.delete": [(("movies", [1, "a"]), {})],
    "items.get": [(("movies", "a/b c"), {}), (("movies", 5), {}), (("movies", ".."), {})],
    "items.list": [(("movies",), {"limit": 3})],
    "recommenders.apply": [((SPEC,), {"run": False}), (({"name": "movies"},), {})],
    "recommenders.validate": [((SPEC,), {})],
    "recommenders.plan": [((SPEC, "auto"), {})],
    "recommenders.get": [(("movies",), {})],
    "recommenders.list": [((), {"limit": 3})],
    "recommenders.delete": [(("movies",), {})],
    "recommenders.rollback": [(("movies",), {"to": 2, "reason": "a test"}), (("movies",), {})],
    "recommenders.history": [(("movies",), {"limit": 3})],
    "runs.start": [(("movies", "warm"), {"reason": "a test", "priority": 3, "fresh": True})],
    "runs.get": [(("r1",), {})],
    "runs.list": [((), {"limit": 3}), (("movies",), {"limit": 3, "state": ["failed", "cancelled"]})],
    "runs.cancel": [(("r1", "a test"), {})],
    "runs.wait": [(("r1",), {"timeout": 5})],
    "versions.card": [(("movies", 2), {})],
    "versions.get": [(("movies", 2), {})],
    "versions.list": [(("movies",), {"limit": 3})],
    "rollouts.start": [(("movies", 2, "a test"), {})],
    "rollouts.get": [(("r1-rollout",), {})],
    "rollouts.list": [(("movies",), {"limit": 3, "state": "canary"})],
    "rollouts.pause": [(("o1", "a test"), {})],
    "rollouts.resume": [(("o1",), {})],
    "rollouts.skip": [(("o1",), {})],
    "rollouts.promote": [(("o1",), {})],
    "rollouts.abort": [(("o1",), {})],
    "rollouts.wait": [(("o1",), {})],
}  # fmt: skip
"""Arguments of calls of each operation."""

SCHEMAS = {
    "AppliedRecommender": "AppliedRecommender", "Check": "CheckView", "Deleted": "Deleted", "Drift": "Drift", "DriftReading": "ReadingView",
    "EventsAccepted": "EventsAccepted", "Gate": "GateView", "IdKinds": "IdKindsView", "Item": "ItemView", "Kpis": "Kpis",
    "PastRoute": "ServedView", "Plan": "PlanView", "PlannedStage": "PlannedStage", "RankedItem": "Item", "Rates": "Rates",
    "Recommendations": "AnswerView", "Recommender": "ServingRecommender", "RefusedLine": "RefusedLine", "Rollback": "RolledBack",
    "Rollout": "RolloutView", "Route": "RouteView", "Run": "RunView", "Sample": "SampleView", "Scores": "ScoresView",
    "SimilarItems": "SimilarView", "Stage": "StageView", "StepReport": "ReportView", "ValidSpec": "Valid", "Version": "VersionView",
    "VersionKpis": "Kpi", "Written": "Written",
}  # fmt: skip
"""Schema of each answer of the client."""
ABSTRACT = {"Answer", "Row", "Resource", "SpecRow", "Page"}


def operations() -> set[str]:
    groups = {name.lower(): kind for name, kind in vars(platform).items() if isinstance(kind, type) and issubclass(kind, Group)}
    del groups["group"]
    own = groups.pop("platform")
    named = {f"{group}.{name}" for group, kind in groups.items() for name, value in vars(kind).items() if isinstance(value, Operation)}
    return named | {name for name, value in vars(own).items() if isinstance(value, Operation)}


def with_state(document: Any) -> Any:
    """The state of an object that has ended, which a wait needs."""
    return {**document, "state": "promoted" if "steps" in document else "registered"} if "state" in document else document


class ApiDocument:
    """Answers each request with a sample of the documented answer, after it has checked the request by the document."""

    def __init__(self) -> None:
        self.requests: list[tuple[str, str]] = []

    def __call__(self, request: httpx.Request) -> httpx.Response:
        path = request.url.raw_path.decode().partition("?")[0]
        template, described = operation(request.method, path)
        self.requests.append((request.method, template))
        parameters = described.get("parameters", [])
        names = {parameter["name"] for parameter in parameters if parameter["in"] == "query"}
        assert set(request.url.params) <= names
        headers = {parameter["name"] for parameter in parameters if parameter["in"] == "header"}
        assert "Idempotency-Key" not in request.headers or "Idempotency-Key" in headers
        check_body(request, described)
        status, answer = answer_schema(described)
        if answer is None:
            return httpx.Response(status)
        document = sample(answer)
        return httpx.Response(status, json=with_state({**document, "next": None} if "next" in document else document))


def check_body(request: httpx.Request, described: dict[str, Any]) -> None:
    bodies = described.get("requestBody", {}).get("content", {})
    if not bodies:
        assert request.content == b""
        return
    media = request.headers["Content-Type"]
    assert media in bodies
    if media == "application/json" and "RecommenderSpec" not in bodies[media]["schema"].get("$ref", ""):
        jsonschema.validate(json.loads(request.content), {**bodies[media]["schema"], "components": openapi()["components"]})


def call(client: Any, name: str, *args: Any, **kwargs: Any) -> Any:
    target = client
    for part in name.split("."):
        target = getattr(target, part)
    return target(*args, **kwargs)


def test_every_operation_is_called_here() -> None:
    assert set(CALLS) == operations()


@pytest.mark.parametrize("name", sorted(CALLS))
def test_requests_and_answers_are_those_of_the_document(name: str) -> None:
    async def call_async(args: Any, kwargs: Any) -> Any:
        async with AsyncClient(URL, TOKEN, transport=httpx.MockTransport(asynchronous)) as client:
            return await call(client, name, *args, **kwargs)

    synchronous, asynchronous = ApiDocument(), ApiDocument()
    for args, kwargs in CALLS[name]:
        with Client(URL, TOKEN, transport=httpx.MockTransport(synchronous)) as client:
            answer = call(client, name, *args, **kwargs)
        assert asyncio.run(call_async(args, kwargs)) == answer
    assert synchronous.requests == asynchronous.requests != []


def test_a_body_with_a_wrong_field_would_fail_here() -> None:
    client = Client(URL, TOKEN, transport=httpx.MockTransport(ApiDocument()))
    for wrong in ({"item": 1, "colour": "red"}, {"attributes": {}}):
        with pytest.raises(jsonschema.ValidationError):
            client.items.put("movies", [wrong])
    with pytest.raises(AssertionError, match="no GET /v1/runs/r1/nothing"):
        operation("GET", "/v1/runs/r1/nothing")


def models() -> dict[str, type[Answer]]:
    defined = {name: kind for name, kind in vars(answers).items() if isinstance(kind, type) and issubclass(kind, Answer)}
    return {name: kind for name, kind in defined.items() if name not in ABSTRACT}


def test_each_answer_has_the_fields_of_its_schema() -> None:
    assert models().keys() == SCHEMAS.keys()
    for name, kind in models().items():
        described = schema(SCHEMAS[name])
        fields, properties = kind.model_fields, described["properties"]
        assert fields.keys() <= properties.keys(), name
        required = {field for field, info in fields.items() if info.is_required()}
        assert required <= set(described["required"]), name
        left_out = {field for field in properties.keys() - fields.keys() if not VAGUE.fullmatch(field)}
        assert left_out <= LEFT_OUT.get(name, set()), name
        kind.model_validate(sample(described))


LEFT_OUT = {
    "DriftReading": {"moved", "shares"},
    "StepReport": {"stable_answers", "candidate_answers"},
}
"""Fields without a type of their own in the client; an answer keeps them as plain values."""


def test_the_answer_of_a_fault_is_documented() -> None:
    assert {"type", "title", "status", "detail"} == set(schema("Problem")["required"])
    assert "Problem" in set(references(openapi()["paths"]))


def test_versions_and_licences_are_equal() -> None:
    assert eyas_client.__version__ == eyas.__version__
    assert (ROOT / "client/LICENSE").read_bytes() == (ROOT / "LICENSE").read_bytes()


def test_the_client_imports_its_two_dependencies_and_the_standard_library_only() -> None:
    files = sorted((ROOT / "client").rglob("*.py"))
    assert len(files) > 8
    for path in files:
        for node in ast.walk(ast.parse(path.read_text())):
            names = [alias.name for alias in node.names] if isinstance(node, ast.Import) else []
            names += [node.module or "."] if isinstance(node, ast.ImportFrom) else []
            for name in names:
                top = name.split(".")[0]
                assert top in {"eyas_client", "httpx", "pydantic", "pydantic_core"} or top in sys.stdlib_module_names, f"{path}: {name}"


def test_methods_show_their_parameters_and_answers() -> None:
    client = Client(URL, TOKEN)
    assert str(inspect.signature(client.runs.get)).replace("'", "") == "(id: str) -> Run"
    assert str(inspect.signature(client.events)).replace("'", "").endswith("-> EventsAccepted")
    assert client.recommend.__doc__
    assert re.search(r"rollouts?", inspect.getdoc(client.rollouts.wait) or "")


def test_a_spec_is_a_text_a_file_or_a_document(tmp_path: Path) -> None:
    bodies: list[tuple[str, bytes]] = []

    def take(request: httpx.Request) -> httpx.Response:
        bodies.append((request.headers["Content-Type"], request.content))
        return httpx.Response(200, json=sample(schema("Valid")))

    client = Client(URL, TOKEN, transport=httpx.MockTransport(take))
    file = tmp_path / "movies.yaml"
    file.write_text(SPEC)
    for spec in (SPEC, file, str(file), {"name": "movies"}, '{"name": "movies"}'):
        client.recommenders.validate(spec)
    assert bodies[:3] == [("application/yaml", SPEC.encode())] * 3
    assert bodies[3:] == [("application/json", b'{"name":"movies"}'), ("application/yaml", b'{"name": "movies"}')]
    with pytest.raises(FileNotFoundError):
        client.recommenders.validate("nowhere.yaml")


def test_numbers_of_numpy_are_sent_as_numbers() -> None:
    import numpy as np

    bodies: list[Any] = []

    def take(request: httpx.Request) -> httpx.Response:
        bodies.append(json.loads(request.content))
        return httpx.Response(200, json=sample(schema("ScoresView")))

    client = Client(URL, TOKEN, transport=httpx.MockTransport(take))
    client.score("movies", np.int64(4), np.arange(3))  # type: ignore[arg-type]
    assert bodies == [{"user": 4, "items": [0, 1, 2]}]
    with pytest.raises(Exception, match="object cannot be sent as JSON"):
        client.score("movies", object(), [])  # type: ignore[arg-type]
