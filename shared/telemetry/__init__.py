"""Logging, and all metric names in one file."""
