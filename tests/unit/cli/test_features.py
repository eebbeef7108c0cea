"""`eyas features`."""

from __future__ import annotations

import json

import pytest

pytestmark = pytest.mark.requirement("G-08")
COLUMN = {"name": "age", "dtype": "int64", "width": None}
VIEW = {
    "name": "user",
    "entity": "user",
    "columns": [COLUMN],
    "ttl": "30d",
    "fitted": False,
    "version": 3,
    "rows": 610,
    "loaded": True,
}
HELD = {
    "key": 42,
    "rows": [
        {"version": None, "at": "2026-01-01T12:00:00Z", "expired": False, "values": {"age": 34, "city": "Zürich"}},
        {"version": 3, "at": "2025-01-01T12:00:00Z", "expired": True, "values": {}},
    ],
}


def test_views_are_listed(platform, eyas):
    platform.says("GET /v1/features/m", {"views": [VIEW]})
    head, line = eyas("features", "list", "m").stdout.splitlines()
    assert head.split() == ["VIEW", "VERSION", "ROWS", "LOADED", "TTL", "COLUMNS"]
    assert line.split() == ["user", "3", "610", "yes", "30d", "age"]
    assert json.loads(eyas("features", "list", "m", "--json").stdout) == {"views": [VIEW]}
    platform.says("GET /v1/features/m", {"views": []})
    assert "read nothing from the feature store" in eyas("features", "list", "m").stdout


def test_a_key_is_shown_with_where_each_row_comes_from(platform, eyas):
    platform.says("GET /v1/features/m/user/42", HELD)
    shown = eyas("features", "get", "m", "user", "42").stdout.splitlines()
    assert shown[1].startswith("written")
    assert '{"age": 34, "city": "Zürich"}' in shown[1]
    assert shown[2].startswith("version 3")
    assert shown[2].endswith("expired")
    assert json.loads(eyas("features", "get", "m", "user", "42", "--json").stdout) == HELD


def test_rows_are_put_in_batches(platform, eyas, tmp_path):
    platform.says("PUT /v1/features/m/user", lambda request: {"accepted": len(json.loads(request.content)["rows"]), "standing": 1})
    file = tmp_path / "rows.jsonl"
    rows = [{"key": key, "values": {"age": key}} for key in range(5_001)]
    file.write_text("".join(json.dumps(row) + "\n\n" for row in rows))
    result = eyas("features", "put", "m", "user", file)
    assert result.stdout == "m: 5001 rows written to user, 2 of them are now the newest of their key\n"
    assert [row for one in platform.asked for row in json.loads(one.content)["rows"]] == rows


@pytest.mark.parametrize(
    ("line", "said"),
    [("{", "not JSON"), ("[]", "expected a row such as"), ('{"key": 1}', "expected a row such as")],
)
def test_a_wrong_line_is_named_before_anything_is_sent(platform, eyas, tmp_path, line, said):
    file = tmp_path / "rows.jsonl"
    file.write_text('{"key": 1, "values": {}}\n' + line + "\n")
    result = eyas("features", "put", "m", "user", file)
    assert result.exit_code == 2
    assert f"{file}:2: {said}" in result.stderr
    assert platform.asked == []


def test_what_the_platform_refuses_says_which_rows_are_written(platform, eyas, tmp_path):
    file = tmp_path / "rows.jsonl"
    file.write_text('{"key": 1, "values": {"agee": 1}}\n')
    platform.refuses("PUT /v1/features/m/user", 422, "invalid", "rows.0: unknown column 'agee'")
    result = eyas("features", "put", "m", "user", file)
    assert result.exit_code == 2
    assert "rows.0: unknown column 'agee'" in result.stderr
    assert "counted from row 1 of" in result.stderr


def test_all_is_loaded_anew_on_demand(platform, eyas):
    platform.says("POST /v1/features/m:materialise", {"views": 2})
    assert eyas("features", "materialise", "m").stdout.startswith("m: 2 views are loading again")


@pytest.mark.parametrize("view", ["User", "a/b", "../x", "a@1"])
def test_a_view_that_cannot_be_one_is_refused_here(platform, eyas, view):
    result = eyas("features", "get", "m", view, "42")
    assert result.exit_code == 2
    assert "is not a view name" in result.stderr
    assert platform.asked == []
