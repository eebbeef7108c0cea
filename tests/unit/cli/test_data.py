"""`eyas data`: requests to the tools, and how their answers are shown; once with the real tools."""

from pathlib import Path

import pytest

from services.cli.exit_codes import Exit
from shared.contracts.datatools import Convert, Describe, DescribedData, Download, Synth, ToolAnswer


@pytest.mark.requirement("T-14")
def test_each_command_asks_for_what_it_was_told(eyas, tool, tmp_path):
    asked, answers = tool
    answers += [ToolAnswer(found={"rows": {"a.csv": 1234}}), ToolAnswer(found={"rows": {"x.tfrecord": 5}})]
    shown = eyas("data", "synth", "ml-1m", "--to", str(tmp_path), "--rows", "1234", "--seed", "3", "--parquet").stdout
    assert shown == f"{tmp_path}/a.csv: 1,234 rows\n"
    assert asked.pop() == ("synth", Synth(name="ml-1m", to=str(tmp_path), rows=1234, seed=3, parquet=True))
    to = tmp_path / "x.tfrecord"
    eyas(
        "data", "convert", "s3://lake/a.csv", str(to), "--short", "userId=u", "--short", "rating=r", "--batch", "9", "--grouped", "--narrow"
    )
    short = {"userId": "u", "rating": "r"}
    wanted = Convert(source="s3://lake/a.csv", to=str(to), short=short, batch=9, grouped=True, narrow=True)
    assert asked.pop() == ("convert", wanted)
    answers.append(ToolAnswer(found={"folder": "/x/ml-1m", "bytes": 5, "sha256": "ab" * 32, "licence": "be good"}))
    assert "be good" in eyas("data", "download", "ml-1m", "--to", "x").stdout
    assert asked.pop() == ("download", Download(name="ml-1m", to=str(Path("x").absolute())))


def test_a_description_is_a_table_or_json(eyas, tool):
    asked, answers = tool
    whole = {
        "name": "userId",
        "type": "Int64",
        "nulls": 0,
        "min": 1,
        "max": 2**62 + 1,
        "distinct": 3,
        "estimated": False,
        "top": [[1, 2], [3, 1]],
    }
    many = {"name": "id", "type": "Int64", "nulls": 1000, "min": None, "max": None, "distinct": 5_000_000, "estimated": True, "top": []}
    lists = whole | {"name": "genres", "type": "List(String)", "shortest": 0, "longest": 6}
    found = {"uri": "/a.csv", "rows": 12345, "columns": [whole, many, lists]}
    answers += [ToolAnswer(found=found)] * 2
    shown = eyas("data", "describe", "a.csv").stdout
    assert "a.csv: 12,345 rows, 3 columns" in shown
    assert str(2**62 + 1) in shown
    assert "1 (2)" in shown
    assert "3 (1)" not in shown
    assert "about 5,000,000" in shown
    assert "List(String) of 0 to 6" in shown
    assert asked[0] == ("describe", Describe(uri=str(Path("a.csv").absolute())))
    assert DescribedData.model_validate_json(eyas("data", "describe", "a.csv", "--json").stdout) == DescribedData.model_validate(found)


def test_a_fault_is_one_line_with_its_code(eyas, tool):
    _, answers = tool
    answers += [ToolAnswer(fault="a.csv: file not found", code=2), ToolAnswer(fault="no network", code=1)]
    said = eyas("data", "describe", "a.csv")
    assert (said.exit_code, said.stderr) == (2, "eyas: a.csv: file not found\n")
    assert eyas("data", "download", "ml-1m", "--to", "x").exit_code == Exit.AWAY
    said = eyas("data", "convert", "a", "b.tfrecord", "--short", "u")
    assert (said.exit_code, said.stderr) == (2, "eyas: --short u: expected COLUMN=FEATURE\n")


@pytest.mark.requirement("T-14")
def test_a_twin_is_made_converted_and_described_without_a_platform(eyas, tool_in_process, tmp_path):
    assert eyas("data", "synth", "ml-100k", "--to", str(tmp_path / "files"), "--rows", "2000").exit_code == 0
    said = eyas("data", "convert", str(tmp_path / "files"), str(tmp_path / "rows"))
    assert f"{tmp_path}/rows/interactions.parquet: 2,000 rows" in said.stdout
    said = eyas("data", "describe", str(tmp_path / "rows" / "interactions.parquet"))
    assert "2,000 rows, 4 columns" in said.stdout
    said = eyas("data", "describe", str(tmp_path / "rows" / "none.parquet"))
    assert (said.exit_code, said.stderr) == (2, f"eyas: {tmp_path}/rows/none.parquet: file not found\n")


def test_a_tool_without_an_answer_is_an_error(eyas, monkeypatch, tmp_path):
    monkeypatch.setattr("services.wiring.tools.run_tool", lambda module, request: (1, ""))
    said = eyas("data", "describe", str(tmp_path))
    assert said.exit_code == Exit.AWAY
    assert "eyas: python -m pipelines.data ended with exit code 1 and no answer" in said.stderr
