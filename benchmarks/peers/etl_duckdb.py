"""The ETL benchmark's work in plain SQL on DuckDB: `python etl_duckdb.py ROWS.parquet FOLDER`."""

from __future__ import annotations

import json
import sys
import time
from pathlib import Path

import duckdb

SQL = """
create macro mixed(h, value) as (h * 1103515245 + value % 2147483647 + 12345) % 2147483647;
create macro bucket(h, buckets) as (h * 1812433253 + 12345) % 2147483647 % buckets;
create macro fold_of(a, b, c) as bucket(mixed(mixed(a % 2147483647, b), c), 5);
create table users as
    select userId, count(*)::float as rows, (1 + row_number() over (order by count(*) desc, userId))::int as code from rows group by userId;
create table films as
    select movieId, (1 + row_number() over (order by count(*) desc, movieId))::int as code from rows group by movieId;
create table genres as
    select genre, (1 + row_number() over (order by count(*) desc, genre))::int as code
    from (select unnest(genres) as genre from rows) group by genre;
create table sums as
    select movieId, fold_of(userId, movieId, "timestamp") as fold, sum((rating >= 4)::int)::double as liked, count(*)::double as rows
    from rows group by all;
create table encoded as
    select movieId, fold,
        ((sum(liked) over (partition by movieId) - liked
          + 20 * ((select sum(liked) from sums) - sum(liked) over (partition by fold))
               / ((select sum(rows) from sums) - sum(rows) over (partition by fold)))
         / (sum(rows) over (partition by movieId) - rows + 20))::float as te
    from sums;
set variable codes = (select map(list(genre), list(code)) from genres);
create macro coded(names) as list_transform(names, lambda name: coalesce(getvariable('codes')[name], 1));
create macro wave(t, added, seconds) as ((t % seconds + added) % seconds) * (2 * pi() / seconds);
copy (
    select
        users.code as userId_code,
        films.code as movieId_code,
        coded(genres) as genres,
        encoded.te as movieId_te,
        users.rows as userId_count,
        coalesce(r."timestamp" - lag(r."timestamp") over (partition by r.userId order by r."timestamp"), 0)::float as timestamp_lag,
        list_transform(coded(genres), lambda code: (bucket(mixed(code::bigint, r."timestamp" // 3600 % 24 + 2), 10000) + 2)::int)
            as genres_x_hour,
        sin(wave(r."timestamp", 0, 86400))::float as timestamp_day_sin,
        cos(wave(r."timestamp", 0, 86400))::float as timestamp_day_cos,
        sin(wave(r."timestamp", 259200, 604800))::float as timestamp_week_sin,
        cos(wave(r."timestamp", 259200, 604800))::float as timestamp_week_cos,
        (rating >= 4)::tinyint as label,
        r."timestamp"
    from rows r join users using (userId) join films using (movieId)
    join encoded on encoded.movieId = r.movieId and encoded.fold = fold_of(r.userId, r.movieId, r."timestamp")
) to '{folder}/rows.parquet' (format parquet, compression zstd);
"""


def main() -> None:
    rows, folder = sys.argv[1:]
    began = time.monotonic()
    with duckdb.connect(str(Path(folder) / "work.duckdb")) as database:
        database.execute(f"create view rows as from read_parquet('{rows}')")
        for statement in SQL.replace("{folder}", folder).split(";\n"):
            if statement.strip():
                database.execute(statement)
    sys.stdout.write(json.dumps({"seconds": time.monotonic() - began}) + "\n")


if __name__ == "__main__":
    main()
