"""Scoring 500 candidates on BentoML: run by benchmarks/serve_contenders.py with the Python of BentoML's own environment.

EYAS_BENCH_MODEL=FOLDER bentoml serve bento_score:Ranker

The same ONNX file and the same columns as Triton has, in the service's own process: nothing is sent on to a model server.
"""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

import bentoml
import numpy as np
import onnxruntime


@bentoml.service(workers=1, traffic={"timeout": 30})
class Ranker:
    def __init__(self) -> None:
        folder = Path(os.environ["EYAS_BENCH_MODEL"])
        self.signature = json.loads((folder / "signature.json").read_text())
        with np.load(folder / "catalogue.npz", allow_pickle=False) as catalogue:
            self.columns = {name: catalogue[name] for name in catalogue.files}
        options = onnxruntime.SessionOptions()
        options.intra_op_num_threads = options.inter_op_num_threads = 1
        self.session = onnxruntime.InferenceSession(str(folder / "model.onnx"), options, providers=["CPUExecutionProvider"])

    @bentoml.api
    def score(self, user: int, items: list[int]) -> dict[str, Any]:
        rows = np.asarray(items) - 1
        feed = {name: column[rows] for name, column in self.columns.items()}
        feed = {name: column.astype(object) if column.dtype.kind == "U" else column for name, column in feed.items()}
        feed[self.signature["user"]] = np.full(len(rows), user, np.int64)
        (scores,) = self.session.run([self.signature["output"]], feed)
        best = np.argsort(-scores)[:10]
        return {"items": [{"item": items[row], "score": float(scores[row])} for row in best.tolist()], "fallback": None}
