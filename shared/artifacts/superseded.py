"""Content of archives of events that nothing needs any more, though manifests name it: parts that a compaction replaced because of
forgotten users, and parts of tries that were not accepted."""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Iterable

from shared.contracts.stage import Manifest

_RUN = re.compile(r"(compact|compacted)-(.+)-([0-9]+)")
"""Run of a compaction's tries, or of its accepted result."""


def superseded_blobs(manifests: Iterable[Manifest]) -> frozenset[str]:
    """Returns digests of content, from the manifests of compactions. A try counts until another try of its number is accepted."""
    tries: dict[tuple[str, int], set[str]] = defaultdict(set)
    accepted: dict[tuple[str, int], set[str]] = {}
    parts: dict[tuple[str, str], str] = {}
    replaced: set[tuple[str, str]] = set()
    for manifest in manifests:
        match = _RUN.fullmatch(manifest.run)
        if match is None:
            continue
        kind, recommender, number = match[1], match[2], int(match[3])
        digests = {file.sha256 for file in manifest.files.values()}
        if kind == "compact":
            tries[recommender, number] |= digests
            continue
        accepted[recommender, number] = digests
        parts |= {(recommender, name): file.sha256 for name, file in manifest.files.items()}
        replaced |= {(recommender, name) for name in manifest.facts.get("replaces", ())}
    current = {digest for part, digest in parts.items() if part not in replaced}
    current = current.union(*(digests for place, digests in tries.items() if place not in accepted))
    settled = set().union(*accepted.values(), *(digests for place, digests in tries.items() if place in accepted))
    return frozenset(settled - current)
