"""Who may come in, and what every fault looks like."""

from __future__ import annotations

import io
import json
import logging

import pytest

from services.api.credentials import Credentials
from services.api.limits import MAX_BODY
from shared.telemetry import logs

OPEN = {"/healthz", "/readyz"}


def routes(document):
    for path, operations in document["paths"].items():
        for method in operations:
            yield method.upper(), path.replace("{verb}", "pause").replace("{", "").replace("}", "")
    for path in ("/openapi.json", "/docs", "/redoc", "/no/such/place", "/"):
        yield "GET", path


@pytest.mark.requirement("C-01")
def test_nothing_but_health_answers_without_the_token(world, openapi_document, problem):
    asked = list(routes(openapi_document))
    assert len(asked) > 25
    for method, path in asked:
        if path in OPEN:
            continue
        response = world.stranger.request(method, path)
        said = problem(response, 401, "unauthenticated")
        assert "Bearer TOKEN" in said
        assert response.headers["www-authenticate"] == "Bearer"


def test_every_route_of_the_app_is_covered_by_its_openapi(world, openapi_document):
    listed = set(openapi_document["paths"])
    served = {route.path.replace(":path}", "}") for route in world.app.routes if getattr(route, "include_in_schema", False)}
    assert served == listed


INVALID_CREDENTIALS = ["", "Bearer", "Bearer ", "Bearer wrong", "Basic a-token", "a-token", "Bearer a-token x", "Bearer \xff"]


def test_another_credential_is_refused(world, subtests):
    for header in INVALID_CREDENTIALS:
        with subtests.test(header=header):
            assert world.stranger.get("/v1/recommenders", headers={"Authorization": header.encode("latin-1")}).status_code == 401


def test_the_scheme_is_matched_in_any_case(world):
    assert world.stranger.get("/v1/recommenders", headers={"Authorization": "bearer a-token"}).status_code == 200


def test_an_empty_token_would_open_the_door_so_it_is_refused(subtests):
    for token in ("", "  \n"):
        with subtests.test(token=token), pytest.raises(ValueError, match="not empty"):
            Credentials(token, None, None, None)


def test_health_is_open_and_says_little(world, problem):
    assert world.stranger.get("/healthz").json() == {"status": "ok"}
    assert world.stranger.get("/readyz").json() == {"ready": True}
    world.waiting = ["Triton has not started"]
    response = world.stranger.get("/readyz")
    assert "Triton has not started" in problem(response, 503, "not-ready")
    assert response.json()["waiting"] == ["Triton has not started"]


@pytest.mark.requirement("C-01")
def test_every_answer_forbids_a_browser_to_guess_its_type(world, client):
    world.gateway.fails = RuntimeError("a bug")
    answers = [client.get("/healthz"), client.get("/v1/runs"), client.get("/openapi.json"), client.get("/v1/nope")]
    answers += [world.stranger.get("/v1/runs"), client.post("/v1/recommend/m", json={"user": 1})]
    answers += [client.post("/v1/events", content=b" " * (MAX_BODY + 1))]
    assert [one.status_code for one in answers] == [200, 200, 200, 404, 401, 500, 413]
    for answer in answers:
        assert answer.headers.get_list("x-content-type-options") == ["nosniff"]


def test_what_does_not_exist_is_a_problem(client, problem):
    assert "/v1/nope" in problem(client.get("/v1/nope"), 404, "not-found")
    problem(client.delete("/v1/recommenders"), 405, "method-not-allowed")


def test_each_wrong_field_is_named(world, client, problem):
    response = client.post("/v1/recommend/m", json={"user": 1.5, "k": 0, "n": 1})
    said = problem(response, 422, "invalid")
    assert "user: " in said
    assert {one["field"] for one in response.json()["errors"]} == {"user", "k", "n"}


def test_a_body_that_is_not_json_is_a_problem(client, problem):
    for body in (b"{", b"\xff", b"[" * 100_000):
        response = client.post("/v1/events", content=body, headers={"Content-Type": "application/json"})
        assert response.status_code in (400, 422)
        problem(response, response.status_code, "malformed" if response.status_code == 400 else "invalid")


def test_a_body_above_the_limit_is_refused_announced_or_not(client, problem):
    assert str(MAX_BODY) in problem(client.post("/v1/events", content=b" " * (MAX_BODY + 1)), 413, "too-large")

    async def pieces():
        for _ in range(MAX_BODY // 65536 + 1):
            yield b" " * 65536

    problem(client.post("/v1/events", content=pieces()), 413, "too-large")


def test_a_body_at_the_limit_is_read(client, problem):
    assert client.post("/v1/events", content=b"{}" + b" " * (MAX_BODY - 2), headers={"Content-Type": "application/json"}).status_code == 422


def test_text_that_cannot_be_encoded_comes_back_as_a_problem_all_the_same(client):
    response = client.post("/v1/recommenders", content=b'{"\\ud800": 1}')
    assert response.status_code == 422
    assert json.loads(response.content)


def test_an_unforeseen_error_is_a_problem_without_a_traceback_and_the_log_has_it(world, client, problem, caplog):
    world.gateway.fails = RuntimeError("a secret of the inside")
    with caplog.at_level(logging.ERROR):
        response = client.post("/v1/recommend/m", json={"user": 1})
    problem(response, 500, "internal")
    assert "secret" not in response.text
    assert "a secret of the inside" in caplog.text


def test_the_line_of_a_failed_request_has_the_id_of_its_response(world, client):
    world.gateway.fails = RuntimeError("a bug")
    stream = io.StringIO()
    handler = logging.StreamHandler(stream)
    handler.setFormatter(logs.Text("%(message)s"))
    logger = logging.getLogger("services.api.problems")
    logger.addHandler(handler)
    try:
        failures = [client.post("/v1/recommend/m", json={"user": 1}) for _ in range(2)]
    finally:
        logger.removeHandler(handler)
    ids = [failure.headers["x-request-id"] for failure in failures]
    lines = [line for line in stream.getvalue().splitlines() if line.startswith("request: ")]
    assert lines == [f"request: unexpected error path=/v1/recommend/m request={id}" for id in ids]
    assert len(set(ids)) == 2


@pytest.mark.requirement("C-01")
def test_openapi_describes_the_spec_the_token_and_the_problems(client):
    document = client.get("/openapi.json").json()
    schemas = document["components"]["schemas"]
    assert {"RecommenderSpec", "Problem", "RunView", "RolloutView", "Action"} <= set(schemas)
    assert "token" in document["components"]["securitySchemes"]
    assert _references(document) <= {f"#/components/schemas/{name}" for name in schemas}
    ids = [operation["operationId"] for path in document["paths"].values() for operation in path.values()]
    assert len(set(ids)) == len(ids)
    assert document["paths"]["/healthz"]["get"]["security"] == []


def _references(value):
    if isinstance(value, dict):
        own = {value["$ref"]} if isinstance(value.get("$ref"), str) else set()
        return own.union(*(_references(one) for one in value.values()))
    if isinstance(value, list):
        return set().union(*(_references(one) for one in value))
    return set()


def test_allow_names_the_methods_of_all_routes_at_the_address(client) -> None:
    answer = client.put("/v1/recommenders", json={})
    assert (answer.status_code, answer.headers["Allow"]) == (405, "GET, POST")
    assert answer.json()["detail"] == "PUT is not allowed here; use GET, POST"
    for path, methods in {"/v1/runs/r1": "GET", "/v1/runs/r1:cancel": "POST", "/v1/recommenders/m": "GET, PUT, DELETE"}.items():
        assert client.request("OPTIONS", path).headers["Allow"] == methods


def test_a_body_of_another_kind_is_told_which_one_is_read(client, subtests: pytest.Subtests) -> None:
    for kind in ("text/plain", "application/x-www-form-urlencoded", "application/xml", ""):
        with subtests.test(kind=kind):
            answer = client.post("/v1/recommend/m", content=b'{"user": 1}', headers={"Content-Type": kind} if kind else {})
            assert answer.status_code == 415
            assert "send it with 'Content-Type: application/json'" in answer.json()["detail"]


UNPARSABLE = [b"[" * 10_000, b'{"user": ' + b"9" * 5_000 + b"}"]


def test_what_no_parser_takes_is_malformed(client, subtests: pytest.Subtests) -> None:
    for body in UNPARSABLE:
        with subtests.test(body=body):
            answer = client.post("/v1/recommend/m", content=body, headers={"Content-Type": "application/json"})
            assert answer.status_code == 400
            assert answer.json()["detail"].startswith("the body is not valid JSON")


def test_nothing_is_redirected(client, subtests: pytest.Subtests) -> None:
    for path in ("/v1/runs/", "/v1/runs/%2e%2e%2f"):
        with subtests.test(path=path):
            assert client.get(path).status_code == 404
