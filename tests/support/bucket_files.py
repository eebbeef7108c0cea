"""Writes Iceberg tables with s3:// locations straight into the folder of a test's S3 server, because rclone refuses pyarrow's uploads."""

from __future__ import annotations

from pathlib import Path

from pyarrow.fs import LocalFileSystem
from pyiceberg.io.pyarrow import PyArrowFile, PyArrowFileIO


class BucketFiles(PyArrowFileIO):
    """The property `buckets` is the folder of the server's buckets."""

    def new_input(self, location: str) -> PyArrowFile:
        path = Path(self.properties["buckets"], location.removeprefix("s3://"))
        path.parent.mkdir(parents=True, exist_ok=True)
        return PyArrowFile(location, str(path), LocalFileSystem())

    new_output = new_input
