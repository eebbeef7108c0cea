"""What ETL publishes is the same wherever its rows came from, and it keeps no second copy of them."""

from __future__ import annotations

import sqlite3
from pathlib import Path

import polars as pl
import pytest

from pipelines.data.tfrecord.writer import write_tfrecord
from shared.domain.errors import Invalid
from shared.stage_process import Outcome
from tests.servers.s3_server import S3Server
from tests.support.etl_stage import Etl, etl_stage
from tests.support.secret_files import write_secret
from tests.unit.pipelines.recommender import films, ratings, spec, write

SAME = ("train.parquet", "holdout.parquet", "history.parquet", "items.parquet", "features.json", "firsts.parquet")


def published(outcome: Outcome) -> dict[str, bytes]:
    """What the next stages read."""
    return {name: outcome.files[name].read_bytes() for name in SAME}


@pytest.mark.requirement("G-28", "G-29")
def test_a_run_out_of_a_database_an_object_store_and_tfrecord_is_that_out_of_parquet(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    etl: Etl = etl_stage(tmp_path)
    write(tmp_path, ratings(2000))
    people = pl.DataFrame({"userId": range(1, 30), "country": [f"c{n % 5}" for n in range(29)]})
    people.write_parquet(tmp_path / "people.parquet")
    features = [{"categorify": ["userId", "movieId", "year", "country"]}, {"multi_hot": "genres", "separator": "|"}]
    files = spec(tmp_path).document()["data"] | {"users": {"uri": str(tmp_path / "people.parquet"), "key": "userId"}}
    wanted = etl(spec(tmp_path, data=files, features=features))

    connection = sqlite3.connect(tmp_path / "shop.db")
    with connection:
        connection.execute("CREATE TABLE people (id INTEGER, country TEXT)")
        connection.executemany("INSERT INTO people VALUES (?, ?)", people.rows())
    connection.close()
    write_secret(tmp_path / "databases.yaml", f"shop: sqlite:///{tmp_path}/shop.db")
    monkeypatch.setenv("EYAS_DATABASES", str(tmp_path / "databases.yaml"))
    server = S3Server(tmp_path / "s3")
    try:
        for name, value in server.environment.items():
            monkeypatch.setenv(name, value)
        (tmp_path / "days").mkdir()
        for number, some in enumerate(ratings(2000).iter_slices(700)):
            whole = some.lazy().with_columns(pl.col("at").cast(pl.Int64))  # TFRecord's fractions don't hold a moment
            write_tfrecord(whole, tmp_path / "days" / f"{number}.tfrecord.gz", {"userId": "u"}, batch=64, grouped=True)
            for path in (tmp_path / "days").glob(f"{number}.*"):
                server.put(path, "lake", f"days/{path.name}")
        films().write_csv(tmp_path / "films.csv")
        data = {
            "interactions": {"uri": "s3://lake/days"},
            "items": {"uri": server.put(tmp_path / "films.csv", "lake", "films.csv"), "key": "movieId"},
            "users": {"query": "SELECT id, country FROM people", "from": "shop", "key": "id"},
        }
        roots = (str(tmp_path), "s3://lake")
        found = etl(spec(tmp_path, data=data, features=features), roots=roots)
        assert {name: found.metrics[name] for name in ("rows.train", "rows.holdout", "rows.items")} == {
            name: wanted.metrics[name] for name in ("rows.train", "rows.holdout", "rows.items")
        }
        assert published(found) == published(wanted)
        assert found.facts["snapshot"] != wanted.facts["snapshot"]
        again = etl(spec(tmp_path, data=data, features=features), roots=roots)
        assert again.facts["snapshot"] == found.facts["snapshot"]
        assert not list(tmp_path.glob("scratch-*/sources"))
        with pytest.raises(Invalid, match="s3://lake/days: not under an allowed data root"):
            etl(spec(tmp_path, data=data, features=features), roots=(str(tmp_path), "s3://pond"))
    finally:
        server.close()
