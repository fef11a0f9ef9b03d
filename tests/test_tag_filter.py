"""Tag expressions and masks."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from rocketmq_fast import _core
from rocketmq_fast.errors import ConfigError
from tests.reference import tags as reference
from tests.reference.messages_factory import build_message

text = st.text(st.characters(exclude_categories=["Cs"], exclude_characters="\x01\x02"), max_size=12)
tag = st.sampled_from(["TagA", "TagB", "Aa", "BB", "AaBB", "BBAa", "你好", "🚀", "a b", "*"]) | text


def batch_of(tags: list[str | None]) -> _core.MessageBatch:
    return _core.decode_messages(
        b"".join(
            build_message(properties={"KEYS": "k"} if tag is None else {"TAGS": tag, "x": "TagA"})
            for tag in tags
        )
    )


@given(text)
@settings(max_examples=300, deadline=None)
def test_any_text_has_the_hash_of_java(value: str) -> None:
    assert _core.java_hash(value) == reference.java_hash(value)


@pytest.mark.parametrize(
    ("expression", "tags"),
    [
        ("TagA", {"TagA"}),
        ("TagA || TagB", {"TagA", "TagB"}),
        ("TagA||TagB||TagA", {"TagA", "TagB"}),
        ("||TagA||", {"TagA"}),
        (" TagA\t||\n", {"TagA"}),
        ("a|||b", {"a", "|b"}),
        ("|", {"|"}),
        ("TagA || *", {"TagA", "*"}),
        ("a b", {"a b"}),
        ("\u3000TagA", {"\u3000TagA"}),
        ("你好 || 🚀", {"你好", "🚀"}),
    ],
)
def test_an_expression_names_its_tags(expression: str, tags: set[str]) -> None:
    found = _core.TagFilter(expression)
    assert found.tags == tags == reference.parse_expression(expression)
    assert found.codes == {reference.java_hash(tag) for tag in tags}
    assert all(found.matches(tag) for tag in tags)
    assert not found.matches(None)


@pytest.mark.parametrize("expression", ["*", "", None])
def test_the_star_and_nothing_mean_all(expression: str | None) -> None:
    found = _core.TagFilter(expression)
    assert (found.tags, found.codes) == (frozenset(), frozenset())
    assert found.matches(None)
    assert found.matches("anything")
    assert found.mask(batch_of([None, "TagA"])).tolist() == [True, True]


@pytest.mark.parametrize("expression", [" ", "  \t", " || "])
def test_blanks_match_nothing(expression: str) -> None:
    found = _core.TagFilter(expression)
    assert found.tags == frozenset() == reference.parse_expression(expression)
    assert found.mask(batch_of([None, "", " ", "TagA"])).tolist() == [False] * 4


@pytest.mark.parametrize("expression", ["||", "||||"])
def test_separators_only_are_refused(expression: str) -> None:
    with pytest.raises(ConfigError, match="separators"):
        _core.TagFilter(expression)
    with pytest.raises(ValueError, match="separators"):
        reference.parse_expression(expression)


@pytest.mark.parametrize("expression", [5, b"TagA", ["TagA"]])
def test_an_expression_that_is_not_text_is_refused(expression: object) -> None:
    with pytest.raises(ConfigError):
        _core.TagFilter(expression)


def test_a_lone_surrogate_is_refused() -> None:
    with pytest.raises(ConfigError, match="surrogate"):
        _core.TagFilter("\ud800")


def test_tags_with_one_hash_are_told_apart() -> None:
    assert _core.java_hash("Aa") == _core.java_hash("BB")
    assert _core.TagFilter("Aa").mask(batch_of(["Aa", "BB", "AaBB"])).tolist() == [
        True,
        False,
        False,
    ]


def test_the_mask_of_no_messages_is_empty() -> None:
    mask = _core.TagFilter("TagA").mask(batch_of([]))
    assert mask.shape == (0,)
    assert mask.dtype.name == "bool"


def test_a_later_duplicate_of_the_tag_counts() -> None:
    batch = _core.decode_messages(build_message(properties=b"TAGS\x01TagA\x02TAGS\x01TagB\x02"))
    assert _core.TagFilter("TagB").mask(batch).tolist() == [True]
    assert _core.TagFilter("TagA").mask(batch).tolist() == [False]


@given(st.lists(tag, min_size=1, max_size=5), st.lists(st.none() | tag, max_size=20))
@settings(max_examples=200, deadline=None)
def test_a_mask_is_that_of_the_reference(wanted: list[str], tags: list[str | None]) -> None:
    expression = " || ".join(wanted)
    try:
        expected = reference.TagFilter(expression)
    except ValueError:
        with pytest.raises(ConfigError):
            _core.TagFilter(expression)
        return
    found = _core.TagFilter(expression)
    assert found.codes == expected.codes
    batch = batch_of(tags)
    # An empty tag cannot be told from none once it was stored.
    stored = [tag or None for tag in tags]
    assert found.mask(batch).tolist() == expected.mask(stored)
    assert [found.matches(tag) for tag in stored] == expected.mask(stored)
    passed = [tag for tag in stored if expected.matches(tag)]
    for kept in (batch.retain(found.mask(batch)), found.filter(batch)):
        assert [message.tags for message in kept] == passed
    assert (found.filter(batch) is batch) is (passed == stored)


def test_a_filtered_batch_is_what_the_whole_one_was() -> None:
    data = b"".join(
        build_message(queue_offset=n, body=b"b" * n, properties={"TAGS": "AB"[n % 2]})
        for n in range(100)
    )
    batch = _core.decode_messages(data[:4] + b"bad!" + data[8:])
    assert len(batch.errors) == 1
    batch.broker_name, batch.min_offset, batch.max_offset = "broker-a", 5, 500
    batch.restore_topic = True
    kept = _core.TagFilter("B").filter(batch)
    expected = batch.retain(_core.TagFilter("B").mask(batch))
    for name in ("errors", "broker_name", "min_offset", "max_offset", "restore_topic"):
        assert getattr(kept, name) == getattr(batch, name) == getattr(expected, name)
    del batch, data
    assert [(m.queue_offset, len(m.body)) for m in kept] == [(n, n) for n in range(1, 100, 2)]
    assert kept.body_bytes == sum(range(1, 100, 2))
    queue = _core.ProcessQueue()
    queue.put(kept)
    queue.check()
    assert (queue.count, queue.size, queue.min_offset) == (len(kept), kept.body_bytes, 1)
    assert queue.remove_batch(kept, 0, 49) == 99
    assert (queue.count, queue.size) == (1, 99)


def test_a_filter_of_no_messages_is_the_batch() -> None:
    batch = batch_of([])
    assert _core.TagFilter("TagA").filter(batch) is batch
    assert len(_core.TagFilter(" ").filter(batch_of(["TagA"]))) == 0
    full = batch_of([None, "x"])
    assert _core.TagFilter("*").filter(full) is full
