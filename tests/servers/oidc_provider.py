"""A real OpenID Connect provider: the npm package oidc-provider, as a child process on loopback."""

from __future__ import annotations

import json
import shutil
import subprocess
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import httpx
from joserfc.jwk import RSAKey

from tests.servers.platform_process import until
from tests.servers.ports import free_port
from tests.support.npx import missing

PACKAGE = "oidc-provider@9.13.3"
AUDIENCE = "https://eyas.example.org"
SECRET = "the-secret-of-a-client-in-tests"
_SCRIPT = Path(__file__).with_suffix(".mjs")
_FOLDER = Path(__file__).parents[2] / "var" / PACKAGE


def _installed() -> Path:
    """Returns the folder of the package; npm fetches it once."""
    npm = shutil.which("npm")
    if npm is None or shutil.which("node") is None:
        missing("the OpenID Connect provider needs node 20: install the packages nodejs and npm")
    if not (_FOLDER / "node_modules").exists():
        _FOLDER.mkdir(parents=True, exist_ok=True)
        command = [str(npm), "install", "--prefix", str(_FOLDER), "--no-audit", "--no-fund", "--no-package-lock", PACKAGE]
        done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=240)
        if done.returncode != 0:
            shutil.rmtree(_FOLDER)
            missing(f"npm cannot install {PACKAGE}: let npm reach a registry once\n{done.stderr[-500:]}")
    shutil.copy(_SCRIPT, _FOLDER)
    return _FOLDER


class OidcServer:
    """`groups` has the groups of each name. A name is an account, which signs in with any password, and a client, which gets JWTs."""

    def __init__(self, folder: Path, groups: Mapping[str, Sequence[str]], redirect_url: str = "http://127.0.0.1:1/login/callback") -> None:
        self.port = free_port()
        self.issuer = f"http://localhost:{self.port}"  # another site for browsers than a platform at 127.0.0.1
        self.key = new_key("first")
        self.client = {
            "client_id": "console",
            "client_secret": SECRET,
            "redirect_uris": [redirect_url],
            "grant_types": ["authorization_code"],
        }
        self._folder = folder
        self._groups = dict(groups)
        self._process: subprocess.Popen[bytes] | None = None

    def __enter__(self) -> OidcServer:
        self.start()
        return self

    def __exit__(self, *exc: object) -> None:
        self.stop()

    def start(self) -> None:
        services = [
            {"client_id": id, "client_secret": SECRET, "redirect_uris": [], "response_types": [], "grant_types": ["client_credentials"]}
            for id in self._groups
        ]
        keys = [self.key.as_dict(private=True)]
        config = {"port": self.port, "keys": keys, "clients": [self.client, *services], "groups": self._groups}
        file = self._folder / "oidc.json"
        file.write_text(json.dumps(config))
        script = _installed() / _SCRIPT.name
        with (self._folder / "oidc.log").open("ab") as log:
            self._process = subprocess.Popen(["node", str(script), str(file)], stdout=log, stderr=subprocess.STDOUT)
        until("the OpenID Connect provider answers", self._answers, seconds=30)

    def stop(self) -> None:
        if self._process is not None:
            self._process.terminate()
            self._process.wait(10)

    def rotate(self, name: str) -> None:
        """Replaces the key, as after a theft."""
        self.stop()
        self.key = new_key(name)
        self.start()

    def jwt(self, client: str, audience: str = AUDIENCE) -> str:
        """Returns an access token that the provider has signed."""
        form = {"grant_type": "client_credentials", "resource": audience}
        answer = httpx.post(f"{self.issuer}/token", data=form, auth=(client, SECRET), timeout=10)
        assert answer.status_code == 200, answer.text
        text: str = answer.json()["access_token"]
        return text

    def _answers(self) -> bool:
        assert self._process is not None
        assert self._process.poll() is None, (self._folder / "oidc.log").read_text()
        try:
            return httpx.get(f"{self.issuer}/.well-known/openid-configuration").status_code == 200
        except httpx.TransportError:
            return False


def new_key(name: str) -> RSAKey:
    return RSAKey.generate_key(2048, {"kid": name, "use": "sig", "alg": "RS256"})


def settings(server: OidcServer, roles: Mapping[str, Any], **more: str) -> dict[str, str]:
    """Settings of a platform that accepts the provider's JWTs."""
    return {"EYAS_OIDC_ISSUER": server.issuer, "EYAS_OIDC_AUDIENCE": AUDIENCE, "EYAS_OIDC_ROLES": json.dumps(roles), **more}
