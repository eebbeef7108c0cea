"""Manifests are validated often."""

from tests.support.kubernetes_schemas import schemas_once

__all__ = ["schemas_once"]
