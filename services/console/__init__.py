"""The web pages, served by the control plane beside its API: a client of that API like any other, with the caller's own token."""

from services.console.api import HERE
from services.console.site import Site

__all__ = ["HERE", "Site"]
