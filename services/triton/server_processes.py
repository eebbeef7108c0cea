"""The replicas of a fleet: embedded servers, or servers at changing addresses."""

from __future__ import annotations

import logging
import re
import shutil
import time
from collections.abc import Mapping
from pathlib import Path

from services.triton.addresses import Addresses, folder_of
from services.triton.certificates import Certificates
from services.triton.embedded import EmbeddedTriton
from services.triton.remote import RemoteTriton
from services.triton.server_process import ServerProcess

log = logging.getLogger(__name__)

ABANDONED = 600.0
"""Seconds until the folder of a removed replica is deleted."""
_FOLDER = re.compile(r"[a-z0-9][a-z0-9.-]*_[0-9]{1,5}")
_SWEEP = 60.0


class EmbeddedTritons:
    """Processes of this machine: the first one on `home`, the others on folders below it."""

    def __init__(self, home: Path, count: int = 1) -> None:
        self.servers = {
            f"triton-{number}": EmbeddedTriton(home if number == 1 else home / f"replica-{number}") for number in range(1, count + 1)
        }

    def current(self) -> Mapping[str, ServerProcess]:
        return self.servers

    def start(self) -> None:
        for server in self.servers.values():
            server.start()

    def stop(self) -> None:
        for server in self.servers.values():
            server.stop()


class RemoteTritons:
    """Servers that other processes run (services.triton.serve). A single server reads `home` itself, several read subfolders of it."""

    def __init__(
        self, addresses: Addresses, home: Path, *, alone: bool = False, key: str = "", certificates: Certificates | None = None
    ) -> None:
        """`key` permits changes of their repositories."""
        self._key = key
        self._certificates = certificates
        self._addresses = addresses
        self._home = home
        self._alone = alone
        self._hosts: dict[str, ServerProcess] = {}
        self._missed: dict[str, float] = {}
        self._swept = time.monotonic()

    def current(self) -> Mapping[str, ServerProcess]:
        addresses = self._addresses.current()
        if list(addresses) != list(self._hosts):
            self._hosts = {address: self._hosts.get(address) or self._host(address) for address in addresses}
        if not self._alone:
            self._sweep()
        return self._hosts

    def _host(self, address: str) -> ServerProcess:
        return RemoteTriton(address, self._home if self._alone else self._home / folder_of(address), self._key, self._certificates)

    def _sweep(self) -> None:
        """Removes folders of addresses that have been absent for ABANDONED seconds: a new pod has a new address."""
        now = time.monotonic()
        if not self._hosts or now - self._swept < _SWEEP:
            return
        self._swept = now
        living = {folder_of(address) for address in self._hosts}
        folders = [
            folder for folder in self._home.iterdir() if folder.is_dir() and _FOLDER.fullmatch(folder.name) and folder.name not in living
        ]
        self._missed = {folder.name: self._missed.get(folder.name, now) for folder in folders}
        for folder in folders:
            if now - self._missed[folder.name] >= ABANDONED:
                log.info("replica: folder of a former replica is removed folder=%s", folder.name)
                shutil.rmtree(folder, ignore_errors=True)
