"""Shared parts of Eyas: decisions, contracts, ports. Imports neither services nor pipelines."""
