"""Copies batches to a device: packed into page-locked memory, on a separate stream, a bounded number ahead.

A batch is a single copy for all columns. A staging buffer is reused when its last copy is complete. A batch is used on a stream that waits
for the copy; its device memory is free again when that stream is done with the batch.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Protocol

import torch

from pipelines.loaders.adapters.pytorch.tensors import Tensor

_ALIGNED = 64


class DeviceChannel(Protocol):
    """A channel to a device."""

    def staging(self, size: int) -> Tensor:
        """Returns a buffer of `size` bytes on the host."""

    def send(self, staged: Tensor) -> tuple[Tensor, Any]:
        """Starts a copy; returns the bytes on the device and a handle for the end of the copy."""

    def over(self, copy: Any) -> None:
        """Waits on the host for the copy."""

    def take(self, there: Tensor, copy: Any) -> None:
        """Makes all later work on the device wait for the copy."""


class CudaChannel:
    def __init__(self, device: Any) -> None:
        self._device, self._stream = device, torch.cuda.Stream(device)

    def staging(self, size: int) -> Tensor:
        return torch.empty(size, dtype=torch.uint8, pin_memory=True)

    def send(self, staged: Tensor) -> tuple[Tensor, Any]:
        with torch.cuda.stream(self._stream):
            there = staged.to(self._device, non_blocking=True)
            copy = torch.cuda.Event()
            copy.record(self._stream)
        return there, copy

    def over(self, copy: Any) -> None:
        copy.synchronize()

    def take(self, there: Tensor, copy: Any) -> None:
        now = torch.cuda.current_stream(self._device)
        now.wait_event(copy)
        there.record_stream(now)


@dataclass(frozen=True)
class TensorPlace:
    """Place of a tensor in a batch's bytes, with its type and shape."""

    first: int
    last: int
    dtype: Any
    shape: Any

    def of(self, buffer: Tensor) -> Tensor:
        return buffer[self.first : self.last].view(self.dtype).view(self.shape)


def packed(batch: Mapping[str, Tensor]) -> tuple[dict[str, TensorPlace], int]:
    """Returns the places of the tensors one after the other, and the number of bytes."""
    parts, at = {}, 0
    for name, tensor in batch.items():
        size = tensor.numel() * tensor.element_size()
        parts[name] = TensorPlace(at, at + size, tensor.dtype, tensor.shape)
        at += -(-size // _ALIGNED) * _ALIGNED
    return parts, at


@dataclass
class _BufferPlace:
    buffer: Tensor = None
    copy: Any = None


@dataclass(frozen=True)
class _Flying:
    parts: Mapping[str, TensorPlace]
    there: Tensor
    copy: Any


def copied(batches: Iterable[Mapping[str, Tensor]], lane: DeviceChannel, ahead: int) -> Iterator[dict[str, Tensor]]:
    """Yields the batches on the device, in order; at most `ahead` copies are in progress while a batch is used."""
    places = [_BufferPlace() for _ in range(ahead + 1)]
    flying: deque[_Flying] = deque()
    for at, batch in enumerate(batches):
        flying.append(_sent(batch, lane, places[at % len(places)]))
        if len(flying) > ahead:
            yield _receive(flying.popleft(), lane)
    while flying:
        yield _receive(flying.popleft(), lane)


def _sent(batch: Mapping[str, Tensor], lane: DeviceChannel, place: _BufferPlace) -> _Flying:
    parts, size = packed(batch)
    if place.copy is not None:
        lane.over(place.copy)
    if place.buffer is None or len(place.buffer) < size:
        place.buffer = lane.staging(size + size // 4)  # room for larger batches: lists make sizes vary
    for name, part in parts.items():
        part.of(place.buffer).copy_(batch[name])
    there, place.copy = lane.send(place.buffer[:size])
    return _Flying(parts, there, place.copy)


def _receive(transfer: _Flying, lane: DeviceChannel) -> dict[str, Tensor]:
    lane.take(transfer.there, transfer.copy)
    return {name: part.of(transfer.there) for name, part in transfer.parts.items()}
