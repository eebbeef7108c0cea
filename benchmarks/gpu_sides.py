"""NeuMF at ml-20m's shape by two sides on equal work: ours, and a plain loop in torch. And the likes that both train on.

Both get the same likes on the device, draw four negatives for each anew in every epoch, permute all rows, take steps of as many rows
(an incomplete last step is left out), and score each held-out item among its hundred in blocks of a step's rows.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np
import torch
from numpy.typing import NDArray

from pipelines.inputs.batches import TrainingBatch
from pipelines.inputs.on_device import OnDeviceRows
from pipelines.models import neumf
from pipelines.models.neural.architecture import Architecture
from pipelines.models.neural.frameworks.protocol import Framework
from pipelines.models.neural.fused import DEVICE_FACTOR
from pipelines.models.neural.resident import ResidentStep
from pipelines.models.neural.step import StepOptions
from pipelines.models.neural.weights import begin
from pipelines.models.tables import Table
from pipelines.training.on_device import parts
from shared.contracts.families import NeumfParams

USERS, ITEMS, LIKES = 138_493, 26_744, 20_000_263
EACH, PRODUCT, VECTOR, LAYERS, DROPOUT, RATE = 4, 64, 128, (256, 128, 64), 0.5, 0.0045
"""Negatives of a like, widths, and settings of the training."""
LEAST, AGAINST, TASTES, OWN = 20, 100, 20, 12.0
"""Likes that a user has at least, items beside the held-out one, tastes, and how much likelier an item of the own taste is."""
_CELLS = 1 << 25
Tensor = Any


@dataclass(frozen=True)
class Likes:
    users: int
    items: int
    user: Tensor
    item: Tensor
    """Of each like that is trained on."""
    held_out: Tensor = None
    """An item of each user."""
    against: Tensor = None
    """[users, AGAINST]"""

    @property
    def cases(self) -> dict[str, Tensor]:
        """Rows to score: of each user the held-out item, then the others."""
        users = torch.arange(self.users, dtype=torch.int32, device=self.user.device)
        items = torch.cat([self.held_out[:, None], self.against], 1)
        return {"user": users.repeat_interleave(items.shape[1]), "item": items.reshape(-1)}


def scaled(count: int, scale: float) -> int:
    return max(8, round(count * scale))


def random_likes(device: Any, scale: float, seed: int = 1) -> Likes:
    """By a power law, without tastes: to measure steps."""
    users, items, likes = (scaled(count, scale) for count in (USERS, ITEMS, LIKES))
    random = torch.Generator(device).manual_seed(seed)
    user, item = ((count * torch.rand(likes, generator=random, device=device, dtype=torch.float64) ** 3).int() for count in (users, items))
    return Likes(users, items, user, item)


def size(scale: float) -> tuple[int, int, int]:
    """Users, items and likes of a protocol: so many users still have most of the catalogue unmet."""
    users = max(50, round(USERS * scale))
    return users, max(4 * AGAINST, round(ITEMS * scale**0.5)), max(25 * users, round(LIKES * scale))


def counts(users: int, items: int, likes: int) -> NDArray[np.int64]:
    """Likes of each user, the most first: a power law above the least, up to a third of the catalogue."""
    shape, most = ((np.arange(users) + 0.5) / users) ** -0.6, items // 3 - LEAST
    low, high = 0.0, float(likes)
    for _ in range(100):
        middle = (low + high) / 2
        low, high = (middle, high) if np.minimum(middle * shape, most).sum() < likes - LEAST * users else (low, middle)
    numbers: NDArray[np.int64] = LEAST + np.floor(np.minimum(low * shape, most)).astype(np.int64)
    short = likes - int(numbers.sum())
    room = np.flatnonzero(numbers < LEAST + most)
    numbers[room[np.arange(short) % len(room)]] += 1
    return numbers


def likes_by_taste(device: Any, scale: float, seed: int = 1) -> Likes:
    """Every user has at least twenty. Items are drawn without replacement: popular ones sooner, those of the user's taste sooner still.

    One of them is held out; beside it are a hundred that the user never met.
    """
    users, items, likes = size(scale)
    random = torch.Generator(device).manual_seed(seed)
    popular = -0.8 * torch.log(torch.arange(items, device=device) + 10.0)[torch.randperm(items, generator=random, device=device)]
    taste = torch.arange(items, device=device) % TASTES
    numbers = torch.from_numpy(counts(users, items, likes)).to(device)
    columns, block = [], max(1, _CELLS // items)
    for start in range(0, users, block):
        user = torch.arange(start, min(start + block, users), device=device)
        drawn = torch.rand((len(user), items), generator=random, device=device).clamp_(min=1e-20)
        own = (taste == (user % TASTES)[:, None]).float() * float(np.log(OWN))
        number = numbers[user]
        chosen = (popular + own - torch.log(-torch.log(drawn))).topk(int(number.max()), dim=1).indices
        liked = torch.arange(chosen.shape[1], device=device) < number[:, None]
        at = (torch.rand(len(user), generator=random, device=device) * number).long()[:, None]
        held_out = chosen.gather(1, at)
        unmet = torch.rand((len(user), items), generator=random, device=device)
        rows = user[:, None].expand_as(chosen)
        unmet[rows[liked] - start, chosen[liked]] = -1.0
        against = unmet.topk(AGAINST, dim=1).indices
        liked.scatter_(1, at, False)
        columns.append((rows[liked].int(), chosen[liked].int(), held_out[:, 0].int(), against.int()))
    return Likes(users, items, *(torch.cat(column) for column in zip(*columns, strict=True)))


class Side(Protocol):
    name: str

    def epoch(self, number: int) -> Iterator[Callable[[], Tensor]]:
        """Yields steps; each returns its loss."""

    def scores(self, columns: dict[str, Tensor], rows: int) -> Tensor: ...


def architecture_of(users: int, items: int) -> Architecture:
    user, item = (Table(name, count, PRODUCT + VECTOR, None) for name, count in (("user", users), ("item", items)))
    return neumf.architecture_of(user, item, NeumfParams(width=PRODUCT, layers=LAYERS, dropout=DROPOUT))


class Ours:
    """Implements Side."""

    name = "eyas on torch"

    def __init__(self, framework: Framework, likes: Likes, batch: int, seed: int, options: dict[str, Any]) -> None:
        device, self._batch, self._seed = likes.user.device, batch, seed
        codes = torch.arange(likes.items, dtype=torch.int32, device=device)
        ones = torch.ones(len(likes.user), device=device)
        self._rows = OnDeviceRows({"user": likes.user}, ones, likes.item, {"item": codes}, torch.arange(likes.items, device=device))
        self.architecture = architecture_of(likes.users, likes.items)
        options = {"learning_rate": RATE, "seed": seed, "dense_rows": DEVICE_FACTOR * batch, **options}
        self.step = ResidentStep(framework, self.architecture, begin(self.architecture, seed), StepOptions(**options))

    def epoch(self, number: int) -> Iterator[Callable[[], Tensor]]:
        order = self._rows.order(EACH, False, True, (self._seed, number))
        for at in range(len(order) // self._batch):
            places = order[at * self._batch : (at + 1) * self._batch]
            yield lambda at=at, places=places: self.step(  # type: ignore[misc]
                TrainingBatch(*self._rows.batch(places, EACH, (0.0, 0.0), (self._seed, number, at)))
            )

    def scores(self, columns: dict[str, Tensor], rows: int) -> Tensor:
        return torch.cat([self.step.scores(part, half=True) for part in parts(columns, rows)])


class NeuMF(torch.nn.Module):  # type: ignore[misc]
    def __init__(self, users: int, items: int) -> None:
        super().__init__()
        self.factors = torch.nn.ModuleList([torch.nn.Embedding(count, PRODUCT) for count in (users, items)])
        self.vectors = torch.nn.ModuleList([torch.nn.Embedding(count, VECTOR) for count in (users, items)])
        for table in (*self.factors, *self.vectors):
            torch.nn.init.normal_(table.weight, std=0.01)
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

    def __init__(self, likes: Likes, batch: int, seed: int, options: dict[str, Any]) -> None:
        torch.manual_seed(seed)
        self._likes, self._batch, self._device = likes, batch, likes.user.device
        self._model = NeuMF(likes.users, likes.items).to(self._device)
        self._half = None if not options.get("half") else torch.float16 if options.get("float16") else torch.bfloat16
        self._optimizer = torch.optim.Adam(self._model.parameters(), RATE, fused=True)
        scale = options.get("scale")  # a fixed scale has no time to grow
        growth, enabled = 2**30 if scale else 2_000, bool(options.get("float16"))
        self._scaler = torch.amp.GradScaler(self._device.type, scale or 2.0**15, growth_interval=growth, enabled=enabled)
        self._entropy, jit = torch.nn.BCEWithLogitsLoss(), options.get("jit")
        self._run = self._model
        if jit:
            self._run = torch.compile(self._model, mode="reduce-overhead" if jit == "graphs" else "default", dynamic=False)

    def epoch(self, number: int) -> Iterator[Callable[[], Tensor]]:
        likes, negatives = self._likes, len(self._likes.user) * EACH
        user = torch.cat([likes.user, likes.user.repeat_interleave(EACH)])
        item = torch.cat([likes.item, torch.randint(likes.items, (negatives,), dtype=torch.int32, device=self._device)])
        labels = torch.cat([torch.ones(len(likes.user), device=self._device), torch.zeros(negatives, device=self._device)])
        order = torch.randperm(len(labels), device=self._device)
        self._model.train()
        for at in range(len(order) // self._batch):
            rows = order[at * self._batch : (at + 1) * self._batch]
            yield lambda rows=rows: self._step(user[rows], item[rows], labels[rows])  # type: ignore[misc]

    def _step(self, user: Tensor, item: Tensor, labels: Tensor) -> Tensor:
        with self._autocast():
            logits = self._run(user, item)
        loss = self._entropy(logits.float(), labels)
        self._optimizer.zero_grad(set_to_none=True)
        self._scaler.scale(loss).backward()
        self._scaler.step(self._optimizer)
        self._scaler.update()
        return loss.detach().clone()

    def _autocast(self) -> Any:
        return torch.autocast(self._device.type, self._half or torch.bfloat16, enabled=self._half is not None)

    def scores(self, columns: dict[str, Tensor], rows: int) -> Tensor:
        self._model.eval()
        with torch.no_grad(), self._autocast():
            return torch.cat([torch.sigmoid(self._model(part["user"], part["item"]).float()) for part in parts(columns, rows)])
