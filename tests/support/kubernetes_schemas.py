"""Kubernetes' schemas are large: a session that uses this fixture reads each once."""

from __future__ import annotations

import functools
from collections.abc import Iterator

import kubernetes_validate.utils
import pytest


@pytest.fixture(autouse=True, scope="session")
def schemas_once() -> Iterator[None]:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(kubernetes_validate.utils, "schema_contents", functools.cache(kubernetes_validate.utils.schema_contents))
        yield
