"""What operators look at in Grafana, as code: `docs/generate.py` writes it into the chart. Imports nothing of the platform's: it asks
Prometheus by the names that `shared/telemetry` exports, and tests hold the two together.
"""
