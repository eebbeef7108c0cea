"""Description of a neural model: tables, numbers and a network. With the arrays of `weights.npz` it is the whole model."""

from __future__ import annotations

import json
import math
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, Literal

from pipelines.models.neural.network import Dense, Join, Network, Node, Shape, read_network
from pipelines.models.tables import PRECISION, Table
from pipelines.training.calibration import UNCALIBRATED, LogitLine, read_line
from shared.domain.errors import Invalid

VERSION = 3
Output = Literal["sigmoid", "linear"]
"""Function from the logit to the score."""


@dataclass(frozen=True)
class Architecture:
    family: str
    tables: tuple[Table, ...]
    """A table for each code column."""
    numbers: tuple[tuple[str, int | None], ...]
    """Number features, each with its width, or None for a single number."""
    network: Network
    output: Output = "sigmoid"
    calibration: LogitLine = UNCALIBRATED
    """From the network's logits to the served ones. A warm run trains the network without it."""

    @property
    def features(self) -> dict[str, int]:
        """Inputs of the network, with their widths."""
        return {table.column: table.width for table in self.tables} | {name: width or 1 for name, width in self.numbers}

    @property
    def shapes(self) -> dict[str, Shape]:
        """Shapes of all trained arrays, by path."""
        tables = {table_path(table): (table.cardinality, table.width) for table in self.tables}
        return tables | self.network.weights(self.features)

    @property
    def moving(self) -> dict[str, Shape]:
        return self.network.moving(self.features)

    @property
    def widths(self) -> tuple[int, ...]:
        """Widths of the input and of each dense layer; empty without layers."""
        layers = [node.units for node in self.network.nodes if isinstance(node, Dense)]
        return (sum(self.features.values()), *layers) if layers else ()

    @property
    def lookups(self) -> float:
        """Most values that a row looks up."""
        return float(sum(table.length or 1 for table in self.tables))

    @property
    def parameters(self) -> int:
        return sum(math.prod(shape) for shape in self.shapes.values())

    @property
    def size(self) -> int:
        """Bytes of all weights."""
        return PRECISION * (self.parameters + sum(math.prod(shape) for shape in self.moving.values()))

    def save(self, path: Path) -> Path:
        document = {
            "version": VERSION,
            "family": self.family,
            "tables": [asdict(table) for table in self.tables],
            "numbers": self.numbers,
            "network": self.network.document(),
            "output": self.output,
        } | self.calibration.document
        path.write_text(json.dumps(document, indent=1))
        return path


def table_path(table: Table) -> str:
    return f"table_{table.column}/embeddings"


def load_architecture(path: Path) -> Architecture:
    value = json.loads(path.read_text())
    if value["version"] > VERSION:
        raise Invalid(f"model.json: version {value['version']} is newer than {VERSION}, the newest version of this release")
    tables = tuple(Table(**table) for table in value["tables"])
    numbers = tuple((name, width) for name, width in value.get("numbers", ()))
    if value["version"] == 1:
        return Architecture(value["family"], tables, numbers, Network(tuple(_of_layers(value["layers"], tables, numbers))))
    return Architecture(value["family"], tables, numbers, read_network(value["network"]), value["output"], read_line(value))


def _of_layers(layers: list[int], tables: tuple[Table, ...], numbers: Any) -> list[Node]:
    """Returns the nodes of an mlp from the `layers` of version 1."""
    features = (*(table.column for table in tables), *(name for name, _ in numbers))
    names = ["features", *(f"hidden_{number}" for number in range(len(layers)))]
    hidden: list[Node] = [Dense(name, (before,), units) for before, name, units in zip(names, names[1:], layers, strict=False)]
    return [Join("features", features), *hidden, Dense("score", (names[-1],), 1, "linear")]
