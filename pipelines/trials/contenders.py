"""Models to evaluate: families, presets or custom families (`module:Class`), with the given settings."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from shared.contracts.models import Model
from shared.contracts.presets import named, with_settings
from shared.contracts.strict import read
from shared.contracts.trials import BASELINE


def named_models(names: tuple[str, ...], settings: Mapping[str, Any]) -> dict[str, Model]:
    """Returns models by name, the baseline first; it takes settings only if it is alone. Raises `Invalid` for wrong settings."""
    models = {BASELINE: _named(BASELINE, {})}
    for name in dict.fromkeys(names):
        if name != BASELINE or set(names) == {BASELINE}:
            models[name] = _named(name, settings)
    return models


def seeded(model: Model, seed: int) -> Model:
    return model.model_copy(update={"train": model.train.model_copy(update={"seed": seed})})


def _named(name: str, settings: Mapping[str, Any]) -> Model:
    return read(Model, with_settings(named(name), settings), f"--model {name}")
