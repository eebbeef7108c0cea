"""`models`: model families and presets that a spec can name."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from services.cli.output import AsJson, say, show_json, show_table


def models(as_json: AsJson = False) -> None:
    """List the families of models, and the presets (tuned settings with a name)."""
    from shared.contracts.families import FAMILIES
    from shared.contracts.presets import PRESETS

    if as_json:
        families = [{"family": name, "about": kind.meaning} for name, kind in FAMILIES.items()]
        presets = [
            {"preset": name, "family": preset.family, "params": dict(preset.params), "train": dict(preset.train), "about": preset.about}
            for name, preset in PRESETS.items()
        ]
        show_json({"families": families, "presets": presets})
        return
    show_table(("FAMILY", "DESCRIPTION"), [(name, kind.meaning.rstrip(".")) for name, kind in FAMILIES.items()], "")
    rows = [
        (name, preset.family, _settings_text(preset.params), _settings_text(preset.train), preset.about) for name, preset in PRESETS.items()
    ]
    say("")
    show_table(("PRESET", "FAMILY", "PARAMS", "TRAIN", "TUNED ON"), rows, "no presets", drop=("TRAIN", "PARAMS"))


def _settings_text(settings: Mapping[str, Any]) -> str:
    return ", ".join(f"{name}: {value}" for name, value in settings.items())
