"""Features of MovieLens-shaped rows, written to Parquet: both engines of Eyas, and NVTabular, DuckDB and polars by hand.

    python -m benchmarks.etl [--rows 4000000] [--grown 16000000] [--runs 3] [--only NAME ...]

The work: codes of user, film and genres; the share of likes of a film's rows, out of fold (5 folds, smoothing 20); the number of rows of a
user; seconds since the user's last row; genres x hour in 10,000 buckets; sine and cosine of day and week. Rows are in the order of time.
Each contender is a process of its own and times the work alone, without its imports; memory is the peak of the process, or of it and its
children together. Outputs are compared with those of polars by hand. DuckDB is installed on first use (var/bench/duckdb), NVTabular by
`make setup-nvtabular`.
"""

from __future__ import annotations

import shutil
import statistics
import sys
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

import polars as pl

from benchmarks.harness import Fields, Outcome, Row, benchmark, environment, say, scratch, turns, watched
from benchmarks.movielens_rows import write_log
from benchmarks.tables import rows_of_runs, with_ratios

PEERS = Path(__file__).parent / "peers"
NVTABULAR = Path(".venv-nvtabular/bin/python").absolute()
OLDER_POLARS, CUDF_POLARS = Path("var/polars").absolute(), Path("var/polars-gpu").absolute()
WORKERS = "2"
"""Of Dask: it is faster so than in one process."""
RENAMED = {"TE_movieId_label": "movieId_te", "timestamp_difference_lag_1": "timestamp_lag"}
TOLERANCE = 1e-6


@dataclass(frozen=True)
class Contender:
    name: str
    command: Callable[[], list[str]]
    arguments: tuple[str, ...] = ()
    """After the rows and the folder."""
    slow: bool = False
    """Measured once on the grown number of rows."""
    packages: Path | None = None
    """Folder with packages in place of those of the environment."""
    gpu: bool = False
    """Whether the contender needs a GPU. Such a contender runs only if `--only` names it."""


def _nvtabular(*arguments: str) -> list[str]:
    if not NVTABULAR.exists():
        raise SystemExit("NVTabular's environment is missing: make setup-nvtabular")
    return [str(NVTABULAR), *arguments]


CONTENDERS = {
    contender.name: contender
    for contender in (
        Contender("eyas: polars", lambda: [sys.executable, "-m", "benchmarks.etl_eyas", "polars"]),
        Contender("eyas: polars of etl-gpu.lock", lambda: [sys.executable, "-m", "benchmarks.etl_eyas", "polars"], packages=OLDER_POLARS),
        Contender(
            "eyas: polars on a GPU", lambda: [sys.executable, "-m", "benchmarks.etl_eyas", "polars-gpu"], packages=CUDF_POLARS, gpu=True
        ),
        Contender("polars by hand", lambda: [sys.executable, str(PEERS / "etl_polars.py")]),
        Contender("duckdb", lambda: [str(environment("duckdb", "duckdb==1.4.5")), str(PEERS / "etl_duckdb.py")]),
        Contender("eyas: nvtabular", lambda: _nvtabular("-m", "benchmarks.etl_eyas", "nvtabular"), slow=True),
        Contender("nvtabular by hand", lambda: _nvtabular(str(PEERS / "etl_nvtabular.py")), (WORKERS,), slow=True),
    )
}
REFERENCE = "polars by hand"
ROOT = str(Path(__file__).parents[1])


@benchmark("etl")
def etl(
    rows: int = 4_000_000,
    grown: Annotated[int, "0: not measured"] = 16_000_000,
    runs: int = 3,
    only: Annotated[list[str] | None, "all by default that need no GPU", tuple(CONTENDERS)] = None,
) -> Iterator[Outcome]:
    names = only or [name for name, contender in CONTENDERS.items() if not contender.gpu]
    with scratch(on_disk=True) as folder:
        table = list(measure(names, folder, rows, runs))
        yield from table
        different = {}
        if REFERENCE in names:
            different = {name: differences(folder / REFERENCE, folder / name) for name in names if name != REFERENCE}
        for name, sentences in different.items():
            say(f"{name}: {'; '.join(sentences) or f'equal to {REFERENCE}'}")
        yield Fields(differences=different)
        if grown:
            yield from (larger := list(measure(names, folder, grown, runs, once={name for name in names if CONTENDERS[name].slow})))
            yield from growth(table, larger, f"{rows:,} to {grown:,} rows")


def measure(names: Iterable[str], folder: Path, count: int, runs: int, once: Iterable[str] = ()) -> Iterator[Row]:
    """Rows of the contenders. The last output of each stays in a folder of its name."""
    rows = write_log(folder / f"{count}.parquet", count)
    measured: dict[str, list[dict[str, float]]] = {name: [] for name in names}
    for name in turns(measured, runs):
        if measured[name] and name in once:
            continue
        output, contender = folder / name, CONTENDERS[name]
        shutil.rmtree(output, ignore_errors=True)
        output.mkdir()
        if contender.packages is not None and not contender.packages.exists():
            raise SystemExit(f"{contender.packages} is missing: make {'bench-gpu' if contender.gpu else 'test-polars'}")
        path = ROOT if contender.packages is None else f"{contender.packages}:{ROOT}"
        used = watched([*contender.command(), str(rows), str(output), *contender.arguments], EYAS_DASK=WORKERS, PYTHONPATH=path)
        measured[name].append({"throughput": count / used.document["seconds"], "peak memory": max(used.peak, used.family)})
    rows.unlink()
    units = {"throughput": "rows/s", "peak memory": "MiB"}
    table = (row for name, values in measured.items() for row in rows_of_runs(f"{count:,} rows", name, values, units))
    yield from with_ratios(table, "throughput")


def growth(small: Sequence[Row], large: Sequence[Row], case: str) -> Iterator[Row]:
    for before, after in zip(small, large, strict=True):
        ratio = statistics.median(after.values) / statistics.median(before.values)
        if before.metric == "throughput":
            count, more = (int(row.case.split()[0].replace(",", "")) for row in (before, after))
            yield Row(case, before.contender, "time grows", "times", [more / count / ratio])
        else:
            yield Row(case, before.contender, "memory grows", "times", [ratio])


def read(folder: Path) -> pl.DataFrame:
    """Reads `rows.parquet` or all files of `rows`; lists without their padding. `timestamp` identifies a row."""
    single = folder / "rows.parquet"
    frame = pl.read_parquet(single if single.exists() else folder / "rows" / "*.parquet")
    frame = frame.rename({old: new for old, new in RENAMED.items() if old in frame.columns}).sort("timestamp")
    lists = [pl.col(name).cast(pl.List(pl.Int32)) for name, dtype in frame.schema.items() if isinstance(dtype, pl.List | pl.Array)]
    return frame.with_columns(column.list.eval(pl.element().filter(pl.element() != 0)) for column in lists)


def differences(reference: Path, folder: Path) -> list[str]:
    """Returns a sentence for each column that differs; codes may be other numbers for the same values."""
    theirs, ours = read(reference), read(folder)
    if len(theirs) != len(ours):
        return [f"{len(ours):,} rows instead of {len(theirs):,}"]
    missing = [name for name in theirs.columns if name not in ours.columns]
    sentences = [_difference(name, theirs[name], ours[name]) for name in theirs.columns if name not in missing]
    return [*(f"no column {name}" for name in sorted(missing)), *filter(None, sentences)]


def _difference(name: str, theirs: pl.Series, ours: pl.Series) -> str | None:
    if theirs.dtype.is_float():
        return _difference_of_floats(name, theirs, ours)
    if isinstance(theirs.dtype, pl.List):
        if not (theirs.list.len() == ours.list.len()).all():
            return f"{name}: other numbers of values"
        theirs, ours = theirs.explode(empty_as_null=False), ours.explode(empty_as_null=False)
    unequal = int((theirs.cast(pl.Int64) != ours.cast(pl.Int64)).sum())
    if not unequal:
        return None
    pairs = pl.DataFrame({"theirs": theirs, "ours": ours}).unique()
    if len(pairs) == pairs["theirs"].n_unique() == pairs["ours"].n_unique():
        return f"{name}: the same values by other codes"
    return f"{name}: {unequal / len(theirs):.2%} of the values are others"


def _difference_of_floats(name: str, theirs: pl.Series, ours: pl.Series) -> str | None:
    theirs, ours = theirs.cast(pl.Float64), ours.cast(pl.Float64).fill_nan(None)
    if not (theirs.is_null() == ours.is_null()).all():
        return f"{name}: nulls elsewhere"
    distance = (theirs - ours).abs()
    unequal = int((distance > TOLERANCE * theirs.abs().clip(lower_bound=1.0)).sum())
    return f"{name}: {unequal / len(theirs):.2%} of the values differ, by {float(str(distance.max())):.3g} at most" if unequal else None


if __name__ == "__main__":
    etl()
