"""The signature of a served unit: what export writes, what Triton is told and what the gateway sends.

A unit is one ONNX graph, features and model together: it takes raw columns (ids and text as they are in the data)
and gives one score a row. Beside `model.onnx` an export publishes:

- `signature.json`: this model
- `catalogue.npz`: one array for each item input, aligned by row; the array of the item key lists the catalogue
- `popular.npy`: item keys (int64), the most popular first: the answer for unknown users
- `users.npy`: the known user keys (int64), sorted
- `parity.npz`: real rows: an array for each input, and `score`, what the model gave for them in training's own runtime
- `model_card.json`: for people
"""

from __future__ import annotations

from typing import Literal

from pydantic import Field, model_validator

from shared.contracts.strict import Strict

DataType = Literal["int64", "float32", "string"]
OUTPUT = "score"


class Input(Strict):
    name: str = Field(description="The raw column's name, its case kept.")
    dtype: DataType
    width: int | None = Field(
        None, ge=1, description="None: one value a row. Else a padded list of this many values; text is padded with ''."
    )
    side: Literal["user", "item"] = Field(description="Whether the gateway fills it from the request or from the catalogue.")


class Signature(Strict):
    version: Literal[1] = 1
    user: str = Field(description="The input that takes the user's key.")
    item: str = Field(description="The input that takes the item's key.")
    inputs: tuple[Input, ...]
    output: str = OUTPUT

    @model_validator(mode="after")
    def _keys_are_inputs(self) -> Signature:
        names = [one.name for one in self.inputs]
        if len(set(names)) < len(names):
            raise ValueError("two inputs have one name")
        for key in (self.user, self.item):
            if key not in names:
                raise ValueError(f"'{key}' is not an input")
        return self

    def side(self, side: Literal["user", "item"]) -> tuple[Input, ...]:
        return tuple(one for one in self.inputs if one.side == side)
