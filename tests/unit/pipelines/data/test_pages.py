"""Views of pages: rows with a page and no item. Sequences show them; nothing else knows that they are there."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import polars as pl
import pytest
from polars.testing import assert_frame_equal

from pipelines.data.sources import ReadableRoots, SourceRows
from pipelines.data.validation.judging import judge
from pipelines.data.validation.page import page
from pipelines.explain.fitting import fit_on_data, fit_on_nothing
from pipelines.features.graph import load_graph
from pipelines.features.vocabulary import EntryRule, fit_vocabulary
from shared.artifacts.store import FsspecArtifacts
from shared.contracts.items_table import ITEMS_TABLE
from shared.contracts.spec import RecommenderSpec
from shared.contracts.strict import read
from shared.domain.errors import BadData, Invalid
from shared.domain.pages import PAGES, page_key
from shared.stage_process import Outcome
from tests.support.etl_stage import Etl
from tests.support.page_views import COUNTS, KEYS, NAMES, log, paged, sequence
from tests.unit.pipelines.recommender import films, spec, write


def with_data(folder: Path, **interactions: Any) -> dict[str, Any]:
    found = spec(folder).document()["data"]
    return found | {"interactions": {"uri": str(folder / "ratings.parquet")} | interactions}


def graph_of(outcome: Outcome) -> Any:
    return load_graph(outcome.files.__getitem__)


@pytest.mark.requirement("G-16")
def test_without_a_sequence_of_pages_what_is_published_is_that_of_the_data_without_them_byte_for_byte(
    subtests: pytest.Subtests, tmp_path: Path, etl: Etl
) -> None:
    for split in [{"by": "time"}, {"by": "leave_last_out"}, {"by": "random", "test": "30%"}]:
        with subtests.test(split=split):
            features = [KEYS, *COUNTS, sequence(pages=False, gap="8h")]
            thin = {"since": "300h", "duplicates": "last", "min_interactions": {"user": 4, "item": 2}}
            write(tmp_path, log())
            found = etl(paged(tmp_path, features, split=split, data=with_data(tmp_path, **thin)))
            write(tmp_path, log().filter(pl.col("movieId").is_not_null()))
            plain = etl(spec(tmp_path, features=features, split=split, data=with_data(tmp_path, **thin)))
            assert found.files.keys() == plain.files.keys()
            names = plain.files.keys() - {ITEMS_TABLE}  # the table was written again
            assert [name for name in names if found.files[name].read_bytes() != plain.files[name].read_bytes()] == []
            assert found.metrics == plain.metrics
            assert (found.facts["rows"]["pages"], found.facts["rows"]["file"]) == (100, 400)
            assert "pages" not in plain.facts["rows"]


@pytest.mark.requirement("G-16")
def test_a_sequence_of_pages_changes_nothing_but_itself_and_the_codes_of_items_stay(tmp_path: Path, etl: Etl) -> None:
    write(tmp_path, log())
    found, plain = etl(paged(tmp_path)), etl(paged(tmp_path, [KEYS, *COUNTS, sequence(pages=False)]))
    apart = {name for name in plain.files if found.files[name].read_bytes() != plain.files[name].read_bytes()}
    own = {"newest.movieId_sequence.parquet", "vocabulary.movieId.parquet"}
    assert apart == own | {"features.json", "train.parquet", "holdout.parquet"}
    for side in ("train", "holdout"):
        ours, theirs = (pl.read_parquet(one.files[f"{side}.parquet"]) for one in (found, plain))
        assert_frame_equal(ours.drop("f.movieId_sequence"), theirs.drop("f.movieId_sequence"))
        assert not ours.equals(theirs)
        assert ours["item"].is_between(1, 20).all()
    ours, theirs = (graph_of(one).key("movieId").state.values for one in (found, plain))
    assert ours[: len(theirs)].equals(theirs)
    assert set(ours[len(theirs) :]) == {page_key(name) for name in NAMES}


@pytest.mark.requirement("G-06")
def test_a_family_of_keys_has_the_codes_of_items_and_none_of_pages(tmp_path: Path, etl: Etl) -> None:
    write(tmp_path, log())
    gates = [{"parity": 1e-4}]
    found, deep = etl(paged(tmp_path, model={"family": "mf"}, gates=gates)), etl(paged(tmp_path))
    ours, theirs = (graph_of(one).key("movieId").state.values for one in (found, deep))
    assert len(theirs) == len(ours) + len(NAMES) and theirs[: len(ours)].equals(ours)


@pytest.mark.requirement("G-16")
def test_sequences_of_etl_are_what_the_log_says(tmp_path: Path, etl: Etl) -> None:
    frame = log()
    write(tmp_path, frame)
    outcome = etl(paged(tmp_path, [KEYS, sequence(gap="40h")]))
    codes = {value: code for code, value in enumerate(graph_of(outcome).key("movieId").state.values, 2)}
    seen = [
        (user, at, codes.get(page_key(name) if item is None else item, 1))
        for user, item, at, name in frame.select("userId", "movieId", "at", "page").sort("at").iter_rows()
    ]
    whole = pl.concat(pl.read_parquet(outcome.files[f"{side}.parquet"]) for side in ("train", "holdout"))
    met = 0
    for user, at, found in whole.select("user", "time", "f.movieId_sequence").iter_rows():
        wanted: list[int] = []
        last = at
        for _, before, code in [one for one in seen if one[0] == user and one[1] < at][:-6:-1]:
            if last - before > 40 * 3600:
                break
            wanted.insert(0, code)
            last = before
        assert found == wanted + [0] * (5 - len(wanted))
        met += sum(code in {codes[page_key(name)] for name in NAMES} for code in wanted)
    assert len(whole) == 300 and met > 100


def test_only_views_that_a_row_to_train_on_may_look_back_at_are_counted(tmp_path: Path, etl: Etl) -> None:
    frame = log()
    write(tmp_path, frame)
    outcome = etl(paged(tmp_path))
    last = dict(pl.read_parquet(outcome.files["train.parquet"]).group_by("user").agg(pl.col("time").max()).iter_rows())
    wanted = dict.fromkeys(NAMES, 0)
    for user, item, at, name in frame.select("userId", "movieId", "at", "page").iter_rows():
        if item is None and at <= last.get(user, 0):
            wanted[name] += 1
    state = graph_of(outcome).key("movieId").state
    counts = dict(zip(state.values, state.counts, strict=True))
    assert {name: counts[page_key(name)] for name in NAMES} == wanted
    assert sum(wanted.values()) < 100


@pytest.mark.requirement("G-16", "G-07")
def test_a_warm_run_keeps_the_codes_of_pages_and_goes_on_with_what_was_newest(tmp_path: Path, etl: Etl) -> None:
    write(tmp_path, log())
    store = FsspecArtifacts(str(tmp_path / "artifacts"))
    parent = etl(paged(tmp_path))
    events = tmp_path / "events.csv"
    lines = [f"{n % 9 + 1},{n % 20 + 1},{n % 5 + 1},{2e9 + n * 60},rating" for n in range(600)]
    lines += [f"{n % 9 + 1},{page_key(name)},,{2e9 + n * 60 + 5},page" for name in ("cart", "new") for n in range(0, 600, 10)]
    events.write_text("\n".join(["user,item,value,time,kind", *lines]) + "\n")
    inputs = {"parent": {name: store.put(path) for name, path in parent.files.items()}, "events": {"events.csv": store.put(events)}}
    warm = etl(paged(tmp_path), mode="warm", inputs=inputs)
    old, new = (graph_of(one).key("movieId").state.values.to_list() for one in (parent, warm))
    assert new[: len(old)] == old and set(new[len(old) :]) == {page_key("new")}
    assert warm.facts["rows"]["events"] == 600
    before, after = (dict(pl.read_parquet(one.files["newest.movieId_sequence.parquet"]).iter_rows()) for one in (parent, warm))
    idle = [user for user in before if user > 9]
    assert {user: after[user] for user in idle} == {user: before[user] for user in idle}
    assert any(item in PAGES for user in idle for item in after[user])
    assert {page_key("cart"), page_key("new")} <= {item for user in range(1, 10) for item in after[user]}
    assert all(len(known) == 5 for known in after.values())
    pairs = pl.read_parquet(warm.files["history.parquet"])
    assert not any(item in PAGES for item in pairs["item"])


@pytest.mark.requirement("G-16")
def test_views_among_the_platforms_events_are_those_of_the_log(tmp_path: Path, etl: Etl) -> None:
    """The newest part of the log once as a file, and once as events: kinds that are no views, and items under a page's key, aside."""
    frame = log()
    write(tmp_path, frame)
    whole = etl(paged(tmp_path))
    write(tmp_path, frame.filter(pl.col("movieId").is_not_null() | (pl.col("at") < 1.6e9 + 200 * 3600)))
    events = tmp_path / "events.csv"
    later = frame.filter(pl.col("movieId").is_null() & (pl.col("at") >= 1.6e9 + 200 * 3600))
    lines = [f"{user},{page_key(name)},,{at},page" for user, name, at in later.select("userId", "page", "at").iter_rows()]
    lines += [f"1,{page_key('home')},,1.6e9,view", "1,3,,1.6e9,page"]
    events.write_text("\n".join(["user,item,value,time,kind", *lines]) + "\n")
    inputs = {"events": {"events.csv": FsspecArtifacts(str(tmp_path / "artifacts")).put(events)}}
    joined = etl(paged(tmp_path, data=with_data(tmp_path, also="events")), inputs=inputs)
    assert joined.facts["rows"]["events"] == 0
    for name in ("train.parquet", "vocabulary.movieId.parquet", "newest.movieId_sequence.parquet"):
        assert joined.files[name].read_bytes() == whole.files[name].read_bytes(), name


def test_pages_of_whole_numbers_are_those_of_the_same_text(tmp_path: Path, etl: Etl) -> None:
    write(tmp_path, log(names=[7, 8, 9]))
    numbers = etl(paged(tmp_path))
    write(tmp_path, log(names=[7, 8, 9]).with_columns(pl.col("page").cast(pl.String)))
    assert numbers.files["train.parquet"].read_bytes() == etl(paged(tmp_path)).files["train.parquet"].read_bytes()


def test_the_key_of_a_page_is_the_same_for_ever() -> None:
    found = [page_key(name) for name in ("home", "7", "日本")]
    assert found == [-4611477280020583506, -4611492623671672824, -4611672242081385059]
    assert all(key in PAGES for key in found)


@pytest.mark.requirement("G-05", "G-16")
def test_validation_counts_views_and_judges_the_rest_alone(tmp_path: Path) -> None:
    def judged(frame: pl.DataFrame, recommender: RecommenderSpec) -> Any:
        return judge(
            SourceRows("ratings.parquet", (), frame.lazy()), recommender, None, 1.7e9, tmp_path / "bad.parquet", tmp_path / "validation"
        )

    validation = {"validate": {"nulls": {"movieId": 0.0, "rating": 0.0}, "unique": ["userId", "movieId", "at"]}}
    data = with_data(tmp_path) | validation
    frame = log()
    found = judged(frame, paged(tmp_path, data=data))
    plain = judged(frame.filter(pl.col("movieId").is_not_null()), spec(tmp_path, data=data))
    assert found.report.verdict == "pass"
    assert found.report.rows.model_dump() == {"read": 400, "kept": 400, "quarantined": 0, "pages": 100}
    assert plain.report.rows.model_dump() == {"read": 300, "kept": 300, "quarantined": 0}
    assert found.profile == plain.profile
    assert found.report.checks == plain.report.checks
    assert "400 kept (100 page views)" in page(found.report)
    assert found.source.frame.collect().equals(frame)


def test_a_row_with_neither_item_nor_page_is_quarantined_and_equal_views_of_one_page_are_repeats(tmp_path: Path) -> None:
    at = 1.6e9
    rows = [(1, None, None, "home", at), (1, None, None, "cart", at), (1, None, None, "home", at)]
    rows += [(2, None, None, None, at), (3, None, 5.0, "", at), (4, 3, None, "home", at), (5, 4, 5.0, "home", at)]
    frame = pl.DataFrame(rows, schema=["userId", "movieId", "rating", "page", "at"], orient="row")
    data = with_data(tmp_path) | {"validate": {"unique": ["userId", "movieId", "at"], "bad_rows": {"stop": None}}}
    found = judge(
        SourceRows("log.parquet", (), frame.lazy()),
        paged(tmp_path, data=data),
        None,
        1.7e9,
        tmp_path / "bad.parquet",
        tmp_path / "validation",
    )
    apart = dict(pl.read_parquet(tmp_path / "bad.parquet").select("userId", "reason").iter_rows())
    assert apart == {
        1: "repeats an earlier row",
        2: "movieId: missing; rating: missing",
        3: "movieId: missing",
        4: "rating: missing",
    }
    assert found.report.rows.model_dump() == {"read": 7, "kept": 3, "quarantined": 4, "pages": 2}
    says = next(one.says for one in found.report.checks if one.column == "movieId")
    assert "column 'movieId' has 2 nulls or NaN; every row needs an item or a page ('page')" in says


def test_an_items_table_with_a_key_that_stands_for_a_page_is_refused(tmp_path: Path, etl: Etl) -> None:
    key = PAGES.start + 5
    items = films().with_columns(movieId=pl.when(pl.col("movieId") == 3).then(key).otherwise("movieId"))
    write(tmp_path, log(), items)
    negative = with_data(tmp_path)
    negative["items"]["validate"] = {"range": {"movieId": [None, None]}}
    with pytest.raises(BadData, match=f"films.parquet: column 'movieId' has {key}; keys from .* are reserved for pages .*; renumber"):
        etl(paged(tmp_path, data=negative))
    assert etl(paged(tmp_path)).metrics["rows.items"] == 19, "unless the spec allows them, keys below 0 are bad rows"
    write(tmp_path, log().drop_nulls(), items)
    etl(spec(tmp_path, data=negative))


FAULTS: list[tuple[pl.DataFrame, str]] = [
    (log().drop("page"), "ratings.parquet: column 'page' is missing"),
    (log().with_columns(page=pl.lit(1.5)), "ratings.parquet: column 'page' is Float64; pages must be text or integers"),
    (log().with_columns(movieId=pl.lit(None, pl.Int64)), "ratings.parquet: no usable rows"),
]


def test_a_log_with_a_fault_is_refused(subtests: pytest.Subtests, tmp_path: Path, etl: Etl) -> None:
    for frame, message in FAULTS:
        with subtests.test(message=message):
            write(tmp_path, frame)
            with pytest.raises(BadData, match=message):
                etl(paged(tmp_path))


SPECS: list[tuple[dict[str, str], list[Any], str]] = [
    ({"page": "at"}, [KEYS], "schema: page: column 'at' is already the time; name another column"),
    ({}, [KEYS, sequence()], "features: sequence: pages needs schema.page, the column of pages"),
    ({"page": "page"}, [KEYS, sequence(liked=True)], "sequence: set liked or pages, not both; page views are never positives"),
    (
        {"page": "page"},
        [{"categorify": "userId"}, {"categorify": "movieId", "values": [1, 2]}, sequence()],
        "pages and listed values of 'movieId' exclude each other",
    ),
]


def test_a_spec_that_can_not_be_is_refused(subtests: pytest.Subtests, tmp_path: Path) -> None:
    for schema, features, message in SPECS:
        with subtests.test(schema=schema, features=features):
            document = spec(tmp_path).document()
            with pytest.raises(Invalid, match=message):
                read(RecommenderSpec, document | {"schema": document["schema"] | schema, "features": features}, "spec.yaml")


def test_a_kind_of_feedback_that_is_called_page_is_refused_where_pages_are_named(tmp_path: Path) -> None:
    feedback = {"feedback": {"kinds": {"page": {"positive": "always"}}}}
    with pytest.raises(Invalid, match=r"feedback.kinds: 'page' is reserved for page views where schema.page is set"):
        read(RecommenderSpec, paged(tmp_path).document() | feedback, "spec.yaml")
    read(RecommenderSpec, spec(tmp_path).document() | feedback, "spec.yaml")


def test_a_spec_that_says_nothing_of_pages_is_written_as_before(tmp_path: Path) -> None:
    document = spec(tmp_path, features=[KEYS, sequence(pages=False)]).document()
    assert "page" not in document["schema"] and "pages" not in document["features"][1]["sequence"]
    again = paged(tmp_path).document()
    assert again["schema"]["page"] == "page" and again["features"][-1]["sequence"]["pages"]


def test_items_and_pages_keep_to_the_rule_each_by_themselves_and_codes_never_move() -> None:
    home, cart, rare, new = (page_key(name) for name in ("home", "cart", "rare", "new"))

    def counted(**numbers: int) -> pl.DataFrame:
        there = {"home": home, "cart": cart, "rare": rare, "new": new}
        return pl.DataFrame(
            [(there.get(name) or int(name[1:]), count) for name, count in numbers.items()], schema=["value", "count"], orient="row"
        )

    rule = EntryRule(min_count=2, max_size=2)
    first = fit_vocabulary(counted(home=90, i1=3, cart=80, i2=4, i3=2, rare=1), "int64", rule, None, pages=True)
    assert first.values.to_list() == [2, 1, home, cart]
    assert dict(first.waiting.iter_rows()) == {3: 2, rare: 1}
    grown = fit_vocabulary(counted(i3=9, rare=9, i1=1), "int64", rule, first, pages=True)
    assert grown.values.to_list() == [2, 1, home, cart] and grown.counts.to_list() == [4, 4, 90, 80]
    open_ended = EntryRule(min_count=2)
    before = fit_vocabulary(counted(home=9, i1=1, i2=4, rare=1), "int64", open_ended, None, pages=True)
    after = fit_vocabulary(counted(i1=1, rare=1, new=3, i7=5), "int64", open_ended, before, pages=True)
    assert before.values.to_list() == [2, home]
    assert after.values.to_list() == [2, home, 7, 1, new, rare]
    assert list(after.waiting.iter_rows()) == []


def test_explain_counts_codes_of_pages_as_etl_does(tmp_path: Path, etl: Etl) -> None:
    write(tmp_path, log())
    recommender = paged(tmp_path, data=with_data(tmp_path, since="300h"))
    fitted = fit_on_data(recommender, ReadableRoots((str(tmp_path),), tmp_path / "explained"), 10_000)
    assert fitted.graph.cardinalities() == graph_of(etl(recommender)).cardinalities()
    nothing = fit_on_nothing(recommender, ReadableRoots((str(tmp_path),), tmp_path / "nothing"))
    assert nothing.graph.cardinalities()["movieId_sequence"] == 2
