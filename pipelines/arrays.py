"""Files of arrays (.npz), without pickle."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray


def write_arrays(path: Path, arrays: Mapping[str, NDArray[Any]], compressed: bool = False) -> Path:
    if odd := [key for key, array in arrays.items() if array.dtype.hasobject]:  # numpy would pickle objects
        raise TypeError(f"{path.name}: '{odd[0]}' holds Python objects")
    named: dict[str, Any] = dict(arrays)
    with path.open("wb") as stream:
        (np.savez_compressed if compressed else np.savez)(stream, **named)
    return path


def read_arrays(path: Path) -> dict[str, NDArray[Any]]:
    """Opens the file itself, because numpy leaves a damaged one open."""
    with path.open("rb") as stream, np.load(stream, allow_pickle=False) as stored:
        return {name: stored[name] for name in stored.files}
