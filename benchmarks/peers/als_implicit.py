"""Alternating least squares of the package `implicit`: `python als_implicit.py FOLDER SEED`.

The settings are its own defaults; it does not search the regularisation. Loading the likes into a sparse matrix is not timed.
"""

from __future__ import annotations

import json
import sys
import time
from pathlib import Path

import numpy as np
from implicit.als import AlternatingLeastSquares
from scipy.sparse import csr_matrix

TOP = 10


def main() -> None:
    folder, seed = Path(sys.argv[1]), int(sys.argv[2])
    likes = np.load(folder / "likes.npz", allow_pickle=False)
    users, items = likes["users"], likes["items"]
    shape = (int(likes["user_count"]), int(likes["item_count"]))
    matrix = csr_matrix((np.ones(len(users), np.float32), (users, items)), shape=shape)
    model = AlternatingLeastSquares(factors=64, random_state=seed)
    began = time.monotonic()
    model.fit(matrix, show_progress=False)
    seconds = time.monotonic() - began
    top, _ = model.recommend(np.arange(shape[0]), matrix, N=TOP, filter_already_liked_items=True)
    np.save(folder / "top.npy", top.astype(np.int64), allow_pickle=False)
    sys.stdout.write(json.dumps({"seconds": seconds}) + "\n")


if __name__ == "__main__":
    main()
