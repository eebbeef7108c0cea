"""Names of versions: numbers, aliases that follow from the route, and tags that people set.

Numbers, aliases and tags have disjoint forms, so a name always means one version.
"""

from __future__ import annotations

import re
from collections.abc import Mapping

from shared.domain.errors import Invalid, NotFound
from shared.domain.route import Route

NAME = re.compile(r"[a-z][a-z0-9-]{0,39}")
"""Pattern of a recommender's name."""
ALIASES = ("serving", "previous", "candidate")
_RESERVED = frozenset({*ALIASES, "latest", "none", "all"})
_TAG = re.compile(r"[a-z][a-z0-9._-]{0,62}")
_NUMBER = re.compile(r"[1-9]\d{0,8}")
_LIKE_A_NUMBER = re.compile(r"v[\d.]*|version[\d._-]*")


def aliases(route: Route | None, previous: int | None) -> dict[str, int]:
    """Returns the aliases. They are computed from the route and never stored, so they match what serves."""
    named = {"serving": route.stable if route else None, "previous": previous, "candidate": route.candidate if route else None}
    return {alias: number for alias, number in named.items() if number is not None}


def check_tag(tag: str) -> str:
    if tag in _RESERVED:
        raise Invalid(f"tag '{tag}': reserved word ({', '.join(sorted(_RESERVED))}); choose another")
    if not _TAG.fullmatch(tag) or _LIKE_A_NUMBER.fullmatch(tag):
        raise Invalid(
            f"tag {tag[:80]!r}: expected a lower-case letter, then at most 62 letters, digits, dots, dashes or underscores,"
            " but not a number such as v3"
        )
    return tag


def number_of(recommender: str, word: str, named: Mapping[str, int], tags: Mapping[str, int]) -> int:
    """Returns the version number for a number, an alias or a tag."""
    if _NUMBER.fullmatch(word):
        return int(word)
    if word in ALIASES:
        if word not in named:
            raise NotFound(f"recommender '{recommender}' has no {word} version now")
        return named[word]
    if word not in tags:
        raise NotFound(f"recommender '{recommender}' has no version {word[:80]!r}: expected a number, {', '.join(ALIASES)} or a tag")
    return tags[word]
