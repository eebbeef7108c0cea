"""A Triton that another process runs, on a model repository that both share."""

from __future__ import annotations

import threading
from pathlib import Path

from services.triton import generation_marker
from services.triton.certificates import Certificates
from shared.domain.errors import Unavailable


class RemoteTriton:
    """Implements ServerProcess. `home` is the server's folder (services.triton.serve)."""

    def __init__(self, address: str, home: Path, key: str = "", certificates: Certificates | None = None) -> None:
        self.address = address
        self.key = key
        self.certificates = certificates
        self.repository = home.absolute() / "models"
        self._home = home
        self._lock = threading.Lock()
        self._life = generation_marker.announced(home)
        self._generation = 1 if self._life else 0
        self._vouched: str | None = None

    @property
    def generation(self) -> int:
        """Rises when the server has announced a new start; reads a small file."""
        with self._lock:
            life = generation_marker.announced(self._home)
            if life is not None and life != self._life:
                self._life = life
                self._generation += 1
            return self._generation

    @property
    def gpu(self) -> bool:
        return generation_marker.has_gpu(self._life)

    @property
    def alive(self) -> bool:
        return False

    def kill(self) -> bool:
        """Returns False: only the server's owner can kill it."""
        return False

    def ensure_running(self) -> bool:
        """Returns whether the server has restarted; only its owner can start it."""
        before = self._generation
        if self.generation == 0:
            raise Unavailable(f"no Triton has announced itself in {self._home}: start the server at {self.address} with this --home")
        return self._generation != before

    def vouch(self) -> None:
        with self._lock:
            if self._life is not None and self._life != self._vouched:
                generation_marker.vouch(self._home, self._life)
                self._vouched = self._life
