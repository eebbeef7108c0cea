"""The dashboards as they lie in the chart, and what they ask Prometheus once Grafana has put in what was chosen."""

from __future__ import annotations

import json
import re
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

FOLDER = Path(__file__).parents[2] / "helm/eyas/files/dashboards"
_VARIABLE = re.compile(r"label_values\((?P<metric>[^,]+), (?P<label>\w+)\)")


@dataclass(frozen=True)
class Asked:
    """One question of a panel, or of a mark, which has no unit."""

    board: str
    title: str
    ref: str
    question: str
    unit: str | None

    def __str__(self) -> str:
        return f"{self.board}: {self.title}" + (f" ({self.ref})" if self.ref else "")


def read(name: str) -> dict[str, Any]:
    found: dict[str, Any] = json.loads((FOLDER / name).read_text())
    return found


def panels(document: dict[str, Any]) -> list[dict[str, Any]]:
    return [one for one in document["panels"] if one["type"] != "row"]


def asked(recommender: str = "movies", rate_interval: str = "10s") -> Sequence[Asked]:
    """Of all boards: those of one recommender at a time ask for this one, the others for all."""
    found = []
    for path in sorted(FOLDER.glob("*.json")):
        document, name = read(path.name), path.stem
        chosen = next((one for one in document["templating"]["list"] if one["name"] == "recommender"), {})
        said = {"$recommender": ".*" if chosen.get("multi") else recommender, "$__rate_interval": rate_interval}
        for panel in panels(document):
            for target in panel["targets"]:
                shown = panel["fieldConfig"]["defaults"]["unit"]
                found.append(Asked(name, panel["title"], target["refId"], _filled(target["expr"], said), shown))
        marks = document["annotations"].get("list", [])
        found += [Asked(name, mark["name"], "", _filled(mark["expr"], said), None) for mark in marks]
    return found


def choices() -> set[tuple[str, str]]:
    """Of variables that Prometheus is asked for: metric and label."""
    found = set()
    for path in FOLDER.glob("*.json"):
        for variable in read(path.name)["templating"]["list"]:
            if variable["type"] == "query":
                match = _VARIABLE.fullmatch(variable["query"]["query"])
                assert match, variable["query"]
                found.add((match["metric"], match["label"]))
    return found


def _filled(expression: str, said: dict[str, str]) -> str:
    for name, value in said.items():
        expression = expression.replace(name, value)
    assert "$" not in expression, expression
    return expression
