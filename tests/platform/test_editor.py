"""Completion, hover and diagnostics of specs in an editor, by the real yaml-language-server and the file that `eyas schema` writes."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml

from docs.yaml_blocks import SMALLEST, blocks, spec_of
from shared.contracts.families import FAMILIES
from shared.contracts.features import OPERATORS
from shared.contracts.presets import PRESETS
from shared.contracts.spec import RecommenderSpec, parse_spec
from shared.contracts.yaml12 import load
from tests.servers.yaml_language_server import CURSOR, YamlLanguageServer
from tests.support.complete_spec import COMPLETE
from tests.support.short_forms import SHORT_FORMS

ROOT = Path(__file__).parents[2]
BASE = yaml.safe_dump(SMALLEST, sort_keys=False)


class Editor:
    """An editor's view of specs that begin with the line of `eyas schema`."""

    def __init__(self, server: YamlLanguageServer, first_line: str) -> None:
        self._server = server
        self._head = f"{first_line}\n{BASE}"
        self._first_line = first_line

    def completions(self, part: str) -> dict[str, dict[str, Any]]:
        return self._server.completions(self._head + part)

    def hover(self, part: str) -> str:
        return self._server.hover(self._head + part)

    def diagnostics(self, part: str) -> list[tuple[int, str]]:
        """Returns the messages of the diagnostics by line; the first line of the part is line 0."""
        (diagnostics,) = self._server.diagnostics(self._head + part)
        return [(line - self._head.count("\n"), message) for line, message in diagnostics]

    def diagnostics_of_specs(self, specs: Iterable[str]) -> list[list[tuple[int, str]]]:
        return self._server.diagnostics(*(f"{self._first_line}\n{spec}" for spec in specs))


@pytest.fixture(scope="module")
def editor(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Editor]:
    folder = tmp_path_factory.mktemp("specs")
    written = subprocess.run(
        [sys.executable, "-m", "services.cli.main", "schema", str(folder)], cwd=ROOT, check=True, capture_output=True, text=True
    )
    with YamlLanguageServer(folder) as server:
        yield Editor(server, written.stdout.splitlines()[-1])


def test_completes_the_fields_of_a_spec(editor: Editor) -> None:
    missing = {field.alias or name for name, field in RecommenderSpec.model_fields.items()} - SMALLEST.keys()
    completions = editor.completions(CURSOR)
    assert completions.keys() == missing
    assert completions["split"]["insertText"] == "split:\n  "


def test_completes_families_and_presets_with_their_descriptions(editor: Editor) -> None:
    families = editor.completions(f"model:\n  family: {CURSOR}")
    assert families.keys() == FAMILIES.keys()
    assert families["ease"]["documentation"]["value"] == FAMILIES["ease"].meaning
    assert editor.completions(f"model:\n  preset: {CURSOR}").keys() == {*PRESETS, "null"}


@pytest.mark.parametrize("name", FAMILIES)
def test_completes_the_parameters_of_the_family_alone(editor: Editor, name: str) -> None:
    parameters = editor.completions(f"model:\n  family: {name}\n  params:\n    {CURSOR}")
    assert parameters.keys() == FAMILIES[name].model_fields.keys()


@pytest.mark.parametrize(("model", "family"), [("preset: ml-1m-als", "mf"), ("framework: torch", "mlp"), ("train: {epochs: 3}", "mlp")])
def test_completes_the_parameters_of_a_preset_and_of_the_default(editor: Editor, model: str, family: str) -> None:
    parameters = editor.completions(f"model:\n  {model}\n  params:\n    {CURSOR}")
    assert parameters.keys() == FAMILIES[family].model_fields.keys()


def test_completes_the_parts_of_a_model_once(editor: Editor) -> None:
    completions = editor.completions(f"model:\n  {CURSOR}")
    assert completions.keys() == {"family", "framework", "params", "train", "baseline", "preset", "tune"}
    assert completions["family"]["insertText"] == "family: "


def test_completes_operators_and_then_the_fields_of_the_operator(editor: Editor) -> None:
    operators = editor.completions(f"features:\n  - categorify: [userId, movieId]\n  - {CURSOR}")
    assert operators.keys() == set(OPERATORS)
    assert "absent for a column of lists" not in str(operators["log"])
    assert editor.completions(f"features:\n  - multi_hot: genres\n    {CURSOR}").keys() >= {"separator", "max_length", "min_count"}
    assert editor.completions(f"features:\n  - cross: [userId, hour]\n    {CURSOR}").keys() == {"buckets"}
    assert editor.completions(f"features:\n  - sequence:\n      of: movieId\n      {CURSOR}").keys() >= {"by", "window", "pages"}


@pytest.mark.parametrize(
    ("part", "names"),
    [
        (
            f"gates:\n  - {CURSOR}",
            {"metric", "off_policy", "forgotten", "parity", "latency_p99", "latency_p50", "throughput", "memory", "size"},
        ),
        (f"retrain:\n  on:\n    - {CURSOR}", {"drift", "kpi", "new_events", "new_data", "alert"}),
        (f"serve:\n  filter:\n    - {CURSOR}", {"not_seen", "available"}),
        (f"serve:\n  order:\n    rules:\n      - {CURSOR}", {"boost", "bury", "pin", "quota", "each"}),
        (f"serve:\n  order:\n    rules:\n      - pin: 3\n        {CURSOR}", {"at"}),
        (f"split:\n  by: {CURSOR}", {"time", "leave_last_out", "random", "pairs"}),
    ],
)
def test_completes_other_lists_and_values(editor: Editor, part: str, names: set[str]) -> None:
    assert editor.completions(part).keys() == names


@pytest.mark.parametrize(
    ("part", "text"),
    [
        (f"sp{CURSOR}lit: {{by: time}}", "Holdout for the evaluation."),
        (f"model:\n  family: ease\n  params:\n    regul{CURSOR}arisation: 5", "if absent, the best by held-out positives."),
        (f"model:\n  family: mf\n  params:\n    regul{CURSOR}arisation: 5", "the strength that ranks the newest positives best"),
        (f"model:\n  fam{CURSOR}ily: ease", "* `ease`: a weight for each pair of items"),
        (f"features:\n  - cate{CURSOR}gorify: [userId, movieId]", "Ids and words to codes: 0 is null or padding"),
        (f"features:\n  - categorify: [userId, movieId]\n    min_co{CURSOR}unt: 3", "out of vocabulary. Default: `1`."),
        (f"retrain:\n  on:\n    - kpi: {{win{CURSOR}dow: 2h}}", 'at most one look per minute. Default: `"1h"`.'),
    ],
)
def test_hover_shows_the_description_and_no_name_of_a_class(editor: Editor, part: str, text: str) -> None:
    hover = editor.hover(part)
    assert text in hover
    assert "####" not in hover, "a title"


@pytest.mark.parametrize(
    ("part", "line", "message"),
    [
        ("spli: {by: time}", 0, "Property spli is not allowed."),
        ("split:\n  by: tim", 1, 'Value is not accepted. Valid values: "time", "leave_last_out", "random", "pairs".'),
        ("model:\n  family: eas", 1, "Value is not accepted."),
        ("model:\n  family: ease\n  params:\n    regularization: 5", 3, "Property regularization is not allowed."),
        ("model:\n  family: ease\n  params:\n    regularisation: big", 3, 'Incorrect type. Expected "number | null".'),
        ("model:\n  preset: ml-1m-ease\n  params:\n    width: 5", 3, "Property width is not allowed."),
        ("model:\n  params:\n    trees: 5", 2, "Property trees is not allowed."),
        ("model:\n  family: gbm\n  params:\n    trees: 0", 3, "Value is below the minimum of 1."),
        ("features:\n  - categorify: [userId, movieId]\n  - multihot: genres", 2, "Property multihot is not allowed."),
        ("features:\n  - categorify: [userId, movieId]\n    min_cont: 3", 2, "Property min_cont is not allowed."),
        ("features:\n  - log: age\n  - clip: age\n    min: small", 3, "Incorrect type."),
        ("gates:\n  - metric: hr@10\n    better_than: popularty", 2, "Value is not accepted."),
        ("serve:\n  filter:\n    - not_sen: 30d", 2, "Property not_sen is not allowed."),
        ("retrain:\n  on:\n    - kpi: {windo: 5m}", 2, "Property windo is not allowed."),
        ("rollout:\n  analysis:\n    deadline: 5 fortnights", 2, "Expected text such as 30s, 15m, 6h, 7d."),
    ],
)
def test_a_fault_is_on_its_line(editor: Editor, part: str, line: int, message: str) -> None:
    line_faults = editor.diagnostics(part)
    assert [place for place, text in line_faults if text.startswith(message)] == [line], line_faults
    assert {place for place, _ in line_faults} == {line}


def test_no_accepted_spec_of_the_documents_has_a_diagnostic(editor: Editor) -> None:
    specs = dict(specs_of_documents())
    assert len(specs) > 60
    assert {
        place: line_faults for place, line_faults in zip(specs, editor.diagnostics_of_specs(specs.values()), strict=True) if line_faults
    } == {}


def specs_of_documents() -> Iterator[tuple[str, str]]:
    for path in (*sorted(ROOT.glob("*.md")), *sorted((ROOT / "docs").rglob("*.md"))):
        for line, label, content in blocks(path.read_text()):
            spec = spec_of(label, load(content, str(path)))
            if spec is not None:
                is_complete = content.lstrip().startswith("apiVersion")
                yield f"{path.relative_to(ROOT)}:{line}", content if is_complete else yaml.safe_dump(spec, sort_keys=False)


def test_a_complete_spec_and_short_forms_have_no_diagnostic(editor: Editor) -> None:
    specs = [COMPLETE, *(yaml.safe_dump(spec_of("part-of-a-spec.yaml", load(part, "part")), sort_keys=False) for part in SHORT_FORMS)]
    for spec in specs:
        parse_spec(spec)
    faults = dict(zip(specs, editor.diagnostics_of_specs(specs), strict=True))
    assert not any(faults.values()), faults
