"""Request and response of `eyas features convert`: Keras and TensorFlow preprocessing as entries of a spec's `features`."""

from __future__ import annotations

from typing import Any

from pydantic import Field

from shared.contracts.strict import Strict


class ConvertRequest(Strict):
    file: str = Field(description="JSON file written by Keras or TensorFlow; its vocabulary files must be in the same folder or below.")


class Conversion(Strict):
    features: tuple[dict[str, Any], ...] = Field(description="Entries for a spec's `features`.")
    notes: tuple[str, ...] = Field(description="Operators that are similar, but not equal.")
