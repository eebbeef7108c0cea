"""Images and texts as encoders take them. What can't be read is left out with its reason: one damaged file stops nothing."""

from __future__ import annotations

import re
import zlib
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from pipelines.encoding.encoders import Takes
from shared.domain.errors import Invalid

_MOST_BYTES, _MOST_PIXELS = 64 << 20, 100_000_000
_PNG, _JPEG, _NPY = b"\x89PNG\r\n\x1a\n", b"\xff\xd8\xff", b"\x93NUMPY"
_WORD = re.compile(r"\w+")
_MEAN, _DEVIATION = (0.485, 0.456, 0.406), (0.229, 0.224, 0.225)
Pixels = Literal["unit", "signed", "bytes", "imagenet"]


class Unreadable(Exception):
    """Of one row; the text says why."""


@dataclass(frozen=True)
class Images:
    """PNG, JPEG, or an array (.npy) of height x width x 3 bytes, below a folder."""

    folder: Path
    takes: Takes
    size: tuple[int, int] | None
    pixels: Pixels

    def __post_init__(self) -> None:
        height, width = self.wanted
        if height is None or width is None:
            raise Invalid(
                "--option size: the encoder takes images of any size: say which one they are to be brought to, such as size=224x224"
            )
        if self.size is not None and (height, width) != self.size:
            raise Invalid(f"--option size: the encoder takes {height}x{width}, not {self.size[0]}x{self.size[1]}")

    @property
    def wanted(self) -> tuple[int | None, int | None]:
        height, width = self.takes.shape[1:] if self.takes.channels_first else self.takes.shape[:2]
        return (height or (self.size[0] if self.size else None), width or (self.size[1] if self.size else None))

    def read(self, value: str) -> NDArray[Any]:
        import tensorflow as tf

        image = self._decoded(self._bytes(value))
        scaled = np.asarray(tf.image.resize(tf.cast(image, tf.float32), self.wanted, antialias=True))
        made = self._scaled(scaled)
        return np.transpose(made, (2, 0, 1)) if self.takes.channels_first else made

    def _bytes(self, value: str) -> bytes:
        root = self.folder.resolve()
        try:
            path = (root / value).resolve()
            if not path.is_relative_to(root):
                raise Unreadable(f"{value}: it doesn't lie below {self.folder}")
            if path.stat().st_size > _MOST_BYTES:
                raise Unreadable(f"{value}: it is larger than 64 MiB")
            return path.read_bytes()
        except (OSError, ValueError) as error:
            raise Unreadable(f"{value}: {getattr(error, 'strerror', None) or error}") from None

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
            raise Unreadable(f"it is damaged: {' '.join(str(error).split())[:100]}") from None
        raise Unreadable("it is neither PNG nor JPEG nor .npy")

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
        found: NDArray[Any] = made.astype(self.takes.dtype)
        return found


def _checked(image: NDArray[Any]) -> NDArray[Any]:
    if image.dtype != np.uint8 or image.ndim != 3 or image.shape[2] != 3:
        raise Unreadable(f"an array of {image.dtype} of the shape {list(image.shape)}: bytes of height x width x 3 are expected")
    _small(image.shape[0] * image.shape[1])
    return image


def _small(pixels: int) -> None:
    if not 0 < pixels <= _MOST_PIXELS:
        raise Unreadable(f"it has {pixels:,} pixels: 1 to {_MOST_PIXELS:,} are expected")


@dataclass(frozen=True)
class Texts:
    """As they are, for an encoder that takes text."""

    takes: Takes

    def read(self, value: str) -> NDArray[Any]:
        whole = np.array(value, dtype=object)
        return whole[None] if self.takes.shape == (1,) else whole


@dataclass(frozen=True)
class Words:
    """Numbers by a fixed hash of lower-cased words, 1 and up, padded with 0: what an encoder was trained on must have been made so."""

    takes: Takes
    tokens: int
    words: int

    def read(self, value: str) -> NDArray[Any]:
        length = self.takes.shape[0] or self.tokens
        found = [zlib.crc32(word.encode()) % (self.words - 1) + 1 for word in _WORD.findall(value.lower())[:length]]
        return np.array(found + [0] * (length - len(found)), dtype=self.takes.dtype)
