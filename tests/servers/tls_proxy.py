"""A real nginx that terminates TLS in front of a platform, as an ingress controller does. It needs no privileges."""

from __future__ import annotations

import signal
import ssl
import subprocess
from collections.abc import Mapping
from pathlib import Path
from typing import Self

import httpx

from tests.servers.platform_process import until
from tests.servers.ports import free_port
from tests.servers.prometheus_process import program
from tests.servers.triton_certificates import Authority

ADDRESS = "127.0.0.9"
"""Address from which the proxy connects to the platform."""
_CONFIG = """
daemon off;
master_process off;
pid {folder}/nginx.pid;
events {{ worker_connections 128; }}
http {{
  access_log off;
  client_body_temp_path {folder}/body;
  proxy_temp_path {folder}/proxy;
  fastcgi_temp_path {folder}/fastcgi;
  uwsgi_temp_path {folder}/uwsgi;
  scgi_temp_path {folder}/scgi;
  server {{
    listen 127.0.0.1:{port} ssl;
    ssl_certificate {certificate};
    ssl_certificate_key {key};
    location / {{
      proxy_pass {platform};
      proxy_http_version 1.1;
      proxy_bind {address};
      proxy_set_header Connection "";
      proxy_set_header Host $http_host;
      proxy_set_header X-Forwarded-Proto $scheme;
      proxy_set_header X-Forwarded-For $proxy_add_x_forwarded_for;
    }}
  }}
}}
"""


def nginx() -> str:
    """The program; skips where it is missing, and fails in CI, which installs it."""
    return program("nginx-light", "/usr/sbin/nginx", "nginx")


class TlsProxy:
    """Buffers answers unless the platform says otherwise: nginx's default."""

    def __init__(self, folder: Path, platform: str) -> None:
        self._program, self._folder, self.port = nginx(), folder, free_port()
        certificates = Authority.create(folder / "authority").issue("localhost")
        self.url = f"https://localhost:{self.port}"
        self._trust = ssl.create_default_context(cafile=certificates.folder / "ca.crt")
        files = {"certificate": certificates.folder / "tls.crt", "key": certificates.folder / "tls.key"}
        text = _CONFIG.format(folder=folder, port=self.port, platform=platform.rstrip("/"), address=ADDRESS, **files)
        (folder / "nginx.conf").write_text(text)

    def __enter__(self) -> Self:
        command = [self._program, "-e", str(self._folder / "error.log"), "-p", str(self._folder), "-c", str(self._folder / "nginx.conf")]
        with (self._folder / "log").open("wb") as log:
            self._process = subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=log, stderr=log)
        try:
            until("nginx passes requests on", self._is_ready)
        except BaseException:
            self.__exit__()
            raise
        return self

    def __exit__(self, *_: object) -> None:
        self._process.send_signal(signal.SIGTERM)
        self._process.wait(30)

    def client(self, address: str = "127.0.0.1", headers: Mapping[str, str] = {}) -> httpx.Client:
        """A client that connects from this address of loopback."""
        transport = httpx.HTTPTransport(verify=self._trust, local_address=address)
        return httpx.Client(base_url=self.url, transport=transport, headers=dict(headers), timeout=30)

    def _is_ready(self) -> bool:
        assert self._process.poll() is None, f"nginx has ended: {(self._folder / 'log').read_text()}"
        try:
            with self.client() as client:
                return client.get("/healthz").is_success
        except httpx.TransportError:
            return False
