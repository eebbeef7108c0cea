"""Artifacts in a bucket of a stub of an S3 server; tests/contract/test_artifacts_in_s3.py runs the same on a real one."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from shared.artifacts import FsspecArtifacts
from shared.artifacts.objects import S3Files
from shared.domain.errors import Invalid, Unavailable
from tests.servers.s3_stub import S3Stub
from tests.support.s3_artifact_suite import BUCKET, S3ArtifactSuite, files


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[S3Stub]:
    server = S3Stub(tmp_path_factory.mktemp("s3"))
    (server.buckets / BUCKET).mkdir()
    yield server
    server.close()


class TestBucket(S3ArtifactSuite):
    def test_a_large_object_is_copied_in_parts(self, server: S3Stub, tmp_path: Path) -> None:
        content = bytes(range(256)) * 5
        (tmp_path / "large").write_bytes(content)
        system, before = files(server, part=500, copied=600), set(server.uploads)
        system.put_file(str(tmp_path / "large"), f"{BUCKET}/whole")
        system.copy(f"{BUCKET}/whole", f"{BUCKET}/copy")
        assert system.cat_file(f"{BUCKET}/copy") == content
        assert set(server.uploads) == before

    def test_a_copy_of_another_size_is_taken_back(self, server: S3Stub, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        (tmp_path / "large").write_bytes(bytes(1_280))
        system = files(server, part=500, copied=600)
        system.put_file(str(tmp_path / "large"), f"{BUCKET}/whole")
        monkeypatch.setattr(system, "_in_parts", lambda path, parts: system.pipe_file(path, b"less"))
        with pytest.raises(Unavailable, match=r"cannot copy an object of 1,280 bytes in parts"):
            system.copy(f"{BUCKET}/whole", f"{BUCKET}/damaged")
        assert not system.exists(f"{BUCKET}/damaged")

    def test_of_two_creations_one_succeeds(self, server: S3Stub) -> None:
        system = files(server)
        system.pipe_file(f"{BUCKET}/manifest", b"first", mode="create")
        with pytest.raises(FileExistsError):
            system.pipe_file(f"{BUCKET}/manifest", b"second", mode="create")
        assert system.cat_file(f"{BUCKET}/manifest") == b"first"


class Answers:
    """A store that obeys `If-None-Match`; its first `lost` answers get lost after the request was done."""

    def __init__(self, lost: int = 0) -> None:
        self.kept: dict[str, bytes] = {}
        self.lost = lost

    def ask(self, method: str, bucket: str, key: str, query: Any = None, headers: Any = None, body: bytes = b"") -> Any:
        again = False
        while True:
            found = key in self.kept
            status = 412 if method == "PUT" and found and (headers or {}).get("If-None-Match") == "*" else 200
            if method == "PUT" and status == 200:
                self.kept[key] = body
            if not self.lost:
                return _Closing(), _Answer(status if method == "PUT" or found else 404, len(self.kept.get(key, b""))), again
            self.lost, again = self.lost - 1, True

    def read(self, bucket: str, key: str, tag: str, first: int, into: memoryview) -> None:
        into[:] = self.kept[key][first : first + len(into)]


class _Closing:
    def close(self) -> None: ...


class _Answer:
    def __init__(self, status: int, size: int) -> None:
        self.status, self._size = status, size

    def getheader(self, name: str) -> str:
        return {"Last-Modified": "Thu, 01 Jan 2026 00:00:00 GMT", "Content-Length": str(self._size), "ETag": '"t"'}[name]

    def read(self) -> bytes:
        return b""


def test_of_two_who_create_one_succeeds_where_the_store_heeds_it() -> None:
    answers: Any = Answers()
    system = S3Files(answers)
    system.pipe_file("b/manifest", b"first", mode="create")
    with pytest.raises(FileExistsError):
        system.pipe_file("b/manifest", b"second", mode="create")
    assert answers.kept == {"manifest": b"first"}


def test_who_created_it_and_never_heard_so_has_created_it() -> None:
    answers: Any = Answers(lost=1)
    S3Files(answers).pipe_file("b/manifest", b"first", mode="create")
    answers.lost = 1
    with pytest.raises(FileExistsError):
        S3Files(answers).pipe_file("b/manifest", b"second", mode="create")


def test_a_url_without_a_bucket_is_refused() -> None:
    with pytest.raises(Invalid, match="expected s3://BUCKET"):
        FsspecArtifacts("s3://")
