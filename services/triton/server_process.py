"""The process of a Triton as its model server sees it: an EmbeddedTriton, or a RemoteTriton in another pod."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Protocol

from services.triton.certificates import Certificates


class ServerProcess(Protocol):
    """`generation` rises with each start of the server, when nothing is loaded."""

    @property
    def address(self) -> str: ...

    @property
    def key(self) -> str:
        """Permits repository changes; empty if the server requires none."""

    @property
    def certificates(self) -> Certificates | None:
        """Client certificates; None if the connection needs none."""

    @property
    def repository(self) -> Path:
        """The folder of models."""

    @property
    def gpu(self) -> bool:
        """Whether the server has a GPU and NVIDIA's backends."""

    @property
    def generation(self) -> int: ...

    @property
    def alive(self) -> bool:
        """Whether the process is known to run; always False if another process owns it."""

    def ensure_running(self) -> bool: ...

    def kill(self) -> bool:
        """Kills a silent server, for `ensure_running` to restart. Returns False if that is impossible."""

    def vouch(self) -> None:
        """Confirms that since its last start the server has got all wanted versions."""


class ServerProcesses(Protocol):
    """The replicas of a fleet by name, which may change."""

    def current(self) -> Mapping[str, ServerProcess]: ...
