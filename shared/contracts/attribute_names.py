"""Item attributes that a spec's filters and rules name, and those of them that nobody knows."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from difflib import get_close_matches

from shared.contracts.ordering import Each, Rule, condition
from shared.contracts.serving import Serve
from shared.contracts.strict import unknown_name
from shared.domain.attributes import AVAILABLE, Kind
from shared.domain.errors import Invalid
from shared.domain.expression_kinds import check_kinds
from shared.domain.expressions import Expression, equal_texts

_MOST_NOTES = 5
_MOST_COMPARED = 10_000
"""Most values of an attribute among which a hint looks for the closest one."""


def _rule_lists(serve: Serve) -> Iterator[tuple[str, Sequence[Rule]]]:
    yield "serve.order.rules", serve.order.rules
    yield from (("serve.order.campaigns", campaign.rules) for campaign in serve.order.campaigns)


def _expressions(serve: Serve) -> Iterator[tuple[str, Expression]]:
    yield from (("serve.filter", expression) for expression in serve.expressions())
    conditions = ((field, condition(rule)) for field, rules in _rule_lists(serve) for rule in rules)
    yield from ((field, expression) for field, expression in conditions if expression is not None)


def named_attributes(serve: Serve) -> Iterator[tuple[str, str]]:
    """Yields field and name of each attribute that `serve.filter` and `serve.order` name."""
    for field, expression in _expressions(serve):
        for name in sorted(expression.names(), key=lambda name: name.column):
            if name.source == "item":
                yield field, name.name
    yield from ((field, rule.each) for field, rules in _rule_lists(serve) for rule in rules if isinstance(rule, Each))


def absent_values(serve: Serve, values_of: Callable[[str], Collection[str] | None]) -> tuple[tuple[str, str], ...]:
    """Returns field and message of each text that a filter or rule looks for and no item has. `values_of`: an attribute's texts, or None if
    it has none or they are unknown."""
    wanted = dict.fromkeys((field, name, text) for field, expression in _expressions(serve) for name, text in equal_texts(expression.tree))
    texts = {name: values_of(name) for _, name, _ in wanted}
    absent = [(field, name, text, values) for field, name, text in wanted if (values := texts[name]) is not None and text not in values]
    notes = [
        (field, f"no item of the data has '{text}' in {name}; {_hint(text, values)}") for field, name, text, values in absent[:_MOST_NOTES]
    ]
    if len(absent) > _MOST_NOTES:
        notes.append((absent[-1][0], f"and {len(absent) - _MOST_NOTES:,} further texts that no item of the data has"))
    return tuple(notes)


def unknown_attributes(serve: Serve, names: Collection[str]) -> tuple[tuple[str, str], ...]:
    """Returns field and message of each attribute that is not among the names; none if the spec declares attributes."""
    if serve.attributes:
        return ()
    unknown = dict.fromkeys((field, name) for field, name in named_attributes(serve) if name not in names and name != AVAILABLE)
    return tuple((field, str(unknown_name("attribute", name, names))) for field, name in unknown)


def _hint(text: str, values: Collection[str]) -> str:
    near = get_close_matches(text, values, n=1, cutoff=0.5) if len(values) <= _MOST_COMPARED else ()
    return f"did you mean '{near[0]}'?" if near else f"it has {len(values):,} other values"


def wrong_kinds(serve: Serve, kinds: Mapping[str, Kind]) -> tuple[tuple[str, str], ...]:
    """Returns field and message of a filter that compares different types, such as a number with a text. `kinds`: type by attribute; a
    filter that names further attributes is not checked."""
    named = {name for field, name in named_attributes(serve) if field == "serve.filter" and name != AVAILABLE}
    if serve.attributes or not named <= kinds.keys():
        return ()
    try:
        check_kinds(serve.expressions(), kinds, serve.context)
    except Invalid as error:
        return (("serve.filter", str(error)),)
    return ()
