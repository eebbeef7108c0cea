"""What the model server needs of whoever runs Triton: an EmbeddedTriton here, a pod's elsewhere."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Protocol

from services.triton.certificates import Certificates


class Host(Protocol):
    """`generation` rises whenever the server begins anew, with nothing loaded."""

    @property
    def address(self) -> str: ...

    @property
    def key(self) -> str:
        """What opens its repository to changes; empty where nothing is asked for."""

    @property
    def certificates(self) -> Certificates | None:
        """Those of a client; None where the connection needs none."""

    @property
    def repository(self) -> Path:
        """The folder that it reads models from."""

    @property
    def generation(self) -> int: ...

    @property
    def alive(self) -> bool:
        """Whether its process is known to run: never of one that somebody else has started."""

    def ensure_running(self) -> bool: ...

    def kill(self) -> bool:
        """Kills a server that lives and doesn't answer, for `ensure_running` to start it again. False where that can't be done."""

    def vouch(self) -> None:
        """Whoever places says: in its present life the server has all that it should."""


class Hosts(Protocol):
    """The replicas of a fleet, by name. They may come and go."""

    def current(self) -> Mapping[str, Host]: ...
