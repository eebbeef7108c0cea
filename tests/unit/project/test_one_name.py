"""The wheel's one top-level name: hatch_build.py writes `eyas.` before each module of the three packages; a clone has aliases."""

from __future__ import annotations

import ast
import importlib.util
import sys
from pathlib import Path
from types import ModuleType

import pytest

import shared.domain.run

ROOT = Path(__file__).parents[3]
PACKAGES = ("shared", "services", "pipelines")


@pytest.fixture(scope="module")
def hook() -> ModuleType:
    """The build hook, with a stand-in for hatchling, which only a build has."""
    names = ("hatchling", "builders", "hooks", "plugin", "interface")
    paths = [".".join(names[: length + 1]) for length in range(len(names))]
    stand_in = ModuleType(paths[-1])
    stand_in.BuildHookInterface = object  # type: ignore[attr-defined]
    with pytest.MonkeyPatch.context() as patch:
        for path in paths:
            patch.setitem(sys.modules, path, stand_in)
        spec = importlib.util.spec_from_file_location("hatch_build", ROOT / "hatch_build.py")
        assert spec and spec.loader
        module = importlib.util.module_from_spec(spec)
        spec.loader.exec_module(module)
    return module


def modules() -> set[str]:
    paths = [path.relative_to(ROOT) for package in PACKAGES for path in (ROOT / package).rglob("*.py")]
    return {".".join(path.with_suffix("").parts).removesuffix(".__init__") for path in paths}


def imported(tree: ast.AST) -> list[str]:
    plain = [alias.name for node in ast.walk(tree) if isinstance(node, ast.Import) for alias in node.names]
    return plain + [node.module for node in ast.walk(tree) if isinstance(node, ast.ImportFrom) and node.module]


def test_no_module_of_the_wheel_imports_or_names_another_by_its_old_name(hook: ModuleType) -> None:
    module_names = modules()
    assert len(module_names) > 500
    for package in PACKAGES:
        for path in (ROOT / package).rglob("*.py"):
            before, after = ast.parse(path.read_text()), ast.parse(hook.renamed(path.read_text(), ROOT))
            ours = [name for name in imported(before) if name.split(".")[0] in PACKAGES]
            assert [name for name in imported(after) if name.startswith("eyas.")] == [f"eyas.{name}" for name in ours], path
            assert not [name for name in imported(after) if name.split(".")[0] in PACKAGES], path
            texts = {node.value for node in ast.walk(after) if isinstance(node, ast.Constant) and isinstance(node.value, str)}
            assert not {text for text in texts & module_names if "." in text}, path
            uses = {ast.unparse(node) for node in ast.walk(after) if isinstance(node, ast.Attribute)}
            assert not [use for use in uses if use.startswith("eyas.") and not any(use.startswith(f"eyas.{name}") for name in ours)], path


@pytest.mark.parametrize(
    ("source", "expected"),
    [
        ("from shared import ports", "from eyas.shared import ports"),
        ("    import services.api.app", "    import eyas.services.api.app"),
        ('COMMAND = "python -m pipelines.stages.etl"', 'COMMAND = "python -m eyas.pipelines.stages.etl"'),
        ("total = shared.value + self.services.api", "total = shared.value + self.services.api"),
        ("path = 'services/api/app.py'", "path = 'services/api/app.py'"),
        ("eyas.shared.ports", "eyas.shared.ports"),
    ],
)
def test_names_of_modules_are_written_with_eyas_and_no_others(hook: ModuleType, source: str, expected: str) -> None:
    assert hook.renamed(source, ROOT) == expected


def test_a_clone_has_the_same_modules_by_both_names() -> None:
    import eyas.shared.domain.run

    assert eyas.shared.domain.run is shared.domain.run
    assert shared.domain.run.__spec__ is not None
    assert shared.domain.run.__spec__.name == "shared.domain.run"
