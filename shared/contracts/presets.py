"""Model presets that were tuned on public data sets. A spec uses them by `model: {preset: NAME}` and can override settings; commands use
the name.

A released preset never changes; other settings get another name.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from shared.contracts.strict import unknown_name


@dataclass(frozen=True)
class Preset:
    family: str
    about: str
    """Data on which the preset was tuned."""
    params: Mapping[str, Any] = field(default_factory=dict)
    train: Mapping[str, Any] = field(default_factory=dict)


FRAMEWORK = "framework"
_FRAPPE = "frappe: an eighth of 57,722 rows with given labels held out at random; clicks, not rankings"
_CLICKS: Mapping[str, Any] = {"epochs": 40, "learning_rate": 0.001, "schedule": "plateau"} | {
    "early_stop": {"metric": "auc", "patience": 5}
}
_DEEP: dict[str, Any] = {"layers": (256, 256, 256), "regularisation": 0.08, "negatives": 0}
_GROWN = {"trees": 800, "learning_rate": 0.05, "least": 0.1, "columns": 0.5, "folds": 12, "negatives": 0}
_ML_1M = "ml-1m: one random positive held out per user, ranked among 99 items without interactions of the user, and in the full catalogue"

PRESETS: Mapping[str, Preset] = {
    "ml-1m-ease": Preset("ease", _ML_1M, {"regularisation": 1000.0}),
    "ml-1m-mf": Preset(
        "mf",
        _ML_1M,
        {"loss": "softmax", "width": 192, "regularisation": 0.05, "against": 20.0, "blend": True, "damping": 0.35}
        | {"epochs": 20, "learning_rate": 0.02},
    ),
    "ml-1m-als": Preset("mf", _ML_1M, {"width": 128, "unobserved": 0.4, "regularisation": 0.005, "sweeps": 12}),
    "ml-1m-neumf": Preset(
        "neumf",
        _ML_1M,
        {"width": 128, "layers": (64, 32, 16), "negatives": 4, "factorisation": 0.05},
        {"epochs": 1, "learning_rate": 0.0002},
    ),
    "frappe-mlp": Preset("mlp", _FRAPPE, _DEEP | {"width": 16}, _CLICKS),
    "frappe-wide_deep": Preset("wide_deep", _FRAPPE, _DEEP | {"width": 15}, _CLICKS),
    "frappe-dlrm": Preset("dlrm", _FRAPPE, _DEEP | {"joined": True}, _CLICKS),
    "frappe-deepfm": Preset("deepfm", _FRAPPE, _DEEP, _CLICKS),
    "frappe-dcn": Preset("dcn", _FRAPPE, _DEEP, _CLICKS),
    "frappe-gbm": Preset("gbm", _FRAPPE, _GROWN, {"early_stop": {"metric": "auc", "patience": 10}}),
    "ml-1m-itemknn": Preset("itemknn", _ML_1M, {"neighbours": 100, "shrink": 0.0, "damping": 1.0, "pull": 0.4}),
}


def with_settings(model: Mapping[str, Any], settings: Mapping[str, Any]) -> dict[str, Any]:
    """Returns a spec's `model` with the settings of a command, by name."""
    merged = dict(model)
    for name, value in settings.items():
        part, _, field = place_of(name).partition(".")
        merged[part] = {**merged.get(part, {}), field: value} if field else value
    return merged


def place_of(setting: str) -> str:
    """Returns the path of a setting in a spec's `model`; the prefix `params.` is optional."""
    return setting if setting == FRAMEWORK or setting.startswith(("params.", "train.")) else f"params.{setting}"


def named(name: str) -> dict[str, Any]:
    """Returns a spec's `model` of a family, or of a preset."""
    return {"preset" if name in PRESETS else "family": name}


def with_preset(model: Mapping[str, Any]) -> dict[str, Any]:
    """Returns a spec's `model` with the values of its preset for settings that it does not have."""
    name = model["preset"]
    preset = PRESETS.get(name)
    if preset is None:
        raise unknown_name("preset", name, PRESETS)
    if model.get("family", preset.family) != preset.family:
        raise ValueError(f"preset: '{name}' has the family '{preset.family}'; leave 'family' out")
    both = dict(model) | {"family": preset.family}
    for part, settings in (("params", preset.params), ("train", preset.train)):
        own = model.get(part, {})
        if isinstance(own, Mapping):
            both[part] = {**settings, **own}
    return both
