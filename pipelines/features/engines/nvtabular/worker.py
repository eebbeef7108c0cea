"""The engine behind a pipe, for whoever lives in another environment: `python -m pipelines.features.engines.nvtabular.worker`.

It is asked by a line of JSON and answers by one; tables are files. `graph` is a folder with a saved graph.

    {"do": "fit", "graph": ..., "rows": FILE, "items": FILE, "to": FOLDER}      fits it anew
    {"do": "transform", "graph": ..., "rows": FILE, "mode": "rows", "keep": [NAME], "to": FILE}

Rows are numbered; those that are trained on (`rows`) have the history of the same file, and of that of `pages`, if one is named: views of
pages by user, item and time, all of them counted.

The conformance tests use it: five hundred examples don't start Python five hundred times.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import polars as pl

from pipelines.features.engines.history import History
from pipelines.features.engines.nvtabular.engine import NvtabularEngine
from pipelines.features.engines.nvtabular.session import Session, session
from pipelines.features.engines.polars import Data
from pipelines.features.graph import Graph, compile_graph, load_graph

Request = dict[str, Any]


def main() -> None:
    answers, sys.stdout = sys.stdout, sys.stderr  # what libraries print is no answer
    answers.write(json.dumps({"ready": True}) + "\n")
    answers.flush()
    for line in sys.stdin:
        try:
            _DO[json.loads(line)["do"]](json.loads(line))
            answer: Request = {"done": True}
        except Exception as error:  # the asker is told, whatever it is
            answer = {"error": f"{type(error).__name__}: {error}"}
        answers.write(json.dumps(answer) + "\n")
        answers.flush()


def fit(request: Request) -> None:
    saved_graph, rows = _graph(request), pl.scan_parquet(request["rows"])
    graph = compile_graph(saved_graph.entries, saved_graph.tables, saved_graph.reads)
    with session() as opened_session:
        history, pages = _history(graph, rows, request, opened_session), _pages(request)
        data = Data(rows, pl.scan_parquet(request["items"]), None, graph.row, history, pages)
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


def _history(graph: Graph, rows: pl.LazyFrame, request: Request, opened_session: Session) -> History | None:
    count = rows.select(pl.len()).collect().item()
    return History(rows, graph.ordered, graph.row, opened_session.new("history"), count, _pages(request)) if graph.ordered else None


def _pages(request: Request) -> pl.LazyFrame | None:
    return pl.scan_parquet(request["pages"]) if request.get("pages") else None


def _graph(request: Request) -> Graph:
    return load_graph(lambda name: Path(request["graph"]) / name)


_DO: dict[str, Callable[[Request], None]] = {"fit": fit, "transform": transform}

if __name__ == "__main__":
    main()
