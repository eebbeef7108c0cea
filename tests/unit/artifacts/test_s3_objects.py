"""Data in a bucket of a stub of an S3 server; tests/contract/test_s3_objects.py runs the same on a real one."""

from __future__ import annotations

import contextlib
import http.server
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from shared.datafiles.object_store import ObjectStore
from shared.datafiles.objects import allowed_key
from shared.domain.errors import Invalid, Unavailable
from tests.servers.s3_stub import S3Stub
from tests.support.s3_object_suite import ROOTS, S3ObjectSuite, fill

MANY = 55


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[S3Stub]:
    folder = tmp_path_factory.mktemp("s3")
    server = S3Stub(folder, part_status=200, page=25)
    fill(server, folder, MANY)
    yield server
    server.close()


@pytest.fixture(autouse=True)
def no_pause(monkeypatch: pytest.MonkeyPatch) -> None:
    """Between one try and the next."""
    monkeypatch.setattr("shared.datafiles.object_store.pause", lambda attempt: None)


class TestObjects(S3ObjectSuite):
    many = MANY


@pytest.mark.parametrize(
    "uri", ["s3://lake/other.csv", "s3://lake/films-2/a.csv", "s3://lake/films/../other.csv", "s3://pond/films/a.csv", "s3://lake/*/a.csv"]
)
def test_nothing_outside_the_roots_is_asked_for(uri: str) -> None:
    with pytest.raises(Invalid, match=r"under an allowed data root \(s3://lake/films\)|cannot have"):
        allowed_key(uri, ROOTS)


def test_no_secret_is_shown() -> None:
    keys = {"AWS_ACCESS_KEY_ID": "me", "AWS_SECRET_ACCESS_KEY": "hush", "AWS_SESSION_TOKEN": "whisper"}
    shown = repr(ObjectStore(keys))
    assert "hush" not in shown
    assert "whisper" not in shown


class _Breaking(http.server.BaseHTTPRequestHandler):
    """Gives half of what is asked for and hangs up, the first times."""

    content = bytes(range(256)) * 400
    left = 2
    part_status = 206
    asked: list[str | None]

    def do_GET(self) -> None:
        begin = int((self.headers["Range"] or "bytes=0-").removeprefix("bytes=").partition("-")[0])
        type(self).asked.append(self.headers["Range"])
        end = (self.headers["Range"] or "-").partition("-")[2]
        rest = self.content[begin : int(end) + 1 if end else None]
        self.send_response(self.part_status if begin else 200)
        self.send_header("Content-Length", str(len(rest)))
        self.send_header("Content-Range", f"bytes {begin}-{begin + len(rest) - 1}/{len(self.content)}")
        self.send_header("Last-Modified", "Thu, 01 Jan 2026 00:00:00 GMT")
        self.send_header("ETag", '"t"')
        self.end_headers()
        if type(self).left:
            type(self).left -= 1
            rest = rest[: len(rest) // 2]
        self.wfile.write(rest)
        self.close_connection = True

    def log_message(self, *_: object) -> None:
        pass


@contextlib.contextmanager
def breaking(left: int) -> Iterator[tuple[str, type[_Breaking]]]:
    handler = type("Handler", (_Breaking,), {"left": left, "asked": []})
    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), handler) as server:
        thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
        thread.start()
        yield f"http://127.0.0.1:{server.server_address[1]}", handler
        server.shutdown()
        thread.join()


def test_a_connection_that_breaks_is_taken_up_where_it_was(tmp_path: Path) -> None:
    with breaking(2) as (endpoint, handler):
        ObjectStore({"AWS_ENDPOINT_URL": endpoint}).fetch("s3://lake/a.bin", tmp_path / "got", "t")
    assert (tmp_path / "got").read_bytes() == _Breaking.content
    assert handler.asked == [None, "bytes=51200-102399", "bytes=76800-102399"]


def test_a_store_that_always_breaks_off_is_given_up(tmp_path: Path) -> None:
    with breaking(99) as (endpoint, _), pytest.raises(Unavailable, match=r"s3://lake/a\.bin: the object store http.* does not answer: "):
        ObjectStore({"AWS_ENDPOINT_URL": endpoint}, tries=3).fetch("s3://lake/a.bin", tmp_path / "got", "t")


def test_a_part_that_breaks_off_with_status_200_is_resumed_and_given_up_after_some_tries() -> None:
    into = bytearray(60_000)
    with breaking(2) as (endpoint, handler):
        handler.part_status = 200
        ObjectStore({"AWS_ENDPOINT_URL": endpoint}).read("s3://lake/a.bin", "t", 10, memoryview(into))
    assert into == _Breaking.content[10:60_010]
    with breaking(99) as (endpoint, handler), pytest.raises(Unavailable, match="closed the connection 3 times"):
        handler.part_status = 200
        ObjectStore({"AWS_ENDPOINT_URL": endpoint}, tries=3).read("s3://lake/a.bin", "t", 10, memoryview(into))
