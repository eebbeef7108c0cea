"""Python client of an Eyas platform: `Client`, and `AsyncClient` with the same methods."""

from __future__ import annotations

from eyas_client.client import AsyncClient, Client
from eyas_client.errors import Conflict, Denied, EyasError, Invalid, NotFound, Unavailable, Unsuccessful, WaitTimeout

__version__ = "0.1.0"

__all__ = [
    "AsyncClient",
    "Client",
    "Conflict",
    "Denied",
    "EyasError",
    "Invalid",
    "NotFound",
    "Unavailable",
    "Unsuccessful",
    "WaitTimeout",
    "__version__",
]
