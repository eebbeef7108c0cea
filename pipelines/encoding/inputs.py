"""Converts images and texts to encoder inputs. Unreadable values raise `UnreadableValue`: a damaged file stops nothing.

A reader first returns a row's content, which identifies the value, then converts the content."""

from __future__ import annotations

import re
import zlib
from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from pipelines.encoding.encoders import EncoderInput, installed
from pipelines.encoding.files import Files, UnreadableValue
from shared.contracts.encoding import EncoderPreprocessing, Pixels
from shared.domain.errors import Invalid

_MOST_PIXELS = 100_000_000
_PNG, _JPEG, _NPY = b"\x89PNG\r\n\x1a\n", b"\xff\xd8\xff", b"\x93NUMPY"
_WORD = re.compile(r"\w+")
_MEAN, _DEVIATION = (0.485, 0.456, 0.406), (0.229, 0.224, 0.225)


class InputReader(Protocol):
    @property
    def how(self) -> str:
        """Options that change the encoder's input."""

    def content(self, value: str) -> bytes:
        """Returns the content; raises `UnreadableValue` if there is none."""

    def array(self, content: bytes) -> NDArray[Any]:
        """Converts the content; raises `UnreadableValue` for invalid content."""


def reader(takes: EncoderInput, ways: EncoderPreprocessing, images: Files | None) -> InputReader:
    if takes.kind != "images":
        return TextReader(takes) if takes.kind == "text" else WordHasher(takes, ways.tokens, ways.words)
    if images is None:
        raise Invalid("images: the encoder takes images; set their folder")
    return Images(images, takes, ways.size, ways.pixels)


@dataclass(frozen=True)
class Images:
    """Reads PNG, JPEG, or .npy arrays of height x width x 3 bytes."""

    files: Files
    takes: EncoderInput
    size: tuple[int, int] | None
    pixels: Pixels

    def __post_init__(self) -> None:
        with installed("TensorFlow", "images"):
            from pipelines.models.runtime import load_keras

            load_keras()
        height, width = self.wanted
        if height is None or width is None:
            raise Invalid("size: the encoder takes images of any size; set the size to scale to, such as 224x224")
        if self.size is not None and (height, width) != self.size:
            raise Invalid(f"size: the encoder takes {height}x{width}, not {self.size[0]}x{self.size[1]}")

    @property
    def wanted(self) -> tuple[int | None, int | None]:
        height, width = self.takes.shape[1:] if self.takes.channels_first else self.takes.shape[:2]
        return (height or (self.size[0] if self.size else None), width or (self.size[1] if self.size else None))

    @property
    def how(self) -> str:
        return f"images {self.wanted} {self.pixels}"

    def content(self, value: str) -> bytes:
        return self.files.content(value)

    def array(self, content: bytes) -> NDArray[Any]:
        import tensorflow as tf

        image = self._decoded(content)
        scaled = np.asarray(tf.image.resize(tf.cast(image, tf.float32), self.wanted, antialias=True))
        made = self._scaled(scaled)
        return np.transpose(made, (2, 0, 1)) if self.takes.channels_first else made

    def _decoded(self, content: bytes) -> NDArray[Any]:
        import io

        import tensorflow as tf

        try:
            if content.startswith(_NPY):
                return _checked(np.load(io.BytesIO(content), allow_pickle=False))
            if content.startswith(_PNG):
                _small(int.from_bytes(content[16:20], "big") * int.from_bytes(content[20:24], "big"))
                return np.asarray(tf.io.decode_png(content, channels=3))
            if content.startswith(_JPEG):
                shape = np.asarray(tf.io.extract_jpeg_shape(content))
                _small(int(shape[0]) * int(shape[1]))
                return np.asarray(tf.io.decode_jpeg(content, channels=3))
        except (tf.errors.OpError, ValueError, EOFError) as error:
            raise UnreadableValue(f"damaged: {' '.join(str(error).split())[:100]}") from None
        raise UnreadableValue("neither PNG nor JPEG nor .npy")

    def _scaled(self, image: NDArray[Any]) -> NDArray[Any]:
        if self.takes.dtype == "uint8":
            return np.asarray(np.clip(np.rint(image), 0, 255), np.uint8)
        unit = image / 255.0
        made: NDArray[Any] = {
            "unit": unit,
            "signed": unit * 2 - 1,
            "bytes": image,
            "imagenet": (unit - np.array(_MEAN)) / np.array(_DEVIATION),
        }[self.pixels]
        values: NDArray[Any] = made.astype(self.takes.dtype)
        return values


def _checked(image: NDArray[Any]) -> NDArray[Any]:
    if image.dtype != np.uint8 or image.ndim != 3 or image.shape[2] != 3:
        raise UnreadableValue(f"array of {image.dtype} of the shape {list(image.shape)}; expected bytes of height x width x 3")
    _small(image.shape[0] * image.shape[1])
    return image


def _small(pixels: int) -> None:
    if not 0 < pixels <= _MOST_PIXELS:
        raise UnreadableValue(f"{pixels:,} pixels; expected 1 to {_MOST_PIXELS:,}")


@dataclass(frozen=True)
class TextReader:
    """Passes text unchanged to an encoder that takes text."""

    takes: EncoderInput
    how = "text"

    def content(self, value: str) -> bytes:
        return value.encode()

    def array(self, content: bytes) -> NDArray[Any]:
        text = np.array(content.decode(), dtype=object)
        return text[None] if self.takes.shape == (1,) else text


@dataclass(frozen=True)
class WordHasher:
    """Hashes lower-cased words to numbers from 1 on, padded with 0. The encoder's training must use the same hash."""

    takes: EncoderInput
    tokens: int
    words: int

    @property
    def how(self) -> str:
        return f"words {self.takes.shape[0] or self.tokens} {self.words}"

    def content(self, value: str) -> bytes:
        return value.encode()

    def array(self, content: bytes) -> NDArray[Any]:
        length = self.takes.shape[0] or self.tokens
        token_ids = [zlib.crc32(word.encode()) % (self.words - 1) + 1 for word in _WORD.findall(content.decode().lower())[:length]]
        return np.array(token_ids + [0] * (length - len(token_ids)), dtype=self.takes.dtype)
