"""SQL92 filters of the embedded broker, beside the Java broker's own classes."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from rocketmq_fast import PushConsumer, Sql
from rocketmq_fast.embedded import Cluster
from rocketmq_fast.embedded.sql92 import SqlFilter
from rocketmq_fast.errors import BrokerSystemError, ConfigError
from tests.apache.java import run_java

EXPRESSIONS = (
    "a > 3", "a >= 3", "a < 3", "a <= 3", "a = 3", "a <> 3", "a = '3'", "a <> 'x'", "3 < a",
    "a > 3.5", "a = 3.0", "a = 3.5e0", "a > .5", "a > 5.", "a > 1e1", "a > 3000000000",
    "a = 3l", "a > -3", "a > - 3", "-a > 3", "+a > 3", "a > b", "a = b", "a <> b", "a > 'x'",
    "a between 1 and 5", "a BETWEEN 5 AND 1", "a NOT BETWEEN 1 AND 5", "a between b and 9",
    "a in ('1', '3')", "a NOT IN ('1','it''s')", "a in ('3')", "3 in ('3')", "a in ()",
    "a in (3)", "a is null", "a IS NOT NULL", "a = NULL", "NULL is null", "1 is null",
    "TRUE", "FALSE", "NULL", "a", "not a", "NOT (a > 3)", "not a is null", "TRUE = TRUE",
    "TRUE = 1", "1 = TRUE", "a = TRUE", "TRUE = a", "a > TRUE", "(a > 3) > 2", "(a > 3) = TRUE",
    "a > 3 and b > 3", "a > 3 OR b > 3", "a > 3 or b > 3 and c is null",
    "(a = 3 or b = 3) and c is not null",
    "not a = 3 and not b = 3", "a = 'it''s'", "''", "'a'", "1", "a + 1", "a == 3", "a != 3",
    "a > ", "> 3", "(a > 3", "a > 3)", "a b", "a.b = 3", "a = 007", "a = 0", "a = 0.0", "a > 00",
    "a /* why */ > /**/ 3", "a > 3 -- so\n", "a > 3 -- so", "$x_1 = 1", "_y is null",
    "A > 3", "aND = 1",
    "a > 99999999999999999999", "a like '3%'", "a = 'X' or TRUE", "a > 3 or TRUE", "TRUE or a > 3",
    "FALSE and a > 3", "a > 3 and FALSE", "a between '1' and '5'", "a is 3", "a not null",
    "a in ('1') = TRUE", "a > 3 = TRUE", "a = 3 = TRUE", "1 < 2", "2 < 1", "1 = 1.0", "'1' = 1",
    "1 <> 1", "a between null and 3", "not not a > 3", "a > 3 > 2", "", "  ", "TAGS = 'TagA'",
)  # fmt: skip
PROPERTIES: tuple[dict[str, str], ...] = (
    {}, {"a": "3"}, {"a": "4"}, {"a": "2", "b": "3"}, {"a": "3", "b": "3"}, {"a": "x"},
    {"a": ""}, {"a": "3.5"}, {"a": "3.0"}, {"a": "3000000001"}, {"a": "-4"}, {"a": "+4"},
    {"a": " 4"}, {"a": "4f"}, {"a": "0x4"}, {"a": "NaN"}, {"a": "Infinity"}, {"a": "1e3"},
    {"a": "true"}, {"a": "TRUE", "b": "true"}, {"a": "it's"}, {"b": "4"}, {"b": "4", "c": "1"},
    {"a": "4", "c": ""}, {"a": "10", "b": "9"}, {"$x_1": "1"}, {"A": "4"}, {"TAGS": "TagA"},
    {"a": "99999999999999999999"}, {"a": "007"}, {"a": "1"},
)  # fmt: skip


def ours(expression: str) -> list[bool] | None:
    """What each set of properties gives; None for an expression that does not compile."""
    try:
        found = SqlFilter(expression)
    except ConfigError:
        return None
    return [found.matches(properties) for properties in PROPERTIES]


@pytest.mark.apache
def test_as_the_java_broker(tmp_path: Path) -> None:
    given = tmp_path / "sql.json"
    given.write_text(json.dumps({"expressions": EXPRESSIONS, "properties": PROPERTIES}))
    theirs = run_java("SqlEvaluate", [str(given)])["results"]
    assert len(theirs) == len(EXPRESSIONS) > 90
    different = {
        expression: (java, found)
        for expression, java in zip(EXPRESSIONS, theirs, strict=True)
        if (found := ours(expression)) != java
    }
    # Java's parser stops at what it does not expect, and filters by what stands before.
    cut = {"a + 1": "a", "a > 3)": "a > 3", "a b": "a", "a = 007": "a = 0", "a > 00": "a > 0",
           "a > 3 -- so": "a > 3", "a like '3%'": "a"}  # fmt: skip
    assert different.keys() == cut.keys()
    for expression, beginning in cut.items():
        assert different[expression] == (ours(beginning), None)


@pytest.mark.parametrize(
    ("expression", "where"),
    [
        ("a > ", "at 4"),
        ("a > 'x'", "only numbers have an order"),
        ("a = NULL", "IS NULL"),
        ("a ? 3", "at 2"),
        ("a in (3)", "text in single quotes"),
        ("(" * 500 + "a" + ")" * 500, "nested"),
        ("not " * 500 + "a", "nested"),
        ("a = " * 500 + "a", "chain"),
        ("a > " + "9" * 5000, "a number of 64 bits is expected at 4"),
    ],
)
def test_errors_say_where(expression: str, where: str) -> None:
    with pytest.raises(ConfigError, match="SQL92") as raised:
        SqlFilter(expression)
    assert where in str(raised.value)


def test_a_property_of_thousands_of_digits_is_no_number() -> None:
    assert not SqlFilter("a > 3").matches({"a": "9" * 5000})
    assert SqlFilter("a > 3.0").matches({"a": "9" * 5000})


def test_a_broker_with_the_filter_off_is_named_at_the_start() -> None:
    with Cluster() as cluster:
        cluster.create_topic("T", 1)
        consumer = PushConsumer("G", namesrv_addr=cluster.namesrv_addr)
        consumer.subscribe("T", Sql("a > 3"))
        consumer.register_listener(lambda messages, context: None)
        with pytest.raises(BrokerSystemError, match="'T' by SQL92 needs enablePropertyFilter=true"):
            consumer.start()
