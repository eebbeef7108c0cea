"""Helm chart, and the source of its values."""
