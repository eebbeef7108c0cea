"""The one place that reads settings, builds adapters and hands them over: the same parts, as one process or in roles."""

from services.wiring.process import serve

__all__ = ["serve"]
