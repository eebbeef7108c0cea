"""`eyas schema`: the file for editors, and the line that names it."""

from __future__ import annotations

import json

from shared.contracts.editor_schema import editor_schema


def test_the_schema_is_written_into_a_folder_and_the_line_that_names_it_is_shown(eyas, tmp_path):
    shown = eyas("schema", tmp_path / "specs")
    assert shown.exit_code == 0, shown.output
    assert json.loads((tmp_path / "specs/spec.schema.json").read_text()) == editor_schema()
    assert shown.stdout.splitlines()[-1] == "# yaml-language-server: $schema=spec.schema.json"


def test_without_a_folder_it_is_written_here(eyas, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    shown = json.loads(eyas("schema", "--json").stdout)
    assert shown == {"file": "spec.schema.json", "line": "# yaml-language-server: $schema=spec.schema.json"}
    assert (tmp_path / "spec.schema.json").exists()


def test_a_folder_that_cannot_be_written_is_named(eyas, tmp_path):
    (tmp_path / "file").write_text("")
    shown = eyas("schema", tmp_path / "file")
    assert shown.exit_code == 2
    assert f"{tmp_path / 'file'}/spec.schema.json: cannot write: " in shown.stderr
