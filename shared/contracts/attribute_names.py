"""Item attributes that a spec's filters and rules name, and those of them that nobody knows."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping

from shared.contracts.ordering import Each, condition
from shared.contracts.serving import Serve
from shared.contracts.strict import unknown_name
from shared.domain.attributes import AVAILABLE, Kind
from shared.domain.errors import Invalid
from shared.domain.expression_kinds import check_kinds


def named_attributes(serve: Serve) -> Iterator[tuple[str, str]]:
    """Yields field and name of each attribute that `serve.filter` and `serve.order` name."""
    order = serve.order
    lists = [("serve.order.rules", order.rules), *(("serve.order.campaigns", campaign.rules) for campaign in order.campaigns)]
    expressions = [("serve.filter", expression) for expression in serve.expressions()]
    expressions += [(field, expression) for field, rules in lists for rule in rules if (expression := condition(rule)) is not None]
    for field, expression in expressions:
        for name in sorted(expression.names(), key=lambda name: name.column):
            if name.source == "item":
                yield field, name.name
    yield from ((field, rule.each) for field, rules in lists for rule in rules if isinstance(rule, Each))


def unknown_attributes(serve: Serve, names: Collection[str]) -> tuple[tuple[str, str], ...]:
    """Returns field and message of each attribute that is not among the names; none if the spec declares attributes."""
    if serve.attributes:
        return ()
    unknown = dict.fromkeys((field, name) for field, name in named_attributes(serve) if name not in names and name != AVAILABLE)
    return tuple((field, str(unknown_name("attribute", name, names))) for field, name in unknown)


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
