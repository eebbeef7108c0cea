"""`describe` of an object in S3 is that of the same file on disk."""

from __future__ import annotations

from pathlib import Path

import polars as pl
import pytest

from pipelines.data.description import described
from tests.servers.s3_server import S3Server


def test_objects_are_described_as_files_are(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    server = S3Server(tmp_path / "s3")
    try:
        for name, value in server.environment.items():
            monkeypatch.setenv(name, value)
        pl.DataFrame({"userId": [3, 1, None], "title": ["ünï", None, ""]}).write_parquet(tmp_path / "a.parquet")
        uri = server.put(tmp_path / "a.parquet", "lake", "deep/a.parquet")
        assert described(uri, 2, tmp_path / "s").columns == described(str(tmp_path / "a.parquet"), 2, tmp_path / "s").columns
    finally:
        server.close()
