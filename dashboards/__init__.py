"""Grafana dashboards as code; `docs/generate.py` writes them into the chart.

The package imports nothing of the platform. Tests check the metric names against `shared/telemetry`."""
