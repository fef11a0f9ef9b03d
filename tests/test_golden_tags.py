"""Tag hashes of Java."""

from __future__ import annotations

import pytest

from rocketmq_fast import _core
from tests import golden_data
from tests.reference.messages_factory import build_message


@pytest.mark.parametrize("name", golden_data.TAG_HASHES)
def test_recorded_tags_have_the_hash_of_java(name: str) -> None:
    rows = golden_data.rows(name)
    assert rows
    assert [_core.java_hash(row["tag"]) for row in rows] == [row["hash"] for row in rows]


@pytest.mark.parametrize("name", golden_data.TAG_HASHES)
def test_messages_with_recorded_tags_have_the_hash_of_java_as_code(name: str) -> None:
    rows = golden_data.rows(name)
    data = b"".join(build_message(properties={"TAGS": row["tag"]}) for row in rows)
    assert _core.decode_messages(data).tag_codes.tolist() == [row["hash"] for row in rows]


@pytest.mark.parametrize("name", golden_data.TAG_HASHES)
def test_filters_of_recorded_tags_carry_the_hash_of_java(name: str) -> None:
    checked = 0
    for row in golden_data.rows(name):
        tag = row["tag"]
        if "||" in tag or tag.strip() != tag or tag in ("", "*"):
            continue
        checked += 1
        assert _core.TagFilter(tag).codes == {row["hash"]}
    assert checked > 100
