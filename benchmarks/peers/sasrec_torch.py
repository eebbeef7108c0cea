"""SASRec written plainly in torch: `python sasrec_torch.py SEQUENCES.npz OUTPUT.npz EPOCHS SEED`.

The input has `items` (numbers from 1, all sequences one after the other, the oldest item first), `start` (where each sequence begins) and
`count` (the number of items). Prints a JSON line with the seconds after each epoch. The output has a vector for each sequence and for each
item.
"""

import json
import sys
import time

import numpy as np
import torch
from torch import nn

WIDTH, BLOCKS, LENGTH, DROPOUT, BATCH, RATE = 64, 2, 50, 0.2, 128, 1e-3


class Block(nn.Module):
    def __init__(self):
        super().__init__()
        self.before, self.between = nn.LayerNorm(WIDTH), nn.LayerNorm(WIDTH)
        self.attention = nn.MultiheadAttention(WIDTH, 1, dropout=DROPOUT, batch_first=True)
        self.layers = nn.Sequential(nn.Linear(WIDTH, WIDTH), nn.ReLU(), nn.Dropout(DROPOUT), nn.Linear(WIDTH, WIDTH), nn.Dropout(DROPOUT))

    def forward(self, rows, mask):
        inner = self.before(rows)
        rows = rows + self.attention(inner, inner, inner, attn_mask=mask, need_weights=False, is_causal=True)[0]
        return rows + self.layers(self.between(rows))


class SasRec(nn.Module):
    def __init__(self, count):
        super().__init__()
        self.items, self.places = nn.Embedding(count + 1, WIDTH, padding_idx=0), nn.Embedding(LENGTH, WIDTH)
        self.blocks, self.last, self.dropout = nn.ModuleList(Block() for _ in range(BLOCKS)), nn.LayerNorm(WIDTH), nn.Dropout(DROPOUT)
        for table in (self.items, self.places):
            nn.init.normal_(table.weight, std=0.02)

    def forward(self, codes):
        places = codes.shape[1]
        rows = self.dropout(self.items(codes) * WIDTH**0.5 + self.places.weight[:places])
        mask = torch.triu(torch.ones(places, places, dtype=torch.bool), 1)
        for block in self.blocks:
            rows = block(rows, mask)
        return self.last(rows)


def padded(sequences):
    """Pads at the end, to the longest."""
    codes = np.zeros((len(sequences), max(map(len, sequences))), np.int64)
    for row, sequence in zip(codes, sequences, strict=True):
        row[: len(sequence)] = sequence
    return torch.from_numpy(codes)


def train(sequences, count, epochs, seed):
    torch.manual_seed(seed)
    random, model = np.random.default_rng(seed), SasRec(count)
    optimizer = torch.optim.Adam(model.parameters(), RATE)
    learned = [sequence[-LENGTH - 1 :] for sequence in sequences if len(sequence) > 1]
    seconds = 0.0
    for epoch in range(1, epochs + 1):
        model.train()
        started, order, losses = time.perf_counter(), random.permutation(len(learned)), []
        for at in range(0, len(order), BATCH):
            codes = padded([learned[number] for number in order[at : at + BATCH]])
            shown, targets = codes[:, :-1], codes[:, 1:]
            there = targets > 0
            logits = model(shown)[there] @ model.items.weight.T
            loss = nn.functional.cross_entropy(logits, targets[there])
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            losses.append(loss.item())
        seconds += time.perf_counter() - started
        sys.stdout.write(json.dumps({"epoch": epoch, "loss": float(np.mean(losses)), "seconds": seconds, "sequences": len(learned)}) + "\n")
        yield model


@torch.no_grad()
def vectors(model, sequences):
    model.eval()
    outputs = []
    for at in range(0, len(sequences), 512):
        some = [sequence[-LENGTH:] for sequence in sequences[at : at + 512]]
        rows = model(padded(some))
        outputs.append(rows[torch.arange(len(some)), torch.tensor([len(sequence) - 1 for sequence in some])])
    return torch.cat(outputs).numpy(), model.items.weight.numpy()


if __name__ == "__main__":
    data = np.load(sys.argv[1], allow_pickle=False)
    sequences = np.split(data["items"], data["start"][1:-1])
    for model in train(sequences, int(data["count"]), int(sys.argv[3]), int(sys.argv[4])):
        users, items = vectors(model, sequences)
        np.savez(sys.argv[2], users=users, items=items)
