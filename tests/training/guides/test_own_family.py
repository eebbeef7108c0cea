"""The family of docs/how-to/own-family.md as it stands there: trained, judged, exported and served; and refused where it isn't allowed."""

from __future__ import annotations

import re
import sys
from pathlib import Path
from typing import Any

import pytest

from pipelines.models.families import load_model
from pipelines.models.plugins import check_trained, own_family
from pipelines.trials.evaluate import evaluate
from pipelines.trials.train import train
from services.triton.verify import examine
from shared.contracts.spec import RecommenderSpec
from shared.contracts.stage import Files, Manifest, StageSpec
from shared.domain.errors import Invalid
from tests.support.stage_runner import StageRunner
from tests.support.taste_table import likes

TEXT = (Path(__file__).parents[3] / "docs/how-to/own-family.md").read_text()
NAME = "acme.fading:Fading"


@pytest.fixture(scope="module")
def acme(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with the package, to be put on the path."""
    folder = tmp_path_factory.mktemp("installed")
    (folder / "acme").mkdir()
    (folder / "acme" / "__init__.py").touch()
    (code,) = re.findall(r"```python\n(.*?)```", TEXT, re.DOTALL)
    (folder / "acme" / "fading.py").write_text(code)
    (folder / "acme" / "others.py").write_text(
        "from pathlib import Path\nclass Half:\n    reads, train = 'keys', None\nclass Odd(Half):\n    reads, load = 'leaves', None\n"
    )
    (folder / "acme" / "broken.py").write_text("import acme.nowhere\n")
    return folder


@pytest.fixture
def installed(acme: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """In this process too."""
    monkeypatch.syspath_prepend(str(acme))
    for name in [one for one in sys.modules if one.split(".")[0] == "acme"]:
        monkeypatch.delitem(sys.modules, name)


def recommender(runner: StageRunner, **params: Any) -> dict[str, Any]:
    model = {"family": NAME, "params": params}
    return runner.recommender | {"model": model, "gates": [{"metric": "hr@10", "min": 0.01}, {"parity": 1e-6}]}


def manifest_of(runner: StageRunner, attempt: str) -> Manifest:
    found = runner.store.manifest(attempt)
    assert found is not None
    return found


def test_a_family_of_ones_own_is_trained_judged_exported_and_served(
    acme: Path, installed: None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PYTHONPATH", f"{acme}:{Path(__file__).parents[3]}")
    runner = StageRunner(tmp_path)
    spec = recommender(runner, half_life=2)
    done = runner.run("own", {}, recommender=spec, families=("acme.fading",))
    assert done["train"].facts["family"] == NAME
    assert done["train"].metrics["train.likes"] > 1000
    metrics = done["evaluate"].metrics
    assert 0 < metrics["candidate.hr@10"] < 1 and metrics["candidate.hr@10"] != metrics["popularity.hr@10"]
    assert done["export"].metrics["export.parity"] == 0
    verify = StageSpec(
        stage="verify",
        run="own",
        attempt="own-verify-1",
        recommender=RecommenderSpec.model_validate(spec),
        inputs={"export": done["export"].files},
        artifacts=runner.store.url,
    )
    scratch = tmp_path / "verify"
    scratch.mkdir()
    found, _ = examine(verify, runner.store, scratch)
    assert found["parity"] < 1e-6

    process, attempt = runner.stage("etl", "faulty", {}, recommender=recommender(runner, halflife=3), families=("acme.fading",))
    failure = manifest_of(runner, attempt).failure
    assert process.returncode == 2 and failure is not None and failure.kind == "spec"
    assert failure.message == "model.params: unknown field 'halflife': Fading has half_life (in days)"
    files: dict[str, Files] = {"etl": done["etl"].files, "train": done["train"].files}
    for stage, inputs in (("etl", {}), ("train", files), ("evaluate", files), ("export", files)):
        process, attempt = runner.stage(stage, "forbidden", inputs, recommender=spec)
        assert process.returncode == 2, process.stdout + process.stderr
        failure = manifest_of(runner, attempt).failure
        assert failure is not None and "the module 'acme.fading' is not allowed; allowed: none;" in failure.message


@pytest.mark.parametrize(
    ("name", "allowed", "said"),
    [
        (
            "os:PathLike",
            ("acme.fading",),
            "the module 'os' is not allowed; allowed: acme.fading; add it to EYAS_FAMILIES",
        ),
        ("acme.nowhere:Two", ("acme.nowhere",), "'acme.nowhere' cannot be imported where stages run: ModuleNotFoundError: No module named"),
        (
            "acme.broken:Two",
            ("acme.broken",),
            "'acme.broken' cannot be imported where stages run: ModuleNotFoundError: No module named 'acme.n",
        ),
        ("acme.fading:Faded", ("acme.fading",), "the module 'acme.fading' has no class 'Faded'"),
        ("acme.fading:WEIGHTS", ("acme.fading",), "the module 'acme.fading' has no class 'WEIGHTS'"),
        ("acme.others:Path", ("acme.others",), "the class 'acme.others:Path' lacks reads, train, load"),
        ("acme.others:Half", ("acme.others",), "the class 'acme.others:Half' lacks load: see docs/how-to/own-family.md"),
        (
            "acme.others:Odd",
            ("acme.others",),
            "'acme.others:Odd': reads is 'leaves': expected one of keys, sequence, sequence_and_items, deep, trees",
        ),
    ],
)
def test_what_is_not_allowed_not_there_or_not_whole_is_said(installed: None, name: str, allowed: tuple[str, ...], said: str) -> None:
    with pytest.raises(Invalid) as caught:
        own_family(name, allowed)
    assert said in str(caught.value) and "\n" not in str(caught.value)


def test_a_saved_model_can_not_name_a_module_that_is_not_allowed(installed: None, tmp_path: Path) -> None:
    (tmp_path / "model.json").write_text('{"family": "acme.fading:Fading"}')
    with pytest.raises(Invalid, match="is not allowed"):
        load_model(lambda name: tmp_path / name)
    assert "acme.fading" not in sys.modules


def test_a_command_imports_what_it_is_told_to_and_nothing_that_a_file_names(installed: None, tmp_path: Path) -> None:
    likes().write_csv(tmp_path / "train.csv")
    files = {"train": str(tmp_path / "train.csv")}
    own = {"family": NAME, "params": {"half_life": 30}}
    said = files | {"name": "a spec", "model": own, "out": str(tmp_path / "own")}
    with pytest.raises(Invalid, match=r"the module 'acme.fading' is not allowed; .*--allow"):
        train(said)
    assert "acme.fading" not in sys.modules and not (tmp_path / "own").exists()
    train(said | {"allow": ("acme.fading",)})
    del sys.modules["acme.fading"]
    judge = files | {"test": files["train"], "saved": (str(tmp_path / "own"),), "out": str(tmp_path / "judged")}
    with pytest.raises(Invalid, match=r"--saved .*own/model: model.family: the module 'acme.fading' is not allowed"):
        evaluate(judge)
    assert "acme.fading" not in sys.modules
    assert [row.model for row in evaluate(judge | {"allow": ("acme.fading",)}).rows] == ["popularity", "own"]


def test_a_model_that_lacks_something_is_refused_before_it_is_published() -> None:
    with pytest.raises(Invalid, match=r"the trained model of 'a:B' lacks meaning, tables, save, score, lower, embeddings"):
        check_trained(object(), "a:B")  # type: ignore[arg-type]
