"""The rules of the product's code (tests/tools/code_rules.py): each violation is reported, and the project has none."""

from __future__ import annotations

from collections.abc import Mapping
from itertools import pairwise
from pathlib import Path

from tests.tools.code_rules import FIXED, MOST_COMPLEX, ROOT, violations

CLEAN = "import json\n\n\ndef add(a, b):\n    return a + b\n"
BRANCH = "    if a:\n        a = a and a\n"


def plant(root: Path, files: Mapping[str, str]) -> list[str]:
    for name, text in {"shared/__init__.py": "", "services/adding.py": CLEAN, **files}.items():
        (root / name).parent.mkdir(parents=True, exist_ok=True)
        (root / name).write_text(text)
    return list(violations(root))


def test_the_project_keeps_the_rules() -> None:
    assert list(violations(ROOT)) == []


def test_each_fixed_field_exists() -> None:
    assert [(file, name) for file, name in sorted(FIXED) if f"\n    {name}: " not in (ROOT / file).read_text()] == []


def test_clean_code_has_no_violation(tmp_path: Path) -> None:
    one_way = {"shared/a.py": "from services import adding\nfrom shared import b\n", "shared/b.py": "import services.adding\n"}
    assert plant(tmp_path, one_way) == []


def test_a_cycle_is_reported_with_its_modules(tmp_path: Path) -> None:
    files = {
        "shared/a.py": "import shared.b\n",
        "shared/b.py": "from shared.c import C\n",
        "shared/c.py": "def load():\n    from shared import a\n",
    }
    (cycle,) = plant(tmp_path, files)
    assert set(pairwise(cycle.removeprefix("import cycle: ").split(" imports "))) == {
        ("shared.a", "shared.b"),
        ("shared.b", "shared.c"),
        ("shared.c", "shared.a"),
    }


def test_a_relative_import_counts(tmp_path: Path) -> None:
    (cycle,) = plant(tmp_path, {"services/room/__init__.py": "from .part import x\n", "services/room/part.py": "from . import y\n"})
    assert cycle.startswith("import cycle: services.room")


def test_a_complex_function_is_reported(tmp_path: Path) -> None:
    suite = f"class Suite:\n    async def test_all(self, a):\n{BRANCH.replace('    ', '        ') * 10}"
    files = {"pipelines/plain.py": f"def simple(a):\n{BRANCH * 9}    assert a\n", "shared/testing/suite.py": suite}
    assert plant(tmp_path, files) == ["shared/testing/suite.py:2: test_all has a complexity of 21, above 20: split it"]
    assert MOST_COMPLEX == 20


def test_vague_names_of_every_kind_are_reported(tmp_path: Path) -> None:
    text = "class _Held:\n    kept: int\n    total: int\n\n\ndef told(given):\n    found = total = given\n    return found + total\n"
    expected = ["held", "kept", "told", "given", "found"]
    reported = plant(tmp_path, {"services/here/__init__.py": "", "pipelines/laid.py": "", "shared/names.py": text})
    assert sorted(reported) == sorted(
        ["pipelines/laid.py: vague name of a module", "services/here/__init__.py: vague name of a module"]
        + [f"shared/names.py:{line}: vague name: {name}" for line, name in zip((1, 2, 6, 6, 7), expected, strict=True)]
    )


def test_a_field_is_excused_in_its_file_only_and_only_as_a_field(tmp_path: Path) -> None:
    file, name = min(FIXED)
    field, variable = f"class View:\n    {name}: str\n", f"def view():\n    {name} = 1\n"
    reported = plant(tmp_path, {file: f"{field}\n\n{variable}", "shared/other.py": field})
    assert sorted(reported) == [f"{file}:6: vague name: {name}", f"shared/other.py:2: vague name: {name}"]


def test_the_client_is_checked_by_the_names_of_its_imports(tmp_path: Path) -> None:
    files = {"client/eyas_client/a.py": "from eyas_client import b\n", "client/eyas_client/b.py": "import eyas_client.a\n\nfound = 1\n"}
    cycle, vague = plant(tmp_path, files)
    assert cycle.startswith("import cycle: eyas_client.")
    assert vague == "client/eyas_client/b.py:3: vague name: found"
