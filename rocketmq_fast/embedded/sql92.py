"""SQL92 filters on message properties, as the 4.9.4 broker compiles and evaluates them.

Properties are strings; a number in the expression makes a number of the property beside it. Logic
has three values: a property that is missing makes a comparison unknown (None), and an unknown
result does not match, as does one that cannot be computed (SelectorParser.jj and
ComparisonExpression of org.apache.rocketmq.filter). Unlike there, an expression that goes on with
something else than the grammar allows is refused: Java's parser takes its beginning and is silent.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import NoReturn, TypeAlias

from rocketmq_fast.errors import ConfigError

Value: TypeAlias = str | int | float | bool | None
Evaluate: TypeAlias = Callable[[Mapping[str, str]], Value]

_TOKEN = re.compile(
    r"""
    (?P<skip>[ \t\n\r\f]+ | --[^\n\r]*(?:\r\n|\n|\r) | /\*.*?\*/)
  | (?P<float>[0-9]+\.[0-9]*(?:[eE][+-]?[0-9]+)? | \.[0-9]+(?:[eE][+-]?[0-9]+)?
            | [0-9]+[eE][+-]?[0-9]+)
  | (?P<int>(?:0|[1-9][0-9]*[lL]?))
  | (?P<text>'(?:''|[^'])*')
  | (?P<name>[A-Za-z_$][A-Za-z0-9_$]*)
  | (?P<sign><>|<=|>=|[=<>(),+-])
    """,
    re.VERBOSE | re.DOTALL,
)
_WORDS = frozenset("NOT AND OR BETWEEN IN TRUE FALSE NULL IS".split())
_INT32_MAX, _INT64_MAX = 2**31 - 1, 2**63 - 1
_DIGITS_MAX = 19  # of 64 bits; Python refuses to read a number of some thousands
_DEPTH_MAX = 80  # of what stands within each other: an expression comes from the network
_ORDERS: dict[str, Callable[[int], bool]] = {
    ">": lambda order: order > 0,
    ">=": lambda order: order >= 0,
    "<": lambda order: order < 0,
    "<=": lambda order: order <= 0,
}


class _Incomparable(Exception):
    """Values that have no order: the message does not match."""


@dataclass(frozen=True, slots=True)
class _Node:
    """A part of the expression, and what can be said of it before there is a message."""

    evaluate: Evaluate
    is_boolean: bool = False
    is_constant: bool = False
    is_property: bool = False


def _constant(value: Value) -> _Node:
    boolean = value is None or isinstance(value, bool)
    return _Node(lambda _: value, is_boolean=boolean, is_constant=True)


class SqlFilter:
    """A compiled expression. Raises ConfigError with the position of what is wrong in it."""

    def __init__(self, expression: str) -> None:
        self.expression = expression
        self._evaluate = _Parser(expression).parse()

    def matches(self, properties: Mapping[str, str]) -> bool:
        """Whether the expression is true; not when it is unknown or cannot be computed."""
        try:
            return self._evaluate(properties) is True
        except _Incomparable:
            return False


class _Parser:
    """Recursive descent; each level of the grammar is a method."""

    def __init__(self, text: str) -> None:
        self._text = text
        self._tokens = self._scan()
        self._at = 0
        self._depth = 0

    def _scan(self) -> list[tuple[str, str, int]]:
        found: list[tuple[str, str, int]] = []
        at = 0
        while at < len(self._text):
            match = _TOKEN.match(self._text, at)
            if match is None:
                raise ConfigError(f"SQL92 {self._text!r}: {self._text[at]!r} at {at} is unexpected")
            kind, token = str(match.lastgroup), match[0]
            if kind == "name" and token.upper() in _WORDS:
                kind, token = "word", token.upper()
            if kind != "skip":
                found.append((kind, token, at))
            at = match.end()
        found.append(("end", "", at))
        return found

    def _fail(self, reason: str, at: int | None = None) -> NoReturn:
        position = self._tokens[self._at][2] if at is None else at
        raise ConfigError(f"SQL92 {self._text!r}: {reason} at {position}")

    def _is(self, *words: str) -> bool:
        """Whether these tokens come next."""
        ahead = self._tokens[self._at : self._at + len(words)]
        return [t[1] for t in ahead] == list(words) and all(t[0] in ("word", "sign") for t in ahead)

    def _take(self, *words: str) -> bool:
        if not self._is(*words):
            return False
        self._at += len(words)
        return True

    def _need(self, word: str) -> None:
        if not self._take(word):
            self._fail(f"{word} is expected")

    def parse(self) -> Evaluate:
        node = self._boolean(self._or())
        if self._tokens[self._at][0] != "end":
            self._fail(f"{self._tokens[self._at][1]!r} is unexpected")
        return node.evaluate

    def _boolean(self, node: _Node) -> _Node:
        if node.is_boolean:
            return node
        if not node.is_property:
            self._fail("a condition is expected before")
        value = node.evaluate

        def cast(properties: Mapping[str, str]) -> Value:
            # A property is text, never true.
            return None if value(properties) is None else False

        return _Node(cast, is_boolean=True)

    def _or(self) -> _Node:
        parts = [self._and()]
        while self._take("OR"):
            parts[-1] = self._boolean(parts[-1])
            parts.append(self._boolean(self._and()))
        return parts[0] if len(parts) == 1 else _either(*parts)

    def _and(self) -> _Node:
        parts = [self._equality()]
        while self._take("AND"):
            parts[-1] = self._boolean(parts[-1])
            parts.append(self._boolean(self._equality()))
        return parts[0] if len(parts) == 1 else _both(*parts)

    def _equality(self) -> _Node:
        left = self._comparison()
        for _ in range(_DEPTH_MAX):
            at = self._tokens[self._at][2]
            if self._take("="):
                left = self._equal(left, self._comparison(), at)
            elif self._take("<>"):
                left = _negated(self._equal(left, self._comparison(), at))
            elif self._take("IS", "NULL"):
                left = _equals(left, _constant(None))
            elif self._take("IS", "NOT", "NULL"):
                left = _negated(_equals(left, _constant(None)))
            else:
                return left
        return self._fail("that is too long a chain of comparisons")

    def _equal(self, left: _Node, right: _Node, at: int) -> _Node:
        for node in (left, right):
            if node.is_constant and node.evaluate({}) is None:
                self._fail("NULL cannot be compared, say IS NULL", at)
        if left.is_constant and left.is_boolean and right.is_constant and not right.is_boolean:
            self._fail("a truth value cannot be compared with another kind", at)
        return _equals(left, right)

    def _comparison(self) -> _Node:
        left = self._unary()
        for _ in range(_DEPTH_MAX):
            kind, token, at = self._tokens[self._at]
            if kind == "sign" and token in _ORDERS:
                self._at += 1
                left = self._ordered(left, token, self._unary(), at)
            elif self._is("BETWEEN") or self._is("NOT", "BETWEEN"):
                left = self._between(left)
            elif self._is("IN") or self._is("NOT", "IN"):
                left = self._in(left)
            else:
                return left
        return self._fail("that is too long a chain of comparisons")

    def _ordered(self, left: _Node, sign: str, right: _Node, at: int) -> _Node:
        for node in (left, right):
            if node.is_constant:
                value = node.evaluate({})
                if isinstance(value, bool) or not isinstance(value, (int, float)):
                    self._fail(f"only numbers have an order: {sign}", at)
            elif node.is_boolean:
                self._fail(f"a condition has no order: {sign}", at)
        return _compares(left, sign, right)

    def _between(self, value: _Node) -> _Node:
        negative = self._take("NOT")
        at = self._tokens[self._at][2]
        self._need("BETWEEN")
        low = self._unary()
        self._need("AND")
        high = self._unary()
        if negative:
            below = self._ordered(value, "<", low, at)
            return _either(below, self._ordered(value, ">", high, at))
        bounds = self._ordered(value, ">=", low, at), self._ordered(value, "<=", high, at)
        if low.is_constant and high.is_constant and _order(high.evaluate({}), low.evaluate({})) < 0:
            self._fail("BETWEEN needs the smaller bound first", at)
        return _both(*bounds)

    def _in(self, value: _Node) -> _Node:
        negative = self._take("NOT")
        if not value.is_property:
            self._fail("IN needs a property before it")
        self._need("IN")
        self._need("(")
        items = {self._text_literal()}
        while self._take(","):
            items.add(self._text_literal())
        self._need(")")
        evaluate = value.evaluate

        def contains(properties: Mapping[str, str]) -> Value:
            found = evaluate(properties)
            return None if found is None else (found in items) is not negative

        return _Node(contains, is_boolean=True)

    def _text_literal(self) -> str:
        kind, token, _ = self._tokens[self._at]
        if kind != "text":
            self._fail("a text in single quotes is expected")
        self._at += 1
        return token[1:-1].replace("''", "'")

    def _unary(self) -> _Node:
        self._depth += 1
        if self._depth > _DEPTH_MAX:
            self._fail("it is nested too deeply")
        try:
            if self._take("+"):
                return self._unary()
            if self._take("-"):
                return _minus(self._unary())
            if self._take("NOT"):
                return _negated(self._boolean(self._unary()))
            return self._primary()
        finally:
            self._depth -= 1

    def _primary(self) -> _Node:
        kind, token, at = self._tokens[self._at]
        if kind == "text":
            return _constant(self._text_literal())
        self._at += 1
        if kind == "int":
            digits = token.rstrip("lL")
            if len(digits) > _DIGITS_MAX or int(digits) > _INT64_MAX:
                self._fail("a number of 64 bits is expected", at)
            return _constant(int(digits))
        if kind == "float":
            real = float(token)
            if real in (0.0, float("inf")):
                self._fail("no number with a point can be 0 or that large", at)
            return _constant(real)
        if kind == "word" and token in ("TRUE", "FALSE", "NULL"):
            return _constant({"TRUE": True, "FALSE": False}.get(token))
        if kind == "name":
            return _Node(lambda properties: properties.get(token), is_property=True)
        self._at -= 1
        self._need("(")
        node = self._or()
        self._need(")")
        return node


def _either(*parts: _Node) -> _Node:
    return _decided_by(True, parts)


def _both(*parts: _Node) -> _Node:
    return _decided_by(False, parts)


def _decided_by(value: bool, parts: tuple[_Node, ...]) -> _Node:
    """The first part with this value decides; else unknown if one is, else the opposite."""

    def evaluate(properties: Mapping[str, str]) -> Value:
        unknown = False
        for part in parts:
            found = part.evaluate(properties)
            if found is value:
                return value
            unknown |= found is None
        return None if unknown else not value

    return _Node(evaluate, is_boolean=True)


def _negated(node: _Node) -> _Node:
    def evaluate(properties: Mapping[str, str]) -> Value:
        value = node.evaluate(properties)
        return None if value is None else not value

    return _Node(evaluate, is_boolean=True)


def _minus(node: _Node) -> _Node:
    def evaluate(properties: Mapping[str, str]) -> Value:
        value = node.evaluate(properties)
        if isinstance(value, bool) or not isinstance(value, (int, float)):
            return None  # of text too: only numbers of the expression have a sign
        return -value

    return _Node(evaluate)


def _equals(left: _Node, right: _Node) -> _Node:
    def evaluate(properties: Mapping[str, str]) -> Value:
        first, second = left.evaluate(properties), right.evaluate(properties)
        if first is None or second is None:
            if first is None and second is not None:
                return None
            return first is second
        if type(first) is type(second) and first == second:
            return True
        return _order(first, second) == 0

    return _Node(evaluate, is_boolean=True)


def _compares(left: _Node, sign: str, right: _Node) -> _Node:
    fits = _ORDERS[sign]

    def evaluate(properties: Mapping[str, str]) -> Value:
        first, second = left.evaluate(properties), right.evaluate(properties)
        if first is None or second is None:
            return None
        if isinstance(first, str) and isinstance(second, str):
            return fits(_order(_real(first), _real(second)))
        return fits(_order(first, second))

    return _Node(evaluate, is_boolean=True)


def _order(first: Value, second: Value) -> int:
    """Negative, 0 or positive, after one was made the kind of the other."""
    if isinstance(first, str) and not isinstance(second, str):
        first = _as_kind(first, second)
    elif isinstance(second, str) and not isinstance(first, str):
        if isinstance(first, bool):
            raise _Incomparable
        second = _as_kind(second, first)
    if isinstance(first, bool) is not isinstance(second, bool):
        return -1
    if first != first or second != second:  # NaN: Java has it above all, and equal to itself
        return (first != first) - (second != second)
    return (first > second) - (first < second)  # type: ignore[operator]


def _as_kind(text: str, like: Value) -> Value:
    if isinstance(like, bool):
        return text.lower() == "true"
    if isinstance(like, float):
        return _real(text)
    if not isinstance(like, int) or re.fullmatch(r"[+-]?[0-9]+", text) is None:
        raise _Incomparable
    digits = text.lstrip("+-0")
    if len(digits) > _DIGITS_MAX:
        raise _Incomparable
    number = int(digits or "0") * (-1 if text[0] == "-" else 1)
    # Java takes
    # Java takes the text for a number as wide as the one in the expression.
    most = _INT32_MAX if -_INT32_MAX - 1 <= like <= _INT32_MAX else _INT64_MAX
    if not -most - 1 <= number <= most:
        raise _Incomparable
    return number


def _real(text: str) -> float:
    word = text.strip()
    if re.fullmatch(r"[+-]?(NaN|Infinity|([0-9]+\.?[0-9]*|\.[0-9]+)([eE][+-]?[0-9]+)?)[fFdD]?",
                    word) is None:  # fmt: skip
        raise _Incomparable
    return float(re.sub(r"(?<=[0-9.])[fFdD]$", "", word).replace("Infinity", "inf"))
