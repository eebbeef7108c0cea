"""The wheel in an environment that has a package called `services` already."""

from __future__ import annotations

import os
import subprocess
import sys
import sysconfig
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
ENVIRONMENT = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"}


@pytest.fixture(scope="module")
def python(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """An interpreter with the wheel, another `services`, and the dependencies of this environment."""
    folder = tmp_path_factory.mktemp("wheel")
    uv = Path(sys.executable).with_name("uv")
    subprocess.run([uv, "build", "--quiet", "--wheel", "--out-dir", folder, ROOT], check=True, timeout=240)
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", folder / "venv"], check=True, timeout=60)
    interpreter = folder / "venv/bin/python"
    (packages,) = (folder / "venv/lib").glob("*/site-packages")
    (packages / "dependencies.pth").write_text(sysconfig.get_paths()["purelib"])
    (packages / "services").mkdir()
    (packages / "services/__init__.py").write_text("OWNER = 'another project'\n")
    (wheel,) = folder.glob("*.whl")
    subprocess.run([uv, "pip", "install", "--quiet", "--no-deps", "--offline", "--python", interpreter, wheel], check=True, timeout=120)
    return interpreter


def run(python: Path, *arguments: str) -> str:
    done = subprocess.run(
        [python, "-P", *arguments], capture_output=True, text=True, check=False, cwd=python.parent, timeout=120, env=ENVIRONMENT
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_both_packages_work(python: Path) -> None:
    code = "import services, eyas.services.api.app as app; print(services.OWNER, app.__name__, app.create_app.__module__)"
    assert run(python, "-c", code).split("\n")[0] == "another project eyas.services.api.app eyas.services.api.app"
    with pytest.raises(AssertionError, match="No module named 'shared'"):
        run(python, "-c", "import shared")


def test_the_command_and_a_process_of_the_pipelines_work(python: Path, tmp_path: Path) -> None:
    command = str(python.with_name("eyas"))
    output = run(python, command, "data", "synth", "ml-100k", "--rows", "500", "--to", str(tmp_path / "films"), "--parquet")
    assert "500 rows" in output
    assert "500" in run(python, command, "data", "describe", str(tmp_path / "films/interactions.parquet"))
    assert run(python, "-m", "eyas.pipelines.stages.etl", "--help").startswith("usage: ")


def test_a_traceback_shows_the_files_and_lines_of_the_wheel(python: Path) -> None:
    code = "import eyas.shared.domain.run as run, inspect; print(inspect.getsourcefile(run)); print(inspect.getsource(run.Job))"
    output = run(python, "-c", code)
    assert "site-packages/eyas/shared/domain/run.py" in output
    assert "class Job" in output
