"""The operator's settings, and how their faults are said."""

from __future__ import annotations

from pathlib import Path

import pytest

from services.settings import Settings
from shared.domain.errors import Invalid


@pytest.mark.parametrize(
    ("variable", "value"), [("EYAS_PORT", "abc"), ("EYAS_PORT", "70000"), ("EYAS_METRICS_PORT", "-1"), ("EYAS_DATA_ROOTS", '["a"]')]
)
def test_a_wrong_variable_is_one_line_that_names_it(monkeypatch, variable, value):
    monkeypatch.setenv(variable, value)
    with pytest.raises(Invalid) as caught:
        Settings.read({})
    said = str(caught.value)
    assert said.startswith(f"{variable}: ")
    assert repr(value) in said
    assert "\n" not in said


def test_data_roots_are_paths_between_colons(monkeypatch):
    monkeypatch.setenv("EYAS_DATA_ROOTS", "/a:b c::/d")
    assert Settings.read({}).data_roots == [Path("/a"), Path("b c"), Path("/d")]
    monkeypatch.setenv("EYAS_DATA_ROOTS", "")
    assert Settings.read({}).data_roots == []


def test_what_is_given_has_the_last_word(monkeypatch):
    monkeypatch.setenv("EYAS_PORT", "1")
    monkeypatch.setenv("EYAS_DATA_ROOTS", "/a")
    found = Settings.read({"port": 2, "data_roots": [Path("/with:colon")]})
    assert (found.port, found.data_roots) == (2, [Path("/with:colon")])
