"""Logging, and every metric name in one file."""
