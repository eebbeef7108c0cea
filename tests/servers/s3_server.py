"""A real S3 server of one's own, out of rclone's wheel: it checks signatures, and its buckets are folders."""

from __future__ import annotations

import contextlib
import shutil
import socket
import subprocess
import sys
import threading
from pathlib import Path

import pytest

from tests.servers.platform_process import until
from tests.servers.ports import free_port

ID, SECRET = "reader", "hush-hush-hush"


class S3Server:
    def __init__(self, folder: Path, forgets: str = "0s", host: str = "127.0.0.1") -> None:
        """`forgets`: how long it believes what it knows of folders. At 0s one that is written to may stand still, forgetting."""
        program = Path(sys.executable).parent / "rclone"
        if not program.exists():
            pytest.fail("rclone is not installed: make setup")
        self.buckets = folder / "buckets"
        self.buckets.mkdir(parents=True)
        self.port = free_port(host)
        self.host, self.endpoint = host, f"http://{host}:{self.port}"
        more = [
            "--auth-key",
            f"{ID},{SECRET}",
            "--dir-cache-time",
            forgets,
            "--config",
            str(folder / "none.conf"),
            "--cache-dir",
            str(folder / "cache"),
        ]
        command = [str(program), "serve", "s3", "--addr", f"{host}:{self.port}", *more, str(self.buckets)]
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
            return probe.connect_ex((self.host, self.port)) == 0


class Between:
    """Passes on what a server answers: counts it, and breaks off the first answers after as many bytes as it is told."""

    def __init__(self, port: int, breaks: int = 0, after: int = 0) -> None:
        self.breaks, self.after, self.passed, self._to = breaks, after, 0, port
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.endpoint = f"http://127.0.0.1:{self._listener.getsockname()[1]}"
        self._open: list[socket.socket] = []
        self._threads = [threading.Thread(target=self._listen)]
        self._threads[0].start()

    def _listen(self) -> None:
        while True:
            try:
                client, _ = self._listener.accept()
            except OSError:
                return
            self._threads.append(threading.Thread(target=self._serve, args=(client,)))
            self._threads[-1].start()

    def _serve(self, client: socket.socket) -> None:
        """Ends when either side does: a client that has read enough resets its connection."""
        gone = contextlib.suppress(OSError)
        with gone, client, socket.create_connection(("127.0.0.1", self._to)) as server:
            self._open += [server, client]
            self._threads.append(threading.Thread(target=self._forward, args=(client, server)))
            self._threads[-1].start()
            left = None
            while some := server.recv(65536):
                if left is None and self.breaks and b"Accept-Ranges" in some:
                    self.breaks, left = self.breaks - 1, self.after
                if left is not None:
                    some, left = some[:left], left - len(some)
                self.passed += len(some)
                client.sendall(some)
                if left is not None and left <= 0:
                    break
            client.shutdown(socket.SHUT_RDWR)

    def _forward(self, client: socket.socket, server: socket.socket) -> None:
        """Passes on the requests of a connection, which clients use again."""
        with contextlib.suppress(OSError):
            while request := client.recv(65536):
                server.sendall(request)
            server.shutdown(socket.SHUT_RDWR)

    def close(self) -> None:
        self._listener.shutdown(socket.SHUT_RDWR)
        self._listener.close()
        for connection in self._open:
            with contextlib.suppress(OSError):
                connection.shutdown(socket.SHUT_RDWR)
        for thread in self._threads:
            thread.join()
