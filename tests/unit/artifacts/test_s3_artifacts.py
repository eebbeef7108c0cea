"""Artifacts in a bucket of a stub of an S3 server; tests/contract/test_artifacts_in_s3.py runs the same on a real one."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from shared.artifacts import FsspecArtifacts
from shared.artifacts.objects import BucketFiles
from shared.datafiles.object_store import ObjectStore
from shared.domain.errors import Invalid
from tests.servers.s3_stub import S3Stub
from tests.support.s3_artifact_suite import BUCKET, S3ArtifactSuite, files


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[S3Stub]:
    server = S3Stub(tmp_path_factory.mktemp("s3"))
    (server.buckets / BUCKET).mkdir()
    yield server
    server.close()


class TestBucket(S3ArtifactSuite):
    def test_of_two_creations_one_succeeds(self, server: S3Stub) -> None:
        system = files(server)
        system.pipe_file(f"s3://{BUCKET}/manifest", b"first", mode="create")
        with pytest.raises(FileExistsError):
            system.pipe_file(f"s3://{BUCKET}/manifest", b"second", mode="create")
        assert system.cat_file(f"s3://{BUCKET}/manifest") == b"first"

    def test_a_creation_whose_response_is_lost_succeeds(self, server: S3Stub) -> None:
        system = BucketFiles(ObjectStore(server.environment, tries=2, for_artifacts=True))
        server.lost = 1
        system.pipe_file(f"s3://{BUCKET}/created", b"first", mode="create")
        assert server.lost == 0
        server.lost = 1
        with pytest.raises(FileExistsError):
            system.pipe_file(f"s3://{BUCKET}/created", b"second", mode="create")
        assert system.cat_file(f"s3://{BUCKET}/created") == b"first"


def test_a_url_without_a_bucket_is_refused() -> None:
    with pytest.raises(Invalid, match="expected s3://BUCKET"):
        FsspecArtifacts("s3://")


def test_other_variables_than_the_stores_own_are_ignored(server: S3Stub, monkeypatch: pytest.MonkeyPatch) -> None:
    """obstore reads the process's environment too."""
    for name in ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY", "AWS_SESSION_TOKEN", "AWS_WEB_IDENTITY_TOKEN_FILE"):
        monkeypatch.setenv(name, "another")
    monkeypatch.setenv("AWS_ENDPOINT_URL_S3", "http://127.0.0.1:1")
    monkeypatch.setenv("AWS_SKIP_SIGNATURE", "true")
    assert files(server).cat_file(f"s3://{BUCKET}/manifest") == b"first"
