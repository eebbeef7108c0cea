"""A Dask scheduler and workers of NVTabular's environment on loopback, with mutual TLS, as processes of their own."""

from __future__ import annotations

import subprocess
from pathlib import Path

from tests.servers.platform_process import until
from tests.servers.ports import free_port
from tests.servers.triton_certificates import Authority
from tests.support.nvtabular_process import environment, python


class DaskCluster:
    def __init__(self, folder: Path, workers: int) -> None:
        self._folder = folder
        self._certificates = Authority.create(folder / "authority").issue("dask").folder
        (folder / "shared").mkdir()
        port = free_port()
        self.variables = {
            "EYAS_DASK": f"tls://127.0.0.1:{port}",
            "EYAS_DASK_FOLDER": str(folder / "shared"),
            "EYAS_DASK_TLS": str(self._certificates),
        }
        self.scheduler = self._start("scheduler", "--protocol=tls", f"--port={port}")
        address = self.variables["EYAS_DASK"]
        workers_options = ("--no-nanny", "--nthreads=1", "--death-timeout=60", f"--local-directory={folder}")
        self.workers = [self._start("worker", address, *workers_options, f"--name=w{at}") for at in range(workers)]
        until("the workers have come", lambda: self.log().count("Register worker") == workers)

    @property
    def sessions(self) -> list[Path]:
        """The folders of stages that compute."""
        return list(Path(self.variables["EYAS_DASK_FOLDER"]).iterdir())

    def log(self) -> str:
        return (self._folder / "scheduler.log").read_text()

    def _start(self, command: str, *options: str) -> subprocess.Popen[bytes]:
        tls = [
            f"--tls-{name}={self._certificates / file}" for name, file in (("ca-file", "ca.crt"), ("cert", "tls.crt"), ("key", "tls.key"))
        ]
        arguments = [str(python().with_name("dask")), command, *options, "--host=127.0.0.1", "--dashboard-address=127.0.0.1:0", *tls]
        with (self._folder / f"{command}.log").open("ab") as log:
            return subprocess.Popen(arguments, stdin=subprocess.DEVNULL, stdout=log, stderr=subprocess.STDOUT, env=environment())

    def close(self) -> None:
        for process in (*self.workers, self.scheduler):
            process.kill()
            process.wait(10)
