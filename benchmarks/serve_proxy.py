"""What one writes in an afternoon: FastAPI in front of Triton, the candidates in the request, the best ten in the answer.

python -m benchmarks.serve_proxy PORT TRITON RECOMMENDER VERSION FOLDER
"""

from __future__ import annotations

import sys
from pathlib import Path

import numpy as np
import uvicorn
from fastapi import FastAPI
from pydantic import BaseModel
from tritonclient.grpc import InferenceServerClient

from benchmarks.serve_bare import Model


class Ask(BaseModel):
    user: int
    items: list[int]


class Scored(BaseModel):
    item: int
    score: float


class Answer(BaseModel):
    items: list[Scored]
    fallback: None = None


def app_of(model: Model) -> FastAPI:
    app = FastAPI()
    client = InferenceServerClient(model.address)

    @app.post("/score")
    def score(ask: Ask) -> Answer:
        rows = np.asarray(ask.items) - 1
        scores = model.score(client, ask.user, rows)
        best = np.argsort(-scores)[:10]
        return Answer(items=[Scored(item=ask.items[row], score=float(scores[row])) for row in best.tolist()])

    return app


def main() -> None:
    port, address, name, version, folder = sys.argv[1:]
    uvicorn.run(app_of(Model.read(Path(folder), address, name, int(version))), host="127.0.0.1", port=int(port), log_level="warning")


if __name__ == "__main__":
    main()
