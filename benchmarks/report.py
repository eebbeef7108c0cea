"""The former name of `benchmarks.harness`; goes when nothing imports it."""

from benchmarks.harness import Row, exit_code, machine, peak, publish

__all__ = ["Row", "exit_code", "machine", "peak", "publish"]
