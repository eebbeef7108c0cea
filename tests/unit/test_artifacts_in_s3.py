"""Artifacts in a bucket of a real S3 server: what holds of a folder holds there, without s3fs."""

from __future__ import annotations

import os
import secrets
from collections.abc import Callable, Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

from shared.artifacts import FsspecArtifacts, FsspecAttic, FsspecLive, variables
from shared.artifacts.objects import S3Files
from shared.datafiles.s3 import S3
from shared.domain.errors import Invalid, NotFound, Unavailable
from shared.testing.artifact_suite import NOW, ArtifactSuite
from tests.servers.platform_process import until
from tests.servers.s3_server import Between, S3Server

BUCKET = "films"


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[S3Server]:
    server = S3Server(tmp_path_factory.mktemp("s3"), forgets="100ms")
    (server.buckets / BUCKET).mkdir()
    yield server
    server.close()


@pytest.fixture
def url(server: S3Server, monkeypatch: pytest.MonkeyPatch) -> str:
    for name, value in server.environment.items():
        monkeypatch.setenv(name, value)
    return f"s3://{BUCKET}/{secrets.token_hex(4)}"


@pytest.fixture
def store(url: str) -> FsspecArtifacts:
    return FsspecArtifacts(url)


@pytest.fixture
def source(tmp_path: Path) -> Path:
    path = tmp_path / "model.onnx"
    path.write_bytes(b"a model")
    return path


def files(server: S3Server, **parts: int) -> S3Files:
    return S3Files(S3.from_environment(server.environment, tries=1), **parts)


@pytest.mark.requirement("C-07")
class TestBucket(ArtifactSuite):
    @pytest.fixture
    def place(self, store: FsspecArtifacts, server: S3Server) -> Callable[[str], Path]:
        return (server.buckets / store.url.removeprefix("s3://")).joinpath


def test_a_checkpoint_is_kept(url: str, source: Path, tmp_path: Path) -> None:
    live = FsspecLive(url, "r1-train-1")
    assert live.told() is None
    live.tell({"epoch": 1})
    live.keep({"epoch": 1}, {"weights.npz": source})
    (kept,) = FsspecLive(url, "r1-train-2").found()
    assert live.fetch(kept, "weights.npz", tmp_path / "weights").read_bytes() == b"a model"
    attic = FsspecAttic(url)
    assert attic.live() == ["r1-train-1"]
    attic.drop_live("r1-train-1")
    assert attic.live() == []
    assert live.told() is None


def test_garbage_goes_to_the_trash_comes_back_and_goes_for_good(store: FsspecArtifacts, url: str, source: Path) -> None:
    def discarded() -> bool:
        """A copy has two times for rclone, its source's and its own: where they differ it was renewed, and is written anew here."""
        store.put(source)
        return attic.discard("blobs", attic.shelf("blobs")[0], NOW)

    file, attic = store.put(source), FsspecAttic(url)
    store.pin("r1-train-1", [file])
    (pin,) = attic.pins()
    assert pin.blobs == {file.sha256}
    attic.unpin(pin)
    assert attic.pins() == []
    (one,) = attic.shelf("blobs")
    assert (one.name, one.size) == (file.sha256, 7)
    assert abs(datetime.now(UTC) - one.written_at) < timedelta(minutes=5)
    assert attic.discard("blobs", one, NOW)
    assert not attic.discard("blobs", one, NOW), "somebody else did"
    with pytest.raises(NotFound):
        store.read(file)
    (thrown,) = attic.trash()
    attic.restore(thrown)
    assert store.read(file) == b"a model"
    until("it is in the trash again", discarded)
    attic.erase(attic.trash()[0])
    assert (list(attic.trash()), list(attic.shelf("blobs"))) == ([], [])


def test_what_was_renewed_since_it_was_listed_stays(store: FsspecArtifacts, url: str, source: Path, server: S3Server) -> None:
    file, attic = store.put(source), FsspecAttic(url)
    (place,) = (server.buckets / url.removeprefix("s3://")).rglob(file.sha256)
    os.utime(place, (1_700_000_000, 1_700_000_000))
    one = until("the server sees it", lambda: next((one for one in attic.shelf("blobs") if one.written_at.year == 2023), None))
    assert one.written_at == datetime.fromtimestamp(1_700_000_000, UTC)
    store.put(source)
    assert not attic.discard("blobs", one, NOW)
    assert store.read(file) == b"a model"


def test_a_large_file_is_sent_in_parts_and_read_from_anywhere(server: S3Server, tmp_path: Path) -> None:
    here, part = tmp_path / "large", 5 << 20
    content = bytes(range(256)) * (13 << 12)
    here.write_bytes(content)
    system = files(server, part=part)
    system.put_file(str(here), f"{BUCKET}/large")
    assert (server.buckets / BUCKET / "large").read_bytes() == content
    with system.open(f"{BUCKET}/large") as stream:
        stream.seek(part - 3)
        assert stream.read(7) == content[part - 3 : part + 4]
    with pytest.raises(Unavailable, match=r"can't copy an object of .* bytes in parts"):  # rclone, which leaves the source unheeded
        files(server, part=part, copied=part).copy(f"{BUCKET}/large", f"{BUCKET}/copy")
    assert not system.exists(f"{BUCKET}/copy")


class Answers:
    """A store that heeds `If-None-Match`, as rclone doesn't; `lost` answers of it get lost, after it has done what was asked."""

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


def test_a_read_that_breaks_off_goes_on_where_it_was(server: S3Server, store: FsspecArtifacts, tmp_path: Path) -> None:
    path = tmp_path / "file"
    path.write_bytes(bytes(range(256)) * 4096)
    file = store.put(path)
    between = Between(server.port, breaks=2, after=300_000)
    try:
        system: Any = S3Files(S3.from_environment(server.environment | {"AWS_ENDPOINT_URL": between.endpoint}, tries=4))
        found = system.cat_file(f"{store.url.removeprefix('s3://')}/blobs/{file.sha256[:2]}/{file.sha256}")
    finally:
        between.close()
    assert found == path.read_bytes()
    assert between.breaks == 0


@pytest.mark.parametrize(
    ("changes", "bucket", "said"),
    [
        ({"AWS_SECRET_ACCESS_KEY": "wrong"}, BUCKET, "the object store refuses it .*AWS_ACCESS_KEY_ID must be there and may read, write"),
        ({}, "elsewhere", "there is no such bucket: make it, or name another by EYAS_ARTIFACTS_URL"),
    ],
)
def test_a_refusal_is_one_line_that_says_what_to_do(
    changes: dict[str, str], bucket: str, said: str, server: S3Server, source: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name, value in (server.environment | changes).items():
        monkeypatch.setenv(name, value)
    with pytest.raises(Invalid, match=said) as found:
        FsspecArtifacts(f"s3://{bucket}/x").put(source)
    assert "\n" not in str(found.value)
    assert "wrong" not in str(found.value)


def test_the_stores_own_variables_stand_before_those_of_data(
    server: S3Server, source: Path, monkeypatch: pytest.MonkeyPatch, url: str
) -> None:
    own = {f"EYAS_ARTIFACTS_{name}": value for name, value in server.environment.items()}
    for name, value in own.items():
        monkeypatch.setenv(name, value)
    monkeypatch.setenv("AWS_ENDPOINT_URL", "http://127.0.0.1:1")
    monkeypatch.setenv("AWS_SESSION_TOKEN", "another's")
    store = FsspecArtifacts(url)
    assert store.read(store.put(source)) == b"a model"
    assert variables(url, os.environ) == own
    assert variables("/srv/artifacts", os.environ) == {}
    assert variables(url, {"AWS_REGION": "eu-central-1", "HOME": "/tmp"}) == {"AWS_REGION": "eu-central-1"}


def test_a_url_without_a_bucket_is_refused() -> None:
    with pytest.raises(Invalid, match="expected s3://BUCKET"):
        FsspecArtifacts("s3://")


class Away(S3):
    """Takes the first part of an upload; then somebody presses Ctrl-C, and nothing can be taken back."""

    def ask(self, method: str, bucket: str, key: str, query: Any = None, headers: Any = None, body: bytes = b"") -> Any:
        if method == "DELETE":
            raise Unavailable("the object store doesn't answer")
        if (query or {}).get("partNumber") == "2":
            raise KeyboardInterrupt
        return super().ask(method, bucket, key, query, headers, body)


def test_why_an_upload_failed_is_told_though_it_cannot_be_taken_back(server: S3Server, tmp_path: Path) -> None:
    here, part = tmp_path / "large", 5 << 20
    here.write_bytes(bytes(part + 1))
    with pytest.raises(KeyboardInterrupt):
        S3Files(Away.from_environment(server.environment, tries=1), part=part).put_file(str(here), f"{BUCKET}/interrupted")
    assert not files(server).exists(f"{BUCKET}/interrupted")
