"""Artifacts in a bucket of a real S3 server, without s3fs."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from shared.domain.errors import Unavailable
from tests.servers.s3_server import S3Server
from tests.support.s3_artifact_suite import BUCKET, S3ArtifactSuite, files


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[S3Server]:
    server = S3Server(tmp_path_factory.mktemp("s3"), forgets="100ms")
    (server.buckets / BUCKET).mkdir()
    yield server
    server.close()


class TestBucket(S3ArtifactSuite):
    def test_a_server_that_cannot_copy_in_parts_is_found_out(self, server: S3Server, tmp_path: Path) -> None:
        """rclone ignores the source of a part."""
        part, system = 5 << 20, files(server)
        (tmp_path / "large").write_bytes(bytes(part + 1))
        system.put_file(str(tmp_path / "large"), f"{BUCKET}/whole")
        with pytest.raises(Unavailable, match=r"cannot copy an object of .* bytes in parts"):
            files(server, part=part, copied=part).copy(f"{BUCKET}/whole", f"{BUCKET}/copy")
        assert not system.exists(f"{BUCKET}/copy")
