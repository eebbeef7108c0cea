"""Certificates for mutual TLS with a Triton, made by the openssl command."""

from __future__ import annotations

import shutil
import subprocess
from dataclasses import dataclass
from pathlib import Path

from services.triton.certificates import SERVER_NAME, Certificates


@dataclass(frozen=True)
class Authority:
    """A CA in `folder`. `issue` writes or replaces a folder of certificates that it signed."""

    folder: Path

    @classmethod
    def create(cls, folder: Path) -> Authority:
        folder.mkdir(parents=True)
        subject = ("-subj", "/CN=tests", "-days", "2", "-keyout", folder / "ca.key", "-out", folder / "ca.crt")
        _openssl("req", "-x509", *_NEW_KEY, *subject, "-addext", "basicConstraints=critical,CA:TRUE")
        return cls(folder)

    def issue(self, name: str, server_name: str = "") -> Certificates:
        target = self.folder / name
        target.mkdir(exist_ok=True)
        alternative = f"subjectAltName=DNS:{server_name or name}"
        request, certificate, key = self.folder / f"{name}.csr", self.folder / f"{name}.crt", self.folder / f"{name}.key"
        _openssl("req", *_NEW_KEY, "-subj", f"/CN={name}", "-addext", alternative, "-keyout", key, "-out", request)
        signing = ("-CA", self.folder / "ca.crt", "-CAkey", self.folder / "ca.key", "-CAcreateserial", "-copy_extensions", "copy")
        _openssl("x509", "-req", "-in", request, "-days", "2", *signing, "-out", certificate)
        (target / "ca.crt").write_bytes((self.folder / "ca.crt").read_bytes())
        certificate.replace(target / "tls.crt")
        key.replace(target / "tls.key")
        return Certificates(target)

    def server(self) -> Certificates:
        return self.issue("server", SERVER_NAME)

    def client(self) -> Certificates:
        return self.issue("client")


_NEW_KEY = ("-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-nodes")


def _openssl(*arguments: str | Path) -> None:
    assert shutil.which("openssl"), "no openssl is installed, which makes the certificates of the tests: apt-get install openssl"
    subprocess.run(["openssl", *map(str, arguments)], check=True, capture_output=True)
