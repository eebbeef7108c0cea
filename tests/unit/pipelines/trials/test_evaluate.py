"""`eyas evaluate` on small worlds: what is trained on pairs alone, what it is judged by, what is wrong with files, and the report."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import numpy as np
import polars as pl
import pytest

from pipelines.models.families import FAMILIES
from pipelines.models.family import Task
from pipelines.models.mf import Mf
from pipelines.trials import evaluate as command
from pipelines.trials.evaluate import evaluate
from pipelines.trials.files import PairFile
from pipelines.trials.holdout import cut
from shared.domain.errors import EyasError
from tests.support.html_pages import Page
from tests.support.taste_table import ITEMS, USERS, likes

NAMES = ["user", "item", "label", "at"]


@pytest.fixture
def world(tmp_path: Path) -> Path:
    """train.tsv, test.tsv and negatives.tsv, in the layout of NCF's authors."""
    train, test, _ = cut(PairFile("likes", likes()), "random", 3)
    train.with_columns(pl.lit(5), pl.lit(0).alias("at")).write_csv(tmp_path / "train.tsv", separator="\t", include_header=False)
    test.with_columns(pl.lit(5), pl.lit(0).alias("at")).write_csv(tmp_path / "test.tsv", separator="\t", include_header=False)
    random, had = np.random.default_rng(5), {user: set(rows) for user, rows in likes().group_by("user").agg("item").iter_rows()}
    lines = []
    for user, item in test.select("user", "item").iter_rows():
        free = [one for one in range(ITEMS) if one not in had[user]]
        lines.append("\t".join(map(str, (f"({user},{item})", *random.choice(free, 99, replace=False)))))
    (tmp_path / "negatives.tsv").write_text("\n".join(lines) + "\n")
    return tmp_path


def told(folder: Path, *models: str, **more: Any) -> dict[str, Any]:
    files = {name: str(folder / f"{name}.tsv") for name in ("train", "test", "negatives")}
    return files | {"models": models or ("mf",), "out": str(folder / "out"), "settings": {"width": 8, "regularisation": 0.01}} | more


def report(folder: Path) -> dict[str, Any]:
    found: dict[str, Any] = json.loads((folder / "out" / "report.json").read_text())
    return found


@pytest.mark.requirement("N-03", "N-07", "N-08")
def test_a_report_holds_sampled_and_full_figures_over_seeds(world: Path) -> None:
    answer = evaluate(told(world, "mf", "popularity", seeds=3))
    found = report(world)
    for name in ("hr@10/99", "ndcg@10/99", "hr@10", "ndcg@10"):
        figure = found[name]
        assert figure["seeds"] == 3 == len(figure["values"])
        assert figure["mean"] == pytest.approx(np.mean(figure["values"]))
        assert figure["std"] == pytest.approx(np.std(figure["values"], ddof=1))
        low, high = figure["interval"]
        assert low < figure["mean"] < high
        assert figure["mean"] > found["models"]["popularity"]["metrics"][name]["mean"]
        assert found["models"]["mf"]["against_baseline"][name]["interval"][0] > 0
    assert found["hr@10/99"]["mean"] > found["hr@10"]["mean"], "a catalogue of 150 has more in the way than 99 have"
    assert found["minutes"]["train"]["mean"] > 0
    assert [run["seed"] for run in found["models"]["mf"]["runs"]] == [1, 2, 3]
    assert found["models"]["mf"]["runs"][0]["training"]["train.seconds"] > 0
    assert {"cold_users", "heavy_users", "cold_items", "head_items", "tail_items"} == set(found["models"]["mf"]["slices"])
    slices = found["models"]["mf"]["slices"]
    assert slices["head_items"]["cases"] + slices["tail_items"]["cases"] == found["data"]["test pairs"] == USERS
    assert [row.model for row in answer.rows] == ["popularity", "mf"]
    assert answer.rows[1].metrics["hr@10"].mean == pytest.approx(found["hr@10"]["mean"])
    assert not answer.faults


@pytest.mark.requirement("N-08")
def test_figures_are_what_one_finds_by_hand(world: Path) -> None:
    """Popularity: counts of the file to train on, ranked user by user."""
    evaluate(told(world, "popularity", settings={}))
    train, test = (pl.read_csv(world / f"{name}.tsv", separator="\t", has_header=False, new_columns=NAMES) for name in ("train", "test"))
    counts = np.bincount(train["item"].to_numpy(), minlength=ITEMS).astype(float)
    drawn = [[int(one) for one in line.split("\t")[1:]] for line in (world / "negatives.tsv").read_text().splitlines()]
    full, sampled = [], []
    for (user, item), others in zip(test.select("user", "item").iter_rows(), drawn, strict=True):
        has = set(train.filter(pl.col("user") == user)["item"]) | {item}
        left = counts[[one for one in range(ITEMS) if one not in has]]
        full.append(1 + (left > counts[item]).sum() + (left == counts[item]).sum() / 2)
        sampled.append(1 + (counts[others] > counts[item]).sum() + (counts[others] == counts[item]).sum() / 2)
    found = report(world)
    assert found["hr@10"]["mean"] == pytest.approx(np.mean(np.array(full) <= 10))
    assert found["mrr"]["mean"] == pytest.approx(np.mean(1 / np.array(full)))
    assert found["hr@10/99"]["mean"] == pytest.approx(np.mean(np.array(sampled) <= 10))
    assert found["ndcg@10/99"]["mean"] == pytest.approx(np.mean(np.where(np.array(sampled) <= 10, 1 / np.log2(np.array(sampled) + 1), 0)))


def test_a_model_that_is_asked_pair_by_pair_is_judged_the_same(world: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    evaluate(told(world))
    fast = report(world)["hr@10"]["values"]
    monkeypatch.setattr("pipelines.trials.judging._every", lambda model, users, items: None)
    evaluate(told(world))
    assert report(world)["hr@10"]["values"] == pytest.approx(fast, abs=0.02)


@pytest.mark.requirement("N-03")
def test_the_faults_of_a_negatives_file_are_counted_and_refused_if_asked(world: Path) -> None:
    lines = (world / "negatives.tsv").read_text().splitlines()
    train = pl.read_csv(world / "train.tsv", separator="\t", has_header=False, new_columns=NAMES)
    pair = re.match(r"\((\d+),(\d+)\)", lines[0])
    assert pair is not None
    own, had = pair[2], train.filter(pl.col("user") == int(pair[1]))["item"].to_list()
    fields = lines[0].split("\t")
    lines[0] = "\t".join([fields[0], own, str(had[0]), str(had[1]), "9999", *fields[5:-1], fields[5]])
    lines[1] = lines[1].rsplit("\t", 1)[0]
    lines[2] = lines[2].replace(re.match(r"\(\d+", lines[2])[0], "(777")  # type: ignore[index]
    (world / "negatives.tsv").write_text("\n".join(lines) + "\n")
    answer = evaluate(told(world))
    faults = report(world)["faults"][str(world / "negatives.tsv")]
    assert {what: count for what, count in faults.items() if count} == {
        "negatives that are the user's own test items, taken out": 1,
        "negatives that are there twice, taken out": 1,
        "negatives that the user has in the file to train on": 2,
        "negatives that training doesn't know": 1,
        "test pairs without a line, for which verified ones were drawn": 1,
        "lines of other pairs, which aren't used": 1,
        "lines with more or fewer than 99 negatives": 1,
    }
    assert len(answer.faults) == 7
    with pytest.raises(EyasError, match=r"1 negatives that are the user's own test items.*without --strict, faults are only counted"):
        evaluate(told(world, strict=True))


@pytest.mark.requirement("N-03")
def test_drawn_negatives_are_verified_and_as_good_as_supplied_ones(world: Path) -> None:
    evaluate(told(world))
    supplied = report(world)["hr@10/99"]["mean"]
    evaluate(told(world, negatives=None))
    found = report(world)
    assert found["hr@10/99"]["mean"] == pytest.approx(supplied, abs=0.12)
    assert "99 negatives for each test pair, drawn evenly (seed 1)" in " ".join(found["how"])
    evaluate(told(world, negatives=None, sampled=20))
    assert report(world)["hr@10/20"]["mean"] >= supplied


def test_who_or_what_training_does_not_know_is_counted_and_stands_last(world: Path) -> None:
    text = (world / "test.tsv").read_text().splitlines()
    some = [line.split("\t") for line in text]
    some[0][0], some[1][1] = "5000", "6000"
    (world / "test.tsv").write_text("\n".join("\t".join(one) for one in some) + "\n")
    evaluate(told(world, negatives=None))
    found = report(world)
    assert found["faults"][str(world / "test.tsv")] == {
        "repeated pairs": 0,
        "pairs that are to be trained on as well": 0,
        "pairs of users that training doesn't know": 1,
        "pairs of items that training doesn't know": 1,
    }
    assert found["data"]["test pairs"] == USERS
    slices = found["models"]["mf"]["slices"]
    assert slices["cold_items"]["cases"] >= 1
    assert slices["known"]["cases"] == USERS - 2
    assert slices["known"]["metrics"]["hr@10"]["mean"] == pytest.approx(found["hr@10"]["mean"] * USERS / (USERS - 2))


def test_without_a_test_file_one_pair_of_each_user_is_held_out_and_said(world: Path) -> None:
    evaluate(told(world, test=None, negatives=None))
    first = report(world)
    assert first["data"]["test pairs"] == USERS
    assert any("one item of each user, drawn at random (seed 1)" in line or "each user's newest item" in line for line in first["how"])
    evaluate(told(world, test=None, negatives=None, holdout="random", seed=8))
    assert any("seed 8" in line for line in report(world)["how"])


@pytest.mark.requirement("N-05")
def test_a_kept_model_is_judged_alone_and_says_what_it_said(world: Path) -> None:
    evaluate(told(world, seeds=2, keep=True))
    first = report(world)
    folder = world / "out" / "models" / "mf-2"
    answer = evaluate(told(world, saved=(str(folder),)) | {"models": (), "settings": {}})
    again = report(world)
    assert again["model"] == "mf-2"
    for name in ("hr@10/99", "ndcg@10/99", "hr@10", "ndcg@10"):
        assert again[name]["mean"] == pytest.approx(first[name]["values"][1])
    assert [(row.model, row.minutes is None) for row in answer.rows] == [("popularity", False), ("mf-2", True)]
    assert sorted(path.suffix for path in folder.iterdir()) == sorted([".json", ".json", ".npz", ".npz", *[".parquet"] * 4])


@pytest.mark.requirement("N-05")
def test_a_kept_model_meets_files_with_others_whom_it_does_not_know(world: Path) -> None:
    evaluate(told(world, keep=True))
    first = report(world)["hr@10"]["mean"]
    for name in ("train", "test"):
        lines = (world / f"{name}.tsv").read_text().splitlines()
        more = ["900\t1\t5\t0", "900\t2\t5\t0", "3\t901\t5\t0"] if name == "train" else ["900\t5\t5\t0"]
        (world / f"{name}.tsv").write_text("\n".join([*more, *lines]) + "\n")
    evaluate(told(world, saved=(str(world / "out" / "models" / "mf-1"),)) | {"models": (), "settings": {}, "negatives": None})
    found = report(world)
    assert found["data"]["users"] == USERS + 1
    assert found["hr@10"]["mean"] == pytest.approx(first, abs=0.03)


def test_text_ids_and_slices_by_columns(world: Path) -> None:
    named = {name: pl.read_csv(world / f"{name}.tsv", separator="\t", has_header=False, new_columns=NAMES) for name in ("train", "test")}
    for name, frame in named.items():
        frame.select(user=pl.format("u{}", "user"), item=pl.format("i{}", "item")).write_csv(world / f"{name}.csv")
    pl.DataFrame({"user": [f"u{one}" for one in range(USERS)], "age": range(USERS)}).write_csv(world / "users.csv")
    genres = [["Drama|War", "Comedy", None][one % 3] for one in range(ITEMS)]
    pl.DataFrame({"item": [f"i{one}" for one in range(ITEMS)], "genre": genres}).write_csv(world / "items.csv")
    files = {name: str(world / f"{name}.csv") for name in ("train", "test", "users", "items")}
    evaluate(told(world, negatives=None, slices=("genre", "age"), **files))
    found = report(world)["models"]["mf"]["slices"]
    assert {"genre=Drama", "genre=War", "genre=Comedy"} < set(found)
    assert found["genre=Drama"]["cases"] == found["genre=War"]["cases"]
    ages = {name: one["cases"] for name, one in found.items() if name.startswith("age=")}
    assert (len(ages), sum(ages.values())) == (4, USERS)
    pl.DataFrame({"item": ["x", "y"], "genre": ["Drama", "War"]}).write_csv(world / "items.csv")
    with pytest.raises(EyasError, match="--slice genre: no item of the test pairs has a value in it: check that 'item'"):
        evaluate(told(world, negatives=None, slices=("genre",), **files))
    with pytest.raises(EyasError, match=r"--slice year: no table has this column; available: age, genre"):
        evaluate(told(world, negatives=None, slices=("year",), **files))


REFUSED: list[tuple[dict[str, Any], str]] = [
    ({"models": ("nmf",)}, "--model nmf: unknown model family 'nmf': did you mean 'mf'?"),
    ({"settings": {"wid": 3}}, "--model mf: params: unknown field 'wid': did you mean 'width'?"),
    ({"settings": {"framework": "torch"}}, "--model mf: 'framework' has no effect"),
    ({"models": ("popularity",)}, "--model popularity: params: unknown field 'width'"),
    ({"settings": {"train.epochs": 3}}, "--model mf: train: 'epochs' has no effect"),
    ({"holdout": "last"}, "--holdout: not possible with --test"),
    ({"test": None, "negatives": None, "holdout": "last", "train": "likes.parquet"}, "has no time column: use --holdout random"),
    ({"train": "one.csv", "test": None, "negatives": None}, "one user to train on: at least two are needed"),
    ({"train": "single.csv", "test": None, "negatives": None}, "no user has two items: nothing can be held out"),
    ({"test": "others.csv", "negatives": None}, "none of its users is in the training file, for example 5000: check the ids"),
    ({"test": "empty.csv", "negatives": None}, "empty.csv: no rows"),
    ({"negatives": "foreign.tsv"}, "none of its 1 lines matches a pair of .*test.tsv: check the ids"),
    ({"min_interactions": 10_000, "test": None}, "no user has 10000 items: choose a smaller --min-interactions"),
    ({"seeds": 0}, "eyas evaluate: seeds: "),
    ({"models": ()}, "no model to evaluate; add --model NAME or --saved FOLDER"),
    ({"models": ("mf", "mf")}, "'mf' is named twice"),
    ({"saved": ("no/such",)}, "--saved no/such: not a model of 'eyas train' or --keep: model.json is missing"),
]


def test_what_cannot_be_judged_is_one_line(world: Path, subtests: pytest.Subtests) -> None:
    texts = {
        "one.csv": "1,2\n1,3\n1,4\n",
        "single.csv": "1,2\n2,3\n4,4\n",
        "others.csv": "5000,1\n5001,2\n",
        "empty.csv": "user,item\n",
        "foreign.tsv": "(700,1)\t2\t3\n",
    }
    for name, text in texts.items():
        (world / name).write_text(text)
    likes().write_parquet(world / "likes.parquet")
    for number, (change, said) in enumerate(REFUSED):
        with subtests.test(msg=said, change=change):
            files = {key: str(world / value) for key, value in change.items() if isinstance(value, str) and "." in value}
            out = world / f"refused-{number}"
            with pytest.raises(EyasError) as caught:
                evaluate(told(world) | change | files | {"out": str(out)})
            assert re.search(said, str(caught.value)), str(caught.value)
            assert "\n" not in str(caught.value)
            assert not list(out.glob(".trial-*"))


@pytest.mark.requirement("N-05")
def test_where_no_report_can_be_written_nothing_is_trained(world: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(command, "read_trial", lambda *_: pytest.fail("files were read"))
    (world / "file").write_text("")
    (world / "taken" / "report.html").mkdir(parents=True)
    for out, message in (
        ("file", "cannot create or write the folder"),
        ("/proc", "cannot create or write the folder"),
        ("taken", "'report.html'"),
    ):
        with pytest.raises(EyasError, match=f"^--out .*{message}.*: choose another folder$"):
            evaluate(told(world, out=str(world / out)))


def test_a_report_is_whole_or_the_one_before(world: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    evaluate(told(world, "popularity", settings={}))
    before = (world / "out" / "report.json").read_text()

    def half(path: Path, text: str, **_: Any) -> None:
        with path.open("w") as file:
            file.write(text[:100])
        raise OSError(28, "No space left on device")

    with monkeypatch.context() as patched:
        patched.setattr(Path, "write_text", half)
        with pytest.raises(OSError, match="No space left"):
            evaluate(told(world, "popularity", settings={}))
    assert (world / "out" / "report.json").read_text() == before
    assert sorted(one.name for one in (world / "out").iterdir()) == ["report.html", "report.json"]


def test_scores_that_are_no_numbers_end_it_with_the_models_name(world: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    class Broken(Mf):
        def train(self, task: Task) -> Any:
            found = super().train(task)
            found.model.factors.items[5] = np.nan  # type: ignore[attr-defined]
            return found

    monkeypatch.setattr(command, "family_of", lambda name, modules=(): Broken() if name == "mf" else FAMILIES[name])
    with pytest.raises(EyasError, match=r"--model mf, seed 1: model scores are not finite"):
        evaluate(told(world))


def test_the_page_needs_nothing_from_elsewhere_and_escapes_what_it_shows(world: Path) -> None:
    (world / "<b>.tsv").write_text((world / "train.tsv").read_text())
    evaluate(told(world, "mf", seeds=2, train=str(world / "<b>.tsv")))
    text = (world / "out" / "report.html").read_text()
    page = Page(text)
    assert page.balanced
    assert not page.foreign
    assert not page.tags & {"script", "link", "img", "iframe", "object", "b"}
    assert "&lt;b&gt;.tsv" in text
    assert page.tags >= {"svg", "table", "figure", "polyline", "circle"}
    assert "prefers-color-scheme: dark" in text
    drawings = re.findall(r"<svg.*?</svg>", text, re.DOTALL)
    assert len(drawings) > 8
    for one in drawings:
        width, height = (float(end) for end in ElementTree.fromstring(one).attrib["viewBox"].split()[2:])
        places = [float(place) for place in re.findall(r' (?:x|x1|x2|cx)="([^"]+)"', one)]
        assert 0 <= min(places) <= max(places) <= width
        assert 0 <= max(float(place) for place in re.findall(r' (?:y|y1|y2|cy)="([^"]+)"', one)) <= height
    assert "nan" not in re.sub(r"<[^>]*>", "", text).lower().split()


def test_what_is_held_out_is_equal_for_an_equal_seed_and_never_a_users_only_row() -> None:
    frame = pl.concat([likes(), pl.DataFrame({"user": [999], "item": [3]})])
    train, test, _ = cut(PairFile("x", frame), None, 4)
    again, same, _ = cut(PairFile("x", frame[::-1]), None, 4)
    assert test.sort("user").equals(same.sort("user"))
    assert train.sort("user", "item").equals(again.sort("user", "item"))
    assert (test["user"].n_unique(), len(test)) == (USERS, USERS)
    assert 999 in train["user"]
    assert pl.concat([train, test]).sort("user", "item").equals(frame.sort("user", "item"))
    assert not test.sort("user").equals(cut(PairFile("x", frame), None, 5)[1].sort("user"))


def test_the_newest_is_held_out_where_there_are_times() -> None:
    frame = likes().with_columns(time=pl.int_range(pl.len()).cast(pl.Float64))
    train, test, _ = cut(PairFile("x", frame), None, 4)
    last = frame.group_by("user").agg(pl.col("time").max())
    assert sorted(test["time"]) == sorted(last["time"])
    train, test, words = cut(PairFile("x", frame), "newest", 4)
    assert train["time"].max() < test["time"].min()  # type: ignore[operator]
    assert len(test) == pytest.approx(len(frame) / 10, abs=1)
    assert "the newest" in words


def test_families_presets_and_families_of_ones_own_stand_in_one_table(world: Path) -> None:
    answer = evaluate(
        told(world, "ease", "itemknn", "ml-1m-ease", "tests.support.taste_table:Again", settings={}, allow=("tests.support.taste_table",))
    )
    assert [row.model for row in answer.rows] == ["popularity", "ease", "itemknn", "ml-1m-ease", "tests.support.taste_table:Again"]
    found = report(world)
    assert found["model"] == "ease"
    assert found["models"]["ml-1m-ease"]["model"]["params"]["regularisation"] == 1000
    assert found["models"]["tests.support.taste_table:Again"]["metrics"]["mrr"] == found["models"]["popularity"]["metrics"]["mrr"]
    assert found["models"]["itemknn"]["against_baseline"]["hr@10"]["interval"][0] > 0
