"""Errors: one class by group of problems, one line, and never the token."""

from __future__ import annotations

import logging
import pickle
import traceback
from collections.abc import Callable

import eyas_client
import httpx
import pytest
from eyas_client import AsyncClient, Client, Conflict, Denied, EyasError, Invalid, NotFound, Unavailable

from tests.unit.client.conftest import TOKEN, URL, problem

Connect = Callable[..., Client]


@pytest.mark.parametrize(
    ("status", "error_class"),
    [(400, Invalid), (401, Denied), (403, Denied), (404, NotFound), (405, EyasError), (409, Conflict), (412, Conflict), (413, Invalid),
     (415, Invalid), (422, Invalid), (429, Unavailable), (500, EyasError), (503, Unavailable)],
)  # fmt: skip
def test_a_problem_has_its_class_and_its_fields(connect: Connect, status: int, error_class: type[EyasError]) -> None:
    with pytest.raises(EyasError) as fault:
        connect(lambda request: problem(status, "some-kind", "where:\n  what is wrong"), retries=0).drift("movies")
    error = fault.value
    assert type(error) is error_class
    assert (error.status, error.type, error.title) == (status, "https://eyas.dev/problems/some-kind", "Some-kind")
    assert str(error).startswith("some-kind: where: what is wrong")
    assert "\n" not in str(error)
    copy = pickle.loads(pickle.dumps(error))
    assert (type(copy), str(copy), copy.status) == (error_class, str(error), status)


def test_the_invalid_fields_are_kept(connect: Connect) -> None:
    errors = [{"field": "k", "message": "expected at most 1000"}]
    document = {"type": "https://eyas.dev/problems/invalid", "title": "Invalid", "status": 422, "detail": "k", "errors": errors}
    with pytest.raises(Invalid) as fault:
        connect(lambda request: httpx.Response(422, json=document)).recommend("movies", 1, k=5000)
    assert fault.value.errors == errors


@pytest.mark.parametrize(
    ("answer", "says"),
    [
        (httpx.Response(502, text="<html>bad gateway</html>"), f"^{URL} answered 502 without a problem document: is it an Eyas platform"),
        (httpx.Response(404, json=["no"]), f"^{URL} answered 404 without a problem document"),
        (httpx.Response(302, headers={"Location": "http://elsewhere.test"}), "answered 302 without"),
        (httpx.Response(200, text="hello"), "unexpected answer of /v1/recommenders/movies/drift: : Invalid JSON"),
        (httpx.Response(200, json={"state": "steady"}), "unexpected answer of /v1/recommenders/movies/drift: version: Field required"),
    ],
)
def test_what_is_no_answer_of_a_platform_is_said_in_one_line(connect: Connect, answer: httpx.Response, says: str) -> None:
    with pytest.raises(EyasError, match=says) as fault:
        connect(lambda request: answer).drift("movies")
    assert "\n" not in str(fault.value)


FAILURES = [
    httpx.ConnectError("refused"), httpx.ConnectTimeout("late"), httpx.ReadTimeout(""), httpx.RemoteProtocolError("cut"),
    httpx.LocalProtocolError(f"Illegal header value b'Bearer {TOKEN}'"), httpx.DecodingError("not gzip"),
]  # fmt: skip


@pytest.mark.parametrize("failure", FAILURES, ids=lambda failure: type(failure).__name__)
def test_a_failed_connection_is_unavailable(connect: Connect, failure: Exception) -> None:
    def fail(request: httpx.Request) -> httpx.Response:
        raise failure

    with pytest.raises(Unavailable, match=f"^{URL}") as fault:
        connect(fail).drift("movies")
    shown = "".join(traceback.format_exception(fault.value))
    assert TOKEN not in shown
    assert fault.value.__cause__ is None is fault.value.__context__
    assert fault.value.status is None


def test_the_token_is_sent_and_nowhere_else(connect: Connect, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.DEBUG)
    requests: list[httpx.Request] = []

    def refuse(request: httpx.Request) -> httpx.Response:
        requests.append(request)
        return problem(401, "unauthenticated", "the token is unknown")

    client = connect(refuse)
    with pytest.raises(Denied, match="set a valid token") as fault:
        client.drift("movies")
    assert requests[0].headers["Authorization"] == f"Bearer {TOKEN}"
    assert TOKEN not in str(requests[0].url) + requests[0].content.decode()
    shown = [repr(client), str(client), repr(vars(client)), repr(client._http.headers), repr(fault.value), str(fault.value), caplog.text]
    assert caplog.text
    assert not [text for text in shown if TOKEN in text]
    frames = traceback.StackSummary.extract(traceback.walk_tb(fault.value.__traceback__), capture_locals=True)
    assert TOKEN not in "".join(frames.format())


def test_the_async_client_shows_its_address_only() -> None:
    client = AsyncClient(URL, TOKEN)
    assert repr(client) == f"AsyncClient('{URL}')"
    assert TOKEN not in repr(vars(client))


def test_the_public_names_exist() -> None:
    assert all(hasattr(eyas_client, name) for name in eyas_client.__all__)
