"""Users stop liking what they are shown: a real Prometheus sees it, a real Alertmanager delivers it, and the platform retrains."""

from __future__ import annotations

from pathlib import Path

import pytest

from benchmarks.alerting import ALERT, HOPS, Pace, chain


@pytest.mark.requirement("C-06")
def test_a_hit_rate_that_falls_starts_a_retraining_by_way_of_prometheus_and_alertmanager(tmp_path: Path) -> None:
    found = chain(tmp_path, Pace(faster=7200))
    assert found.run["cause"].startswith(f"alert by alertmanager: {ALERT}: films: the hit rate of the last hour is ")
    assert (found.run["mode"], found.run["stages"][0]["stage"]) == ("full", "etl")
    assert found.moments.keys() == {"fall", *HOPS}
    hops = [found.moments[one] for one in ("fall", "told", "scraped", "firing", "alertmanager", "webhook", "run", "stage")]
    assert hops == sorted(hops)
