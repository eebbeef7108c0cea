"""The wheel of eyas-client in an environment without Eyas: its files, its requirements, and its types."""

from __future__ import annotations

import os
import subprocess
import sys
import sysconfig
from email.parser import HeaderParser
from pathlib import Path
from zipfile import ZipFile

import pytest

ROOT = Path(__file__).parents[2]
ENVIRONMENT = {name: value for name, value in os.environ.items() if name not in ("PYTHONPATH", "MYPYPATH")}
USE = """
from typing import assert_type

from eyas_client import AsyncClient, Client
from eyas_client.answers import EventsAccepted, Recommendations, Rows, Run


def use(client: Client) -> None:
    assert_type(client.recommend("movies", 42, k=3), Recommendations)
    assert_type(client.events("movies", [{"user": 1, "item": 2}]), EventsAccepted)
    assert_type(client.runs.wait("r1", 60, check=True), Run)
    assert_type(client.runs.list("movies"), Rows[Run])


async def use_async(client: AsyncClient) -> None:
    assert_type(await client.recommend("movies", "u-1"), Recommendations)
    assert_type((await client.runs.list())[0], Run)
"""
WRONG = {
    "client.recommend(42)": "Too few arguments",
    "client.runs.wait('r1', tmeout=3)": 'Unexpected keyword argument "tmeout"',
    "client.runs.get('r1').stat": 'has no attribute "stat"',
}


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("client-wheel")
    uv = Path(sys.executable).with_name("uv")
    subprocess.run([uv, "build", "--quiet", "--out-dir", folder, ROOT / "client"], check=True, timeout=240)
    assert len(list(folder.glob("eyas_client-*.tar.gz"))) == 1
    return next(folder.glob("eyas_client-*.whl"))


def test_the_wheel_has_one_package_and_two_requirements(wheel: Path) -> None:
    with ZipFile(wheel) as archive:
        names = archive.namelist()
        metadata = HeaderParser().parsestr(archive.read(next(name for name in names if name.endswith("/METADATA"))).decode())
    assert {name.split("/")[0] for name in names if ".dist-info" not in name} == {"eyas_client"}
    assert "eyas_client/py.typed" in names
    assert any(name.endswith("/LICENSE") for name in names)
    assert [requirement.split(">")[0] for requirement in metadata.get_all("Requires-Dist", [])] == ["httpx", "pydantic"]
    assert metadata["Requires-Python"] == ">=3.11"


def test_types_of_the_installed_client(wheel: Path, tmp_path: Path) -> None:
    with ZipFile(wheel) as archive:
        archive.extractall(tmp_path / "site")
    (tmp_path / "use.py").write_text(USE)
    for number, line in enumerate(WRONG):
        (tmp_path / f"wrong_{number}.py").write_text(f"from eyas_client import Client\n\nclient = Client()\n{line}\n")
    environment = {**ENVIRONMENT, "MYPYPATH": str(tmp_path / "site")}
    command = [sys.executable, "-m", "mypy", "--strict", "--cache-dir", tmp_path / "cache", "--config-file", os.devnull, tmp_path]
    checked = subprocess.run([*command, "--exclude", "site"], cwd=tmp_path, env=environment, capture_output=True, text=True, check=False)
    faults = [line for line in checked.stdout.splitlines() if ": error: " in line]
    for number, reason in enumerate(WRONG.values()):
        assert any(f"wrong_{number}.py:4" in fault and reason in fault for fault in faults), checked.stdout
    assert not [fault for fault in faults if "wrong_" not in fault], checked.stdout


def test_the_client_works_without_eyas(wheel: Path, tmp_path: Path) -> None:
    with ZipFile(wheel) as archive:
        archive.extractall(tmp_path / "site")
    code = (
        f"import sys; sys.path[:0] = [{str(tmp_path / 'site')!r}]; sys.path.append({sysconfig.get_path('purelib')!r})\n"
        "import eyas_client; print(eyas_client.__file__)\n"
        "client = eyas_client.Client('http://127.0.0.1:9', 'a-token', retries=0)\n"
        "try: client.drift('movies')\n"
        "except eyas_client.Unavailable as error: print(error)\n"
        "print(sorted({'shared', 'services', 'pipelines', 'eyas'} & set(sys.modules)))\n"
    )
    done = subprocess.run(
        [sys.executable, "-S", "-c", code], cwd=tmp_path, env=ENVIRONMENT, capture_output=True, text=True, check=True, timeout=60
    )
    file, error, others = done.stdout.splitlines()
    assert file.startswith(str(tmp_path / "site"))
    assert error.startswith("http://127.0.0.1:9: nothing answers")
    assert others == "[]"
