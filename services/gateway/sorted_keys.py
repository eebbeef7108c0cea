"""Finds keys in a sorted array of keys."""

from __future__ import annotations

from typing import Any

import numpy as np

from shared.serving.nearest import Keys, Rows

Mask = np.ndarray[Any, np.dtype[np.bool_]]


def find(keys: Keys, wanted: Keys) -> tuple[Rows, Mask]:
    """Returns the index of each wanted key and whether it exists; without a match the index is valid but meaningless."""
    if not len(keys):
        return np.zeros(len(wanted), np.intp), np.zeros(len(wanted), bool)
    places = np.minimum(np.searchsorted(keys, wanted), len(keys) - 1)
    return places, keys[places] == wanted
