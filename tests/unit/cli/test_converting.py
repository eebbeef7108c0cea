"""`eyas features convert` prints the `features` of a spec."""

from __future__ import annotations

import json

import pytest

from shared.contracts.spec import RecommenderSpec
from shared.contracts.yaml12 import load
from tests.unit.pipelines.recommender import spec

LAYERS = {
    "city": {"class_name": "StringLookup", "config": {"num_oov_indices": 1, "vocabulary": ["Øre", "yes", "~"], "output_mode": "one_hot"}},
    "price": [{"class_name": "Normalization", "config": {"axis": None}}],
}
pytestmark = [pytest.mark.requirement("L-05"), pytest.mark.usefixtures("tool_in_process")]


def test_what_it_prints_is_a_part_of_a_spec_with_notes_as_comments(eyas, tmp_path):
    file = tmp_path / "layers.json"
    file.write_text(json.dumps(LAYERS))
    shown = eyas("features", "convert", file)
    assert shown.exit_code == 0, shown.output
    assert "# Normalization of 'price': mean and deviation" in shown.stdout
    found = load(shown.stdout, "the output")["features"]
    assert found == [{"categorify": "city", "values": ["Øre", "yes", "~"]}, {"normalise": "price"}, {"one_hot": "city"}]
    whole = spec(tmp_path).document() | {"features": [{"categorify": ["userId", "movieId"]}, *found]}
    assert len(RecommenderSpec.model_validate(whole).features) == 4
    assert json.loads(eyas("features", "convert", file, "--json").stdout)["features"] == found


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("{", ": not JSON: "),
        ("[" * 100_000, ": not JSON: "),
        ("[]", "expected a Keras model"),
        ('{"x": {"class_name": "Lambda", "config": {}}}', "code from a file is never run"),
        ("\x89HDF", "JSON"),
    ],
)
def test_what_it_cannot_convert_is_one_line_and_exit_code_two(eyas, tmp_path, text, said):
    file = tmp_path / "layers.json"
    file.write_bytes(text.encode("latin-1"))
    shown = eyas("features", "convert", file)
    assert shown.exit_code == 2
    assert said in shown.stderr and shown.stderr.count("\n") == 1


def test_a_file_that_is_not_there_is_one_line(eyas, tmp_path):
    shown = eyas("features", "convert", tmp_path / "none.json")
    assert (shown.exit_code, shown.stderr.count("\n")) == (2, 1)
