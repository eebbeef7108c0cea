"""Which models are tried: a family by name, a preset, or a family of one's own (`module:Class`), with what was said of its parameters."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from pipelines.models.own import is_own, module_of
from shared.contracts.models import Model
from shared.contracts.presets import PRESETS
from shared.contracts.strict import read
from shared.contracts.trials import BASELINE

_TRAIN = "train."
_OWN = ("framework",)
"""Settings of the model itself."""


def named_models(names: tuple[str, ...], settings: Mapping[str, Any]) -> dict[str, Model]:
    """By name, each once; the baseline is first, and takes no settings beside others. Refused where one is nothing to a model."""
    found = {BASELINE: _named(BASELINE, {})}
    for name in dict.fromkeys(names):
        if name != BASELINE or set(names) == {BASELINE}:
            found[name] = _named(name, settings)
    return found


def allowed(model: Model) -> tuple[str, ...]:
    """The modules that its family may be of: who names one at the command line allows it."""
    return (module_of(model.family),) if is_own(model.family) else ()


def seeded(model: Model, seed: int) -> Model:
    return model.model_copy(update={"train": model.train.model_copy(update={"seed": seed})})


def _named(name: str, settings: Mapping[str, Any]) -> Model:
    own = {key: value for key, value in settings.items() if key in _OWN}
    params = {key: value for key, value in settings.items() if not key.startswith(_TRAIN) and key not in _OWN}
    train = {key.removeprefix(_TRAIN): value for key, value in settings.items() if key.startswith(_TRAIN)}
    kind = "preset" if name in PRESETS else "family"
    return read(Model, {kind: name, "params": params, **own} | ({"train": train} if train else {}), f"--model {name}")
