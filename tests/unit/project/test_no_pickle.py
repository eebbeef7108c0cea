"""No code unpickles: no import of a pickle module, no reader of arrays that allows pickles, and no file with one is read."""

from __future__ import annotations

import ast
import io
import os
import pickle  # the only one in the house: to make what must be refused
import re
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from pipelines import arrays
from pipelines.models.family import MODEL
from pipelines.models.popularity_model import SCORES, PopularityFamily
from services.triton.load_test import read_arrays
from shared.domain.errors import BadData

ROOT = Path(__file__).parents[3]
PACKAGES = ("shared", "services", "pipelines", "demo", "benchmarks")
FORBIDDEN = {"pickle", "cPickle", "_pickle", "cloudpickle", "dill", "joblib", "shelve", "marshal", "jsonpickle"}
CALLS = {"load", "save", "load_model", "read_pickle", "to_pickle"}
WORDS = re.compile(rf"\.\s*(?:{'|'.join(sorted(CALLS))})\b|{'|'.join(sorted(FORBIDDEN))}")
"""A file without any of these has no fault."""


def sources() -> Iterator[tuple[Path, ast.Module]]:
    for package in PACKAGES:
        for path in sorted((ROOT / package).rglob("*.py")):
            text = path.read_text()
            if WORDS.search(text):
                yield path, ast.parse(text)


def faults(path: Path, tree: ast.AST) -> Iterator[str]:
    for node in ast.walk(tree):
        names: list[str] = []
        if isinstance(node, ast.Import):
            names = [one.name for one in node.names]
        elif isinstance(node, ast.ImportFrom):
            names = [node.module or ""]
        elif isinstance(node, ast.Call):
            yield from _call(path, node)
        yield from (f"{path}:{node.lineno}: imports {name}" for name in names if name.split(".")[0] in FORBIDDEN)  # type: ignore[attr-defined]


def _call(path: Path, node: ast.Call) -> Iterator[str]:
    """`np.load` and `np.save` allow pickles unless they are told not to."""
    if not isinstance(node.func, ast.Attribute) or node.func.attr not in CALLS:
        return
    called = ast.unparse(node.func)
    if called in ("np.load", "numpy.load", "np.save", "numpy.save"):
        said = {one.arg: ast.unparse(one.value) for one in node.keywords}
        if said.get("allow_pickle") != "False":
            yield f"{path}:{node.lineno}: {called} without allow_pickle=False"
    if called in ("torch.load", "keras.models.load_model", "pd.read_pickle", "pandas.read_pickle") or called.endswith(".to_pickle"):
        yield f"{path}:{node.lineno}: {called}"


@pytest.mark.requirement("T-13")
def test_nothing_in_the_house_can_unpickle() -> None:
    assert [fault for path, tree in sources() for fault in faults(path.relative_to(ROOT), tree)] == []


@pytest.mark.parametrize(
    "line",
    [
        "import pickle",
        "from cloudpickle import loads",
        "import numpy as np; np.load('x')",
        "np.save('x', y, allow_pickle=True)",
        "torch.load(x)",
    ],
)
def test_each_way_to_unpickle_is_seen(line: str) -> None:
    assert len(list(faults(Path("x.py"), ast.parse(line)))) == 1


class Bomb:
    """Makes a file when it is unpickled."""

    def __init__(self, path: Path) -> None:
        self.path = path

    def __reduce__(self) -> tuple[Callable[..., Any], tuple[str]]:
        return os.mkdir, (str(self.path),)


def _weights(folder: Path) -> None:
    arrays.read_arrays(folder / "bomb.npz")


def _rows(folder: Path) -> None:
    read_arrays(folder / "bomb.npz", ["weights"])


def _scores(folder: Path) -> None:
    (folder / MODEL).write_text('{"family": "popularity", "item": "movieId"}')
    PopularityFamily().load(lambda name: folder / ("bomb.npy" if name == SCORES else name))


@pytest.mark.requirement("T-13")
@pytest.mark.parametrize("read", [_weights, _rows, _scores])
def test_a_file_that_holds_a_pickle_is_refused_and_not_run(tmp_path: Path, read: Callable[[Path], None]) -> None:
    array = np.array([Bomb(tmp_path / "ran")], dtype=np.object_)
    np.savez(tmp_path / "bomb.npz", weights=array)
    np.save(tmp_path / "bomb.npy", array)
    with pytest.raises((ValueError, BadData), match="allow_pickle"):
        read(tmp_path)
    assert not (tmp_path / "ran").exists()
    pickle.load(io.BytesIO(pickle.dumps(Bomb(tmp_path / "ran"))))
    assert (tmp_path / "ran").exists()
