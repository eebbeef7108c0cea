"""The filter language: what it means, what it refuses, and how it says so."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from shared.domain.attributes import check_attributes
from shared.domain.errors import Invalid
from shared.domain.expression_kinds import check_kinds
from shared.domain.expression_text import DEEPEST, LONGEST, parse_expression
from shared.domain.expressions import truth

FILM = {
    "age_rating": 12,
    "region": "de",
    "regions": ("de", "at"),
    "genres": (),
    "price": 9.99,
    "adult": False,
    "title": "it's",
    "available": True,
}
USER = {"age": 14, "region": "de", "likes": ("a", "de")}


def meaning(text, item=FILM, user=USER):
    found = parse_expression(text)
    check_kinds([found], {}, {})
    return truth(found.tree, item, user)


EXPRESSIONS = [
    ("age_rating <= user.age", True),
    ("age_rating > user.age", False),
    ("region == user.region", True),
    ("region != user.region", False),
    ("price < 20 and not adult", True),
    ("'de' in regions", True),
    ("'fr' in regions", False),
    ("'fr' not in regions", True),
    ("regions contains user.region", True),
    ("regions not contains 'de'", False),
    ("not regions contains 'de'", False),
    ("genres contains 'Horror'", False),
    ("region in ['at', 'de']", True),
    ("region in []", False),
    ("price in [9.99]", True),
    ("region in user.likes", True),
    ("user.region in regions", True),
    ("user.age >= 18", False),
    ("available", True),
    ("adult == false", True),
    ("true", True),
    ("title == 'it\\'s' and title == \"it's\"", True),
    ("region < 'df' and region >= 'de'", True),
    ("adult and price < 20 or region == 'de'", True),
    ("adult and (price < 20 or region == 'de')", False),
    ("-1 < price and price > 1e-3", True),
    ("has(price) and not has(studio) and has(user.age)", True),
    # What isn't known stays unknown.
    ("studio == 'a'", None),
    ("not studio == 'a'", None),
    ("not free", None),
    ("studio in ['a']", None),
    ("region == user.country", None),
    ("region in user.countries", None),
    ("cast contains 'x'", None),
    ("studio == 'a' or price < 20", True),
    ("studio == 'a' and price > 20", False),
    ("studio == 'a' and price < 20", None),
    ("not has(studio) or studio == 'a'", True),
    # As is what is of another kind than it was asked for.
    ("region < 3", None),
    ("price == 'a'", None),
    ("regions == 'de'", None),
    ("adult == 0", None),
    ("3 in regions", None),
    ("3 in genres", False),
    ("region", None),
]


@pytest.mark.requirement("G-02")
def test_an_expression_means(subtests):
    for text, true in EXPRESSIONS:
        with subtests.test(text=text, true=true):
            assert meaning(text) is true


FAULTS = [
    ("", 1, "expected an attribute, user.NAME, a number, a 'text', true, false or a [list], got the end"),
    ("price = 3", 7, "'=' is not a sign of the filter language: write == to compare"),
    ("a && b", 3, "write 'and'"),
    ("a || b", 3, "write 'or'"),
    ("!a", 1, "write 'not'"),
    ("1 < a < 3", 7, "comparisons cannot be chained: write two comparisons with 'and', got '<'"),
    ("user", 5, "expected '.' and a name after 'user', as in user.age"),
    ("user.", 6, "expected a name after 'user.'"),
    ("user.5", 6, "expected a name after 'user.', got '5'"),
    ("a.b == 3", 2, "only 'user' takes a dot: 'a' has no fields"),
    ("a b", 3, "expected 'and', 'or', or the end, got 'b'"),
    ("a in b in c", 8, "expected 'and', 'or', or the end"),
    ("(a", 3, "expected ')', got the end"),
    ("a)", 2, "expected 'and', 'or', or the end, got ')'"),
    ("  'x", 3, "the text is not closed: end it with '"),
    ("12x", 1, "is not a number"),
    ("a - 5", 3, "no arithmetic"),
    ("na\u00efve", 3, "a name has letters (a to z)"),
    ("a not b", 7, "expected 'in' or 'contains' after 'not'"),
    ("[1, 'a'] contains a", 5, "a list must hold only texts or only numbers"),
    ("[1, a] contains a", 5, "expected a number or a 'text' in the list"),
    ("a in [1 2]", 9, "expected ','"),
    ("has(3)", 5, "a name after 'has'"),
    ("a == 1e300", 6, "beyond 2**53"),
    ("a == in", 6, "expected an attribute"),
    ("price < 'x' and price > 3", 23, "'>' compares 'price' (a text) with 3 (a number): different types"),
    ("genres == ['x']", 11, "['x'] (a list of texts): '==' compares single values: use 'in' or 'contains' with lists"),
    ("adult < true", 9, "true (true or false): '<' compares only numbers or texts"),
    ("3", 1, "3 (a number): a condition must be true or false: compare this value"),
    ("price > 1 and price", 15, "'price' (a number): a condition must be true or false"),
    ("x in 'abc'", 6, "'abc' (a text): 'in' and 'contains' need a list"),
    ("x in ['a'] and x > 3", 18, "'>' compares 'x' (a text) with 3 (a number)"),
    ("g contains 3 and 'a' in g", 22, "'g' (a list of numbers) never holds 'a' (a text)"),
    ("a == b and b == c and c == 'x' and a > 1", 14, "'b' (a number) with 'c' (a text)"),
    ("available == 3", 11, "'available' (true or false)"),
]


def test_a_fault_says_where_and_what_would_be_right(subtests):
    for text, column, said in FAULTS:
        with subtests.test(text=text, column=column, said=said):
            with pytest.raises(Invalid) as fault:
                meaning(text)
            assert f"{text!r}, column {column}: " in str(fault.value)
            assert said in str(fault.value)


def test_kinds_are_found_over_all_expressions_of_a_filter():
    with pytest.raises(Invalid, match=r"'price' .a number. with 'x'"):
        check_kinds([parse_expression("price < 3"), parse_expression("price == 'x'")], {}, {})
    with pytest.raises(Invalid, match=r"'b' .a text. with 3"):
        check_kinds([parse_expression("a == 'x'"), parse_expression("a < b"), parse_expression("b < 3")], {}, {})


def test_where_attributes_are_declared_no_others_are_known():
    declared = {"price": "number", "genres": "texts"}
    check_kinds([parse_expression("price < user.budget and 'a' in genres and available")], declared, {})
    for text, said in (
        ("prices < 3", "serve.attributes declares no 'prices': did you mean 'price'"),
        ("zzz < 3", "known: available, genres, price"),
        ("price == 'a'", "'price' (a number)"),
        ("has(zzz)", "declares no 'zzz'"),
        ("user.ag < 3", "serve.context declares no 'ag': did you mean 'age'"),
    ):
        with pytest.raises(Invalid) as fault:
            check_kinds([parse_expression(text)], declared, {"age": "number"})
        assert said in str(fault.value)


def test_texts_are_bounded_in_length_in_depth_and_in_words():
    meaning("not " * (DEEPEST - 1) + "adult")
    for text, said in (
        ("not " * (DEEPEST + 1) + "adult", "nested deeper"),
        ("(" * (DEEPEST + 1) + "adult" + ")" * (DEEPEST + 1), "nested deeper"),
        ("a" * (LONGEST + 1), "at most 1000"),
        (" or ".join(["a"] * 160), "more than 300 words"),
        (f"a in [{','.join(['1'] * 101)}]", "at most 100 values"),
        ("a == '" + "x" * 501 + "'", "at most 500"),
    ):
        with pytest.raises(Invalid, match=said):
            parse_expression(text)


@given(
    st.text(max_size=60)
    | st.lists(st.sampled_from(["a", "user", ".", "(", ")", "not", "in", "<", "==", "'x'", "3", "[", "]", ",", "has"])).map(" ".join)
)
def test_whatever_is_written_is_read_or_refused(text):
    try:
        found = parse_expression(text)
        check_kinds([found], {}, {})
    except Invalid as fault:
        assert "column" in str(fault)
    else:
        assert truth(found.tree, FILM, USER) in (True, False, None)


INVALID_ATTRIBUTES = [
    ([], "expected an object"),
    ({"a b": 1}, "'a b' is not an attribute name"),
    ({"not": 1}, "a word of the filter language"),
    ({"available": True}, "belongs beside the attributes"),
    ({"a": {}}, "a: expected a number, a text"),
    ({"a": [1, "x"]}, "a: a list must hold only texts or only numbers"),
    ({"a": [True]}, "a: a list must hold"),
    ({"a": [None]}, "a: a list must hold"),
    ({"a": 2**53 + 1}, "a: a number must be finite"),
    ({"a": float("nan")}, "a: a number must be finite"),
    ({"a": [float("inf")]}, "a: a number must be finite"),
    ({"a": "x" * 501}, "a: a text of 501 characters"),
    ({"a": "\0"}, "NUL"),
    ({"a": ["\ud800"]}, "half of a surrogate pair"),
    ({"a": list(range(101))}, "a: 101 values"),
    ({f"a{n}": 1 for n in range(51)}, "51 names; at most 50 are allowed"),
    ({f"a{n}": "x" * 500 for n in range(40)}, "characters together; at most 16384 are allowed"),
]


def test_attributes_that_cannot_be_kept_are_refused_by_name(subtests):
    for attributes, said in INVALID_ATTRIBUTES:
        with subtests.test(attributes=attributes, said=said), pytest.raises(Invalid, match=said):
            check_attributes(attributes, {})


def test_declared_attributes_have_their_kind():
    declared = {"age": "number", "genres": "texts"}
    assert check_attributes({"age": 3, "genres": []}, declared) == {"age": 3, "genres": ()}
    assert check_attributes({"age": None, "former": None}, declared) == {"age": None, "former": None}
    for wrong, said in (
        ({"age": "3"}, "age: expected a number, as serve.attributes says"),
        ({"ages": 3}, "unknown attribute 'ages'; declared by serve.attributes: age, genres"),
    ):
        with pytest.raises(Invalid, match=said):
            check_attributes(wrong, declared)
