"""What holds of artifacts in a bucket of any S3 server; subclasses give `server`."""

from __future__ import annotations

import os
import secrets
from collections.abc import Callable, Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

from shared.artifacts import FsspecArtifacts, FsspecLive, FsspecTrash, variables
from shared.artifacts.backups import BackupStore
from shared.artifacts.objects import BucketFiles
from shared.contracts.backup import DatabaseKind, Tables
from shared.contracts.stage import Manifest
from shared.datafiles.object_store import ObjectStore
from shared.domain.errors import Conflict, Invalid, NotFound, Unavailable
from shared.testing.artifact_suite import NOW, ArtifactSuite
from tests.servers.platform_process import until
from tests.servers.s3_server import Between, S3Server
from tests.servers.s3_stub import S3Stub

BUCKET = "films"
Server = S3Server | S3Stub


def files(server: Server, **parts: int) -> BucketFiles:
    return BucketFiles(ObjectStore(server.environment, tries=1, for_artifacts=True), **parts)


class Interrupted(ObjectStore):
    """A store whose download fails after the first part."""

    def pieces(self, uri: str, tag: str = "") -> Iterator[bytes]:
        yield bytes(6 << 20)
        raise Unavailable(f"{uri}: the object store closed the connection")


@pytest.mark.requirement("C-07")
class S3ArtifactSuite(ArtifactSuite):
    @pytest.fixture
    def url(self, server: Server, monkeypatch: pytest.MonkeyPatch) -> str:
        for name, value in server.environment.items():
            monkeypatch.setenv(name, value)
        return f"s3://{BUCKET}/{secrets.token_hex(4)}"

    @pytest.fixture
    def store(self, url: str) -> FsspecArtifacts:
        return FsspecArtifacts(url)

    @pytest.fixture
    def source(self, tmp_path: Path) -> Path:
        path = tmp_path / "model.onnx"
        path.write_bytes(b"a model")
        return path

    @pytest.fixture
    def place(self, store: FsspecArtifacts, server: Server) -> Callable[[str], Path]:
        return (server.buckets / store.url.removeprefix("s3://")).joinpath

    @pytest.mark.requirement("U-11")
    def test_a_backup_in_a_bucket_restores_a_bucket(self, url: str, store: FsspecArtifacts, source: Path) -> None:
        def dump(path: Path) -> tuple[DatabaseKind, Tables]:
            path.write_bytes(b"a dump")
            return "sqlite", Tables(revision="1", readable_by="1")

        manifest = Manifest(run="r1", stage="etl", attempt="r1-etl-1", started=NOW, ended=NOW, files={"model": store.put(source)})
        store.publish(manifest)
        backups = BackupStore(f"{url}-backups")
        users = {"films": {"ab" * 16: NOW}}
        first = backups.take("mine", url, dump, tuple, lambda: users)
        assert backups.copied_bytes > len(b"a model") + len(b"a dump")
        second = backups.take("mine", url, dump, tuple, dict)
        assert backups.ledger("mine").users == users
        assert backups.names() == [first.name, second.name]
        assert backups.copied_bytes == 0, "dump, manifest and model are there already"
        with pytest.raises(Conflict, match="has backups of another installation"):
            backups.take("other", url, dump, tuple, dict)
        loaded: list[bytes] = []
        BackupStore(backups.url).restore(backups.open(), f"{url}-new", lambda path: loaded.append(path.read_bytes()))
        restored = FsspecArtifacts(f"{url}-new")
        assert (restored.manifest("r1-etl-1"), restored.read(manifest.files["model"])) == (manifest, b"a model")
        assert loaded == [b"a dump"]
        assert backups.prune(1, NOW + timedelta(days=4000)) == [first.name]
        assert backups.open() == second

    def test_a_checkpoint_is_kept(self, url: str, source: Path, tmp_path: Path) -> None:
        live = FsspecLive(url, "r1-train-1")
        assert live.progress() is None
        live.tell({"epoch": 1})
        live.keep({"epoch": 1}, {"weights.npz": source})
        (checkpoint,) = FsspecLive(url, "r1-train-2").checkpoints()
        assert live.fetch(checkpoint, "weights.npz", tmp_path / "weights").read_bytes() == b"a model"
        attic = FsspecTrash(url)
        assert attic.live() == ["r1-train-1"]
        attic.drop_live("r1-train-1")
        assert attic.live() == []
        assert live.progress() is None

    def test_garbage_goes_to_the_trash_comes_back_and_goes_for_good(self, store: FsspecArtifacts, url: str, source: Path) -> None:
        def discarded() -> bool:
            """A copy has two times for rclone, its source's and its own: where they differ it was renewed, and is written anew here."""
            store.put(source)
            return attic.discard("blobs", attic.shelf("blobs")[0], NOW)

        file, attic = store.put(source), FsspecTrash(url)
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

    def test_what_was_renewed_since_it_was_listed_stays(self, store: FsspecArtifacts, url: str, source: Path, server: Server) -> None:
        file, attic = store.put(source), FsspecTrash(url)
        (place,) = (server.buckets / url.removeprefix("s3://")).rglob(file.sha256)
        os.utime(place, (1_700_000_000, 1_700_000_000))
        one = until("the server sees it", lambda: next((one for one in attic.shelf("blobs") if one.written_at.year == 2023), None))
        assert one.written_at == datetime.fromtimestamp(1_700_000_000, UTC)
        store.put(source)
        assert not attic.discard("blobs", one, NOW)
        assert store.read(file) == b"a model"

    def test_a_large_file_is_sent_in_parts_and_read_from_anywhere(self, server: Server, tmp_path: Path) -> None:
        here, part = tmp_path / "large", 5 << 20
        content = bytes(range(256)) * (13 << 12)
        here.write_bytes(content)
        system = files(server, part=part)
        system.put_file(str(here), f"s3://{BUCKET}/large")
        assert (server.buckets / BUCKET / "large").read_bytes() == content
        assert system.cat_file(f"s3://{BUCKET}/large", part - 3, part + 4) == content[part - 3 : part + 4]

    def test_a_large_object_is_copied_in_parts(self, server: Server) -> None:
        content, part = bytes(range(256)) * (13 << 12), 5 << 20
        system = files(server, part=part, copied=part)
        system.pipe_file(f"s3://{BUCKET}/whole", content)
        system.copy(f"s3://{BUCKET}/whole", f"s3://{BUCKET}/copy")
        assert (server.buckets / BUCKET / "copy").read_bytes() == content

    def test_a_read_that_breaks_off_goes_on_where_it_was(self, server: Server, store: FsspecArtifacts, tmp_path: Path) -> None:
        path = tmp_path / "file"
        path.write_bytes(bytes(range(256)) * 4096)
        file = store.put(path)
        between = Between(server.port, breaks=2, after=300_000)
        try:
            system = BucketFiles(ObjectStore(server.environment | {"AWS_ENDPOINT_URL": between.endpoint}))
            content = system.cat_file(f"{store.url}/blobs/{file.sha256[:2]}/{file.sha256}")
        finally:
            between.close()
        assert content == path.read_bytes()
        assert between.breaks == 0

    @pytest.mark.parametrize(
        ("changes", "bucket", "said"),
        [
            (
                {"AWS_SECRET_ACCESS_KEY": "wrong"},
                BUCKET,
                "access denied .*: set AWS_ACCESS_KEY_ID to a key that may read, write and list",
            ),
            ({}, "elsewhere", "bucket not found: create it, or set another one in EYAS_ARTIFACTS_URL"),
        ],
    )
    def test_a_refusal_is_one_line_that_says_what_to_do(
        self, changes: dict[str, str], bucket: str, said: str, server: Server, source: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        for name, value in (server.environment | changes).items():
            monkeypatch.setenv(name, value)
        with pytest.raises(Invalid, match=said) as found:
            FsspecArtifacts(f"s3://{bucket}/x").put(source)
        assert "\n" not in str(found.value)
        assert "wrong" not in str(found.value)

    def test_the_stores_own_variables_stand_before_those_of_data(
        self, server: Server, source: Path, monkeypatch: pytest.MonkeyPatch, url: str
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

    def test_an_upload_that_fails_between_two_parts_leaves_no_object(self, server: Server) -> None:
        system = BucketFiles(Interrupted(server.environment, tries=1, for_artifacts=True), part=5 << 20, copied=0)
        system.pipe_file(f"s3://{BUCKET}/source", b"content")
        with pytest.raises(Unavailable, match="closed the connection"):
            system.copy(f"s3://{BUCKET}/source", f"s3://{BUCKET}/interrupted")
        assert not system.exists(f"s3://{BUCKET}/interrupted")
