"""The signature of a served unit: what export writes, what Triton is told and what the gateway sends.

A unit is features and model together: it takes raw columns (ids and text as they are in the data) and gives one score a row.
`signature.json` says which file it is and what runs it, so that a family that isn't an ONNX graph can stand beside those that are.
Beside that file an export publishes:

- `signature.json`: this model
- `catalogue.npz`: one array for each item input, aligned by row; the array of the item key lists the catalogue
- `popular.npy`: item keys (int64), the most popular first: the answer for unknown users
- `fresh.npy`: item keys (int64), those that anybody met last for the first time first
- `users.npy`: the known user keys (int64), sorted
- `parity.npz`: real rows: an array for each input, `score`, what the model gave for them in training's own runtime, and an array for
  each feature (under its output's name), what training made of them
- `embeddings.npz` and `queries.npz`, where candidates are retrieved, or the family has vectors: `items` (int64 keys, row by row as in the
  catalogue) and `vectors` (float32); `users` (int64 keys, sorted) and `vectors`: who meets what best by inner product
- `candidates.index`, of a large catalogue: the nearest neighbours of `embeddings.npz` (shared.serving.index_file)
- `recommendations.parquet`, where the spec has `serve.batch`: user, place, item, score
- `model_card.json`: for people
"""

from __future__ import annotations

from typing import Literal

from pydantic import Field, model_validator

from shared.contracts.strict import Strict

DataType = Literal["int64", "float32", "string"]
FeatureType = Literal["int32", "float32"]
OUTPUT = "score"
INDEX = "candidates.index"
FRESH = "fresh.npy"
RECOMMENDATIONS = "recommendations.parquet"


class Input(Strict):
    name: str = Field(description="The raw column's name, its case kept.")
    dtype: DataType
    width: int | None = Field(
        None, ge=1, description="None: one value a row. Else a padded list of this many values; text is padded with ''."
    )
    side: Literal["user", "item"] = Field(description="Whether the gateway fills it from the request or from the catalogue.")


class Feature(Strict):
    """What the unit's own features make of a column: an output beside the score, to be held against training's."""

    column: str = Field(description="The raw column that it is made of.")
    output: str
    dtype: FeatureType = "int32"
    width: int | None = Field(None, ge=1)


class Signature(Strict):
    version: Literal[1] = 1
    file: Literal["model.onnx"] = Field("model.onnx", description="What is served.")
    backend: Literal["onnxruntime"] = Field("onnxruntime", description="Triton's backend that runs it.")
    user: str = Field(description="The input that takes the user's key.")
    item: str = Field(description="The input that takes the item's key.")
    inputs: tuple[Input, ...]
    output: str = OUTPUT
    features: tuple[Feature, ...] = Field((), description="Outputs for `verify`; nobody else asks for them.")
    instances: int = Field(1, ge=1, description="Of the model on each server.")
    warm_up: int = Field(0, ge=0, description="Rows of the call that a server makes before it says that the version is ready; 0: none.")

    @model_validator(mode="after")
    def _keys_are_inputs(self) -> Signature:
        names = [one.name for one in self.inputs]
        if len(set(names)) < len(names):
            raise ValueError("two inputs have one name")
        for key in (self.user, self.item):
            if key not in names:
                raise ValueError(f"'{key}' is not an input")
        outputs = [self.output, *(one.output for one in self.features)]
        if len(set(outputs)) < len(outputs):
            raise ValueError("two outputs have one name")
        return self

    def side(self, side: Literal["user", "item"]) -> tuple[Input, ...]:
        return tuple(one for one in self.inputs if one.side == side)
