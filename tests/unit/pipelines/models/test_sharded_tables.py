"""Tables over several processes: the engine that they need."""

from __future__ import annotations

import pytest

from pipelines.models.neural import sharded_tables
from shared.domain.errors import Invalid


def test_where_there_is_no_engine_it_is_said(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sharded_tables.importlib.util, "find_spec", lambda name: None)
    with pytest.raises(Invalid, match="TorchRec is not installed where this stage runs: run 'make setup-torch'"):
        sharded_tables.check_engine()
