"""NeuMF's protocol by two sides on equal work: ours, and a loop as anybody would write it in torch.

Both are given the same likes on the device, draw four negatives for each anew in every epoch, permute all rows, take steps of as many rows
(what doesn't fill a step is left out), and score each held-out item among its hundred in blocks of a step's rows.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any, Protocol

import torch

from benchmarks.gpu_world import World
from pipelines.inputs.batches import TrainingBatch
from pipelines.inputs.on_device import OnDeviceRows
from pipelines.models import neumf
from pipelines.models.neural.architecture import Architecture
from pipelines.models.neural.frameworks.protocol import Framework
from pipelines.models.neural.resident import ResidentStep
from pipelines.models.neural.step import StepOptions
from pipelines.models.neural.weights import begin
from pipelines.models.tables import Table
from pipelines.training.on_device import parts
from shared.contracts.families import NeumfParams

EACH, PRODUCT, VECTOR, LAYERS, DROPOUT, RATE = 4, 64, 128, (256, 128, 64), 0.5, 0.0045
Tensor = Any


class Side(Protocol):
    name: str

    def epoch(self, number: int) -> Iterator[Callable[[], Tensor]]:
        """Its steps, each to be taken, which gives its loss."""

    def scores(self, columns: dict[str, Tensor], rows: int) -> Tensor: ...


def architecture_of(users: int, items: int) -> Architecture:
    user, item = (Table(name, count, PRODUCT + VECTOR, None) for name, count in (("user", users), ("item", items)))
    return neumf.architecture_of(user, item, NeumfParams(width=PRODUCT, layers=LAYERS, dropout=DROPOUT))


class Ours:
    """Implements Side."""

    name = "eyas on torch"

    def __init__(self, framework: Framework, world: World, batch: int, seed: int, how: dict[str, Any]) -> None:
        device, self._batch, self._seed = world.user.device, batch, seed
        codes = torch.arange(world.items, dtype=torch.int32, device=device)
        ones = torch.ones(len(world.user), device=device)
        self._rows = OnDeviceRows({"user": world.user}, ones, world.item, {"item": codes}, world.items)
        self.architecture = architecture_of(world.users, world.items)
        self.step = ResidentStep(
            framework, self.architecture, begin(self.architecture, seed), StepOptions(learning_rate=RATE, seed=seed, **how)
        )

    def epoch(self, number: int) -> Iterator[Callable[[], Tensor]]:
        order = self._rows.order(EACH, False, True, (self._seed, number))
        for at in range(len(order) // self._batch):
            places = order[at * self._batch : (at + 1) * self._batch]
            yield lambda at=at, places=places: self.step(TrainingBatch(*self._rows.batch(places, EACH, 0.0, (self._seed, number, at))))  # type: ignore[misc]

    def scores(self, columns: dict[str, Tensor], rows: int) -> Tensor:
        return torch.cat([self.step.scores(part, half=True) for part in parts(columns, rows)])


class NeuMF(torch.nn.Module):  # type: ignore[misc]
    def __init__(self, users: int, items: int) -> None:
        super().__init__()
        self.factors = torch.nn.ModuleList([torch.nn.Embedding(count, PRODUCT) for count in (users, items)])
        self.vectors = torch.nn.ModuleList([torch.nn.Embedding(count, VECTOR) for count in (users, items)])
        for one in (*self.factors, *self.vectors):
            torch.nn.init.normal_(one.weight, std=0.01)
        layers: list[Any] = []
        for before, after in zip((2 * VECTOR, *LAYERS), LAYERS, strict=False):
            layers += [torch.nn.Dropout(DROPOUT), torch.nn.Linear(before, after), torch.nn.ReLU()]
        self.hidden, self.score = torch.nn.Sequential(*layers), torch.nn.Linear(PRODUCT + LAYERS[-1], 1)

    def forward(self, user: Tensor, item: Tensor) -> Tensor:
        product = self.factors[0](user) * self.factors[1](item)
        hidden = self.hidden(torch.cat([self.vectors[0](user), self.vectors[1](item)], 1))
        return self.score(torch.cat([product, hidden], 1))[:, 0]


class Plain:
    """Implements Side."""

    name = "torch: plain loop"

    def __init__(self, world: World, batch: int, seed: int, how: dict[str, Any]) -> None:
        torch.manual_seed(seed)
        self._world, self._batch, self._device = world, batch, world.user.device
        self._model = NeuMF(world.users, world.items).to(self._device)
        self._half = None if not how.get("half") else torch.float16 if how.get("float16") else torch.bfloat16
        self._optimizer = torch.optim.Adam(self._model.parameters(), RATE, fused=True)
        scale = how.get("scale")  # a fixed one is one that has no time to grow
        kind = self._device.type
        self._scaler = torch.amp.GradScaler(
            kind, scale or 2.0**15, growth_interval=2**30 if scale else 2_000, enabled=bool(how.get("float16"))
        )
        self._entropy, jit = torch.nn.BCEWithLogitsLoss(), how.get("jit")
        self._run = self._model
        if jit:
            self._run = torch.compile(self._model, mode="reduce-overhead" if jit == "graphs" else "default", dynamic=False)

    def epoch(self, number: int) -> Iterator[Callable[[], Tensor]]:
        world, many = self._world, len(self._world.user) * EACH
        user = torch.cat([world.user, world.user.repeat_interleave(EACH)])
        item = torch.cat([world.item, torch.randint(world.items, (many,), dtype=torch.int32, device=self._device)])
        labels = torch.cat([torch.ones(len(world.user), device=self._device), torch.zeros(many, device=self._device)])
        order = torch.randperm(len(labels), device=self._device)
        self._model.train()
        for at in range(len(order) // self._batch):
            rows = order[at * self._batch : (at + 1) * self._batch]
            yield lambda rows=rows: self._step(user[rows], item[rows], labels[rows])  # type: ignore[misc]

    def _step(self, user: Tensor, item: Tensor, labels: Tensor) -> Tensor:
        with torch.autocast(self._device.type, self._half or torch.bfloat16, enabled=self._half is not None):
            logits = self._run(user, item)
        loss = self._entropy(logits.float(), labels)
        self._optimizer.zero_grad(set_to_none=True)
        self._scaler.scale(loss).backward()
        self._scaler.step(self._optimizer)
        self._scaler.update()
        return loss.detach().clone()

    def scores(self, columns: dict[str, Tensor], rows: int) -> Tensor:
        self._model.eval()
        with torch.no_grad(), torch.autocast(self._device.type, self._half or torch.bfloat16, enabled=self._half is not None):
            found = [torch.sigmoid(self._model(part["user"], part["item"]).float()) for part in parts(columns, rows)]
        return torch.cat(found)
