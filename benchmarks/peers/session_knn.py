"""Session-kNN written plainly: `python session_knn.py SEQUENCES.npz OUTPUT.npz`.

The input is that of sasrec_torch.py, and `held_out`, the next item of each sequence; the output has this item's rank. A sequence's score
for an item is summed over the 500 nearest sequences that have it (Jannach and Ludewig 2017, with the weights of VSKNN): the newest items
count most, and rare items.
"""

import json
import sys
import time

import numpy as np
from scipy import sparse

NEIGHBOURS = 500


def matrix(sequences, count, weight):
    """Returns [sequences, items]; an item's last place counts."""
    rows, columns, values = [], [], []
    for number, sequence in enumerate(sequences):
        last = {item: weight(place + 1, len(sequence)) for place, item in enumerate(sequence.tolist())}
        rows += [number] * len(last)
        columns += last.keys()
        values += last.values()
    return sparse.csr_matrix((np.array(values, np.float32), (rows, columns)), (len(sequences), count + 1))


def session_knn(sequences, count):
    binary = matrix(sequences, count, lambda place, length: 1.0)
    rarity = np.log(len(sequences) / np.maximum(1, np.asarray(binary.sum(axis=0)).ravel())).astype(np.float32)
    recent, by_item = matrix(sequences, count, lambda place, length: place / length), binary.T.tocsr()

    def scores(rows):
        near = recent[rows] @ by_item
        data, columns, start = [], [], [0]
        for at, number in enumerate(range(rows.start, rows.stop)):
            span = slice(near.indptr[at], near.indptr[at + 1])
            values, others = near.data[span], near.indices[span]
            values[others == number] = 0
            best = np.argsort(-values, kind="stable")[:NEIGHBOURS]
            data.append(values[best])
            columns.append(others[best])
            start.append(start[-1] + len(best))
        nearest = sparse.csr_matrix((np.concatenate(data), np.concatenate(columns), start), (len(data), len(sequences)))
        return (nearest @ binary).toarray() * rarity

    return scores


def ranks(scores, sequences, held_out, step=256):
    """Returns the rank of each held-out item among all items outside the sequence; equal scores share the middle rank."""
    ranks = np.empty(len(sequences))
    for at in range(0, len(sequences), step):
        rows = slice(at, min(at + step, len(sequences)))
        part = scores(rows)
        targets = part[np.arange(len(part)), held_out[rows]][:, None]
        for own, sequence in zip(part, sequences[rows], strict=True):
            own[sequence] = -np.inf
        part[:, 0] = -np.inf
        ranks[rows] = 1 + (part > targets).sum(axis=1) + ((part == targets).sum(axis=1) - 1) / 2
    return ranks


if __name__ == "__main__":
    data = np.load(sys.argv[1], allow_pickle=False)
    sequences, count = np.split(data["items"], data["start"][1:-1]), int(data["count"])
    started = time.perf_counter()
    scores = session_knn(sequences, count)
    seconds = time.perf_counter() - started
    np.savez(sys.argv[2], ranks=ranks(scores, sequences, data["held_out"]))
    sys.stdout.write(json.dumps({"seconds": seconds}) + "\n")
