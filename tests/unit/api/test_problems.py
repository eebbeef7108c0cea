"""What a client reads of faults that are the platform's own: no path, no URL and no address."""

from __future__ import annotations

import errno
import json
import logging
import os

import pytest

from services.api.problems import refused, unexpected
from shared.domain.errors import Damaged, Invalid, NotFound, Unavailable

PLACES = (
    ("database /home/ada/eyas.db: disk I/O error", "database (see the log): disk I/O error"),
    ("the route of 'm' cannot be loaded: artifact ab12 in /var/eyas/artifacts is damaged", "the route of 'm' cannot be loaded: artifact"
     " ab12 in (see the log) is damaged"),
    ("s3://lake/films/a.csv: the object store closed the connection", "(see the log): the object store closed the connection"),
    ("no Triton serves: eyas-triton:8001 refuses", "no Triton serves: (see the log) refuses"),
    ("ipv4:127.0.0.1:8001: Failed to connect", "ipv4:(see the log): Failed to connect"),
    ("this gateway has not read its routes yet: try again in a moment", "this gateway has not read its routes yet: try again in a moment"),
    ("the model server returned scores of shape (3,) for 5 items", "the model server returned scores of shape (3,) for 5 items"),
)  # fmt: skip


@pytest.mark.parametrize(("message", "said"), PLACES)
def test_a_503_names_no_place(message: str, said: str) -> None:
    for error in (Unavailable(message), Damaged(message)):
        answer = refused("GET", "/v1/x", error)
        assert (answer.status_code, json.loads(answer.body)["detail"]) == (503, said)
        assert str(error) == message, "the log has all of it"


def test_an_error_may_say_something_else_to_clients_than_to_the_log() -> None:
    error = Unavailable("database 'eyas' on db.internal:5432: the connection was lost", answer="the database doesn't answer")
    answer = json.loads(refused("GET", "/v1/x", error).body)
    assert (answer["detail"], answer["type"]) == ("the database doesn't answer", "https://eyas.dev/problems/unavailable")


@pytest.mark.parametrize("error", [Invalid("data: s3://lake/a.csv: no such object"), NotFound("no run is called 'a/b'")])
def test_what_the_caller_has_named_is_named_to_the_caller(error: Invalid | NotFound) -> None:
    assert json.loads(refused("GET", "/v1/x", error).body)["detail"] == str(error)


def test_a_full_disk_is_a_503_without_its_place_and_one_line_in_the_log(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO)
    answer = unexpected("/v1/x", OSError(errno.ENOSPC, os.strerror(errno.ENOSPC), "/home/ada/artifacts/blobs/a"))
    assert answer.status_code == 503
    assert answer.headers["retry-after"] == "1"
    assert json.loads(answer.body)["detail"] == "a disk of the platform is full or broken; see the platform's log"
    (record,) = caplog.records
    assert record.exc_info is None
    assert "/home/ada/artifacts/blobs/a" in record.getMessage()
    assert unexpected("/v1/x", RuntimeError("a bug")).status_code == 500
    assert caplog.records[-1].exc_info
