"""A real promtool evaluates the rules over planted traffic: the alerts fire on outages, and stay silent on noise."""

from __future__ import annotations

import subprocess
from pathlib import Path
from typing import Any

import pytest
import yaml

from tests.servers.prometheus_process import program
from tests.support.alert_rules import groups
from tests.support.service_levels import NOISE, OUTAGES, Scenario, case

GROUPS = ("eyas-recorded", "eyas-hours", "eyas-budgets", "eyas-objectives")
"""Groups of the objectives. Other groups would only take time."""


def evaluate(folder: Path, cases: list[dict[str, Any]], minutes: int) -> str:
    """Returns what promtool reports; empty if all expectations are met."""
    rules = [group for group in groups() if group["name"] in GROUPS]
    (folder / "rules.yaml").write_text(yaml.safe_dump({"groups": rules}))
    tests = {"rule_files": ["rules.yaml"], "group_eval_order": list(GROUPS), "evaluation_interval": f"{minutes}m", "tests": cases}
    (folder / "tests.yaml").write_text(yaml.safe_dump(tests))
    command = [program("prometheus", "promtool"), "test", "rules", str(folder / "tests.yaml")]
    ended = subprocess.run(command, capture_output=True, text=True, timeout=300, check=False)
    return "" if ended.returncode == 0 else ended.stdout + ended.stderr


@pytest.mark.parametrize("scenario", OUTAGES, ids=[scenario.name for scenario in OUTAGES])
def test_alerts_fire_on_an_outage_and_end_after_it(scenario: Scenario, tmp_path: Path) -> None:
    assert evaluate(tmp_path, [case(scenario)], scenario.step) == ""


@pytest.mark.parametrize("scenario", NOISE, ids=[scenario.name for scenario in NOISE])
def test_alerts_stay_silent_on_noise(scenario: Scenario, tmp_path: Path) -> None:
    assert evaluate(tmp_path, [case(scenario)], scenario.step) == ""
