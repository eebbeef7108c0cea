"""NVTabular engine behind a pipe, for processes in another environment: `python -m pipelines.features.engines.nvtabular.worker`.

Requests and answers are lines of JSON; tables are files. `graph` is the folder of a saved graph.

  {"do": "fit", "graph": ..., "rows": FILE, "items": FILE, "to": FOLDER}   fits the graph again
  {"do": "transform", "graph": ..., "rows": FILE, "mode": "rows", "keep": [NAME], "to": FILE}

Rows are numbered. In mode `rows` (training) their history comes from the same file and from the file `pages`, if given: page views by user,
item and time, all of them counted.

The conformance tests use this worker, so that 500 examples don't start Python 500 times.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import polars as pl

from pipelines.features.engines.history import RowHistory
from pipelines.features.engines.nvtabular.engine import NvtabularEngine
from pipelines.features.engines.nvtabular.session import DaskSession, session
from pipelines.features.engines.polars import PreparedTables
from pipelines.features.graph import Graph, compile_graph, load_graph

Request = dict[str, Any]


def main() -> None:
    answers, sys.stdout = sys.stdout, sys.stderr  # keeps library output out of the answers
    answers.write(json.dumps({"ready": True}) + "\n")
    answers.flush()
    for line in sys.stdin:
        try:
            _DO[json.loads(line)["do"]](json.loads(line))
            answer: Request = {"done": True}
        except Exception as error:  # reports any error to the client
            answer = {"error": f"{type(error).__name__}: {error}"}
        answers.write(json.dumps(answer) + "\n")
        answers.flush()


def fit(request: Request) -> None:
    saved_graph, rows = _graph(request), pl.scan_parquet(request["rows"])
    graph = compile_graph(saved_graph.entries, saved_graph.tables, saved_graph.reads)
    with session() as opened_session:
        history, pages = _history(graph, rows, request, opened_session), _pages(request)
        data = PreparedTables(rows, pl.scan_parquet(request["items"]), None, graph.row, history, pages)
        fitted = graph.fit(data, engine=NvtabularEngine(opened_session).compute)
    folder = Path(request["to"])
    folder.mkdir(exist_ok=True)
    fitted.save(folder)


def transform(request: Request) -> None:
    graph, rows, mode = _graph(request), pl.scan_parquet(request["rows"]), request["mode"]
    with session() as opened_session:
        history = _history(graph, rows, request, opened_session) if mode == "rows" else None
        made = NvtabularEngine(opened_session).transform(graph, rows, mode=mode, history=history, keep=request.get("keep", []))
        made.sink_parquet(request["to"])


def _history(graph: Graph, rows: pl.LazyFrame, request: Request, opened_session: DaskSession) -> RowHistory | None:
    count = rows.select(pl.len()).collect().item()
    return RowHistory(rows, graph.ordered, graph.row, opened_session.new("history"), count, _pages(request)) if graph.ordered else None


def _pages(request: Request) -> pl.LazyFrame | None:
    return pl.scan_parquet(request["pages"]) if request.get("pages") else None


def _graph(request: Request) -> Graph:
    return load_graph(lambda name: Path(request["graph"]) / name)


_DO: dict[str, Callable[[Request], None]] = {"fit": fit, "transform": transform}

if __name__ == "__main__":
    main()
