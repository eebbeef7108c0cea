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
        raise ValueError(f"expected an .onnx or .keras file, got {uri!r}")
    return _plain(uri)


_Side = Annotated[int, Field(ge=1, le=9999)]
Size = Annotated[
    tuple[_Side, _Side],
    BeforeValidator(_sides),
    PlainSerializer(lambda size: f"{size[0]}x{size[1]}"),
    WithJsonSchema(
        {
            "anyOf": [
                {"type": "string", "pattern": f"^{_SIZE.pattern}$"},
                {"type": "array", "items": {"type": "integer"}, "minItems": 2, "maxItems": 2},
            ],
            "examples": ["224x224"],
        }
    ),
]
Pixels = Literal["unit", "signed", "bytes", "imagenet"]


class EncoderPreprocessing(Strict):
    """Preprocessing of images and texts for an encoder."""

    size: Size | None = Field(None, description="Size to which images are scaled, such as 224x224, if the encoder accepts any size.")
    pixels: Pixels = Field(
        "unit", description="Scale of the pixels: 0 to 1 (`unit`), -1 to 1 (`signed`), bytes, or normalised for ImageNet."
    )
    tokens: int = Field(64, ge=1, le=4096, description="Number of words of a text, for an encoder of numbers that accepts any length.")
    words: int = Field(30_000, ge=2, le=2**31 - 1, description="Size of the vocabulary of an encoder of numbers.")
    batch: int = Field(32, ge=1, le=4096, description="Number of rows per call of the encoder.")


class Encode(EncoderPreprocessing):
    """Vectors that etl computes; vectors that an earlier run computed from the same input are reused."""

    column: Column = Field(description="Text column of the items or users: the texts, or the image files below `images`.")
    encoder: Annotated[str, AfterValidator(_encoder)] = Field(
        description="An .onnx or .keras file without custom code, with one input; under one of the operator's data roots."
    )
    images: Annotated[str, AfterValidator(_plain)] | None = Field(
        None, description="Folder of the images, under one of the operator's data roots; only for an image encoder."
    )


class EncodeRequest(EncoderPreprocessing):
    encoder: str = Field(description="An .onnx file, or a .keras file without custom code.")
    table: str = Field(description="Table of items or users with one row per key.")
    key: Column
    column: Column = Field(description="Column of the texts, or of the image files below `images`.")
    out: str = Field(description="Output Parquet file with the columns of the key and `vector`.")
    images: str | None = Field(None, description="Folder of the images; the folder of the table if absent.")


class Encoded(Strict):
    rows: int = Field(description="Number of rows with a vector.")
    width: int
    before: int = Field(description="Number of these rows that an earlier attempt encoded.")
    left_out: int = Field(description="Number of rows without a vector.")
    reasons: tuple[str, ...] = Field(description="Reasons for the first rows without a vector.")
