"""Ids of users and items: which texts are ids, their keys, and the kinds of a recommender's ids."""

from __future__ import annotations

from hashlib import blake2b

import pytest

from shared.domain import entity_ids
from shared.domain.entity_ids import LONGEST_ID, UNFIXED, IdHash, IdKinds, IdReader, check_id, read_id
from shared.domain.errors import Invalid

HASH = IdHash(b"secret")
UNICODE = ["é", "e\u0301", "\uff21", "a b", " a", "A", "a", "💐", "\u202e", "中文", "a/b?c=d&e", "..", "%2F", "\t", "x" * 256, "42", "-0"]


def test_a_key_is_the_first_63_bits_of_a_keyed_blake2b() -> None:
    for text in UNICODE:
        digest = blake2b(text.encode(), digest_size=8, key=b"secret", person=b"eyas-id-1").digest()
        assert HASH.key(text) == int.from_bytes(digest, "big") >> 1
        assert 0 <= HASH.key(text) < 2**63
    assert HASH.key("42") == 1629494106996945355, "stored keys depend on it: a new hash needs a new version"
    assert len({HASH.key(text) for text in UNICODE}) == len(UNICODE), "nothing is normalised"
    assert HASH.key("a") != IdHash(b"another secret").key("a")


def test_a_million_ids_have_a_million_keys() -> None:
    assert len(set(HASH.keys(f"user-{number}" for number in range(1_000_000)))) == 1_000_000


def test_a_short_hash_has_equal_keys(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(entity_ids, "BITS", 8)
    assert len(set(HASH.keys(map(str, range(10_000))))) == 256


@pytest.mark.parametrize("id", [*UNICODE, 0, -1, 2**63 - 1, -(2**63), "é" * (LONGEST_ID // 2)])
def test_ids(id: int | str) -> None:
    assert check_id(id) == id


@pytest.mark.parametrize(
    ("value", "message"),
    [
        ("", "cannot be empty"),
        ("a\0b", "NUL"),
        ("x" * 257, "at most 256 bytes in UTF-8, this one has 257"),
        ("é" * 129, "this one has 258"),
        ("\ud800", "surrogate"),
        (2**63, "at most 64 bits"),
        (-(2**63) - 1, "at most 64 bits"),
        (1.0, "an integer or a text"),
        (True, "an integer or a text"),
        (None, "an integer or a text"),
        (["a"], "an integer or a text"),
    ],
)
def test_other_values_are_no_ids(value: object, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        check_id(value)


def test_an_id_of_the_other_kind_is_refused_in_one_line() -> None:
    integers, texts = IdReader(IdKinds("integer", "integer"), HASH), IdReader(IdKinds("text", "text"), HASH)
    assert (integers.user(42), texts.user("42"), texts.items(["a", "b"])) == (42, HASH.key("42"), HASH.keys(["a", "b"]))
    with pytest.raises(Invalid, match=r"^user: '42' is text, but users of this recommender have integer ids; send an integer$"):
        integers.user("42")
    with pytest.raises(
        Invalid, match=r'^exclude.1: 42 is an integer, but items of this recommender have text ids; send text, such as "42"$'
    ):
        texts.items(["a", 42], "exclude")
    mixed = IdReader(IdKinds("text", "integer"), HASH)
    assert (mixed.user("a"), mixed.item(3)) == (HASH.key("a"), 3)
    unfixed = IdReader(UNFIXED, HASH)
    assert (unfixed.user("a"), unfixed.user(3)) == (HASH.key("a"), 3)


def test_words_of_a_command_line_are_read_by_the_kind() -> None:
    assert [read_id("42", kind) for kind in ("integer", "text", None)] == [42, "42", 42]
    assert [read_id(word, None) for word in ("a7", "042", "+4", " 4", "-4", str(2**63))] == ["a7", "042", "+4", " 4", -4, str(2**63)]
    for word in ("a7", "042", "", str(2**63)):
        with pytest.raises(Invalid, match=r"is not an integer id of 64 bits"):
            read_id(word, "integer")
    with pytest.raises(Invalid, match="cannot be empty"):
        read_id("", "text")
