"""NVTabular engine: fits a graph to the same state as polars, byte for byte, and computes the same features."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import polars as pl

from pipelines.features.columns import BLANK, Raw, Side
from pipelines.features.engines.history import RowHistory
from pipelines.features.engines.nvtabular.lowering import WorkflowLowering
from pipelines.features.engines.nvtabular.plain import NAN, PASSED_THROUGH, parts, passing, plain, restored, width_of
from pipelines.features.engines.nvtabular.session import DaskSession
from pipelines.features.engines.nvtabular.statistics import compute
from pipelines.features.engines.nvtabular.steps import Build
from pipelines.features.engines.polars import PreparedTables
from pipelines.features.engines.queries import CPU, Queries
from pipelines.features.graph import ALL, Graph
from pipelines.features.operators.base import Mode, Operator
from pipelines.features.operators.kinds import is_ordered
from pipelines.features.operators.lag import Lag
from pipelines.features.operators.ordered import before_name
from pipelines.features.operators.sequence import Sequence as Sequenced
from pipelines.features.operators.target import TargetEncode
from pipelines.features.statistics import Results, Statistic


@dataclass(frozen=True)
class NvtabularEngine:
    session: DaskSession
    queries: Queries = CPU

    def compute(self, asks: Sequence[Statistic], data: PreparedTables) -> Results:
        return compute(asks, data, self.session)

    def transform(
        self,
        graph: Graph,
        frame: pl.LazyFrame,
        *sides: Side,
        mode: Mode = "serve",
        history: RowHistory | None = None,
        keep: Iterable[str | pl.Expr] = (),
    ) -> pl.LazyFrame:
        """Same contract as `Graph.transform`; readable while the session is open."""
        keep, features, chosen = tuple(keep), graph.side(*(sides or ALL)), graph.needed(*sides)
        none = graph.transform(frame.head(0), *sides, keep=keep)
        passed, schema = passing(frame, keep)
        raws = _raws(chosen, history is not None)
        names = [name for raw in raws for name in parts(raw.name, width_of(raw))]
        handed = [expr for raw in raws for expr in plain(raw, width_of(raw))]
        for operator in chosen:
            if history is not None and is_ordered(operator):
                frame = history.added(frame, operator)
                names += parts(before_name(operator.name), operator.shape[1][0] if operator.shape[1] else None)
                handed += before(operator)
        row = [name for name in _rows(chosen, mode) if name not in names]
        rows = self.session.write(frame.select(*handed, *(pl.col(name).fill_null(BLANK["int64"]) for name in row), *passed))
        if rows is None:
            return none
        build = Build(self.session, [*names, *row, *(f"{PASSED_THROUGH}{name}" for name in schema)])
        lowering = WorkflowLowering(build, mode, history is not None)
        for operator in chosen:
            lowering.add(operator)
        columns = {feature.made: lowering.widths[feature.made] for feature in features}
        wanted = [part_name for name, width in columns.items() for part_name in parts(name, width)]
        workflow = build.workflow([*dict.fromkeys(wanted), *(f"{PASSED_THROUGH}{name}" for name in schema)])
        made = pl.scan_parquet(self._run(workflow, rows, columns))
        return made.select(*restored(schema), *(graph.finished(feature) for feature in features)).cast(none.collect_schema())

    def _run(self, workflow: Any, rows: Path, columns: dict[str, int | None]) -> list[Path]:
        """Writes a file per partition, in order."""
        import dask

        dataset, out = self.session.dataset(rows), self.session.new("features")
        workflow.fit_schema(dataset.schema)
        partitions = workflow.transform(dataset).to_ddf().to_delayed()
        paths = [str(out / f"{at:05}.parquet") for at in range(len(partitions))]
        dask.compute(*(dask.delayed(_write)(part, path, columns) for part, path in zip(partitions, paths, strict=True)))
        return [Path(path) for path in paths]


def _raws(operators: Sequence[Operator], with_history: bool) -> list[Raw]:
    """Returns the raw columns that the operators read, without the items of a request."""
    looking = [operator for operator in operators if not (with_history and is_ordered(operator))]
    columns = {
        column.name: column
        for operator in looking
        for column in operator.inputs
        if isinstance(column, Raw) and not (isinstance(operator, Sequenced) and column == operator.session)
    }
    return list(columns.values())


def _rows(operators: Sequence[Operator], mode: Mode) -> list[str]:
    """Returns the columns that identify a row, if folds are needed."""
    return list(
        dict.fromkeys(name for operator in operators if mode == "rows" and isinstance(operator, TargetEncode) for name in operator.row)
    )


def before(operator: Lag | Sequenced) -> list[pl.Expr]:
    """Returns the history columns of an operator."""
    column, (_, shape) = pl.col(before_name(operator.name)), operator.shape
    if not shape:
        return [column.fill_null(NAN)]
    return [column.arr.get(at).alias(name) for at, name in enumerate(parts(before_name(operator.name), shape[0]))]


def _write(part: Any, path: str, columns: dict[str, int | None]) -> None:
    """Writes a partition; vectors and lists of codes become fixed-size lists."""
    import numpy as np
    import pyarrow as pa
    import pyarrow.parquet as pq

    gone = {part_name for name, width in columns.items() if width is not None for part_name in parts(name, width)}
    plain_columns = part[[name for name in part.columns if name not in gone]]
    if hasattr(part, "to_arrow"):
        table = plain_columns.to_arrow(preserve_index=False)
    else:
        table = pa.Table.from_pandas(plain_columns, preserve_index=False)
    for name, width in columns.items():
        if width is not None:
            arrays = [part[part_name].to_numpy() for part_name in parts(name, width)]
            flat = pa.array(np.stack(arrays, axis=1).ravel())
            table = table.append_column(name, pa.FixedSizeListArray.from_arrays(flat, width))
    pq.write_table(table, f"{path}.part", compression="lz4")
    Path(f"{path}.part").replace(path)  # a worker that was taken for dead may write the file again
