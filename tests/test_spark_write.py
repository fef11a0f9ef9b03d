"""Writes through Spark, read back by a witness that shares nothing with them."""

from __future__ import annotations

import hashlib
import threading
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from rocketmq_fast.model import Message, MessageQueue
from rocketmq_fast.producer.selectors import select_by_hash
from tests.brokers import TestBroker, Wire
from tests.fix_spark import PATIENT, jobs_so_far, save, stored
from tests.waiting import wait_for

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

pytestmark = pytest.mark.spark


def digest(bodies: Any) -> str:
    return hashlib.sha256(b"".join(sorted(hashlib.sha256(b).digest() for b in bodies))).hexdigest()


def test_rows_reach_the_brokers(spark: SparkSession, broker: TestBroker) -> None:
    from pyspark.sql import functions as f

    topic, other = broker.topic(queues=4), broker.topic(queues=2)
    rows = spark.range(0, 3000, 1, 3).select(
        f.expr("encode(repeat(cast(id as string), 30 + cast(id % 50 as int)), 'UTF-8')").alias(
            "body"
        ),
        f.when(f.col("id") % 10 == 0, other).otherwise(topic).alias("topic"),
        f.when(f.col("id") % 3 != 0, f.concat(f.lit("Tag-ü"), f.col("id") % 3)).alias("tags"),
        f.array(f.concat(f.lit("k"), f.col("id")), f.lit("all")).alias("keys"),
        f.create_map(f.lit("größe"), f.concat(f.lit("✓"), f.col("id"))).alias("properties"),
        (f.col("id") % 5).cast("int").alias("flag"),
    )
    save(rows, broker, batchBytes="32k")

    def body(number: int) -> bytes:
        return str(number).encode() * (30 + number % 50)

    found = [*stored(broker, topic, 4), *stored(broker, other, 2)]
    assert len(found) == 3000
    assert digest(message.body for message in found) == digest(body(n) for n in range(3000))
    assert len({message.properties["UNIQ_KEY"] for message in found}) == 3000
    for message in found:
        key, everywhere = message.properties["KEYS"].split(" ")
        number = int(key[1:])
        assert everywhere == "all"
        assert message.body == body(number)
        assert message.topic == (topic if number % 10 else other)
        assert message.flag == number % 5
        assert message.properties["größe"] == f"✓{number}"
        assert message.properties.get("TAGS") == (f"Tag-ü{number % 3}" if number % 3 else None)
    # Batches go to the queues in turn.
    assert len({(message.topic, message.queue_id) for message in found}) == 6


def test_stream_to_the_brokers(spark: SparkSession, broker: TestBroker, tmp_path: Path) -> None:
    """Two runs over one checkpoint: each row once, a key in one queue and in order."""
    from pyspark.sql import functions as f

    topic = broker.topic(queues=4)
    for run in range(2):
        numbers = spark.range(run * 500, run * 500 + 500, 1, 1)
        numbers.write.mode("append").parquet(str(tmp_path / "in"))
        rows = (
            spark.readStream.schema("id bigint")
            .parquet(str(tmp_path / "in"))
            .select(
                f.col("id").cast("string").alias("body"),
                f.concat(f.lit("order-"), f.col("id") % 7).alias("shardingKey"),
            )
        )
        query = (
            rows.writeStream.format("rocketmq")
            .options(namesrvAddr=broker.namesrv_addr, topic=topic, **PATIENT)
            .option("checkpointLocation", str(tmp_path / "checkpoint"))
            .trigger(availableNow=True)
            .start()
        )
        assert query.awaitTermination(120), "the query did not end"
    found = stored(broker, topic, 4)
    assert Counter(int(message.body) for message in found) == Counter(range(1000))
    queues = [MessageQueue(topic, broker.broker_name, number) for number in range(4)]
    by_key: dict[int, list[int]] = {}
    for message in found:
        number = int(message.body)
        wanted = select_by_hash(queues, Message(topic), f"order-{number % 7}")
        assert message.queue_id == wanted.queue_id
        by_key.setdefault(number % 7, []).append(number)
    assert all(numbers == sorted(numbers) for numbers in by_key.values())


def test_alone_and_delayed_and_large(spark: SparkSession, embedded_broker: TestBroker) -> None:
    from pyspark.sql import functions as f

    broker = embedded_broker
    topic = broker.topic(queues=2)
    rows = spark.range(0, 20, 1, 1).select(
        f.expr("repeat(cast(id as string), if(id = 7, 100000, 1))").alias("body"),
        f.when(f.col("id") == 3, 1).cast("int").alias("delayLevel"),
    )
    save(rows, broker, topic=topic, batchBytes="64k")

    def count() -> bool:
        return sum(broker.max_offset(topic, queue) for queue in range(2)) == 20

    wait_for(count, "the delayed message")
    found = {bytes(message.body) for message in stored(broker, topic, 2)}
    assert found == {str(n).encode() * (100_000 if n == 7 else 1) for n in range(20)}
    single = broker.topic(queues=1)
    save(rows.select("body"), broker, topic=single, sendMode="single", maxInFlight=3)
    assert len(stored(broker, single, 1)) == 20


def test_what_was_read_can_be_written(spark: SparkSession, embedded_broker: TestBroker) -> None:
    broker = embedded_broker
    first, second = broker.topic(queues=2), broker.topic(queues=2)
    broker.send(first, [b"%d" % n for n in range(10)], tags="T", properties={"p": "q"})
    frame = (
        spark.read.format("rocketmq")
        .options(namesrvAddr=broker.namesrv_addr, topic=first)
        .load()
        .select("body", "tags", "keys", "properties", "brokerName", "queueId")
    )
    save(frame, broker, topic=second, reservedProperties="drop")
    found = stored(broker, second, 1)
    assert [message.body for message in found] == [b"%d" % n for n in range(10)]
    assert {message.properties["p"] + message.properties["TAGS"] for message in found} == {"qT"}
    assert broker.max_offset(second, 1) == 0


def errors_of(frame: DataFrame, broker: TestBroker, **options: object) -> str:
    from pyspark.errors import PySparkException

    with pytest.raises(PySparkException) as caught:
        save(frame, broker, **options)
    return str(caught.value)


def test_errors_name_what_is_wrong(spark: SparkSession, embedded_broker: TestBroker) -> None:
    broker = embedded_broker
    topic = broker.topic(queues=1)
    text = spark.createDataFrame([("a",), (None,)], "body string").coalesce(1)
    before = jobs_so_far(spark)
    assert "did you mean 'topic'" in errors_of(text, broker, topics=topic)
    assert "column 'body' must be binary or string, it is bigint" in errors_of(
        spark.range(3).withColumnRenamed("id", "body"), broker, topic=topic
    )
    assert "set option 'topic' or add a column" in errors_of(text, broker)
    assert "holds characters other than" in errors_of(text, broker, topic="no topic")
    assert "127.0.0.1:1" in errors_of(
        text, broker, topic=topic, namesrvAddr="127.0.0.1:1", retries=0
    )
    assert jobs_so_far(spark) == before  # all that was told by the driver
    said = errors_of(text, broker, topic=topic)
    assert "partition 0: row 1, column 'body': a message needs a body" in said
    assert "0 messages of it are stored already" in said
    with pytest.raises(Exception, match="cannot be overwritten"):
        text.write.format("rocketmq").options(namesrvAddr=broker.namesrv_addr, topic=topic).mode(
            "overwrite"
        ).save()
    assert broker.max_offset(topic, 0) == 0


@pytest.mark.usefixtures("no_kept_producers")
def test_a_broker_that_restarts_in_mid_task(wire: Wire, caplog: pytest.LogCaptureFixture) -> None:
    """The task waits for it and goes on; every row is there."""
    import pyarrow as pa
    from pyspark.sql.types import BinaryType, StructField, StructType

    from rocketmq_fast.embedded import Cluster
    from rocketmq_fast.spark.writer import WriteTask
    from rocketmq_fast.spark.writer_options import WriteOptions

    with Cluster() as cluster:
        broker = TestBroker("embedded", cluster, wire)
        topic = broker.topic(queues=2)
        options = {"namesrvAddr": broker.namesrv_addr, "topic": topic, **PATIENT}
        options |= {"retries": "100", "retryIntervalMs": "100", "maxInFlight": "2"}
        schema = StructType([StructField("body", BinaryType())])
        task = WriteTask(schema, WriteOptions.of(options), False)

        def failed() -> bool:
            return any("attempt 1" in record.getMessage() for record in caplog.records)

        def restart() -> None:
            wait_for(failed, "an attempt that fails")
            broker.start()

        def batches() -> Iterator[pa.RecordBatch]:
            for number in range(20):
                if number == 5:
                    broker.kill()
                    thread.start()
                yield pa.record_batch({"body": [b"%d" % (number * 10 + n) for n in range(10)]})

        thread = threading.Thread(target=restart)
        sent = task.run(batches())
        thread.join(30.0)
        found = {bytes(message.body) for message in stored(broker, topic, 2)}
    assert sent.messages == 200
    assert found == {b"%d" % n for n in range(200)}


@pytest.mark.usefixtures("no_kept_producers")
def test_a_worker_keeps_its_producer(embedded_broker: TestBroker) -> None:
    """Tasks of one worker process share a producer; a retried one gets another; few are kept."""
    from rocketmq_fast.spark import kept
    from rocketmq_fast.spark.writer import kept_producers
    from rocketmq_fast.spark.writer_options import WriteOptions

    broker = embedded_broker
    topic = broker.topic(queues=1)
    base = {"namesrvAddr": broker.namesrv_addr, "topic": topic, **PATIENT}
    options = WriteOptions.of(base)
    first = kept_producers.get(options)
    assert kept_producers.get(WriteOptions.of(base)) is first
    second = kept_producers.get(options, fresh=True)
    assert second is not first
    assert first.sender.closing
    for number in range(kept._MOST):
        kept_producers.get(WriteOptions.of(base | {"producerGroup": f"g{number}"}))
    assert len(kept_producers) == kept._MOST
    assert second.sender.closing
