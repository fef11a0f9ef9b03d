"""Batch reads through Spark: every message once, whatever the plan, the columns and the broker."""

from __future__ import annotations

import hashlib
import re
from typing import TYPE_CHECKING, Any

import pytest

from tests.fix_spark import Filled, fill, jobs_so_far

if TYPE_CHECKING:
    from collections.abc import Mapping

    from pyspark.sql import DataFrame, SparkSession

pytestmark = pytest.mark.spark


def load(spark: SparkSession, options: Mapping[str, str]) -> DataFrame:
    return spark.read.format("rocketmq").options(**options).load()


def expected_rows(filled: Filled) -> set[tuple[int, int, str]]:
    return {
        (queue_id, offset, hashlib.sha256(body).hexdigest())
        for queue_id, bodies in filled.bodies.items()
        for offset, body in enumerate(bodies)
    }


def read_rows(frame: DataFrame) -> list[tuple[int, int, str]]:
    from pyspark.sql import functions

    chosen = frame.select("queueId", "queueOffset", functions.sha2("body", 256).alias("hash"))
    return [(row.queueId, row.queueOffset, row.hash) for row in chosen.collect()]


def assert_all_once(frame: DataFrame, filled: Filled) -> None:
    rows = read_rows(frame)
    assert len(rows) == filled.count
    assert set(rows) == expected_rows(filled)


def test_every_message_once(spark: SparkSession, spark_topic: Filled) -> None:
    assert_all_once(load(spark, spark_topic.options()), spark_topic)


@pytest.mark.parametrize(
    "options",
    [
        {"maxRecordsPerPartition": 333, "columns": "queueId,queueOffset,body"},
        {"minPartitions": 5, "pullBatchSize": 7, "pullPipeline": 1, "arrowBatchRows": 10},
        {"minRecordsPerPartition": 0, "pullPipeline": 50, "arrowBatchBytes": "4k"},
    ],
    ids=["cut", "little", "wide"],
)
def test_every_plan_gives_every_message_once(
    spark: SparkSession, spark_topic: Filled, options: dict[str, object]
) -> None:
    assert_all_once(load(spark, spark_topic.options(**options)), spark_topic)


def test_rows_hold_what_was_sent(spark: SparkSession, spark_topic: Filled) -> None:
    from rocketmq_fast.spark import SCHEMA

    frame = load(spark, spark_topic.options())
    assert frame.schema == SCHEMA
    row = frame.where("queueId = 1 and queueOffset = 1234").first()
    assert row is not None
    assert row.topic == spark_topic.topic
    assert row.brokerName == spark_topic.broker_name
    assert row.keys == "k1234"
    assert row.tags is None
    assert bytes(row.body) == spark_topic.bodies[1][1234]
    assert row.properties["KEYS"] == "k1234"
    assert row.storeHost == spark_topic.broker_addr
    assert len(row.offsetMsgId) == 32
    assert row.storeTimestamp is not None


def test_order_of_a_queue_is_kept_inside_a_task(spark: SparkSession, spark_topic: Filled) -> None:
    frame = load(spark, spark_topic.options(columns="queueOffset,queueId", pullBatchSize=11))
    by_queue: dict[int, list[int]] = {}
    for row in frame.coalesce(1).collect():
        by_queue.setdefault(row.queueId, []).append(row.queueOffset)
    assert by_queue == {n: list(range(len(b))) for n, b in spark_topic.bodies.items() if b}


def test_schema_of_the_user(spark: SparkSession, spark_topic: Filled) -> None:
    reader = spark.read.format("rocketmq").options(**spark_topic.options())
    frame = reader.schema("queueOffset bigint not null, keys string").load()
    assert frame.columns == ["queueOffset", "keys"]
    rows = frame.where("queueOffset = 99").collect()
    assert [tuple(row) for row in rows] == [(99, "k99")] * 3
    reader = spark.read.format("rocketmq").options(**spark_topic.options(decodeBody="true"))
    frame = reader.schema("queueId int, queueOffset bigint, body string not null").load()
    row = frame.where("queueId = 2 and queueOffset = 99").first()
    assert row is not None
    assert row.body == spark_topic.bodies[2][99].decode("utf-8", "replace")


def test_range_of_offsets(spark: SparkSession, spark_topic: Filled) -> None:
    name = spark_topic.broker_name
    frame = load(
        spark,
        spark_topic.options(
            startingOffsets=f'{{"SparkRead":{{"{name}":{{"0":2400,"1":-1}}}}}}',
            endingOffsets=f'{{"SparkRead":{{"{name}":{{"0":2450,"2":0}}}}}}',
        ),
    )
    rows = read_rows(frame)
    expected = {row for row in expected_rows(spark_topic) if row[0] == 0 and 2400 <= row[1] < 2450}
    assert len(rows) == 50
    assert set(rows) == expected


def test_tags_are_matched_exactly(spark: SparkSession, spark_cluster: Any) -> None:
    """Aa and BB have one hash: the broker lets both through."""
    filled = fill(spark_cluster, "SparkTags", {0: 0})
    for number in range(60):
        tag = ("Aa", "BB", "Other")[number % 3]
        filled.send(0, [f"{tag}-{number}-{n}".encode() for n in range(100)], {"TAGS": tag})
    frame = load(spark, filled.options(tags="Aa", columns="body,tags,queueOffset"))
    bodies = sorted(bytes(row.body) for row in frame.collect())
    assert bodies == sorted(body for body in filled.bodies[0] if body.startswith(b"Aa-"))
    both = load(spark, filled.options(tags="Aa,Other", columns="queueOffset"))
    assert both.count() == 4000
    assert load(spark, filled.options(tags="None", columns="queueOffset")).count() == 0
    part = filled.options(
        tags="BB",
        columns="queueOffset",
        startingOffsets=f'{{"SparkTags":{{"{filled.broker_name}":{{"0":150}}}}}}',
        maxRecordsPerPartition=700,
    )
    offsets = [row.queueOffset for row in load(spark, part).collect()]
    assert sorted(offsets) == [n for n in range(150, 6000) if n // 100 % 3 == 1]


def test_rows_are_the_same_whether_a_filter_was_pushed(
    spark: SparkSession, spark_cluster: Any
) -> None:
    """One frame that is used again and again, beside a new one with pushed filters each time."""
    filled = fill(spark_cluster, "SparkPushed", {0: 0, 1: 0})
    for number in range(6):
        filled.send(number % 2, [b"x"] * 50, {"TAGS": ("Aa", "BB", "C")[number % 3]})
    options = filled.options(columns="topic,queueId,queueOffset,tags,storeTimestamp")
    reused = load(spark, options)
    middle = reused.where("queueId = 0 and queueOffset = 75")
    (micros,) = middle.selectExpr("unix_micros(storeTimestamp)").collect()[0]
    spark.conf.set("spark.sql.python.filterPushdown.enabled", "true")
    try:
        for condition, exact in (
            ("tags = 'Aa'", False),  # tags can be null, which Spark looks at again
            ("tags in ('BB', 'C') and queueId > 0", False),
            ("queueId = 1 and queueOffset >= 10 and queueOffset < 60", True),
            ("topic = 'SparkPushed' and queueOffset = 7", True),
            (f"storeTimestamp >= timestamp_micros({micros})", False),
            (f"storeTimestamp <= timestamp_micros({micros}) and tags is not null", False),
        ):
            found = load(spark, options | {"pushFilters": "true"}).where(condition)
            if exact:
                plan = found._jdf.queryExecution().executedPlan().toString()
                assert re.search(r"\bFilter\b", plan) is None, plan
            rows = sorted(found.collect())
            assert rows
            assert rows == sorted(reused.where(condition).collect())
        both = reused.where("tags = 'Aa'").union(reused.where("tags = 'BB'"))
        assert both.count() == 200
        assert reused.count() == 300
    finally:
        spark.conf.set("spark.sql.python.filterPushdown.enabled", "false")
    assert "DATA_SOURCE_PUSHDOWN_DISABLED" in errors_of(spark, filled.options(pushFilters="true"))


def test_empty_topic_and_several_topics(
    spark: SparkSession, spark_cluster: Any, spark_topic: Filled
) -> None:
    empty = fill(spark_cluster, "SparkEmpty", {0: 0})
    assert load(spark, empty.options(columns="body")).count() == 0
    other = fill(spark_cluster, "SparkOther", {0: 10, 1: 20})
    both = load(spark, other.options(topic="SparkOther,SparkRead,SparkEmpty", columns="topic"))
    counts = {row.topic: row["count"] for row in both.groupBy("topic").count().collect()}
    assert counts == {"SparkOther": 30, "SparkRead": spark_topic.count}


def test_limit_ends_the_read_early(spark: SparkSession, spark_topic: Filled) -> None:
    frame = load(spark, spark_topic.options(columns="queueId,queueOffset"))
    assert len(frame.limit(5).collect()) == 5
    assert frame.count() == spark_topic.count


def test_a_new_load_sees_new_messages(spark: SparkSession, spark_cluster: Any) -> None:
    filled = fill(spark_cluster, "SparkGrows", {0: 30})
    assert load(spark, filled.options(columns="body")).count() == 30
    filled.send(0, [b"more"] * 12)
    assert load(spark, filled.options(columns="body")).count() == 42


def test_view_in_sql(spark: SparkSession, spark_topic: Filled) -> None:
    spark.sql(
        "CREATE OR REPLACE TEMPORARY VIEW messages USING rocketmq OPTIONS "
        f"(namesrvAddr '{spark_topic.namesrv_addr}', topic 'SparkRead', columns 'queueId')"
    )
    rows = spark.sql("SELECT queueId, count(*) AS n FROM messages GROUP BY queueId").collect()
    assert {row.queueId: row.n for row in rows} == {0: 2500, 1: 1400, 2: 100}


def errors_of(spark: SparkSession, options: Mapping[str, str]) -> str:
    """What is said before any task runs."""
    from pyspark.errors import PySparkException

    before = jobs_so_far(spark)
    with pytest.raises(PySparkException) as caught:
        load(spark, options).count()
    assert jobs_so_far(spark) == before
    return str(caught.value)


def test_errors_name_what_is_wrong(spark: SparkSession, spark_topic: Filled) -> None:
    text = errors_of(spark, spark_topic.options(startOffsets="earliest"))
    assert "did you mean 'startingOffsets'" in text
    nowhere = spark_topic.options(**{"topic": "SparkNowhere", "fetchOffset.numRetries": 0})
    text = errors_of(spark, nowhere)
    assert "option 'topic': no route for topic 'SparkNowhere' on the name servers; create" in text
    beyond = f'{{"SparkRead":{{"{spark_topic.broker_name}":{{"0":9999}}}}}}'
    text = errors_of(spark, spark_topic.options(endingOffsets=beyond))
    assert "[0, 2500)" in text
    assert "failOnDataLoss" in text
    frame = load(spark, spark_topic.options(endingOffsets=beyond, failOnDataLoss="false"))
    assert frame.count() == spark_topic.count
    nobody = {"namesrvAddr": "127.0.0.1:1", "topic": "T", "fetchOffset.numRetries": "0"}
    assert "option 'namesrvAddr': no name server answered: " in errors_of(spark, nobody)


def test_found_without_registering(spark: SparkSession, spark_topic: Filled) -> None:
    """A new session knows no format; PySpark looks into the modules named pyspark_*."""
    frame = load(spark.newSession(), spark_topic.options(columns="queueId"))
    assert frame.count() == spark_topic.count


@pytest.fixture(scope="module", params=["apache_494", "apache_533"])
def apache_topic(request: pytest.FixtureRequest) -> Filled:
    cluster = request.getfixturevalue(request.param)
    return fill(cluster, "SparkApache", {0: 3000, 1: 1500, 2: 1}, size=700)


@pytest.mark.apache
def test_apache_broker(spark: SparkSession, apache_topic: Filled) -> None:
    """Over TLS, with a certificate that nobody signed."""
    cut = apache_topic.options(
        columns="queueId,queueOffset,body", maxRecordsPerPartition=1000, pullBatchSize=100,
        useTLS="true", tlsInsecure="true",
    )  # fmt: skip
    assert_all_once(load(spark, cut), apache_topic)
