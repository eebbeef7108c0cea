"""The tests: sentences about what holds."""
