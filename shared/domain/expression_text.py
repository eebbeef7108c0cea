"""Parser of the filter language; each error names the column and the correct form.

either   := both ("or" both)*
both     := negation ("and" negation)*
negation := "not" negation | "(" either ")" | "has" "(" name ")" | test
test     := operand (ORDER operand | ["not"] "in" operand | ["not"] "contains" operand)?
operand  := NUMBER | 'TEXT' | true | false | "[" (constant ("," constant)*)? "]" | name
name     := NAME | "user" "." NAME
"""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass
from typing import Literal, NoReturn, cast

from shared.domain.attributes import LARGEST, MOST_TEXT, MOST_VALUES, NAME_PATTERN, WORDS, Value
from shared.domain.errors import Invalid
from shared.domain.expressions import ORDERS, And, Compare, Constant, Expression, Has, In, IsTrue, Name, Not, Operand, Or, Order, Tree

LONGEST = 1000
DEEPEST = 20
MOST_TOKENS = 300
_TOKEN = re.compile(
    rf"""\s*(?:(?P<number>-?\d+(?:\.\d+)?(?:[eE][+-]?\d+)?(?![A-Za-z0-9_.]))|(?P<word>{NAME_PATTERN}(?![A-Za-z0-9_]))"""
    r"""|(?P<text>'(?:[^'\\]|\\['"\\])*'|"(?:[^"\\]|\\['"\\])*")|(?P<sign><=|>=|==|!=|[<>()\[\],.]))"""
)
_ESCAPED = re.compile(r"\\(.)")
_MEANT = {"=": "write == to compare", "&": "write 'and'", "|": "write 'or'", "!": "write 'not', or != to compare"}


@dataclass(frozen=True)
class _Token:
    kind: Literal["number", "word", "text", "sign", "end"]
    text: str
    column: int

    def __str__(self) -> str:
        return "the end" if self.kind == "end" else self.text if self.kind == "text" else f"'{self.text}'"


def parse_expression(text: str) -> Expression:
    """Parses the syntax only; expression_kinds checks the kinds."""
    if len(text) > LONGEST:
        raise Invalid(f"the expression has {len(text)} characters; at most {LONGEST} are allowed: split it, all expressions must hold")
    return _Parser(text, _tokens(text)).parse()


def fault(text: str, column: int, message: str) -> Invalid:
    return Invalid(f"{text!r}, column {column}: {message}")


def _tokens(text: str) -> list[_Token]:
    tokens: list[_Token] = []
    place = 0
    end = len(text.rstrip())
    while place < end:
        match = _TOKEN.match(text, place)
        if match is None:
            column = place + len(text[place:]) - len(text[place:].lstrip())
            raise fault(text, column + 1, _strange(text[column:]))
        kind = match.lastgroup
        tokens.append(_Token(cast(Literal["number"], kind), match[kind or 0], match.start(kind or 0) + 1))
        place = match.end()
        if len(tokens) > MOST_TOKENS:
            raise fault(text, tokens[-1].column, f"more than {MOST_TOKENS} words and signs: split it into several expressions")
    return [*tokens, _Token("end", "", end + 1)]


def _strange(rest: str) -> str:
    if rest[0] in "'\"":
        return f"the text is not closed: end it with {rest[0]}, and write \\{rest[0]} for a quote inside"
    if rest[0].isdigit() or rest[0] == "-":
        return f"{rest.split(maxsplit=1)[0][:20]!r} is not a number: write 18, -3 or 2.5; there is no arithmetic"
    if rest[0].isalpha() or rest[0] == "_":
        return f"{rest.split(maxsplit=1)[0][:20]!r}...: a name has letters (a to z), digits and underscores, at most 64"
    return f"{rest[0]!r} is not a sign of the filter language" + (f": {_MEANT[rest[0]]}" if rest[0] in _MEANT else "")


class _Parser:
    def __init__(self, text: str, tokens: list[_Token]) -> None:
        self._text = text
        self._tokens = tokens
        self._place = 0
        self._depth = 0

    def parse(self) -> Expression:
        tree = self._either()
        if self._now.kind != "end":
            self._refuse("expected 'and', 'or', or the end")
        return Expression(self._text, tree)

    @property
    def _now(self) -> _Token:
        return self._tokens[self._place]

    def _take(self) -> _Token:
        token = self._now
        self._place += token.kind != "end"
        return token

    def _next_is(self, *texts: str) -> bool:
        return self._now.kind in ("word", "sign") and self._now.text in texts

    def _skip(self, text: str) -> None:
        if not self._next_is(text):
            self._refuse(f"expected '{text}'")
        self._take()

    def _refuse(self, message: str) -> NoReturn:
        raise fault(self._text, self._now.column, f"{message}, got {self._now}")

    def _either(self) -> Tree:
        parts = self._joined("or", self._both)
        return parts[0] if len(parts) == 1 else Or(parts)

    def _both(self) -> Tree:
        parts = self._joined("and", self._negation)
        return parts[0] if len(parts) == 1 else And(parts)

    def _joined(self, word: str, part: Callable[[], Tree]) -> tuple[Tree, ...]:
        parts = [part()]
        while self._next_is(word):
            self._take()
            parts.append(part())
        return tuple(parts)

    def _negation(self) -> Tree:
        if self._next_is("not", "("):
            self._depth += 1
            if self._depth > DEEPEST:
                raise fault(self._text, self._now.column, f"nested deeper than {DEEPEST} levels: use fewer levels")
            if self._take().text == "not":
                tree: Tree = Not(self._negation())
            else:
                tree = self._either()
                self._skip(")")
            self._depth -= 1
            return tree
        if self._next_is("has"):
            column = self._take().column
            self._skip("(")
            name = self._name("a name after 'has', such as has(genres)")
            self._skip(")")
            return Has(name, column)
        return self._test()

    def _test(self) -> Tree:
        left = self._operand()
        column = self._now.column
        if self._now.kind == "sign" and self._now.text in ORDERS:
            order = cast(Order, self._take().text)
            right = self._operand()
            if self._now.text in ORDERS and self._now.kind == "sign":
                self._refuse("comparisons cannot be chained: write two comparisons with 'and'")
            return Compare(order, left, right, column)
        negated = self._next_is("not")
        if negated:
            self._take()
        if self._next_is("in"):
            self._take()
            tree: Tree = In(left, self._operand(), column)
        elif self._next_is("contains"):
            self._take()
            tree = In(self._operand(), left, column)
        elif negated:
            self._refuse("expected 'in' or 'contains' after 'not'")
        else:
            return IsTrue(left, left.column)
        return Not(tree) if negated else tree

    def _operand(self) -> Operand:
        token = self._now
        if token.kind in ("number", "text") or self._next_is("true", "false"):
            return Constant(self._scalar(), token.column)
        if self._next_is("["):
            return self._list()
        return self._name("an attribute, user.NAME, a number, a 'text', true, false or a [list]")

    def _name(self, wanted: str) -> Name:
        token = self._now
        if token.kind == "word" and token.text == "user":
            self._take()
            if not self._next_is("."):
                self._refuse("expected '.' and a name after 'user', as in user.age")
            self._take()
            if self._now.kind != "word":
                self._refuse("expected a name after 'user.'")
            return Name("user", self._take().text, token.column)
        if token.kind != "word" or token.text in WORDS:
            self._refuse(f"expected {wanted}")
        self._take()
        if self._next_is("."):
            self._refuse(f"only 'user' takes a dot: '{token.text}' has no fields")
        return Name("item", token.text, token.column)

    def _scalar(self) -> bool | float | str:
        token = self._now
        if token.kind == "word":
            return self._take().text == "true"
        if token.kind == "text":
            text = _ESCAPED.sub(r"\1", token.text[1:-1])
            if len(text) > MOST_TEXT:
                raise fault(self._text, token.column, f"a text of {len(text)} characters; at most {MOST_TEXT} are allowed")
            self._take()
            return text
        number = float(token.text)
        if abs(number) > LARGEST:
            raise fault(self._text, token.column, "a number beyond 2**53 is not exact: compare texts instead")
        self._take()
        return int(token.text) if token.text.lstrip("-").isdigit() else number

    def _list(self) -> Constant:
        column = self._take().column
        values: list[bool | float | str] = []
        while not self._next_is("]"):
            if values:
                self._skip(",")
            token = self._now
            if token.kind not in ("number", "text"):
                self._refuse("expected a number or a 'text' in the list")
            value = self._scalar()
            if values and isinstance(value, str) != isinstance(values[0], str):
                raise fault(self._text, token.column, "a list must hold only texts or only numbers")
            values.append(value)
            if len(values) > MOST_VALUES:
                raise fault(self._text, token.column, f"a list may have at most {MOST_VALUES} values")
        self._take()
        return Constant(cast(Value, tuple(values)), column)
