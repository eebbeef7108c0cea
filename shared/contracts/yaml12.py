"""YAML 1.2 loader: `on`, `yes` and `no` are strings, and a repeated key is an error.

It reads libyaml's events one by one, so that a document that is too large is rejected while it is read.
"""

from __future__ import annotations

import re
import time
from collections.abc import Callable
from typing import Any, TypeVar

import yaml
from yaml._yaml import CParser
from yaml.composer import Composer, ComposerError
from yaml.constructor import ConstructorError, SafeConstructor
from yaml.resolver import Resolver

from shared.contracts.strict import one_line
from shared.domain.errors import Invalid

T = TypeVar("T")

MAX_NODES = 10_000
"""Maximum number of values, lists and mappings of a client's document, keys included."""
MAX_DEPTH = 100
_SHORT, _PIECE, _PAUSE = 1000, 50, 0.002
"""Pacing of a client's document: a pause of _PAUSE seconds after every _PIECE steps (composed or constructed nodes), about half a
millisecond of work. A thread that computes without pauses delays every other thread by 5 ms. The first _SHORT steps have no pause: usual
specs are shorter."""


class TooLarge(Exception):
    """The document exceeds a limit."""


class _Loader(Composer, CParser, SafeConstructor, Resolver):
    """PyYAML's composer on libyaml's parser; it requests one event at a time."""

    def __init__(self, text: str, max_nodes: int | None) -> None:
        CParser.__init__(self, text)
        Composer.__init__(self)
        SafeConstructor.__init__(self)
        Resolver.__init__(self)
        self._max_nodes = max_nodes
        self._nodes = self._depth = self._steps = 0

    def compose_node(self, parent: yaml.Node | None, index: Any) -> yaml.Node | None:
        """Composes a node and rejects aliases: a few lines of them can expand beyond any memory."""
        if self.check_event(yaml.AliasEvent):
            alias: Any = self.peek_event()
            raise ComposerError(None, None, "aliases are not allowed; write the value out", alias.start_mark)
        self._nodes += 1
        self._pause()
        if self._max_nodes is not None and self._nodes > self._max_nodes:
            raise TooLarge(f"more than {self._max_nodes} values, keys included")
        self._depth += 1
        if self._depth > MAX_DEPTH:
            raise TooLarge(f"values nested more than {MAX_DEPTH} deep")
        node = super().compose_node(parent, index)
        self._depth -= 1
        return node

    def construct_object(self, node: yaml.Node, deep: bool = False) -> Any:
        self._pause()
        return super().construct_object(node, deep)

    def _pause(self) -> None:
        self._steps += 1
        if self._max_nodes is not None and self._steps > _SHORT and self._steps % _PIECE == 0:
            time.sleep(_PAUSE)

    def construct_mapping(self, node: yaml.MappingNode, deep: bool = False) -> dict[Any, Any]:
        keys: set[str] = set()
        for key, _ in node.value:
            if key.value in keys:
                raise ConstructorError(None, None, f"'{key.value}' is given twice", key.start_mark)
            keys.add(key.value)
        return super().construct_mapping(node, deep)


_Loader.yaml_implicit_resolvers = {
    first: [(tag, pattern) for tag, pattern in resolvers if tag != "tag:yaml.org,2002:bool"]
    for first, resolvers in yaml.SafeLoader.yaml_implicit_resolvers.items()
}
_Loader.add_implicit_resolver("tag:yaml.org,2002:bool", re.compile(r"^(?:true|True|TRUE|false|False|FALSE)$"), list("tTfF"))


def load(text: str, source: str, max_nodes: int | None = None) -> Any:
    """Returns the document as Python values. `max_nodes` limits documents from clients."""
    return _read(text, source, max_nodes, _Loader.get_single_data)


def compose(text: str, source: str, max_nodes: int) -> yaml.Node | None:
    """Returns the document as nodes with line numbers."""
    return _read(text, source, max_nodes, _Loader.get_single_node)


def _read(text: str, source: str, max_nodes: int | None, read: Callable[[_Loader], T]) -> T:
    try:
        return read(_Loader(text, max_nodes))
    except (TypeError, ValueError, RecursionError) as error:
        raise Invalid(one_line(f"{source}: not valid YAML: {error}")) from None
    except TooLarge as error:
        raise Invalid(f"{source}: {error}") from None
    except yaml.YAMLError as error:
        mark = getattr(error, "problem_mark", None)
        place = f" at line {mark.line + 1}, column {mark.column + 1}" if mark else ""
        problem = getattr(error, "problem", None) or getattr(error, "reason", None) or error
        if "maximum nesting depth" in str(problem):  # libyaml's own limit, as it reads ahead of the composer
            raise Invalid(f"{source}: values nested more than {MAX_DEPTH} deep") from None
        raise Invalid(one_line(f"{source}: not valid YAML{place}: {problem}")) from None
