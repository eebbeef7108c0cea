"""Signature of a served unit: export writes it, Triton's configuration is made from it, and the gateway builds requests by it.

A unit is features and model together: it takes raw columns (ids and text as in the data) and gives one score per row. `signature.json`
names the model file and its backend, so that families without an ONNX graph are possible. An export also publishes:

- `signature.json`: this model
- `weights.bin`, of a large unit: the weights that the graph looks up there, because a graph itself holds at most 2 GB
- with `serve.device: gpu`: the files of the steps, which compute the same on a Triton with a GPU
- `catalogue.npz`: one array for each item input, aligned by row; the array of the item key lists the catalogue
- `popular.npy`: item keys (int64), most popular first: the answer for unknown users
- `fresh.npy`: item keys (int64), the item with the latest first interaction first
- `users.npy`: the known user keys (int64), sorted
- `parity.npz`: real rows: an array for each input of any side, `score`, the model's score in training's own runtime,
  and an array for each feature (under its output's name), computed in training
- `embeddings.npz` and `queries.npz`, for retrieval, or if the family has vectors: `items` (int64 keys, in the rows of the
  catalogue) and `vectors` (float32); `users` (int64 keys, sorted) and `vectors`; the inner product ranks items for a user
- `candidates.index`, of a large catalogue: the nearest neighbours of `embeddings.npz` (shared.serving.index_file)
- `item_ids.npz`, if ids of items are text: the id of each row of the catalogue (shared.serving.text_column)
- `recommendations.parquet`, where the spec has `serve.batch`: user, place, item, score
- `new_items.json`: how the version reads items that only the catalogue has (shared.contracts.items_table)
- `online.json` and its files: values by key for the feature store (shared.contracts.online), if an input comes from there
- `model_card.json`: for people

Unknown values are blank: the smallest int64, NaN, an empty text; a list is padded with blanks. The graph treats blanks as training treats
nulls.

Files and memory use this form. `lists` of an input decides how the graph takes a list: as such a row, as values and offsets, or once for
all rows of a request (shared.serving.tensors makes all three).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from pydantic import Field, model_validator

from shared.contracts.serving import Lists
from shared.contracts.strict import Strict

DataType = Literal["int64", "float32", "string"]
FeatureType = Literal["int32", "float32"]
Side = Literal["user", "item", "context"]
Source = Literal["request", "catalogue", "store"]
BLANK: dict[DataType, int | float | str] = {"int64": -(2**63), "float32": float("nan"), "string": ""}
OUTPUT = "score"
INDEX = "candidates.index"
FRESH = "fresh.npy"
ITEM_IDS = "item_ids.npz"
RECOMMENDATIONS = "recommendations.parquet"
WEIGHTS = "weights.bin"
VALUES, OFFSETS = "__values", "__offsets"
"""Suffixes of the two tensors of a list as values and offsets."""
LISTS, LIST = "__lists", "__list"
"""Suffixes of the two tensors of a list that rows share."""


@dataclass(frozen=True)
class Tensor:
    """Tensor of the served graph."""

    name: str
    dtype: DataType | FeatureType
    width: int | None = None
    """Length of a row; None: a single value for each row, value or end."""
    each: Literal["row", "value", "end", "list"] = "row"
    """Length of the tensor: rows, values in the lists of all rows, ends of rows' lists (with the begin of the first list), or distinct
    lists."""

    def count(self, rows: int, values: int = 0) -> int:
        return {"row": rows, "value": values, "end": rows + 1, "list": min(rows, 1)}[self.each]


class Input(Strict):
    name: str = Field(description="Name of the raw column, with its case.")
    dtype: DataType
    width: int | None = Field(None, ge=1, description="Length of a list, padded with blanks; null for one value per row.")
    lists: Lists | Literal["shared"] = Field(
        "padded",
        exclude_if=lambda value: value == "padded",
        description="Form of a list in the graph: `padded`, one row of `width` under its own name; `offsets`, `NAME__values` of all "
        "rows, one after the other, and `NAME__offsets` (int64), from 0: the start of each row and the end of the last one (values beyond "
        "`width` in a row are dropped); or `shared`, `NAME__lists`, one row of `width` for each distinct list, and `NAME__list` (int64), "
        "the number of each row's list.",
    )
    side: Side = Field(
        description="Owner of the value: the user (by the key), an item, or `context`: the time of the request, or another attribute of it."
    )
    source: Source | None = Field(
        None,
        description="Source of the value: the catalogue for an item, the request for its time and keys, the feature store for other user "
        "values. Absent: the catalogue or the request.",
    )
    view: str | None = Field(None, description="View that has an input from the store, as a column with the input's name.")

    @model_validator(mode="after")
    def _check_source(self) -> Input:
        usual: Source = "catalogue" if self.side == "item" else "request"
        if self.origin != usual and (self.side, self.origin) != ("user", "store"):
            raise ValueError(f"input '{self.name}' of the side '{self.side}' comes from the {usual}, not from the {self.origin}")
        if (self.view is None) == (self.origin == "store"):
            raise ValueError(f"input '{self.name}': expected a view for an input from the store, and for no other")
        if self.lists != "padded" and self.width is None:
            raise ValueError(f"input '{self.name}' has one value per row; {self.lists} need a list")
        return self

    @property
    def tensors(self) -> tuple[Tensor, ...]:
        if self.lists == "padded":
            return (Tensor(self.name, self.dtype, self.width),)
        if self.lists == "shared":
            return Tensor(self.name + LISTS, self.dtype, self.width, "list"), Tensor(self.name + LIST, "int64")
        return Tensor(self.name + VALUES, self.dtype, each="value"), Tensor(self.name + OFFSETS, "int64", each="end")

    @property
    def origin(self) -> Source:
        return self.source or ("catalogue" if self.side == "item" else "request")


class Feature(Strict):
    """Feature of the unit: an output in addition to the score, for the comparison with training."""

    column: str = Field(description="Name of the feature.")
    of: tuple[str, ...] = Field((), description="Inputs that it is made from; empty for the input of the same name.")
    output: str
    dtype: FeatureType = "int32"
    width: int | None = Field(None, ge=1)
    missing: bool = Field(False, exclude_if=lambda value: not value, description="Whether NaN means an unknown value, also for the model.")


class StepTensor(Strict):
    name: str = Field(description="Name in the step's own file.")
    tensor: str = Field(description="Name among all steps: a step's input is the unit's input or the output of an earlier step.")
    dtype: DataType | FeatureType
    width: int | None = None
    each: Literal["row", "value", "end", "list"] = "row"

    @property
    def own(self) -> Tensor:
        return Tensor(self.name, self.dtype, self.width, self.each)


class Step(Strict):
    """Part of a unit, for a Triton with a GPU. Steps run one after the other, as an ensemble."""

    file: Literal["features.onnx", "network.onnx", "trees.tl", "score.onnx"]
    device: Literal["cpu", "gpu"]
    batches: bool = Field(description="Whether waiting calls are computed together; then each tensor has rows of a fixed length.")
    inputs: tuple[StepTensor, ...]
    outputs: tuple[StepTensor, ...]

    @property
    def name(self) -> str:
        return self.file.partition(".")[0]

    @property
    def backend(self) -> str:
        return "fil" if self.file == "trees.tl" else "onnxruntime"

    @property
    def server_file(self) -> str:
        """Name that the backend expects."""
        return "checkpoint.tl" if self.backend == "fil" else "model.onnx"


class Signature(Strict):
    version: Literal[1] = 1
    file: Literal["model.onnx"] = Field("model.onnx", description="Model file.")
    weights: Literal["weights.bin"] | None = Field(
        None, exclude_if=lambda value: value is None, description="File with large weights beside the model file, if there is one."
    )
    backend: Literal["onnxruntime"] = Field("onnxruntime", description="Triton backend of the model.")
    user: str = Field(description="Input for the user's key.")
    item: str = Field(description="Input for the item's key.")
    time: str | None = Field(None, description="Input for the time of the request: whole seconds since 1970, as int64.")
    session: str | None = Field(
        None,
        exclude_if=lambda value: value is None,
        description="Input for the user's newest items, the newest last: a list of keys, blank without items. The gateway takes the user's "
        "positives since `learned_until` from the event log, and appends the items of the request.",
    )
    learned_until: float | None = Field(
        None,
        exclude_if=lambda value: value is None,
        description="Time of the newest interaction that the version learned from, in seconds since 1970; absent: unknown.",
    )
    inputs: tuple[Input, ...]
    output: str = OUTPUT
    features: tuple[Feature, ...] = Field((), description="Outputs for `verify`; requests do not use them.")
    instances: int = Field(1, ge=1, description="Number of instances of the model on each server.")
    warm_up: int = Field(0, ge=0, description="Rows of a warm-up call before the server reports the version as ready; 0: none.")

    steps: tuple[Step, ...] = Field(
        (),
        exclude_if=lambda value: not value,
        description="The unit in steps, which a Triton with a GPU runs instead of the model file; empty: all runs on CPUs.",
    )

    @model_validator(mode="after")
    def _check_names(self) -> Signature:
        names = [model_input.name for model_input in self.inputs]
        if len(set(names)) < len(names):
            raise ValueError("two inputs have the same name")
        if len({tensor.name for tensor in self.tensors}) < len(self.tensors):
            raise ValueError("an input has the same name as the values or the offsets of another input")
        for key in (self.user, self.item):
            if key not in names:
                raise ValueError(f"'{key}' is not an input")
        for model_input in self.inputs:
            self._check_input(model_input)
        for optional in (self.time, self.session):
            if optional is not None and optional not in names:
                raise ValueError(f"'{optional}' is not an input")
        outputs = [self.output, *(feature.output for feature in self.features)]
        if len(set(outputs)) < len(outputs):
            raise ValueError("two outputs have the same name")
        return self

    def _check_input(self, model_input: Input) -> None:
        name, of_context = model_input.name, (model_input.side, model_input.dtype) == ("context", "int64")
        if model_input.side == "user" and model_input.origin == "request" and name != self.user:
            raise ValueError(f"'{name}' is a user input that no request contains; set source 'store'")
        if name == self.time and not (of_context and model_input.width is None):
            raise ValueError(f"'{name}' takes the time of the request: expected one int64 per row, side 'context'")
        if name == self.session and (not of_context or model_input.width is None):
            raise ValueError(f"'{name}' takes the items of the request: expected a list of int64 per row, side 'context'")

    @property
    def files(self) -> tuple[str, ...]:
        """Files that a server without a GPU needs, in one folder."""
        return (self.file,) if self.weights is None else (self.file, self.weights)

    @property
    def gpu_files(self) -> tuple[str, ...]:
        """Files that a server with a GPU needs."""
        steps = tuple(step.file for step in self.steps)
        return self.files if not steps else steps if self.weights is None else (*steps, self.weights)

    @property
    def tensors(self) -> tuple[Tensor, ...]:
        """Inputs of the graph. The first has one value per row, as keys have, so its length is the number of rows."""
        tensors = (tensor for model_input in self.inputs for tensor in model_input.tensors)
        return tuple(sorted(tensors, key=lambda tensor: tensor.each != "row"))

    def side(self, side: Side) -> tuple[Input, ...]:
        return tuple(model_input for model_input in self.inputs if model_input.side == side)

    def request_inputs(self) -> tuple[Input, ...]:
        """Inputs of a request other than the items: one value for all of its rows."""
        return tuple(model_input for model_input in self.inputs if model_input.side != "item")
