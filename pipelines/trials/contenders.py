"""Which models are tried: a family by name, a preset, or a family of one's own (`module:Class`), with what was said of its parameters."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from shared.contracts.models import Model
from shared.contracts.presets import named, with_settings
from shared.contracts.strict import read
from shared.contracts.trials import BASELINE


def named_models(names: tuple[str, ...], settings: Mapping[str, Any]) -> dict[str, Model]:
    """By name, each once; the baseline is first, and takes no settings beside others. Refused where one is nothing to a model."""
    models = {BASELINE: _named(BASELINE, {})}
    for name in dict.fromkeys(names):
        if name != BASELINE or set(names) == {BASELINE}:
            models[name] = _named(name, settings)
    return models


def seeded(model: Model, seed: int) -> Model:
    return model.model_copy(update={"train": model.train.model_copy(update={"seed": seed})})


def _named(name: str, settings: Mapping[str, Any]) -> Model:
    return read(Model, with_settings(named(name), settings), f"--model {name}")
