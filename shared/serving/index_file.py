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
    kind: Literal["faiss-pq4"] = Field(description="What wrote the content and can search it.")
    items: int = Field(ge=1, description="How many vectors it holds, row by row as in embeddings.npz.")
    width: int = Field(ge=1, description="Numbers in a vector.")
    weighed: int = Field(ge=1, description="Rows that are fetched, to be weighed exactly, for each one that is wanted.")
    candidates: int = Field(ge=1, description="So many wanted ones that was tried with; as many are fetched for fewer.")
    vectors: str = Field(description="The digest of the vectors that it was built of.")
    content: str = Field(description="The digest of what follows.")


def pack(kind: Literal["faiss-pq4"], items: int, width: int, weighed: int, candidates: int, vectors: Buffer, content: bytes) -> bytes:
    digests = [hashlib.sha256(part).hexdigest() for part in (vectors, content)]
    header = Header(kind=kind, items=items, width=width, weighed=weighed, candidates=candidates, vectors=digests[0], content=digests[1])
    text = header.model_dump_json().encode()
    return MAGIC + len(text).to_bytes(_LENGTH, "big") + text + content


def unpack(stored: bytes, items: int, width: int, vectors: Buffer, name: str) -> tuple[Header, memoryview]:
    """Returns the header and the content, if built for exactly these vectors; else raises BadData, in one line."""
    if stored[: len(MAGIC)] != MAGIC:
        raise BadData(f"{name}: it is no index of candidates")
    begin = len(MAGIC) + _LENGTH
    end = begin + int.from_bytes(stored[len(MAGIC) : begin], "big")
    try:
        header = read(Header, json.loads(stored[begin:end]), name)
    except (ValueError, Invalid) as error:
        raise BadData(f"{name}: its header is damaged: {error}") from None
    content = memoryview(stored)[end:]
    if hashlib.sha256(content).hexdigest() != header.content:
        raise BadData(f"{name}: its content is damaged: export it anew")
    if (header.items, header.width) != (items, width) or header.vectors != hashlib.sha256(vectors).hexdigest():
        raise BadData(f"{name}: it was built of {header.items:,} other vectors than these {items:,}: export it anew")
    return header, content
