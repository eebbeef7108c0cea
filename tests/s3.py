"""A real S3 server of one's own, out of rclone's wheel: it checks signatures, and its buckets are folders."""

from __future__ import annotations

import shutil
import socket
import subprocess
import sys
from pathlib import Path

import pytest

from tests.support import until

ID, SECRET = "reader", "hush-hush-hush"


class S3Server:
    def __init__(self, folder: Path) -> None:
        program = Path(sys.executable).parent / "rclone"
        if not program.exists():
            pytest.fail("rclone is not installed: make setup")
        self.buckets = folder / "buckets"
        self.buckets.mkdir(parents=True)
        with socket.socket() as probe:
            probe.bind(("127.0.0.1", 0))
            self.port = probe.getsockname()[1]
        self.endpoint = f"http://127.0.0.1:{self.port}"
        more = [
            "--auth-key",
            f"{ID},{SECRET}",
            "--dir-cache-time",
            "0s",
            "--config",
            str(folder / "none.conf"),
            "--cache-dir",
            str(folder / "cache"),
        ]
        command = [str(program), "serve", "s3", "--addr", f"127.0.0.1:{self.port}", *more, str(self.buckets)]
        self._log = (folder / "log").open("wb")
        self._process = subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=self._log, stderr=subprocess.STDOUT)
        until("rclone listens", self._listens)

    @property
    def environment(self) -> dict[str, str]:
        return {"AWS_ENDPOINT_URL": self.endpoint, "AWS_ACCESS_KEY_ID": ID, "AWS_SECRET_ACCESS_KEY": SECRET, "AWS_REGION": "eu-central-1"}

    def put(self, path: Path, bucket: str, key: str) -> str:
        place = self.buckets / bucket / key
        place.parent.mkdir(parents=True, exist_ok=True)
        shutil.copy(path, place)
        return f"s3://{bucket}/{key}"

    def close(self) -> None:
        self._process.kill()
        self._process.wait()
        self._log.close()

    def _listens(self) -> bool:
        with socket.socket() as probe:
            return probe.connect_ex(("127.0.0.1", self.port)) == 0
