"""Client of Triton's gRPC API. Every fault is an Unavailable with Triton's own reason."""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping, Sequence
from typing import Any, TypeVar

import numpy as np
from tritonclient.grpc import InferenceServerClient, InferInput, InferRequestedOutput
from tritonclient.utils import InferenceServerException

from services.triton.certificates import SERVER_NAME, Certificates
from services.triton.error_messages import plain
from shared.domain.errors import Unavailable

log = logging.getLogger(__name__)

T = TypeVar("T")
_LOST = frozenset(f"StatusCode.{name}" for name in ("UNAVAILABLE", "DEADLINE_EXCEEDED", "CANCELLED", "NOT_FOUND"))
KEY = "eyas-key"
"""Name of the header that permits repository changes."""
LOAD_TIMEOUT = 300.0
ASK_TIMEOUT = 5.0
# Reconnects within a second; gRPC's default backoff grows to two minutes. Message sizes are unlimited.
_CHANNEL = [
    ("grpc.max_send_message_length", -1),
    ("grpc.max_receive_message_length", -1),
    ("grpc.initial_reconnect_backoff_ms", 100),
    ("grpc.min_reconnect_backoff_ms", 100),
    ("grpc.max_reconnect_backoff_ms", 1000),
]


class ServerLost(Unavailable):
    """This server cannot answer: away, silent, without the version, or the version's process died. Another replica may answer."""


class Client:
    """Thread-safe: each call is one request on a shared channel, which gRPC multiplexes.

    `key` permits repository changes on a server that requires one. With `certificates` the channel uses mutual TLS.
    """

    def __init__(self, address: str, key: str = "", certificates: Certificates | None = None) -> None:
        self._address = address
        self._certificates = certificates
        self._version = certificates.version() if certificates else ()
        self._client = self._open()
        self._replaced: InferenceServerClient | None = None
        self._headers = {f"triton-grpc-protocol-{KEY}": key} if key else None

    def _open(self) -> InferenceServerClient:
        if self._certificates is None:
            return InferenceServerClient(self._address, channel_args=_CHANNEL)
        options = [*_CHANNEL, ("grpc.ssl_target_name_override", SERVER_NAME)]
        return InferenceServerClient(self._address, creds=self._certificates.client_credentials(), channel_args=options)

    def renew(self) -> None:
        """Opens a channel with new certificates when their files were replaced. Calls under way end on the former channel, which is closed
        at the next renewal.
        """
        if self._certificates is None:
            return
        try:
            version = self._certificates.version()
            if version == self._version:
                return
            client = self._open()
            if version != self._certificates.version():  # files are being replaced: the next call reads them again
                client.close()
                return
        except (OSError, ValueError) as error:
            log.warning("certificates: renewal failed, the former ones stay in use error=%s", error)
            return
        if self._replaced is not None:
            self._replaced.close()
        self._replaced, self._client, self._version = self._client, client, version

    def infer(self, model: str, version: int, inputs: Sequence[InferInput], output: str, timeout: float) -> np.ndarray[Any, Any]:
        return self.outputs(model, version, inputs, [output], timeout)[output]

    def outputs(
        self, model: str, version: int, inputs: Sequence[InferInput], wanted: Sequence[str], timeout: float
    ) -> dict[str, np.ndarray[Any, Any]]:
        """Returns these outputs; Triton sends no others. The request carries its timeout, so that the server can end abandoned runs."""

        def ask() -> dict[str, np.ndarray[Any, Any]]:
            requested = [InferRequestedOutput(name) for name in wanted]
            limits: dict[str, Any] = {"client_timeout": timeout, "timeout": int(timeout * 1e6)}
            answer = self._client.infer(model, inputs, outputs=requested, model_version=str(version), **limits)
            arrays = {name: answer.as_numpy(name) for name in wanted}
            if missing := [name for name, value in arrays.items() if value is None]:
                raise InferenceServerException(f"the answer has no output '{missing[0]}'")
            return {name: np.asarray(value) for name, value in arrays.items()}

        return _call(ask)

    def load(self, model: str) -> None:
        _call(lambda: self._client.load_model(model, headers=self._headers, client_timeout=LOAD_TIMEOUT))

    def unload(self, model: str) -> None:
        """Unloads a model; an ensemble with the models of its steps."""
        limits: dict[str, Any] = {"headers": self._headers, "client_timeout": LOAD_TIMEOUT}
        _call(lambda: self._client.unload_model(model, unload_dependents=True, **limits))

    def ready(self, timeout: float = ASK_TIMEOUT) -> bool:
        """Whether the server answers; says nothing about its models."""
        try:
            return bool(_call(lambda: self._client.is_server_ready(client_timeout=timeout)))
        except Unavailable:
            return False

    def version(self) -> str:
        return str(_call(lambda: self._client.get_server_metadata(client_timeout=ASK_TIMEOUT)).version)

    def index(self, timeout: float = ASK_TIMEOUT) -> tuple[Mapping[str, str], ...]:
        index = _call(lambda: self._client.get_model_repository_index(headers=self._headers, client_timeout=timeout))
        return tuple({"name": model.name, "version": model.version, "state": model.state} for model in index.models)

    def successes(self, timeout: float = ASK_TIMEOUT) -> dict[tuple[str, str], int]:
        """Returns the count of successful requests by model and version."""
        statistics = _call(lambda: self._client.get_inference_statistics(client_timeout=timeout))
        return {(stats.name, stats.version): stats.inference_stats.success.count for stats in statistics.model_stats}

    def close(self) -> None:
        if self._replaced is not None:
            self._replaced.close()
        self._client.close()


def _call(ask: Callable[[], T]) -> T:
    try:
        return ask()
    except InferenceServerException as error:
        message = str(error.message() or "")
        lost = error.status() in _LOST or "Stub process" in message
        raise (ServerLost if lost else Unavailable)(f"Triton: {plain(message)}") from None
    except ValueError as error:  # gRPC's error for a closed channel
        raise ServerLost(f"Triton: {error}") from None
