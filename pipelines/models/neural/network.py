"""What a neural family's network is, as data: nodes from looked-up vectors and numbers to one logit a row.

One description is trained, by Keras' operations on TensorFlow or torch, scored by NumPy, and lowered to ONNX; so a trained model is
arrays and JSON, and neither scoring nor exporting it needs a framework. Each kind of node says its meaning in one place: the shapes of its
weights, what it computes with the operations that it is given (`Operations`), and which ONNX operators are the same.

A node's inputs are names: of other nodes before it, or of features. A feature's vector is [rows, width]; the last node gives [rows, 1].
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any, ClassVar, Literal, Protocol

import numpy as np

from shared.domain.errors import Invalid

Activation = Literal["relu", "linear"]
Shape = tuple[int, ...]
SMALLEST = 1e-3
"""What is added to a variance before it divides."""
SHORTEST = 1e-12
"""What is added to the square of a length before it divides."""
FLATTEST = 1e-6
"""What is added to the variance of one row's numbers before it divides: a vector of length 1 has little."""


class Operations(Protocol):
    """What a runtime gives to nodes. Tensors are the runtime's own."""

    def weight(self, path: str) -> Any: ...
    def dense(self, rows: Any, kernel: Any, bias: Any) -> Any: ...
    def relu(self, rows: Any) -> Any: ...
    def join(self, parts: Sequence[Any]) -> Any: ...
    def part(self, rows: Any, start: int, stop: int) -> Any: ...
    def product(self, parts: Sequence[Any]) -> Any: ...
    def add(self, parts: Sequence[Any]) -> Any: ...
    def total(self, rows: Any) -> Any:
        """[rows, 1]: the sum over each row."""

    def interact(self, parts: Sequence[Any], places: Sequence[int]) -> Any:
        """[rows, places]: inner products of the parts, at these places of the square of all, row by row."""

    def scaled(self, rows: Any, length: float) -> Any:
        """Each row at that length, but for one that is zero."""

    def dropout(self, rows: Any, rate: float) -> Any:
        """In training alone."""

    def normalise(self, rows: Any, path: str) -> Any:
        """By the batch's mean and variance in training, later by the moving ones."""

    def level(self, rows: Any, gamma: Any, beta: Any) -> Any:
        """Each row by its own mean and variance, then times one weight a number, plus another."""


class Lowered(Protocol):
    """What an ONNX graph gives to nodes: tensors are names."""

    def weight(self, path: str) -> str: ...
    def array(self, path: str) -> Any:
        """The weight itself."""

    def constant(self, values: Any) -> str: ...
    def node(self, kind: str, *inputs: str, **attributes: Any) -> str: ...


@dataclass(frozen=True)
class Node:
    kind: ClassVar[str]
    name: str
    of: tuple[str, ...]

    def width(self, widths: Sequence[int]) -> int:
        """Of its output, by its inputs'."""
        raise NotImplementedError

    def weights(self, widths: Sequence[int]) -> dict[str, Shape]:
        """What is trained, under this node's name."""
        return {}

    def moving(self, widths: Sequence[int]) -> dict[str, Shape]:
        """What training changes without a gradient."""
        return {}

    def apply(self, on: Operations, inputs: Sequence[Any]) -> Any:
        raise NotImplementedError

    def lower(self, on: Lowered, inputs: Sequence[str]) -> str:
        raise NotImplementedError

    def path(self, weight: str) -> str:
        return f"{self.name}/{weight}"


@dataclass(frozen=True)
class Join(Node):
    """Its inputs side by side."""

    kind = "join"

    def width(self, widths: Sequence[int]) -> int:
        return sum(widths)

    def apply(self, on: Operations, inputs: Sequence[Any]) -> Any:
        return on.join(inputs) if len(inputs) > 1 else inputs[0]

    def lower(self, on: Lowered, inputs: Sequence[str]) -> str:
        return on.node("Concat", *inputs, axis=1) if len(inputs) > 1 else inputs[0]


@dataclass(frozen=True)
class Part(Node):
    """Some columns of its input: one lookup may serve several parts of a network."""

    kind = "part"
    start: int
    stop: int

    def width(self, widths: Sequence[int]) -> int:
        return self.stop - self.start

    def apply(self, on: Operations, inputs: Sequence[Any]) -> Any:
        return on.part(inputs[0], self.start, self.stop)

    def lower(self, on: Lowered, inputs: Sequence[str]) -> str:
        return on.node("Slice", inputs[0], *(on.constant([value]) for value in (self.start, self.stop, 1)))


@dataclass(frozen=True)
class Product(Node):
    """Number by number: the inputs are of one width."""

    kind = "product"

    def width(self, widths: Sequence[int]) -> int:
        return _same(self, widths)

    def apply(self, on: Operations, inputs: Sequence[Any]) -> Any:
        return on.product(inputs)

    def lower(self, on: Lowered, inputs: Sequence[str]) -> str:
        return _folded(on, "Mul", inputs)


@dataclass(frozen=True)
class Add(Node):
    """Number by number: the inputs are of one width."""

    kind = "add"

    def width(self, widths: Sequence[int]) -> int:
        return _same(self, widths)

    def apply(self, on: Operations, inputs: Sequence[Any]) -> Any:
        return on.add(inputs)

    def lower(self, on: Lowered, inputs: Sequence[str]) -> str:
        return _folded(on, "Add", inputs)


@dataclass(frozen=True)
class Total(Node):
    """The sum over each row; of a product of two it is their inner product."""

    kind = "total"

    def width(self, widths: Sequence[int]) -> int:
        return 1

    def apply(self, on: Operations, inputs: Sequence[Any]) -> Any:
        return on.total(inputs[0])

    def lower(self, on: Lowered, inputs: Sequence[str]) -> str:
        return on.node("ReduceSum", inputs[0], on.constant([1]), keepdims=1)


@dataclass(frozen=True)
class Interact(Node):
    """Inner products of its inputs, which are of one width: of each two once; with `itself` of each with itself too."""

    kind = "interact"
    itself: bool = False

    def width(self, widths: Sequence[int]) -> int:
        _same(self, widths)
        return len(self.places(len(widths)))

    def places(self, count: int) -> list[int]:
        """Of its products in the square of all, row by row."""
        return [count * row + column for row in range(count) for column in range(row + self.itself)]

    def apply(self, on: Operations, inputs: Sequence[Any]) -> Any:
        return on.interact(inputs, self.places(len(inputs)))

    def lower(self, on: Lowered, inputs: Sequence[str]) -> str:
        vectors = on.node("Concat", *(on.node("Unsqueeze", vector, on.constant([1])) for vector in inputs), axis=1)
        square = on.node("MatMul", vectors, on.node("Transpose", vectors, perm=[0, 2, 1]))
        flat = on.node("Reshape", square, on.constant([0, len(inputs) ** 2]))
        return on.node("Gather", flat, on.constant(self.places(len(inputs))), axis=1)


@dataclass(frozen=True)
class Length(Node):
    """Its input at this length: of two such, the inner product is their cosine times both lengths."""

    kind = "length"
    length: float = 1.0

    def width(self, widths: Sequence[int]) -> int:
        return widths[0]

    def apply(self, on: Operations, inputs: Sequence[Any]) -> Any:
        return on.scaled(inputs[0], self.length)

    def lower(self, on: Lowered, inputs: Sequence[str]) -> str:
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

    def lower(self, on: Lowered, inputs: Sequence[str]) -> str:
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

    def lower(self, on: Lowered, inputs: Sequence[str]) -> str:
        gamma, beta, mean, variance = (on.array(self.path(weight)) for weight in ("gamma", "beta", "mean", "variance"))
        scale = gamma / (variance + SMALLEST) ** 0.5
        return on.node("Add", on.node("Mul", inputs[0], on.constant(scale)), on.constant(beta - mean * scale))


@dataclass(frozen=True)
class LayerNorm(Node):
    """Each row to mean 0 and variance 1 by itself, then scaled and moved, number by number. A row of zeros is moved alone."""

    kind = "layer_norm"

    def width(self, widths: Sequence[int]) -> int:
        return widths[0]

    def weights(self, widths: Sequence[int]) -> dict[str, Shape]:
        return {"gamma": (widths[0],), "beta": (widths[0],)}

    def apply(self, on: Operations, inputs: Sequence[Any]) -> Any:
        return on.level(inputs[0], on.weight(self.path("gamma")), on.weight(self.path("beta")))

    def lower(self, on: Lowered, inputs: Sequence[str]) -> str:
        """Not by ONNX's own operator: runtimes take a variance as the difference of two sums, which of a flat row is rounding."""
        from_mean = on.node("Sub", inputs[0], on.node("ReduceMean", inputs[0], axes=[1]))
        variance = on.node("ReduceMean", on.node("Mul", from_mean, from_mean), axes=[1])
        level = on.node("Div", from_mean, on.node("Sqrt", on.node("Add", variance, on.constant(np.float32(FLATTEST)))))
        return on.node("Add", on.node("Mul", level, on.weight(self.path("gamma"))), on.weight(self.path("beta")))


@dataclass(frozen=True)
class Dropout(Node):
    """In training each number is left out with this chance, and the others make up for it."""

    kind = "dropout"
    rate: float

    def width(self, widths: Sequence[int]) -> int:
        return widths[0]

    def apply(self, on: Operations, inputs: Sequence[Any]) -> Any:
        return on.dropout(inputs[0], self.rate)

    def lower(self, on: Lowered, inputs: Sequence[str]) -> str:
        return inputs[0]


KINDS: Mapping[str, type[Node]] = {
    node_type.kind: node_type for node_type in (Join, Part, Product, Add, Total, Interact, Length, Dense, Norm, LayerNorm, Dropout)
}


@dataclass(frozen=True)
class Network:
    nodes: tuple[Node, ...]

    @property
    def last(self) -> str:
        return self.nodes[-1].name

    def towards(self, name: str) -> Network:
        """What that node is made of, and itself."""
        wanted, nodes = {name}, list[Node]()
        for node in reversed(self.nodes):
            if node.name in wanted:
                wanted |= set(node.of)
                nodes.append(node)
        return Network(tuple(reversed(nodes)))

    def widths(self, features: Mapping[str, int]) -> dict[str, int]:
        """Of everything that has a name."""
        widths = dict(features)
        for node in self.nodes:
            widths[node.name] = node.width([widths[name] for name in node.of])
        if widths[self.last] != 1:
            raise Invalid(f"the network ends in {widths[self.last]} numbers a row at '{self.last}': it has to end in one")
        return widths

    def weights(self, features: Mapping[str, int]) -> dict[str, Shape]:
        """What is trained, by path."""
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
        """Of everything that has a name."""
        outputs = dict(features)
        for node in self.nodes:
            outputs[node.name] = node.apply(on, [outputs[name] for name in node.of])
        return outputs

    def apply(self, on: Operations, features: Mapping[str, Any]) -> Any:
        """What the last node gives: of a whole network the logits, [rows, 1]."""
        return self.outputs(on, features)[self.last]

    def lower(self, on: Lowered, features: Mapping[str, str]) -> str:
        outputs = dict(features)
        for node in self.nodes:
            outputs[node.name] = node.lower(on, [outputs[name] for name in node.of])
        return outputs[self.last]

    def document(self) -> list[dict[str, Any]]:
        return [{"kind": node.kind} | asdict(node) for node in self.nodes]


def read_network(document: Sequence[Mapping[str, Any]]) -> Network:
    """What `document` gave."""
    return Network(tuple(_node(dict(node)) for node in document))


def _node(fields: dict[str, Any]) -> Node:
    kind = KINDS.get(fields.pop("kind"))
    if kind is None:
        raise Invalid("model.json: a node of its network is of a kind that isn't known here: it was made by a newer version")
    return kind(**fields | {"of": tuple(fields["of"])})


def _same(node: Node, widths: Sequence[int]) -> int:
    if len(set(widths)) != 1:
        raise Invalid(f"the network's '{node.name}' takes inputs of one width, they are {', '.join(map(str, widths))} wide")
    return widths[0]


def _folded(on: Lowered, kind: str, inputs: Sequence[str]) -> str:
    output = inputs[0]
    for operand in inputs[1:]:
        output = on.node(kind, output, operand)
    return output
