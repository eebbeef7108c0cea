"""What a filter lets through: whole columns mean what the language says, whatever was changed before."""

from __future__ import annotations

from types import SimpleNamespace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from services.gateway.attributes import AttributeBuilder
from services.gateway.filter_evaluation import FilterColumns
from shared.domain.expressions import And, Compare, Constant, Has, In, IsTrue, Name, Not, Or, truth
from shared.ports import CatalogueItem

ITEMS = list(range(8))
TEXTS = ["", "a", "b", "\u00e4", "\U0001f600"]
NUMBERS = [-1, 0, 1, 1.5, 2**53, 0.1]
NAMES = ["p", "q", "r"]

values = st.one_of(
    st.sampled_from(TEXTS),
    st.sampled_from(NUMBERS),
    st.booleans(),
    st.lists(st.sampled_from(TEXTS), max_size=3).map(tuple),
    st.lists(st.sampled_from(NUMBERS), max_size=3).map(tuple),
)
attributes = st.dictionaries(st.sampled_from(NAMES), values)
changes = st.lists(
    st.builds(
        CatalogueItem,
        st.sampled_from(ITEMS),
        attributes,
        st.booleans(),
        st.sampled_from([False, False, False, True]),
    ).map(lambda one: CatalogueItem(one.item, {}, False, True) if one.deleted else one),
    max_size=10,
)
operands = st.one_of(
    st.sampled_from([*NAMES, "available", "nobody"]).map(lambda name: Name("item", name)),
    st.sampled_from(NAMES).map(lambda name: Name("user", name)),
    values.map(Constant),
)
tests = st.one_of(
    st.builds(Compare, st.sampled_from(["<", "<=", ">", ">=", "==", "!="]), operands, operands),
    st.builds(In, operands, operands),
    st.builds(Has, operands.filter(lambda one: isinstance(one, Name))),
    st.builds(IsTrue, operands),
)
trees = st.recursive(
    tests,
    lambda part: st.one_of(
        part.map(Not),
        st.lists(part, min_size=2, max_size=3).map(tuple).map(And),
        st.lists(part, min_size=2, max_size=3).map(tuple).map(Or),
    ),
    max_leaves=5,
)


@pytest.mark.requirement("G-02")
@settings(max_examples=250)
@given(st.lists(changes, max_size=4), trees, attributes, st.sampled_from([2, 100_000]))
def test_columns_mean_what_the_language_says_after_any_changes(batches, tree, user, crowded):
    ledger, there = AttributeBuilder(crowded), {}
    for batch in batches:
        ledger.take(batch)
        there |= {one.item: one for one in batch}
    unit = SimpleNamespace(items=np.array([*ITEMS[::-1], 99]))
    slots = ledger.state.slots._find(unit.items)
    matches = FilterColumns(ledger.state, slots, user).look(tree)
    for row, item in enumerate(unit.items.tolist()):
        one = there.get(item, CatalogueItem(item, {}))
        known = {**one.attributes, "available": one.available}
        expected = truth(tree, known, user)
        assert (bool(matches.true[row]), bool(matches.false[row])) == (expected is True, expected is False), (item, known)


def said(state):
    pairs = {
        key: (pairs_of_key.values.tolist(), pairs_of_key.slots.tolist(), pairs_of_key.has_value.tolist())
        for key, pairs_of_key in state.lists.items()
    }
    return repr((len(state), state.available.tolist(), {key: one.tolist() for key, one in state.scalars.items()}, pairs))


def test_a_state_is_not_changed_by_what_comes_after_it():
    ledger = AttributeBuilder()
    before = ledger.take([CatalogueItem(1, {"p": 1, "q": ("a", "b"), "r": "x"})])
    kept = said(before)
    ledger.take([CatalogueItem(1, {"p": 2, "q": ("c",)}, False), CatalogueItem(2, {"p": 3})])
    assert said(before) == kept


def test_words_that_no_item_has_any_more_are_forgotten():
    ledger = AttributeBuilder(crowded=10)
    for n in range(200):
        ledger.take([CatalogueItem(1, {"title": f"t{n}", "tags": (f"u{n}", "same")}), CatalogueItem(2, {"title": "same"})])
    assert len(ledger.state.words) <= 14
    assert set(ledger.state.scalars) == {("title", "text")}


def test_a_column_that_no_item_has_any_more_is_gone():
    ledger = AttributeBuilder()
    ledger.take([CatalogueItem(1, {"p": 1, "q": ("a",)}), CatalogueItem(2, {"p": 3})])
    ledger.take([CatalogueItem(1, {})])
    assert (set(ledger.state.scalars), set(ledger.state.lists)) == ({("p", "number")}, set())
    ledger.take([CatalogueItem(2, {}, False, True)])
    assert not ledger.state.scalars
    assert len(ledger.state) == 2
