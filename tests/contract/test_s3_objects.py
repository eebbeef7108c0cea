"""Data in a bucket of a real S3 server."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.servers.s3_server import S3Server
from tests.support.s3_object_suite import S3ObjectSuite, fill

MANY = 1_100


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[S3Server]:
    folder = tmp_path_factory.mktemp("s3")
    server = S3Server(folder)
    fill(server, folder, MANY)
    yield server
    server.close()


class TestObjects(S3ObjectSuite):
    many = MANY
