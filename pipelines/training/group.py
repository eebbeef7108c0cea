"""The ranks of a training, connected by torch.distributed (gloo, or NCCL if each rank has its own GPU).

Short messages go through rank 0's store, tensors through collectives. A rank that waits longer than its patience, or loses its connection,
raises LeftAlone.
"""

from __future__ import annotations

import hashlib
import json
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import timedelta
from typing import Any

from pipelines.training.ranks import MEETING, LeftAlone, Rank

_PULSE, _PULSES_PER_PATIENCE = "pulse", 8
_POLL = 0.02
"""Seconds between two polls of the store."""


@dataclass(frozen=True)
class RankRows:
    """A rank's own rows of a batch of `total` rows."""

    start: int
    stop: int
    total: int

    @property
    def rows(self) -> slice:
        """Returns the rank's rows; a rank without rows takes the first row, with weight 0."""
        return slice(self.start, self.stop) if self.stop > self.start else slice(0, 1)

    @property
    def weight(self) -> float:
        """Weight of the rank's mean in the mean of the whole batch."""
        return (self.stop - self.start) / self.total


class Group:
    """Implements RankContext; call `meet` before all else."""

    def __init__(self, rank: Rank) -> None:
        self.rank = rank
        self.sent = 0
        """Bytes that this rank has passed to collectives."""
        self.device: Any = None
        """Device of sharded tables, and of their messages: the rank's own GPU, or the CPU. Known after `meet`."""
        self.before_looking: Callable[[], None] = lambda: None
        self._turn, self._wished, self._granted = 0, False, False

    def meet(self) -> None:
        import torch
        import torch.distributed as group

        self._torch, self._group, self._summed, rank = torch, group, _function(self), self.rank
        patience = timedelta(seconds=rank.patience)
        with self.not_alone("the start"):
            self._store = group.TCPStore(rank.host, rank.port, rank.count, rank.leads, timeout=timedelta(seconds=MEETING))
            self._store.set(f"gpus/{rank.number}", str(self._gpus()))
            own = all(int(self._store.get(f"gpus/{other}")) for other in range(rank.count))
            self._store.set_timeout(patience)
            if own:
                torch.cuda.set_device(rank.number % torch.cuda.device_count())
            self.backend = "nccl" if own else "gloo"
            self.device = torch.device("cuda", torch.cuda.current_device()) if own else torch.device("cpu")
            group.init_process_group(
                self.backend, store=group.PrefixStore("group", self._store), rank=rank.number, world_size=rank.count, timeout=patience
            )

    def close(self) -> None:
        """Ends the group when all ranks are done; rank 0 waits until the others know."""
        with self.not_alone("the end"):
            self._group.barrier()
            if not self.leads:
                self._store.set(f"parted/{self.rank.number}", "")
            else:
                self._store.wait([f"parted/{other}" for other in range(1, self.rank.count)])
            self._group.destroy_process_group()

    @property
    def leads(self) -> bool:
        return self.rank.leads

    def led(self, work: Callable[[], Any]) -> Any:
        self._turn += 1
        key = f"turn/{self._turn}"
        if not self.leads:
            with self.not_alone("the wait for rank 0"):
                return json.loads(self._waited(key))
        with self._pulse():
            outcome = work()
        with self.not_alone("a message to the other ranks"):
            self._store.set(key, json.dumps(outcome))
        return outcome

    def looking(self) -> None:
        self.before_looking()

    def propose_stop(self, wanted: Callable[[], bool]) -> None:
        self._wished = self.leads and wanted()

    def granted(self, wanted: Callable[[], bool]) -> bool:
        return self._granted

    def share(self, total: int) -> RankRows:
        number, count = self.rank.number, self.rank.count
        return RankRows(number * total // count, (number + 1) * total // count, total)

    def joined(self, tensors: Sequence[Any]) -> list[Any]:
        """Returns the sums of all ranks' tensors, in one message that also says whether rank 0 wants all ranks to stop for a checkpoint."""
        torch = self._torch
        parts = [tensor.reshape(-1) for tensor in tensors]
        flat = torch.cat([*parts, parts[0].new_full((1,), float(self._wished))])
        self.reduced(flat)
        self._granted = bool(flat[-1] > 0)
        return [flat_part.reshape(like.shape) for flat_part, like in zip(flat.split([*map(len, parts), 1]), tensors, strict=False)]

    def summed(self, tensor: Any) -> Any:
        """Returns the sum of all ranks' tensors; the gradients are summed as well."""
        return self._summed(tensor)

    def gathered(self, rows: Any, share: RankRows) -> Any:
        """Returns the rows of the whole batch from this rank's rows."""
        batch = rows.new_zeros((share.total, *rows.shape[1:]))
        places = self._torch.arange(share.start, share.stop, device=rows.device)
        return self.summed(batch.index_copy(0, places, rows[: share.stop - share.start]))

    def broadcast(self, tensors: Sequence[Any]) -> None:
        """Replaces each rank's tensors by rank 0's."""
        torch = self._torch
        with self.not_alone("the copy of rank 0's weights"), torch.no_grad():
            for tensor in tensors:
                flat = tensor.detach().reshape(-1).contiguous()
                bits = flat.view(torch.uint8)
                self._group.broadcast(bits, 0)
                self.sent += len(bits)
                tensor.detach().copy_(flat.reshape(tensor.shape))

    def carried(self, tensor: Any, origin: int, to: int) -> None:
        """Copies a tensor between two ranks; both must call it, other ranks need not."""
        with self.not_alone("a move of table rows"):
            if self.rank.number == origin != to:
                self.sent += tensor.numel() * tensor.element_size()
                self._group.send(tensor, to)
            elif self.rank.number == to != origin:
                self._group.recv(tensor, origin)

    def check_same(self, tensors: Sequence[Any]) -> None:
        """Raises RuntimeError on all ranks if their tensors differ."""
        digest = hashlib.sha256()
        for tensor in tensors:
            digest.update(tensor.detach().cpu().contiguous().numpy().tobytes())
        self._turn += 1
        number, count = self.rank.number, self.rank.count
        with self.not_alone("the comparison of weights"):
            self._store.set(f"digest/{self._turn}/{number}", digest.hexdigest())
            digests = [self._waited(f"digest/{self._turn}/{other}").decode() for other in range(count)]
        if odd := [other for other in range(count) if digests[other] != digests[0]]:
            raise RuntimeError(f"rank {odd[0]} has other weights than rank 0 at the end: nothing is published")

    def reduced(self, tensor: Any) -> Any:
        """Sums the tensor over all ranks, in place."""
        self.sent += tensor.numel() * tensor.element_size()
        with self.not_alone("a step"):
            self._group.all_reduce(tensor)
        return tensor

    def _gpus(self) -> int:
        """Returns 1 if each rank on this machine has its own GPU, else 0: local ranks share the machine's GPUs, a pod has its own."""
        local_ranks = self.rank.count if self.rank.host in {"127.0.0.1", "localhost"} else 1
        return int(self._torch.cuda.is_available() and self._torch.cuda.device_count() >= local_ranks)

    def _waited(self, key: str) -> bytes:
        pulse, since = -1, time.monotonic()
        while not self._store.check([key]):
            now = int(self._store.add(_PULSE, 0))
            if now != pulse:
                pulse, since = now, time.monotonic()
            elif time.monotonic() - since > self.rank.patience:
                raise LeftAlone(f"no {key} within {self.rank.patience:g} s")
            time.sleep(_POLL)
        return bytes(self._store.get(key))

    @contextmanager
    def _pulse(self) -> Iterator[None]:
        """Shows the other ranks that rank 0 is alive while it works alone."""
        over = threading.Event()

        def beat() -> None:
            while not over.wait(self.rank.patience / _PULSES_PER_PATIENCE):
                try:
                    self._store.add(_PULSE, 1)
                except RuntimeError:
                    return

        thread = threading.Thread(target=beat, name="pulse", daemon=True)
        thread.start()
        try:
            yield
        finally:
            over.set()
            thread.join()

    @contextmanager
    def not_alone(self, when: str) -> Iterator[None]:
        """Turns errors of a joint operation into LeftAlone."""
        try:
            yield
        except RuntimeError as error:
            why = str(error).partition(". ")[0].encode("ascii", "ignore").decode()
            raise LeftAlone(f"rank {self.rank.number} lost another rank in {when}: {' '.join(why.split())[:200]}") from error
        except LeftAlone as error:
            raise LeftAlone(f"rank {self.rank.number} timed out in {when}: {error}") from None


def _function(group: Group) -> Any:
    import torch

    class Summed(torch.autograd.Function):  # type: ignore[misc]
        """The sum over all ranks. The gradient is summed too, because each rank's loss is a part of the whole."""

        @staticmethod
        def forward(context: Any, tensor: Any) -> Any:
            return group.reduced(tensor.clone())

        @staticmethod
        def backward(context: Any, gradient: Any) -> Any:
            return group.reduced(gradient.clone())

    return Summed.apply
