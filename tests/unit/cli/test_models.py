"""`eyas models`: families and presets, for people and for machines."""

from __future__ import annotations

import json

from shared.contracts.families import FAMILIES
from shared.contracts.presets import PRESETS


def test_it_lists_families_and_presets(eyas):
    shown = eyas("models")
    assert shown.exit_code == 0, shown.output
    first = {line.split()[0] for line in shown.stdout.splitlines() if line}
    assert first == {"FAMILY", "PRESET", *FAMILIES, *PRESETS}
    assert "a weight for each pair of items" in shown.stdout


def test_as_json_it_says_the_same_for_machines(eyas):
    found = json.loads(eyas("models", "--json").stdout)
    assert [one["family"] for one in found["families"]] == list(FAMILIES)
    assert [one["preset"] for one in found["presets"]] == list(PRESETS)
    assert all(one["about"] for one in found["presets"])
