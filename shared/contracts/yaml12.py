"""YAML as people expect it: `on`, `yes` and `no` are words, and a key given twice is a fault."""

from __future__ import annotations

import re
from typing import Any

import yaml

from shared.contracts.strict import one_line
from shared.domain.errors import Invalid


class _Loader(yaml.SafeLoader):
    def compose_node(self, parent: yaml.Node | None, index: Any) -> yaml.Node | None:
        """Without aliases: a few lines of them can stand for more than any memory holds."""
        if self.check_event(yaml.AliasEvent):
            raise yaml.composer.ComposerError(None, None, "an alias: write the value out", self.peek_event().start_mark)  # type: ignore[no-untyped-call]
        return super().compose_node(parent, index)

    def construct_mapping(self, node: yaml.MappingNode, deep: bool = False) -> dict[Any, Any]:
        seen: set[str] = set()
        for key, _ in node.value:
            if key.value in seen:
                raise yaml.constructor.ConstructorError(None, None, f"'{key.value}' is given twice", key.start_mark)
            seen.add(key.value)
        return super().construct_mapping(node, deep)


_Loader.yaml_implicit_resolvers = {
    first: [(tag, pattern) for tag, pattern in resolvers if tag != "tag:yaml.org,2002:bool"]
    for first, resolvers in yaml.SafeLoader.yaml_implicit_resolvers.items()
}
_Loader.add_implicit_resolver("tag:yaml.org,2002:bool", re.compile(r"^(?:true|True|TRUE|false|False|FALSE)$"), list("tTfF"))


def load(text: str, source: str) -> Any:
    try:
        return yaml.load(text, _Loader)  # noqa: S506 - a SafeLoader
    except (TypeError, ValueError, RecursionError) as error:
        raise Invalid(one_line(f"{source}: not valid YAML: {error}")) from None
    except yaml.YAMLError as error:
        mark = getattr(error, "problem_mark", None)
        place = f" at line {mark.line + 1}, column {mark.column + 1}" if mark else ""
        said = getattr(error, "problem", None) or getattr(error, "reason", None) or error
        raise Invalid(one_line(f"{source}: not valid YAML{place}: {said}")) from None
