"""`eyas features encode`: vectors, the line of a spec for them, and errors in one line."""

from __future__ import annotations

import json
from pathlib import Path

import onnx
import polars as pl
import pytest
from onnx import TensorProto, helper

pytestmark = [pytest.mark.requirement("G-30"), pytest.mark.usefixtures("tool_in_process")]


@pytest.fixture
def command(tmp_path: Path) -> list[str]:
    node = helper.make_node("Cast", ["in"], ["out"], to=TensorProto.FLOAT)
    taken = helper.make_tensor_value_info("in", TensorProto.INT64, ["N", "L"])
    given = helper.make_tensor_value_info("out", TensorProto.FLOAT, ["N", "L"])
    graph = helper.make_graph([node], "words", [taken], [given])
    onnx.save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8), tmp_path / "words.onnx")
    pl.DataFrame({"movieId": [1, 2, 3], "plot": ["a film", "the end", None]}).write_parquet(tmp_path / "items.parquet")
    files = {"--encoder": "words.onnx", "--out": "plots.parquet"}
    named = [part for name, file in files.items() for part in (name, str(tmp_path / file))]
    return ["features", "encode", str(tmp_path / "items.parquet"), "--key", "movieId", "--column", "plot", *named]


def test_it_writes_vectors_and_says_the_line_of_a_spec(eyas, command, tmp_path):
    shown = eyas(*command, "--option", "tokens=3", "--option", "words=10")
    assert shown.exit_code == 0, shown.output
    assert "2 vectors of 3 numbers; 1 rows have no vector" in shown.stdout
    assert "left out: 3: no value" in shown.stdout
    assert f"vector: {{of: movieId, from: {tmp_path / 'plots.parquet'}, width: 3}}" in shown.stdout
    assert pl.read_parquet(tmp_path / "plots.parquet")["movieId"].to_list() == [1, 2]
    assert json.loads(eyas(*command, "--json").stdout)["width"] == 64


@pytest.mark.parametrize(
    ("more", "said"),
    [
        (["--option", "size=big"], "expected HEIGHTxWIDTH"),
        (["--option", "colour=red"], "expected one of size="),
        (["--option", "batch=0"], "batch"),
        (["--key", "filmId"], "column 'filmId' is missing"),
    ],
)
def test_what_is_wrong_is_one_line_and_exit_code_two(eyas, command, more, said):
    shown = eyas(*command, *more)
    assert shown.exit_code == 2
    assert said in shown.stderr and shown.stderr.count("\n") == 1
