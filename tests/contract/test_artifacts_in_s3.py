"""Artifacts in a bucket of a real S3 server, without s3fs."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.servers.s3_server import S3Server
from tests.support.s3_artifact_suite import BUCKET, S3ArtifactSuite


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[S3Server]:
    server = S3Server(tmp_path_factory.mktemp("s3"), forgets="100ms")
    (server.buckets / BUCKET).mkdir()
    yield server
    server.close()


class TestBucket(S3ArtifactSuite):
    """The suite alone."""
