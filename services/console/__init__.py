"""Web console of the control plane: an ordinary client of the API that uses the caller's token."""

from services.console.api import HERE
from services.console.site import Site

__all__ = ["HERE", "Site"]
