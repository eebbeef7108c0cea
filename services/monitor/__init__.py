"""Monitoring: what recommendations earn, drift, and the signals that triggers read."""
