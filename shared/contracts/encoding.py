"""Settings of vectors from images or texts, the same in a spec's `encode` and in `eyas features encode`."""

from __future__ import annotations

import re
from typing import Annotated, Any, Literal

from pydantic import AfterValidator, BeforeValidator, Field, PlainSerializer, WithJsonSchema

from shared.contracts.columns import Column
from shared.contracts.strict import Strict

ENCODED = "encoded.parquet"
"""File of the vectors that etl computed, each with the digest of its input."""
EARLIER = "encoded"
"""Origin, among a stage's inputs, of the vectors that an earlier stage published."""
ENCODERS = (".onnx", ".keras")
_SIZE = re.compile(r"([1-9]\d{0,3})x([1-9]\d{0,3})")
_MAGIC = frozenset("*?[")


def _sides(value: Any) -> Any:
    if not isinstance(value, str):
        return value
    match = _SIZE.fullmatch(value)
    if match is None:
        raise ValueError(f"expected HEIGHTxWIDTH such as 224x224, got {value!r}")
    return int(match[1]), int(match[2])


def _plain(uri: str) -> str:
    if not uri or _MAGIC & set(uri):
        raise ValueError(f"expected one path, without *, ? or [, got {uri!r}")
    return uri


def _encoder(uri: str) -> str:
    if not uri.endswith(ENCODERS):
        raise ValueError(f"an encoder is an .onnx or a .keras file, not {uri!r}")
    return _plain(uri)


_Side = Annotated[int, Field(ge=1, le=9999)]
Size = Annotated[
    tuple[_Side, _Side],
    BeforeValidator(_sides),
    PlainSerializer(lambda size: f"{size[0]}x{size[1]}"),
    WithJsonSchema({"type": "string", "pattern": f"^{_SIZE.pattern}$"}),
]
Pixels = Literal["unit", "signed", "bytes", "imagenet"]


class Ways(Strict):
    """Preprocessing of images and texts for an encoder."""

    size: Size | None = Field(None, description="What images are brought to, such as 224x224, where the encoder takes any size.")
    pixels: Pixels = Field(
        "unit", description="What the encoder takes pixels as: 0 to 1, -1 to 1 (`signed`), bytes, or as those of ImageNet are scaled."
    )
    tokens: int = Field(64, ge=1, le=4096, description="How many words of a text an encoder of numbers takes, where it takes any number.")
    words: int = Field(30_000, ge=2, le=2**31 - 1, description="How many different words an encoder of numbers knows.")
    batch: int = Field(32, ge=1, le=4096, description="Rows that the encoder is given at a time.")


class Encode(Ways):
    """Vectors that etl computes; vectors that an earlier run computed from the same input are reused."""

    column: Column = Field(description="A column of text of the items or users: the texts, or images' files below `images`.")
    encoder: Annotated[str, AfterValidator(_encoder)] = Field(
        description="An .onnx or a .keras file without code in it, with one input; under one of the operator's data roots as data is."
    )
    images: Annotated[str, AfterValidator(_plain)] | None = Field(
        None, description="The folder of the images, under a data root as well. For an encoder of images alone."
    )


class EncodeRequest(Ways):
    encoder: str = Field(description="An ONNX file, or a Keras one (.keras) without code in it.")
    table: str = Field(description="One row a key: items, or users.")
    key: Column
    column: Column = Field(description="Of images: their files below `images`. Of texts: the text.")
    out: str = Field(description="The Parquet that is written: the key, and `vector`.")
    images: str | None = Field(None, description="The folder of the images; that of the table if absent.")


class Encoded(Strict):
    rows: int = Field(description="That have a vector.")
    width: int
    before: int = Field(description="Of them, how many an earlier try had done.")
    left_out: int = Field(description="Rows without a vector.")
    reasons: tuple[str, ...] = Field(description="Why, of the first ones.")
