"""Request and response of `eyas features convert`: Keras and TensorFlow preprocessing as entries of a spec's `features`."""

from __future__ import annotations

from typing import Any

from pydantic import Field

from shared.contracts.strict import Strict


class ConvertRequest(Strict):
    file: str = Field(description="JSON as Keras or TensorFlow write it. Vocabulary files that it names lie beside it or below.")


class Conversion(Strict):
    features: tuple[dict[str, Any], ...] = Field(description="As a spec has them.")
    notes: tuple[str, ...] = Field(description="What is alike, but not the same.")
