"""`eyas models`: what a spec may name as its model, and what is tuned already."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from services.cli.shown import AsJson, say, show_json, show_table


def models(as_json: AsJson = False) -> None:
    """List the families of models, and the presets: settings that were tuned, by name."""
    from shared.contracts.families import FAMILIES
    from shared.contracts.presets import PRESETS

    if as_json:
        families = [{"family": name, "about": kind.meaning} for name, kind in FAMILIES.items()]
        presets = [
            {"preset": name, "family": one.family, "params": dict(one.params), "train": dict(one.train), "about": one.about}
            for name, one in PRESETS.items()
        ]
        show_json({"families": families, "presets": presets})
        return
    show_table(("FAMILY", "WHAT IT IS"), [(name, kind.meaning.rstrip(".")) for name, kind in FAMILIES.items()], "")
    rows = [(name, one.family, _said(one.params), _said(one.train), one.about) for name, one in PRESETS.items()]
    say("")
    show_table(("PRESET", "FAMILY", "PARAMS", "TRAIN", "TUNED ON"), rows, "there are no presets", drop=("TRAIN", "PARAMS"))


def _said(settings: Mapping[str, Any]) -> str:
    return ", ".join(f"{name}: {value}" for name, value in settings.items())
