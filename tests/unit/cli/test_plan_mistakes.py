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
