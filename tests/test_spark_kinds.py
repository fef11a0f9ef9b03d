"""Messages of every kind, as the Java producer sends them: read, streamed and written by Spark."""

from __future__ import annotations

import hashlib
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from rocketmq_fast import Message, Producer
from tests.apache.java import run_java
from tests.fix_spark import save, stored, to_files
from tests.waiting import wait_for

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

    from tests.brokers import TestBroker

pytestmark = [pytest.mark.spark, pytest.mark.java, pytest.mark.slow]

Row = tuple[str, int, int, str, str]
EMPTY = hashlib.sha256(b"").hexdigest()


def rows_of(frame: DataFrame) -> list[Row]:
    """Place, key and hash of each message."""
    from pyspark.sql import functions as f

    columns = ("topic", "queueId", "queueOffset", "keys")
    chosen = frame.select(*columns, f.sha2("body", 256).alias("hash"))
    return sorted(tuple(row) for row in chosen.collect())


def test_what_java_sends(spark: SparkSession, broker: TestBroker, tmp_path: Path) -> None:
    """Compressed, batches, delayed, returned, of transactions, unicode, 4 MiB, and empty bodies.

    Each once: in a stream that is started twice, in a batch read, and in the copy of a topic.
    """
    topic, copy, group = broker.topic(queues=2), broker.topic(queues=2), broker.group()
    retries = f"%RETRY%{group}"
    args = {"namesrv": broker.namesrv_addr, "topic": topic, "group": group}
    java = run_java("Kinds", args)
    expected = [(topic, key, sha256) for key, sha256 in java["expected"].items()]
    returned = java["returned"]
    expected.append((retries, returned, java["expected"][returned]))
    assert len(expected) == 28

    def all_there() -> bool:
        found = sum(broker.max_offset(topic, number) for number in range(2))
        return found == len(expected) - 1 and broker.max_offset(retries, 0) == 1

    wait_for(all_there, "the delayed message and the returned one")
    options = {"namesrvAddr": broker.namesrv_addr, "topic": f"{topic},{retries}"}
    starts = {"startingOffsets": "earliest", "maxOffsetsPerTrigger": "12"}
    messages = spark.readStream.format("rocketmq").options(**options, **starts).load()
    to_files(messages, tmp_path)
    with Producer(broker.group(), namesrv_addr=broker.namesrv_addr) as producer:
        producer.send_batch([Message(topic, b"", keys=f"empty-{n}") for n in range(3)])
    expected += [(topic, f"empty-{n}", EMPTY) for n in range(3)]
    to_files(messages, tmp_path)
    streamed = rows_of(spark.read.schema(messages.schema).parquet(str(tmp_path / "rows")))
    table = spark.read.format("rocketmq").options(**options).load()
    rows = rows_of(table)
    assert streamed == rows
    assert len({row[:3] for row in rows}) == len(rows)
    assert sorted((row[0], *row[3:]) for row in rows) == sorted(expected)

    by_key = {row.keys: row for row in table.where(f"topic = '{topic}'").drop("body").collect()}
    unicode = by_key["schlüssel-✓"]
    assert (unicode.tags, unicode.properties["größe"]) == ("Tag-ü", "✓ 漢字 \U0001f680")
    assert by_key["delayed"].properties["DELAY"] == "1"
    assert by_key["commit"].properties["TRAN_MSG"] == "true"
    assert by_key["commit"].preparedTransactionOffset > 0
    assert by_key["compressed"].sysFlag & 1
    (again,) = table.where(f"topic = '{retries}'").collect()
    assert (again.reconsumeTimes, again.properties["RETRY_TOPIC"]) == (1, topic)

    copied = table.select("body", "tags", "keys", "properties")
    save(copied, broker, topic=copy, reservedProperties="drop")
    found = stored(broker, copy, 2)
    hashes = [(one.properties["KEYS"], hashlib.sha256(one.body).hexdigest()) for one in found]
    assert sorted(hashes) == sorted(row[1:] for row in expected)
    (unicode,) = [one for one in found if one.properties["KEYS"] == "schlüssel-✓"]
    assert unicode.properties["größe"] == "✓ 漢字 \U0001f680"
