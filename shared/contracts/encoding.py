"""What `eyas features encode` asks, and what it is answered: vectors of images or texts, by whatever encoder is given."""

from __future__ import annotations

from typing import Literal

from pydantic import Field

from shared.contracts.columns import Column
from shared.contracts.strict import Strict


class EncodeRequest(Strict):
    encoder: str = Field(description="An ONNX file, or a Keras one (.keras) without code in it.")
    table: str = Field(description="One row a key: items, or users.")
    key: Column
    column: Column = Field(description="Of images: their files below `images`. Of texts: the text.")
    out: str = Field(description="The Parquet that is written: the key, and `vector`.")
    images: str | None = Field(None, description="The folder of the images; that of the table if absent.")
    size: tuple[int, int] | None = Field(None, description="Height and width that images are brought to, where the encoder takes any.")
    pixels: Literal["unit", "signed", "bytes", "imagenet"] = Field("unit", description="What the encoder takes pixels as.")
    tokens: int = Field(64, ge=1, le=4096, description="How many words of a text an encoder of numbers takes, where it takes any number.")
    words: int = Field(30_000, ge=2, le=2**31 - 1, description="How many different words an encoder of numbers knows.")
    batch: int = Field(32, ge=1, le=4096)


class Encoded(Strict):
    rows: int = Field(description="That have a vector.")
    width: int
    before: int = Field(description="Of them, how many an earlier try had done.")
    left_out: int = Field(description="Rows without a vector.")
    reasons: tuple[str, ...] = Field(description="Why, of the first ones.")
