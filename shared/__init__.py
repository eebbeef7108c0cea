"""Shared parts of Eyas: decisions, contracts, ports. Imports neither services nor pipelines."""

__version__ = "0.1.0"
