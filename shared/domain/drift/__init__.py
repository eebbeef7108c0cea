"""Drift detection for a serving version: detectors, their readings, and the decision when a reading becomes an alarm.

The statistics are for small samples and need only the standard library. A reading becomes an alarm under three conditions: its size without
the part that chance explains exceeds the spec's threshold, its chance is at most `limit`, and both hold for several looks.
"""
