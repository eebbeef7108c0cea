"""Conformance suites, one a port, and the fakes that pass them."""
