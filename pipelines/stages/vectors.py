"""Vectors of images and texts for etl's tables: read from files, or encoded by the spec's encoders.

Vectors that an earlier etl published aren't encoded again. Used vectors are published for the next etl.
"""

from __future__ import annotations

import hashlib
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path

import polars as pl

from pipelines.data.sources import ReadableRoots, SourceRows
from pipelines.data.vectors import open_vectors, with_vectors
from pipelines.encoding.cache import VectorCache, is_marked
from pipelines.encoding.spec_encoder import check_column, check_width, of_feature, open_spec_encoder
from pipelines.features.reading import Reads
from pipelines.stages.runner import Context
from shared.contracts.encoding import EARLIER, ENCODED, Encode
from shared.contracts.features import Vector, VectorOf

_EVERY = 5.0
"""Seconds between progress lines."""
_MOST_REPORTED = 3


@dataclass
class TableVectors:
    """Vectors of one attempt; empty if the family reads none. `facts`: numbers of rows by feature."""

    context: Context
    reach: ReadableRoots
    reads: Reads
    digests: list[str] = field(default_factory=list)
    facts: dict[str, dict[str, int]] = field(default_factory=dict)
    _made: VectorCache | None = None

    def check(self, source: SourceRows, key: str) -> None:
        """Checks before long work begins that columns exist and encoders open."""
        for of in self._of(key):
            if of.encode is not None:
                with of_feature(of):
                    check_column(source.frame.collect_schema(), of.encode.column, source.name)
                    open_spec_encoder(of.encode, self.reach, self._scratch / of.output)

    def join(self, table: pl.DataFrame, key: str) -> pl.DataFrame:
        """Adds the vectors of the table's keys."""
        for of in self._of(key):
            if of.encode is not None:
                with of_feature(of):
                    table = self._encoded(table, of, of.encode)
            else:
                schema, kinds = self.context.spec.recommender.schema_, self.reach.kinds
                source = open_vectors(of, self.reach, kinds.item if key == schema.item else kinds.user)
                table = with_vectors(table, source, of)
                self.digests.append(source.digest())
        return table

    def files(self) -> dict[str, Path]:
        """Returns the file to publish, if vectors were encoded."""
        return {} if self._made is None else {ENCODED: self._made.publish(self.context.out(ENCODED))}

    def _of(self, key: str) -> Iterator[VectorOf]:
        recommender = self.context.spec.recommender
        is_read = self.reads in ("deep", "trees") or (self.reads == "sequence_and_items" and key == recommender.schema_.item)
        operators = recommender.operators() if is_read else ()
        return (operator.vector for operator in operators if isinstance(operator, Vector) and operator.vector.of == key)

    def _encoded(self, table: pl.DataFrame, of: VectorOf, encode: Encode) -> pl.DataFrame:
        encoder = open_spec_encoder(encode, self.reach, self._scratch / of.output)
        made = self._made = self._made or self._earlier_vectors()
        rows, log = table.select(of.of, encode.column), self.context.log
        marked = made.make(rows, encoder, encode.batch, of.width, self._progress(of.output, len(rows)))
        vectors = made.of(marked.marks)
        check_width(int(vectors.drop_nulls().list.len()[0]), of.width)
        without = marked.left.count
        facts = {"encoded": marked.encoded, "known": len(rows) - marked.encoded - without, "without": without}
        self.facts[of.output] = facts
        log.info("vectors: encoded feature=%s encoded=%d reused=%d missing=%d", of.output, *facts.values())
        for reason in marked.left.reasons[:_MOST_REPORTED]:
            log.info("vectors: row left out feature=%s reason=%s", of.output, reason)
        self.digests.append(_digest(table[of.of], marked.marks))
        return table.with_columns(vectors.alias(of.output))

    @property
    def _scratch(self) -> Path:
        return self.reach.scratch / "encoding"

    def _earlier_vectors(self) -> VectorCache:
        """Returns the vectors that an earlier etl published."""
        vectors = VectorCache(self._scratch / "vectors")
        if self.context.has(EARLIER, ENCODED):
            path = self.context.fetch(EARLIER, ENCODED)
            if is_marked(path):
                vectors.take(path)
            else:
                self.context.log.warning("vectors: encoding all again, those of the earlier run belong to another release")
        return vectors

    def _progress(self, name: str, rows: int) -> Callable[[int], None]:
        last = time.monotonic()

        def report(done: int) -> None:
            nonlocal last
            if time.monotonic() - last > _EVERY:
                last = time.monotonic()
                self.context.log.info("vectors: encoding feature=%s done=%d of=%d", name, done, rows)

        return report


def _digest(keys: pl.Series, marks: pl.Series) -> str:
    digest = hashlib.sha256(keys.to_numpy().tobytes())
    for mark in marks:
        digest.update(mark or b"none")
    return digest.hexdigest()
