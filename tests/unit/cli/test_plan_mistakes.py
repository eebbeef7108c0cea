"""`plan` names mistakes in a spec and its data, each with its line and the nearest valid name. The platform suite tries all forty."""

from __future__ import annotations

from collections import Counter
from pathlib import Path

import polars  # noqa: F401 (its first import looks for torch, which a running unit test may not do)
import pytest

from tests.support.spec_mistakes import MISTAKES, write_shop

pytestmark = [pytest.mark.usefixtures("tool_in_process"), pytest.mark.requirement("U-03")]


def test_a_correct_spec_would_start(eyas, tmp_path: Path) -> None:
    write_shop(tmp_path)
    shown = eyas("plan", tmp_path / "shop.yaml")
    assert shown.exit_code == 0, shown.output
    assert f"{tmp_path / 'shop.yaml'}: a run would start, with 1,500 rows" in shown.stdout


def test_every_mistake_is_refused_by_its_line(eyas, tmp_path: Path, subtests: pytest.Subtests) -> None:
    assert sorted(Counter(mistake.kind for mistake in MISTAKES).values()) == [5] * 8
    in_text = [mistake for mistake in MISTAKES if mistake.kind in ("structure", "names", "values")]
    first = {mistake.kind: mistake for mistake in reversed(MISTAKES)}
    for number, mistake in enumerate(dict.fromkeys((*in_text, *first.values()))):
        with subtests.test(number=number, says=mistake.says):
            file = mistake.write(tmp_path / str(number))
            shown = eyas("plan", file)
            assert shown.exit_code == 1, shown.output
            named = [line for line in shown.stdout.splitlines() if line.startswith(f"{file}:{mistake.line}: ")]
            assert any(mistake.says in line and mistake.near in line for line in named), shown.stdout


UNKNOWN = "unknown attribute 'stock': did you mean 'tags'?"


@pytest.fixture
def shop(tmp_path: Path) -> Path:
    """A spec whose filter names an attribute that the items table lacks."""
    write_shop(tmp_path)
    file = tmp_path / "shop.yaml"
    file.write_text(file.read_text().replace("category != 'toys'", "stock > 0"))
    return file


def test_an_attribute_that_clients_have_written_is_no_fault(eyas, platform, shop: Path) -> None:
    platform.says("POST /v1/recommenders:validate", {"spec": {}, "warnings": []})
    shown = eyas("plan", shop)
    assert shown.exit_code == 0 and "a run would start, with 1,500 rows" in shown.stdout, shown.output


def test_an_attribute_that_the_platform_does_not_know_either_is_a_fault(eyas, platform, shop: Path) -> None:
    warning = f"serve.filter: {UNKNOWN}; the columns of the items table are not known yet: the run checks them"
    platform.says("POST /v1/recommenders:validate", {"spec": {}, "warnings": [warning]})
    shown = eyas("plan", shop)
    assert shown.exit_code == 1 and f"{shop}:28: serve.filter: unknown attribute 'stock'" in shown.stdout, shown.output


def test_a_refusal_of_the_platform_is_named_once_with_its_line(eyas, platform, shop: Path) -> None:
    problem = {"type": "https://eyas.dev/problems/invalid", "title": "Invalid", "status": 422, "detail": f"serve.filter: {UNKNOWN}"}
    refusal = problem | {"errors": [{"field": "serve.filter", "message": UNKNOWN}]}
    platform.says("POST /v1/recommenders:validate", refusal, status=422)
    shown = eyas("plan", shop)
    assert shown.exit_code == 1 and shown.stdout.splitlines() == [f"{shop}:28: serve.filter: {UNKNOWN}"], shown.output


def test_data_that_only_the_platform_has_is_not_checked_here(eyas, platform, shop: Path) -> None:
    shop.with_name("events.csv").unlink()
    platform.says("POST /v1/recommenders:validate", {"spec": {}, "warnings": []})
    shown = eyas("plan", shop)
    assert shown.exit_code == 0 and "note: data not checked: " in shown.stdout and "the platform has it" in shown.stdout, shown.output
    assert "no fault, but the data was not checked" in shown.stdout
    warning = "data.interactions.uri: events.csv: file not found"
    platform.says("POST /v1/recommenders:validate", {"spec": {}, "warnings": [warning]})
    shown = eyas("plan", shop)
    assert shown.exit_code == 1 and f"{shop}:4: data.interactions.uri: events.csv: file not found" in shown.stdout, shown.output


def test_a_category_that_no_item_has_is_noted_with_the_nearest_one(eyas, tmp_path: Path) -> None:
    """A value may come later, so a run would start."""
    write_shop(tmp_path)
    file = tmp_path / "shop.yaml"
    file.write_text(file.read_text().replace("category != 'toys'", "category in ['toyz', 'toys'] or title == 'Titel 3' or price > 3"))
    shown = eyas("plan", file)
    assert shown.exit_code == 0, shown.output
    notes = [line for line in shown.stdout.splitlines() if line.startswith("note: serve.filter")]
    assert notes == [
        "note: serve.filter: no item of the data has 'toyz' in category; did you mean 'toys'?",
        "note: serve.filter: no item of the data has 'Titel 3' in title; did you mean 'Title 3'?",
    ]


def test_many_absent_texts_are_counted(eyas, tmp_path: Path) -> None:
    write_shop(tmp_path)
    file = tmp_path / "shop.yaml"
    file.write_text(file.read_text().replace("category != 'toys'", f"category in {[f'none {number}' for number in range(50)]}"))
    notes = [line for line in eyas("plan", file).stdout.splitlines() if line.startswith("note: serve.filter")]
    assert len(notes) == 6 and notes[-1] == "note: serve.filter: and 45 further texts that no item of the data has"
