"""File format of a candidate index: a JSON header that describes it, and the content that its library wrote.

The header has the content's digest, which is verified before any library reads the content, because native code may do anything with a
damaged file. Nothing is ever unpickled.
"""

from __future__ import annotations

import hashlib
import json
from typing import Literal

from pydantic import Field

from shared.contracts.strict import Strict, read
from shared.domain.errors import BadData, Invalid

Buffer = bytes | memoryview
MAGIC = b"EYASNEAR1"
_LENGTH = 4


class Header(Strict):
    version: Literal[1] = 1
    kind: Literal["faiss-pq4"] = Field(description="Library that wrote the content and can search it.")
    items: int = Field(ge=1, description="Number of vectors, in the rows of embeddings.npz.")
    width: int = Field(ge=1, description="Width of the vectors.")
    weighed: int = Field(ge=1, description="Number of rows that are fetched and scored exactly, for each row of the result.")
    candidates: int = Field(ge=1, description="Number of results with which it was tested; as many rows are fetched for fewer results.")
    vectors: str = Field(description="Digest of the vectors that it was built from.")
    content: str = Field(description="Digest of the content after the header.")


def pack(kind: Literal["faiss-pq4"], items: int, width: int, weighed: int, candidates: int, vectors: Buffer, content: bytes) -> bytes:
    digests = [hashlib.sha256(part).hexdigest() for part in (vectors, content)]
    header = Header(kind=kind, items=items, width=width, weighed=weighed, candidates=candidates, vectors=digests[0], content=digests[1])
    text = header.model_dump_json().encode()
    return MAGIC + len(text).to_bytes(_LENGTH, "big") + text + content


def unpack(stored: bytes, items: int, width: int, vectors: Buffer, name: str) -> tuple[Header, memoryview]:
    """Returns the header and the content, if built for exactly these vectors; else raises BadData, in one line."""
    if stored[: len(MAGIC)] != MAGIC:
        raise BadData(f"{name}: not a candidate index; export it again")
    begin = len(MAGIC) + _LENGTH
    end = begin + int.from_bytes(stored[len(MAGIC) : begin], "big")
    try:
        header = read(Header, json.loads(stored[begin:end]), name)
    except (ValueError, Invalid) as error:
        raise BadData(f"{name}: the header is damaged: {error}") from None
    content = memoryview(stored)[end:]
    if hashlib.sha256(content).hexdigest() != header.content:
        raise BadData(f"{name}: the content is damaged; export it again")
    if (header.items, header.width) != (items, width) or header.vectors != hashlib.sha256(vectors).hexdigest():
        raise BadData(f"{name}: built from {header.items} other vectors, not from these {items}; export it again")
    return header, content
