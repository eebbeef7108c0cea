"""Mutual TLS between a Triton and the platform's processes.

A folder holds `ca.crt`, `tls.crt` and `tls.key`, as cert-manager and Kubernetes write them. Both sides accept only certificates of this
CA. A server's certificate names `eyas-triton` instead of an address, so replicas share one certificate.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import grpc

from shared.domain.errors import Invalid
from shared.secret_file import read_secret_file

SERVER_NAME = "eyas-triton"
_CA, _CERTIFICATE, _KEY = "ca.crt", "tls.crt", "tls.key"


@dataclass(frozen=True)
class Certificates:
    folder: Path

    def check(self) -> None:
        """Raises Invalid when a file is missing or unreadable, or when other users can read the key."""
        read_secret_file(self.folder / _KEY)
        for name in (_CA, _CERTIFICATE):
            try:
                (self.folder / name).read_bytes()
            except OSError as error:
                raise Invalid(f"Triton certificates: {self.folder / name} cannot be read: {error.strerror}") from None

    def version(self) -> tuple[int, ...]:
        """Returns numbers that change whenever a file is replaced; equal numbers mean equal files."""
        stats = [(self.folder / name).stat() for name in (_CA, _CERTIFICATE, _KEY)]
        return tuple(number for stat in stats for number in (stat.st_ino, stat.st_mtime_ns))

    def client_credentials(self) -> grpc.ChannelCredentials:
        ca, certificate, key = ((self.folder / name).read_bytes() for name in (_CA, _CERTIFICATE, _KEY))
        return grpc.ssl_channel_credentials(ca, key, certificate)

    def server_options(self) -> list[str]:
        """Returns command line options of tritonserver, which reads the files once, at its start."""
        return [
            "--grpc-use-ssl=1",
            "--grpc-use-ssl-mutual=1",
            f"--grpc-root-cert={self.folder / _CA}",
            f"--grpc-server-cert={self.folder / _CERTIFICATE}",
            f"--grpc-server-key={self.folder / _KEY}",
        ]
