"""The kill matrix: every transition of a run, dead at every point of it, taken up by two replicas that race.

`python -m tests.crash.matrix` lives it in real processes with real SIGKILL, on SQLite and PostgreSQL; `make crash` runs all of it.
"""
