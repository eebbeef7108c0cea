"""Public data sets in their makers' layouts, and the twins that are written in them."""

from __future__ import annotations

import gzip
import tracemalloc
from pathlib import Path
from typing import Any

import polars as pl
import pytest
from polars.testing import assert_frame_equal

from pipelines.data.sets import synthetic_twins
from pipelines.data.sets.named import FORMS, load, recognise
from pipelines.data.sets.synthetic_twins import SHAPES, Twin, criteo_rows
from pipelines.data.sets.written import write_twin
from shared.domain.errors import BadData, Conflict, Invalid

RATINGS = [(1, 31, 2.5, 1_260_759_144), (1, 1029, 3.0, 1_260_759_179), (7, 31, 4.0, 835_355_493)]
FILES: dict[str, dict[str, str]] = {
    "ml-100k": {
        "u.data": "1\t31\t3\t881250949\n7\t31\t5\t881250950\n",
        "u.item": "31|Á bout (de) souffle (1960)|01-Jan-1960||http://x/?y|0|1|0|0|0|1|0|0|0|0|0|0|0|0|0|0|0|0|0\n"
        "1029|No year|||x|1|0|0|0|0|0|0|0|0|0|0|0|0|0|0|0|0|0|0\n",
        "u.user": "1|24|M|technician|85711\n7|53|F|other|V3N4P\n",
    },
    "ml-1m": {
        "ratings.dat": "1::31::3::978300760\n7::31::5::978300761\n",
        "movies.dat": "31::Á bout: de souffle (1960)::Action|Comedy\n1029::No year::Drama\n",
        "users.dat": "1::F::1::10::48067\n7::M::56::16::70072-1234\n",
    },
    "ml-20m": {
        "ratings.csv": "userId,movieId,rating,timestamp\n" + "".join(f"{u},{m},{r},{t}\n" for u, m, r, t in RATINGS),
        "movies.csv": 'movieId,title,genres\n31,"Á bout, de souffle (1960)",Action|Comedy\n1029,No year,(no genres listed)\n',
        "tags.csv": "userId,movieId,tag,timestamp\n",
    },
    "typed": {
        "x.inter": "user_id:token\titem_id:token\trating:float\ttimestamp:float\n1\t31\t3\t881250949\n7\t31\t5\t881250950\n",
        "x.item": "item_id:token\tmovie_title:token_seq\trelease_year:token\tclass:token_seq\n"
        '31\tÁ "bout" de\t1960\tAction Comedy\n1029\tNo year\t\t\n',
        "x.user": "user_id:token\tage:token\tgender:token\toccupation:token\tzip_code:token\n"
        "1\t24\tM\ttechnician\t85711\n7\t53\tF\tother\tV3N4P\n",
    },
}


def unpacked(folder: Path, name: str, files: dict[str, str] | None = None) -> Path:
    place = folder / name
    place.mkdir()
    for file, text in (FILES[name] if files is None else files).items():
        (place / file).write_text(text, encoding="utf-8" if name in ("ml-20m", "typed") else "latin-1")
    return place


@pytest.mark.requirement("T-14")
def test_each_layout_of_movielens_comes_to_the_same_columns(subtests: pytest.Subtests, tmp_path: Path) -> None:
    for name in ["ml-100k", "ml-1m", "ml-20m", "typed"]:
        with subtests.test(name=name):
            place = unpacked(tmp_path, name)
            assert recognise(place) == ("ml-100k" if name == "typed" else name)
            found = {
                table: frame.collect()
                for table, frame in load("ml-100k" if name == "typed" else name, place, tmp_path / "s").tables().items()
            }
            assert found["interactions"].schema == {"userId": pl.Int64, "movieId": pl.Int64, "rating": pl.Float64, "timestamp": pl.Int64}
            assert found["items"].schema == {"movieId": pl.Int64, "title": pl.String, "year": pl.Int64, "genres": pl.String}
            assert found["items"].row(0)[0] == 31
            assert found["items"]["title"][0].startswith("Á ")
            assert found["items"].row(0)[2:] == (1960, "Action|Comedy")
            assert found["items"]["year"].to_list() == [1960, None]
            assert found["items"]["genres"][1] == {"ml-100k": "unknown", "ml-1m": "Drama", "ml-20m": None, "typed": None}[name]
            if name == "ml-20m":
                assert found["interactions"].rows() == RATINGS
                assert "users" not in found
            else:
                assert found["users"].schema == {
                    "userId": pl.Int64,
                    "age": pl.Int64,
                    "gender": pl.String,
                    "occupation": pl.String,
                    "zip": pl.String,
                }
                assert found["users"]["zip"][1] in ("V3N4P", "70072-1234")
                assert found["interactions"]["rating"].to_list() == [3.0, 5.0]


@pytest.mark.requirement("T-14")
def test_a_set_is_found_in_the_folder_above_too(tmp_path: Path) -> None:
    unpacked(tmp_path, "ml-1m")
    assert len(load("ml-1m", tmp_path, tmp_path / "s").interactions.collect()) == 2


WRONG: list[tuple[str, dict[str, str], str]] = [
    ("ml-1m", {"ratings.dat": ""}, "ml-1m not found: expected ratings.dat and movies.dat; or \\*.inter; the folder has ratings.dat"),
    ("ml-20m", {}, "ml-20m not found: expected ratings.csv and movies.csv; or \\*.inter; the folder has nothing"),
    ("ml-100k", FILES["ml-100k"] | {"u.item": "31|x|y\n"}, "u.item: line 1 has 3 fields separated by '\\|'; expected 24"),
    ("ml-1m", FILES["ml-1m"] | {"users.dat": "1::F::old::10::48067\n"}, "users.dat: line 1: 'old' is not an integer"),
]


def test_what_is_not_a_sets_layout_is_said(subtests: pytest.Subtests, tmp_path: Path) -> None:
    for number, (name, files, said) in enumerate(WRONG):
        with subtests.test(said=said):
            folder = tmp_path / str(number)
            folder.mkdir()
            place = unpacked(folder, name, files)
            with pytest.raises(BadData, match=said):
                load(name, place, folder / "s")


def test_names_that_are_none_and_folders_that_are_none_are_said(tmp_path: Path) -> None:
    with pytest.raises(Invalid, match=r"unknown data set 'ml-2m' \(known: ml-100k, ml-1m, ml-20m, ml-25m, criteo\)"):
        load("ml-2m", tmp_path, tmp_path)
    with pytest.raises(BadData, match="nowhere: not a folder; unpack ml-1m there"):
        load("ml-1m", tmp_path / "nowhere", tmp_path)
    with pytest.raises(Invalid, match="unknown data set 'x'"):
        write_twin("x", tmp_path, 0)
    assert recognise(tmp_path) is None


@pytest.mark.requirement("T-14")
def test_criteos_days_load_in_their_order(subtests: pytest.Subtests, tmp_path: Path) -> None:
    for number, packed in enumerate([False, True]):
        with subtests.test(packed=packed):
            folder = tmp_path / str(number)
            folder.mkdir()
            chunks = {day: pl.concat(list(criteo_rows(500, 3, day))) for day in (0, 2, 10)}
            for day, rows in chunks.items():
                text = rows.write_csv(separator="\t", include_header=False, quote_style="never").encode()
                if packed:
                    (folder / f"day_{day}.gz").write_bytes(gzip.compress(text))
                else:
                    (folder / f"day_{day}").write_bytes(text)
            found = load("criteo", folder, folder / "s").interactions.collect()
            assert found["day"].to_list() == [0] * 500 + [2] * 500 + [10] * 500
            assert found.columns == ["label", *(f"i{n}" for n in range(1, 14)), *(f"c{n}" for n in range(1, 27)), "day"]
            wanted = pl.concat(chunks.values()).with_columns(pl.col("^c[0-9]+$").str.to_integer(base=16, dtype=pl.Int64))
            assert_frame_equal(found.drop("day"), wanted)
            assert found["c1"].null_count() + found["i6"].null_count() > 0
            if packed:
                (folder / "day_3.gz").write_bytes(gzip.compress(text)[:-20])
                with pytest.raises(BadData, match=r"day_3.gz: cannot be unpacked"):
                    load("criteo", folder, folder / "s")


TWINS: list[tuple[str, int | None]] = [("ml-100k", None), ("ml-1m", 20_000), ("ml-20m", 20_000), ("ml-25m", 20_000), ("criteo", 10_000)]


@pytest.mark.requirement("T-14")
def test_a_twin_loads_by_its_name_and_is_of_the_shape(subtests: pytest.Subtests, tmp_path: Path) -> None:
    for number, (name, rows) in enumerate(TWINS):
        with subtests.test(name=name):
            folder = tmp_path / str(number)
            folder.mkdir()
            written = write_twin(name, folder / "a", 1, rows)
            found = load(name, folder / "a", folder / "s")
            frame = found.interactions.collect()
            assert len(frame) == (rows or SHAPES[name].rows)
            if name != "criteo":
                assert frame.select("userId", "movieId").n_unique() == len(frame)
                assert frame.group_by("userId").len()["len"].min() >= 20  # type: ignore[operator]
                assert found.items is not None
                items = found.items.collect()
                assert frame["movieId"].is_in(items["movieId"].implode()).all()
                whole = (frame["rating"] % 1 == 0).all()
                assert whole == (name in ("ml-100k", "ml-1m"))
                assert 0.4 < (frame["rating"] >= 4).mean() < 0.7  # type: ignore[operator]
                assert items["genres"].null_count() == 0
                assert set(written) > {"u.data"} or set(written) >= {"movies.csv"} or set(written) >= {"movies.dat"}
            write_twin(name, folder / "b", 1, rows)
            write_twin(name, folder / "c", 2, rows)
            first = next(iter(written))
            assert (folder / "a" / first).read_bytes() == (folder / "b" / first).read_bytes() != (folder / "c" / first).read_bytes()


@pytest.mark.requirement("T-14")
def test_a_twin_as_parquet_has_the_rows_of_the_one_in_its_makers_layout(subtests: pytest.Subtests, tmp_path: Path) -> None:
    for number, name in enumerate(["ml-1m", "ml-20m", "criteo"]):
        with subtests.test(name=name):
            folder = tmp_path / str(number)
            folder.mkdir()
            write_twin(name, folder / "native", 5, 10_000)
            written = write_twin(name, folder / "parquet", 5, 10_000, parquet=True)
            whole = load(name, folder / "native", folder / "s")
            plain: Any = pl.read_parquet(folder / "parquet" / "interactions.parquet")
            if name == "criteo":
                plain = plain.with_columns(pl.col("^c[0-9]+$").str.to_integer(base=16, dtype=pl.Int64))
            assert_frame_equal(plain, whole.interactions.drop("day", strict=False).collect())
            if whole.items is not None:
                assert list(written) == ["interactions.parquet", "items.parquet", "users.parquet"]
                known = whole.items.with_columns(pl.col("genres").str.replace("Children's", "Children")).collect()
                assert_frame_equal(pl.read_parquet(folder / "parquet" / "items.parquet"), known)


def test_what_a_twin_plants_can_be_learned() -> None:
    """Who likes a genre in the first half of the rows likes it in the second."""
    twin = Twin.create(SHAPES["ml-100k"], 0)
    rows = (
        pl.concat(list(twin.ratings()))
        .join(twin.items(), on="movieId")
        .with_columns(pl.col("genres").str.split("|"))
        .explode("genres", empty_as_null=False)
    )
    half = (
        rows.with_columns(late=pl.int_range(pl.len()).over("userId") % 2 == 1)
        .group_by("userId", "genres", "late")
        .agg(pl.col("rating").mean(), pl.len())
    )
    both = (
        half.filter(~pl.col("late"))
        .join(half.filter("late"), on=["userId", "genres"])
        .filter((pl.col("len") > 4) & (pl.col("len_right") > 4))
    )
    assert float(both.select(pl.corr("rating", "rating_right")).item()) > 0.5


def test_files_that_are_there_are_not_overwritten_and_none_is_left_half(tmp_path: Path) -> None:
    write_twin("ml-100k", tmp_path, 0, 1000)
    before = {path.name: path.read_bytes() for path in tmp_path.iterdir()}
    with pytest.raises(Conflict, match=r"u\.data: already exists; name another folder, or remove this one"):
        write_twin("ml-100k", tmp_path, 1, 1000)
    assert {path.name: path.read_bytes() for path in tmp_path.iterdir()} == before
    with pytest.raises(Invalid, match="rows: -5 is too few"):
        write_twin("ml-100k", tmp_path / "other", 0, -5)


def test_memory_is_that_of_a_stretch_of_users_however_many_rows_there_are(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(synthetic_twins, "_STRETCH", 256)

    def peak(rows: int) -> int:
        twin = Twin.create(SHAPES["ml-1m"].of(rows), 0)
        tracemalloc.start()
        for _ in twin.ratings():
            pass
        found = tracemalloc.get_traced_memory()[1]
        tracemalloc.stop()
        return found

    peak(10_000)  # what is imported and kept once
    assert peak(500_000) < 1.3 * peak(125_000)


def test_every_shape_has_a_layout_that_it_can_be_read_in() -> None:
    assert set(SHAPES) == set(FORMS)
