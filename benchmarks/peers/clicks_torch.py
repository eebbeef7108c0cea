"""Plain click models in torch, as the field's benchmarks write them: an MLP, DeepFM and DCN-v2 over embeddings of 10.

Three hidden layers of 400 with batch norm and dropout 0.3; the L2 of all tables is in each batch's loss; Adam, whose rate falls to a tenth
whenever the validation AUC does not rise; the epoch with the best validation AUC counts. Imports nothing of the platform.
"""

from __future__ import annotations

import copy
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

WIDTH, LAYERS, DROPOUT, PENALTY, RATE, BATCH = 10, (400, 400, 400), 0.3, 0.05, 1e-3, 1_024
CROSSES, EPOCHS, PATIENCE = 3, 40, 2
Ints = NDArray[np.int64]
Floats = NDArray[np.float32]
Metric = Callable[[Floats, Floats], float]


def hidden(width: int, layers: Sequence[int], dropout: float) -> tuple[nn.Sequential, int]:
    parts: list[nn.Module] = []
    for units in layers:
        parts += [nn.Linear(width, units), nn.BatchNorm1d(units), nn.ReLU(), nn.Dropout(dropout)]
        width = units
    return nn.Sequential(*parts), width


class ClickModel(nn.Module):
    """Embeddings of all columns in one table; a subclass makes the logit."""

    def __init__(self, sizes: list[int], layers: Sequence[int] = LAYERS, dropout: float = DROPOUT, penalty: float = PENALTY) -> None:
        super().__init__()
        self.strength, self.top = penalty, layers[-1]
        self.register_buffer("starts", torch.tensor([0, *np.cumsum(sizes)[:-1].tolist()]))
        self.vectors = nn.Embedding(sum(sizes), WIDTH)
        nn.init.normal_(self.vectors.weight, std=1e-4)
        self.inputs = WIDTH * len(sizes)
        self.hidden, width = hidden(self.inputs, layers, dropout)
        self.deep = nn.Linear(width, 1)

    def forward(self, codes: Tensor) -> Tensor:
        places = codes + self.starts
        return self.logit(places, self.vectors(places))

    def logit(self, places: Tensor, vectors: Tensor) -> Tensor:
        logits: Tensor = self.deep(self.hidden(vectors.flatten(1)))[:, 0]
        return logits

    def penalty(self) -> Tensor:
        return self.strength / 2 * sum((table.weight**2).sum() for table in self.modules() if isinstance(table, nn.Embedding))


class DeepFM(ClickModel):
    def __init__(self, sizes: list[int], **settings: Any) -> None:
        super().__init__(sizes, **settings)
        self.weights = nn.Embedding(sum(sizes), 1)
        nn.init.normal_(self.weights.weight, std=1e-4)

    def logit(self, places: Tensor, vectors: Tensor) -> Tensor:
        pairs = (vectors.sum(1) ** 2 - (vectors**2).sum(1)).sum(1) / 2
        return super().logit(places, vectors) + self.weights(places).sum((1, 2)) + pairs


class DCNv2(ClickModel):
    def __init__(self, sizes: list[int], **settings: Any) -> None:
        super().__init__(sizes, **settings)
        self.crosses = nn.ModuleList(nn.Linear(self.inputs, self.inputs) for _ in range(CROSSES))
        self.deep = nn.Linear(self.inputs + self.top, 1)

    def logit(self, places: Tensor, vectors: Tensor) -> Tensor:
        first = vectors.flatten(1)
        rows = first
        for cross in self.crosses:
            rows = first * cross(rows) + rows
        logits: Tensor = self.deep(torch.cat([rows, self.hidden(first)], 1))[:, 0]
        return logits


MODELS: dict[str, type[ClickModel]] = {"mlp": ClickModel, "deepfm": DeepFM, "dcn-v2": DCNv2}


def fit(
    name: str, settings: Mapping[str, Any], train: tuple[Ints, Floats], held: tuple[Ints, Floats], seed: int, auc: Metric
) -> Callable[[Ints], Floats]:
    """Trains a model on codes [rows, columns] and labels; returns its scores of codes."""
    torch.manual_seed(seed)
    sizes = [int(max(train[0][:, at].max(), held[0][:, at].max())) + 2 for at in range(train[0].shape[1])]
    model = MODELS[name](sizes, **settings)
    optimizer, loss_of = torch.optim.Adam(model.parameters(), RATE), nn.BCEWithLogitsLoss()
    codes, labels = (torch.from_numpy(array) for array in train)

    def score(rows: Ints) -> Floats:
        model.eval()
        with torch.no_grad():
            limited = torch.from_numpy(np.minimum(rows, np.array(sizes) - 1))
            scores: Floats = torch.sigmoid(model(limited)).numpy()
        return scores

    best, weights, bad = -1.0, dict[str, Any](), 0
    for _ in range(EPOCHS):
        model.train()
        for places in torch.randperm(len(labels)).split(BATCH):
            optimizer.zero_grad()
            loss = loss_of(model(codes[places]), labels[places]) + model.penalty()
            loss.backward()
            optimizer.step()
        value = auc(held[1], score(held[0]))
        if value > best + 1e-6:
            best, weights, bad = value, copy.deepcopy(model.state_dict()), 0
            continue
        bad += 1
        optimizer.param_groups[0]["lr"] /= 10
        if bad >= PATIENCE:
            break
    model.load_state_dict(weights)
    return score
