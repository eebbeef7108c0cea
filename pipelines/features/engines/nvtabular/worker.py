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

Asked = dict[str, Any]


def main() -> None:
    answers, sys.stdout = sys.stdout, sys.stderr  # what libraries print is no answer
    answers.write(json.dumps({"ready": True}) + "\n")
    answers.flush()
    for line in sys.stdin:
        try:
            _DO[json.loads(line)["do"]](json.loads(line))
            answer: Asked = {"done": True}
        except Exception as error:  # the asker is told, whatever it is
            answer = {"error": f"{type(error).__name__}: {error}"}
        answers.write(json.dumps(answer) + "\n")
        answers.flush()


def fit(asked: Asked) -> None:
    known, rows = _graph(asked), pl.scan_parquet(asked["rows"])
    graph = compile_graph(known.entries, known.tables, known.reads)
    with session() as here:
        history, pages = _history(graph, rows, asked, here), _pages(asked)
        data = Data(rows, pl.scan_parquet(asked["items"]), None, graph.row, history, pages)
        fitted = graph.fit(data, engine=NvtabularEngine(here).compute)
    folder = Path(asked["to"])
    folder.mkdir(exist_ok=True)
    fitted.save(folder)


def transform(asked: Asked) -> None:
    graph, rows, mode = _graph(asked), pl.scan_parquet(asked["rows"]), asked["mode"]
    with session() as here:
        history = _history(graph, rows, asked, here) if mode == "rows" else None
        made = NvtabularEngine(here).transform(graph, rows, mode=mode, history=history, keep=asked.get("keep", []))
        made.sink_parquet(asked["to"])


def _history(graph: Graph, rows: pl.LazyFrame, asked: Asked, here: Session) -> History | None:
    count = rows.select(pl.len()).collect().item()
    return History(rows, graph.ordered, graph.row, here.new("history"), count, _pages(asked)) if graph.ordered else None


def _pages(asked: Asked) -> pl.LazyFrame | None:
    return pl.scan_parquet(asked["pages"]) if asked.get("pages") else None


def _graph(asked: Asked) -> Graph:
    return load_graph(lambda name: Path(asked["graph"]) / name)


_DO: dict[str, Callable[[Asked], None]] = {"fit": fit, "transform": transform}

if __name__ == "__main__":
    main()
