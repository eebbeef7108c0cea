"""Conformance suites of the ports, and fakes that pass the suites."""
