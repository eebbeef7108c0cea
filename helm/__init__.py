"""The chart, and the one place that says what an installation may say of it."""
