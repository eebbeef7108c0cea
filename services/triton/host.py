"""What the model server needs of whoever runs Triton: an EmbeddedTriton here, a watcher of pods elsewhere."""

from __future__ import annotations

from pathlib import Path
from typing import Protocol


class Host(Protocol):
    """`generation` rises whenever the server begins anew, with nothing loaded."""

    @property
    def address(self) -> str: ...

    @property
    def metrics_url(self) -> str: ...

    @property
    def repository(self) -> Path:
        """The folder that it reads models from."""

    @property
    def generation(self) -> int: ...

    def ensure_running(self) -> bool: ...
