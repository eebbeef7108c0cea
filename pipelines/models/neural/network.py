"""A neural family's network as data: nodes from looked-up vectors and numbers to a logit per row.

Keras trains this description, NumPy scores it, and it lowers to ONNX. So a trained model is arrays and JSON, and neither scoring nor export
needs a framework. A kind of node defines its weights' shapes, its computation (by the runtime's `Operations`) and the equal ONNX operators.

A node's inputs are names of earlier nodes or of features. A feature's vector is [rows, width]; the last node gives [rows, 1].
"""

from __future__ import annotations

import functools
import operator
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any, ClassVar, Literal, Protocol

import numpy as np

from shared.domain.errors import Invalid

Activation = Literal["relu", "linear"]
Shape = tuple[int, ...]
SMALLEST = 1e-3
"""Added to a variance before it divides."""
SHORTEST = 1e-12
"""Added to the square of a length before it divides."""
FLATTEST = 1e-6
"""Added to the variance of a row's numbers before it divides; smaller, because a vector of length 1 has a small variance."""


class Operations:
    """Operations that a runtime provides to nodes, on its own tensors; those that NumPy and Keras share are here.

    `arrays` is the module `numpy` or `keras.ops`.
    """

    def __init__(self, arrays: Any, weights: Mapping[str, Any]) -> None:
        self._arrays, self._weights = arrays, weights

    def weight(self, path: str) -> Any:
        return self._weights[path]

    def dense(self, rows: Any, kernel: Any, bias: Any) -> Any:
        return self._arrays.matmul(rows, kernel) + bias

    def relu(self, rows: Any) -> Any:
        raise NotImplementedError

    def join(self, parts: Sequence[Any]) -> Any:
        return self._arrays.concatenate(parts, axis=1)

    def part(self, rows: Any, start: int, stop: int) -> Any:
        return rows[:, start:stop]

    def product(self, parts: Sequence[Any]) -> Any:
        return functools.reduce(operator.mul, parts)

    def add(self, parts: Sequence[Any]) -> Any:
        return functools.reduce(operator.add, parts)

    def total(self, rows: Any) -> Any:
        """Returns [rows, 1]: the sum over each row."""
        return self._arrays.sum(rows, axis=1, keepdims=True)

    def interact(self, parts: Sequence[Any], places: Sequence[int]) -> Any:
        """Returns [rows, places]: inner products of the parts, at these places of the flattened square of all pairs."""
        raise NotImplementedError

    def scaled(self, rows: Any, length: float) -> Any:
        """Scales each row to the length; rows of zeros stay zero."""
        raise NotImplementedError

    def dropout(self, rows: Any, rate: float) -> Any:
        """Drops numbers in training only."""
        return rows

    def normalise(self, rows: Any, path: str) -> Any:
        """Batch norm: by the batch's mean and variance in training, by the moving values when served."""
        raise NotImplementedError

    def level(self, rows: Any, gamma: Any, beta: Any) -> Any:
        """Layer norm: each row by its own mean and variance, then scaled by gamma and shifted by beta."""
        raise NotImplementedError


class GraphOperations(Protocol):
    """Operations that an ONNX graph provides to nodes; tensors are names."""

    def weight(self, path: str) -> str: ...
    def array(self, path: str) -> Any:
        """Returns the array of a weight."""

    def constant(self, values: Any) -> str: ...
    def node(self, kind: str, *inputs: str, **attributes: Any) -> str: ...


@dataclass(frozen=True)
class Node:
    kind: ClassVar[str]
    name: str
    of: tuple[str, ...]

    def width(self, widths: Sequence[int]) -> int:
        """Returns the output's width, from the inputs' widths."""
        raise NotImplementedError

    def weights(self, widths: Sequence[int]) -> dict[str, Shape]:
        """Returns the shapes of the trained weights, by name within the node."""
        return {}

    def moving(self, widths: Sequence[int]) -> dict[str, Shape]:
        """Returns the shapes of the values that training changes without a gradient."""
        return {}

    def apply(self, on: Operations, inputs: Sequence[Any]) -> Any:
        raise NotImplementedError

    def lower(self, on: GraphOperations, inputs: Sequence[str]) -> str:
        raise NotImplementedError

    def path(self, weight: str) -> str:
        return f"{self.name}/{weight}"


@dataclass(frozen=True)
class Join(Node):
    """Concatenates the inputs."""

    kind = "join"

    def width(self, widths: Sequence[int]) -> int:
        return sum(widths)

    def apply(self, on: Operations, inputs: Sequence[Any]) -> Any:
        return on.join(inputs) if len(inputs) > 1 else inputs[0]

    def lower(self, on: GraphOperations, inputs: Sequence[str]) -> str:
        return on.node("Concat", *inputs, axis=1) if len(inputs) > 1 else inputs[0]


@dataclass(frozen=True)
class ColumnSelection(Node):
    """Some columns of the input, so that one lookup serves several parts of a network."""

    kind = "part"
    start: int
    stop: int

    def width(self, widths: Sequence[int]) -> int:
        return self.stop - self.start

    def apply(self, on: Operations, inputs: Sequence[Any]) -> Any:
        return on.part(inputs[0], self.start, self.stop)

    def lower(self, on: GraphOperations, inputs: Sequence[str]) -> str:
        return on.node("Slice", inputs[0], *(on.constant([value]) for value in (self.start, self.stop, 1)))


@dataclass(frozen=True)
class Product(Node):
    """Element-wise product of inputs of the same width."""

    kind = "product"

    def width(self, widths: Sequence[int]) -> int:
        return _same(self, widths)

    def apply(self, on: Operations, inputs: Sequence[Any]) -> Any:
        return on.product(inputs)

    def lower(self, on: GraphOperations, inputs: Sequence[str]) -> str:
        return _folded(on, "Mul", inputs)


@dataclass(frozen=True)
class Add(Node):
    """Element-wise sum of inputs of the same width."""

    kind = "add"

    def width(self, widths: Sequence[int]) -> int:
        return _same(self, widths)

    def apply(self, on: Operations, inputs: Sequence[Any]) -> Any:
        return on.add(inputs)

    def lower(self, on: GraphOperations, inputs: Sequence[str]) -> str:
        return _folded(on, "Add", inputs)


@dataclass(frozen=True)
class RowSum(Node):
    """Sum over each row; after a Product of two inputs, their inner product."""

    kind = "total"

    def width(self, widths: Sequence[int]) -> int:
        return 1

    def apply(self, on: Operations, inputs: Sequence[Any]) -> Any:
        return on.total(inputs[0])

    def lower(self, on: GraphOperations, inputs: Sequence[str]) -> str:
        return on.node("ReduceSum", inputs[0], on.constant([1]), keepdims=1)


@dataclass(frozen=True)
class Interact(Node):
    """Inner products of all pairs of inputs of the same width; with `itself` also of each input with itself."""

    kind = "interact"
    itself: bool = False

    def width(self, widths: Sequence[int]) -> int:
        _same(self, widths)
        return len(self.places(len(widths)))

    def places(self, count: int) -> list[int]:
        """Returns the places of the products in the flattened square of all pairs."""
        return [count * row + column for row in range(count) for column in range(row + self.itself)]

    def apply(self, on: Operations, inputs: Sequence[Any]) -> Any:
        return on.interact(inputs, self.places(len(inputs)))

    def lower(self, on: GraphOperations, inputs: Sequence[str]) -> str:
        vectors = on.node("Concat", *(on.node("Unsqueeze", vector, on.constant([1])) for vector in inputs), axis=1)
        square = on.node("MatMul", vectors, on.node("Transpose", vectors, perm=[0, 2, 1]))
        flat = on.node("Reshape", square, on.constant([0, len(inputs) ** 2]))
        return on.node("Gather", flat, on.constant(self.places(len(inputs))), axis=1)


@dataclass(frozen=True)
class Length(Node):
    """Scales the input to this length; the inner product of two such vectors is their cosine times both lengths."""

    kind = "length"
    length: float = 1.0

    def width(self, widths: Sequence[int]) -> int:
        return widths[0]

    def apply(self, on: Operations, inputs: Sequence[Any]) -> Any:
        return on.scaled(inputs[0], self.length)

    def lower(self, on: GraphOperations, inputs: Sequence[str]) -> str:
        squares = on.node("ReduceSum", on.node("Mul", inputs[0], inputs[0]), on.constant([1]), keepdims=1)
        root = on.node("Sqrt", on.node("Add", squares, on.constant(np.float32(SHORTEST))))
        return on.node("Mul", inputs[0], on.node("Div", on.constant(np.float32(self.length)), root))


@dataclass(frozen=True)
class Dense(Node):
    kind = "dense"
    units: int
    activation: Activation = "relu"

    def width(self, widths: Sequence[int]) -> int:
        return self.units

    def weights(self, widths: Sequence[int]) -> dict[str, Shape]:
        return {"kernel": (widths[0], self.units), "bias": (self.units,)}

    def apply(self, on: Operations, inputs: Sequence[Any]) -> Any:
        rows = on.dense(inputs[0], on.weight(self.path("kernel")), on.weight(self.path("bias")))
        return on.relu(rows) if self.activation == "relu" else rows

    def lower(self, on: GraphOperations, inputs: Sequence[str]) -> str:
        rows = on.node("Gemm", inputs[0], on.weight(self.path("kernel")), on.weight(self.path("bias")))
        return on.node("Relu", rows) if self.activation == "relu" else rows


@dataclass(frozen=True)
class Norm(Node):
    """Batch norm."""

    kind = "norm"

    def width(self, widths: Sequence[int]) -> int:
        return widths[0]

    def weights(self, widths: Sequence[int]) -> dict[str, Shape]:
        return {"gamma": (widths[0],), "beta": (widths[0],)}

    def moving(self, widths: Sequence[int]) -> dict[str, Shape]:
        return {"mean": (widths[0],), "variance": (widths[0],)}

    def apply(self, on: Operations, inputs: Sequence[Any]) -> Any:
        return on.normalise(inputs[0], self.name)

    def lower(self, on: GraphOperations, inputs: Sequence[str]) -> str:
        gamma, beta, mean, variance = (on.array(self.path(weight)) for weight in ("gamma", "beta", "mean", "variance"))
        scale = gamma / (variance + SMALLEST) ** 0.5
        return on.node("Add", on.node("Mul", inputs[0], on.constant(scale)), on.constant(beta - mean * scale))


@dataclass(frozen=True)
class LayerNorm(Node):
    """Layer norm: each row to mean 0 and variance 1, then scaled and shifted; a row of zeros is only shifted."""

    kind = "layer_norm"

    def width(self, widths: Sequence[int]) -> int:
        return widths[0]

    def weights(self, widths: Sequence[int]) -> dict[str, Shape]:
        return {"gamma": (widths[0],), "beta": (widths[0],)}

    def apply(self, on: Operations, inputs: Sequence[Any]) -> Any:
        return on.level(inputs[0], on.weight(self.path("gamma")), on.weight(self.path("beta")))

    def lower(self, on: GraphOperations, inputs: Sequence[str]) -> str:
        """Does not use ONNX's LayerNormalization: a variance as a difference of two sums is rounding error for a flat row."""
        from_mean = on.node("Sub", inputs[0], on.node("ReduceMean", inputs[0], axes=[1]))
        variance = on.node("ReduceMean", on.node("Mul", from_mean, from_mean), axes=[1])
        level = on.node("Div", from_mean, on.node("Sqrt", on.node("Add", variance, on.constant(np.float32(FLATTEST)))))
        return on.node("Add", on.node("Mul", level, on.weight(self.path("gamma"))), on.weight(self.path("beta")))


@dataclass(frozen=True)
class Dropout(Node):
    """Drops each number with this probability in training, and scales up the others."""

    kind = "dropout"
    rate: float

    def width(self, widths: Sequence[int]) -> int:
        return widths[0]

    def apply(self, on: Operations, inputs: Sequence[Any]) -> Any:
        return on.dropout(inputs[0], self.rate)

    def lower(self, on: GraphOperations, inputs: Sequence[str]) -> str:
        return inputs[0]


KINDS: Mapping[str, type[Node]] = {
    node_type.kind: node_type
    for node_type in (Join, ColumnSelection, Product, Add, RowSum, Interact, Length, Dense, Norm, LayerNorm, Dropout)
}


@dataclass(frozen=True)
class Network:
    nodes: tuple[Node, ...]

    @property
    def last(self) -> str:
        return self.nodes[-1].name

    def towards(self, name: str) -> Network:
        """Returns the part of the network that leads to the node, with the node."""
        wanted, nodes = {name}, list[Node]()
        for node in reversed(self.nodes):
            if node.name in wanted:
                wanted |= set(node.of)
                nodes.append(node)
        return Network(tuple(reversed(nodes)))

    def widths(self, features: Mapping[str, int]) -> dict[str, int]:
        """Returns the widths of all features and nodes."""
        widths = dict(features)
        for node in self.nodes:
            widths[node.name] = node.width([widths[name] for name in node.of])
        if widths[self.last] != 1:
            raise Invalid(f"the network ends with {widths[self.last]} numbers per row at '{self.last}': it must end with one")
        return widths

    def weights(self, features: Mapping[str, int]) -> dict[str, Shape]:
        """Returns the shapes of the trained weights, by path."""
        return self._shapes(features, moving=False)

    def moving(self, features: Mapping[str, int]) -> dict[str, Shape]:
        return self._shapes(features, moving=True)

    def _shapes(self, features: Mapping[str, int], moving: bool) -> dict[str, Shape]:
        widths, shapes = self.widths(features), dict[str, Shape]()
        for node in self.nodes:
            before = [widths[name] for name in node.of]
            shapes |= {node.path(name): shape for name, shape in (node.moving if moving else node.weights)(before).items()}
        return shapes

    def outputs(self, on: Operations, features: Mapping[str, Any]) -> dict[str, Any]:
        """Returns the values of all features and nodes."""
        outputs = dict(features)
        for node in self.nodes:
            outputs[node.name] = node.apply(on, [outputs[name] for name in node.of])
        return outputs

    def apply(self, on: Operations, features: Mapping[str, Any]) -> Any:
        """Returns the last node's output: the logits of a whole network, [rows, 1]."""
        return self.outputs(on, features)[self.last]

    def lower(self, on: GraphOperations, features: Mapping[str, str]) -> str:
        outputs = dict(features)
        for node in self.nodes:
            outputs[node.name] = node.lower(on, [outputs[name] for name in node.of])
        return outputs[self.last]

    def document(self) -> list[dict[str, Any]]:
        return [{"kind": node.kind} | asdict(node) for node in self.nodes]


def read_network(document: Sequence[Mapping[str, Any]]) -> Network:
    """Reads the result of `document`."""
    return Network(tuple(_node(dict(node)) for node in document))


def _node(fields: dict[str, Any]) -> Node:
    kind = KINDS.get(fields.pop("kind"))
    if kind is None:
        raise Invalid("model.json: a node of the network has an unknown kind: a newer release wrote it")
    return kind(**fields | {"of": tuple(fields["of"])})


def _same(node: Node, widths: Sequence[int]) -> int:
    if len(set(widths)) != 1:
        raise Invalid(f"network node '{node.name}': inputs must have the same width, got {', '.join(map(str, widths))}")
    return widths[0]


def _folded(on: GraphOperations, kind: str, inputs: Sequence[str]) -> str:
    output = inputs[0]
    for operand in inputs[1:]:
        output = on.node(kind, output, operand)
    return output
