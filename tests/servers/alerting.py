"""A real Prometheus over a platform's /metrics, and a real Alertmanager that delivers to its API, as docs/how-to/alertmanager.yaml says."""

from __future__ import annotations

import re
from collections.abc import Sequence
from datetime import datetime
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import yaml

from tests.servers.prometheus_process import Daemon, program

ROOT = Path(__file__).parents[2]
RULES = ROOT / "helm/eyas/files/prometheus-rules.yaml"
EXAMPLE = ROOT / "docs/how-to/alertmanager.yaml"
_DURATION = re.compile(r"(?:\d+(?:ms|[smhdwy]))+")
_MILLISECONDS = {"ms": 1, "s": 1_000, "m": 60_000, "h": 3_600_000, "d": 86_400_000, "w": 604_800_000, "y": 31_536_000_000}


def faster(rules: str, times: int) -> str:
    """The same rules for a world in which everything happens so much sooner: windows, offsets, `for` and intervals are divided, no more."""

    def divided(found: re.Match[str]) -> str:
        parts = re.findall(r"(\d+)(ms|[smhdwy])", found[0])
        return f"{max(1, sum(int(count) * _MILLISECONDS[unit] for count, unit in parts) // times)}ms"

    def inside(found: re.Match[str]) -> str:
        return _DURATION.sub(divided, found[0])

    return re.sub(r"\[[^\]]+\]|\boffset \w+|(?m:^ +(?:for|interval): \w+$)", inside, rules)


class Prometheus(Daemon):
    """Looks every second, unless it is said otherwise."""

    def __init__(
        self,
        folder: Path,
        metrics: Sequence[str],
        rules: Path = RULES,
        alertmanager: str = "",
        scrape: str = "1s",
        evaluation: str = "1s",
    ) -> None:
        folder.mkdir(exist_ok=True)
        config: dict[str, Any] = {
            "global": {"scrape_interval": scrape, "scrape_timeout": scrape, "evaluation_interval": evaluation},
            "rule_files": [str(rules)],
            "scrape_configs": [{"job_name": "eyas", "static_configs": [{"targets": [urlsplit(one).netloc for one in metrics]}]}],
        }
        if alertmanager:
            config["alerting"] = {"alertmanagers": [{"static_configs": [{"targets": [urlsplit(alertmanager).netloc]}]}]}
        super().__init__(program("prometheus", "prometheus"), folder, config, f"--storage.tsdb.path={folder / 'data'}")

    def rules(self) -> list[dict[str, Any]]:
        return [rule for group in self._get("rules")["groups"] for rule in group["rules"]]

    def groups(self) -> list[dict[str, Any]]:
        found: list[dict[str, Any]] = self._get("rules")["groups"]
        return found

    def alerts(self) -> dict[str, str]:
        """Their states."""
        return {one["labels"]["alertname"]: one["state"] for one in self._get("alerts")["alerts"]}

    def series(self, expression: str) -> list[dict[str, str]]:
        found: list[dict[str, Any]] = self._get("query", query=expression)["result"]
        return [one["metric"] for one in found]

    def samples(self, selector: str, back: str = "10m") -> list[tuple[float, float]]:
        """As they were taken, when and what, of all series together, the oldest first."""
        found: list[dict[str, Any]] = self._get("query", query=f"{selector}[{back}]")["result"]
        return sorted((float(at), float(value)) for one in found for at, value in one["values"])

    def _get(self, what: str, **parameters: str) -> Any:
        return self._http.get(f"/api/v1/{what}", params=parameters).raise_for_status().json()["data"]


class Alertmanager(Daemon):
    """The example's configuration with another address, token and times."""

    def __init__(self, folder: Path, api: str, token: str, group_wait: str = "0s", repeat: str = "1s") -> None:
        folder.mkdir()
        (folder / "token").write_text(token + "\n")
        config = yaml.safe_load(EXAMPLE.read_text())
        (webhook,) = next(one for one in config["receivers"] if one["name"] == "eyas")["webhook_configs"]
        webhook["url"] = webhook["url"].replace("http://127.0.0.1:8080", api)
        webhook["http_config"]["authorization"]["credentials_file"] = str(folder / "token")
        for route in (config["route"], *config["route"]["routes"]):
            route |= {"group_wait": group_wait, "group_interval": "1s", "repeat_interval": repeat}
        command = program("prometheus-alertmanager", "prometheus-alertmanager", "alertmanager")
        super().__init__(command, folder, config, f"--storage.path={folder / 'data'}", "--cluster.listen-address=")

    def post(self, alert: dict[str, Any]) -> None:
        self._http.post("/api/v2/alerts", json=[alert]).raise_for_status()

    def told(self, name: str) -> datetime | None:
        """When it last heard of such an alert."""
        found = [one for one in self._http.get("/api/v2/alerts").raise_for_status().json() if one["labels"]["alertname"] == name]
        return max((datetime.fromisoformat(one["updatedAt"]) for one in found), default=None)

    def failures(self) -> int:
        text = self._http.get("/metrics").text
        found = re.findall(r'^alertmanager_notifications_failed_total\{.*integration="webhook".*\} (\d+)', text, re.MULTILINE)
        return sum(map(int, found))
