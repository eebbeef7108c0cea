"""The family `neumf`: neural collaborative filtering on keys alone; a weighted inner product and hidden layers give one logit.

A vector has two parts. The first part is multiplied with the other side's first part, number by number; the second parts go through the
hidden layers. With `pretrain` the first parts begin as a factorisation by softmax, and all weights of the product as one: training
continues from there, and the hidden layers learn what the product misses.
"""

from __future__ import annotations

from dataclasses import replace
from functools import partial
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from pipelines.arrays import read_arrays
from pipelines.features.graph import Graph
from pipelines.features.reading import Reads
from pipelines.models.family import MODEL, Fetch, Fitted, Task
from pipelines.models.like_pairs import liked_pairs
from pipelines.models.mf_sgd import contrast
from pipelines.models.neural.architecture import Architecture, load_architecture, table_path
from pipelines.models.neural.model import NeuralModel
from pipelines.models.neural.network import ColumnSelection, Dense, Dropout, Join, Network, Node, Product
from pipelines.models.neural.plain import sigmoid
from pipelines.models.neural.train import train_neural
from pipelines.models.neural.weights import WEIGHTS, Weights, begin
from pipelines.models.tables import Table, check_size
from pipelines.training.mf_contrastive import ContrastiveTask
from shared.contracts.families import NeumfParams
from shared.contracts.models import Model
from shared.domain.errors import Invalid

_PASSES, _RATE, _AGAINST, _DAMPING = 20, 0.02, 20.0, 0.35
"""Settings of the factorisation for `pretrain`."""
_BLOCK = 16_384
"""Items per pass through the hidden layers: their activations fit in the CPU cache."""


class NeumfModel(NeuralModel):
    """Implements Trained and ScoresAll."""

    pairwise: ClassVar[bool] = True

    def every(self, users: NDArray[np.int32]) -> NDArray[np.float32]:
        """Computes each user's and each item's part of the first hidden layer only once."""
        weights, nodes = self.weights, self.architecture.network.nodes
        user_vectors, item_vectors = (weights[table_path(table)] for table in self.tables)
        user_vectors = user_vectors[users]
        width = next(node.stop for node in nodes if isinstance(node, ColumnSelection))
        *hidden, last = (node.name for node in nodes if isinstance(node, Dense))
        kernel, bias = weights[f"{last}/kernel"][:, 0], weights[f"{last}/bias"]
        logits: NDArray[Any] = (user_vectors[:, :width] * kernel[:width]) @ item_vectors[:, :width].T + bias
        first, level = weights[f"{hidden[0]}/kernel"], weights[f"{hidden[0]}/bias"]
        middle = len(first) // 2
        of_users = user_vectors[:, width:] @ first[:middle] + level
        for start in range(0, len(item_vectors), _BLOCK):
            block = slice(start, start + _BLOCK)
            of_items = item_vectors[block, width:] @ first[middle:]
            for row, of_user in enumerate(of_users):
                rows = np.maximum(of_items + of_user, 0)
                for name in hidden[1:]:
                    rows = np.maximum(rows @ weights[f"{name}/kernel"] + weights[f"{name}/bias"], 0)
                logits[row, block] += rows @ kernel[width:]
        return sigmoid(self.architecture.calibration.apply(logits))


class Neumf:
    """Implements Family."""

    name = "neumf"
    reads: Reads = "keys"

    def train(self, task: Task) -> Fitted:
        params = task.model.params
        assert isinstance(params, NeumfParams)
        if task.parent is not None:
            task = replace(task, model=going_on(task.model))
        architecture = plan(task.graph, params, load_architecture(task.parent(MODEL)) if task.parent else None)
        first = partial(pretrained, task, params, architecture) if params.pretrain else None
        fitted = train_neural(task, params, architecture, params.regularisation, first=first)
        assert isinstance(fitted.model, NeuralModel)
        return replace(fitted, model=NeumfModel(fitted.model.architecture, fitted.model.weights))

    def load(self, fetch: Fetch) -> NeumfModel:
        return NeumfModel(load_architecture(fetch(MODEL)), read_arrays(fetch(WEIGHTS)))


def going_on(model: Model) -> Model:
    """Returns the model of a warm run: the default settings for training without `pretrain`, unless the spec sets others. The defaults with
    `pretrain` are too careful for new rows that no factorisation has prepared."""
    unsaid, train = dict(NeumfParams.usual({"pretrain": True})), model.train
    learns = {name: value for name, value in NeumfParams.usual({"pretrain": False}).items() if getattr(train, name) == unsaid[name]}
    return model.model_copy(update={"train": train.model_copy(update=learns)})


def plan(graph: Graph, params: NeumfParams, parent: Architecture | None) -> Architecture:
    """Plans the architecture; raises Invalid, before training, if it cannot be exported or differs from the parent's."""
    sides = ((name, graph.key(name).state.cardinality) for name in (graph.user, graph.item))
    user, item = (Table(name, codes, params.width + params.layers[0], None) for name, codes in sides)
    architecture = architecture_of(user, item, params)
    if parent is not None and parent.network.weights(parent.features) != architecture.network.weights(architecture.features):
        raise Invalid("model.params: width and layers are not the parent's: a warm run cannot change them; start a full run")
    check_size(graph, architecture.size)
    return architecture


def architecture_of(user: Table, item: Table, params: NeumfParams) -> Architecture:
    width, full_width = params.width, user.width
    products = [ColumnSelection(f"product_{at}", (table.column,), 0, width) for at, table in enumerate((user, item))]
    deep = [ColumnSelection(f"deep_{at}", (table.column,), width, full_width) for at, table in enumerate((user, item))]
    product, pair = Product("product", tuple(part.name for part in products)), Join("pair", tuple(part.name for part in deep))
    nodes: list[Node] = [*products, product, *deep, pair]
    for at, units in enumerate(params.layers):
        if params.dropout:
            nodes.append(Dropout(f"dropout_{at}", (nodes[-1].name,), params.dropout))
        nodes.append(Dense(f"hidden_{at}", (nodes[-1].name,), units))
    both = Join("both", (product.name, nodes[-1].name))
    return Architecture(Neumf.name, (user, item), (), Network((*nodes, both, Dense("score", (both.name,), 1, "linear"))))


def pretrained(task: Task, params: NeumfParams, architecture: Architecture) -> Weights:
    """Returns first weights: a factorisation in the first part of the vectors, and hidden layers with a small effect."""
    task.log.info("factorisation: started for the first weights")
    aim = ContrastiveTask("softmax", _AGAINST, params.factorisation, blend=True, damping=_DAMPING)
    factorisation = contrast(task, liked_pairs(task), aim, params.width - 1, _RATE, _PASSES)
    weights, width = begin(architecture, task.model.train.seed), params.width
    for table, vectors in zip(architecture.tables, (factorisation.factors.users, factorisation.factors.items), strict=True):
        weights[table_path(table)][:, :width] = vectors
    weights["score/kernel"][:width] = 1
    weights["score/kernel"][width:] *= np.float32(0.1)
    weights["score/bias"][:] = factorisation.mean
    return weights
