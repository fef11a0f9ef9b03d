"""Options of the data source: defaults, names, and what is said of each wrong value."""

from __future__ import annotations

from pathlib import Path

import pytest

from rocketmq_fast.errors import ConfigError
from rocketmq_fast.model import MessageQueue
from tests.require import require

require("spark")  # before what imports pyspark

from rocketmq_fast.spark.offsets import EARLIEST, LATEST  # noqa: E402
from rocketmq_fast.spark.options import READ_OPTIONS, ReadOptions  # noqa: E402
from rocketmq_fast.spark.schema import COLUMNS, check_schema, schema_of  # noqa: E402
from rocketmq_fast.spark.source import RocketMQDataSource  # noqa: E402
from rocketmq_fast.spark.writer_options import WRITE_OPTIONS, WriteOptions  # noqa: E402

BASE = {"namesrvAddr": "127.0.0.1:9876", "topic": "T"}


def queue(number: int) -> MessageQueue:
    return MessageQueue("T", "broker-a", number)


def test_defaults() -> None:
    options = ReadOptions.of(BASE)
    assert options.connect.namesrv_addr == ("127.0.0.1:9876",)
    assert options.topics == ("T",)
    assert options.tags == "*"
    assert options.columns == COLUMNS
    assert options.starting_offsets.default == EARLIEST
    assert options.ending_offsets.default == LATEST
    assert ReadOptions.of(BASE, streaming=True).starting_offsets.default == LATEST
    assert options.fail_on_data_loss
    assert (options.arrow_batch_rows, options.arrow_batch_bytes) == (10_000, 16 << 20)
    assert (options.pull_batch_size, options.pull_pipeline, options.pull_timeout) == (32, 8, 20.0)


def test_names_ignore_case_and_have_aliases() -> None:
    options = ReadOptions.of(
        {"nameserver": "a:1;b:2,c:3", "SUBSCRIBE": "T, U,T", "subexpression": "A,B"}
    )
    assert options.connect.namesrv_addr == ("a:1", "b:2", "c:3")
    assert options.topics == ("T", "U")
    assert options.tags == "A||B"
    assert ReadOptions.of({"namesrvaddr": "a:1", "path": "T"}).topics == ("T",)
    assert ReadOptions.of({"namesrvaddr": "a:1", "paths": '["T","U"]'}).topics == ("T", "U")


def test_environment_names_the_name_server(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("NAMESRV_ADDR", "x:1")
    assert ReadOptions.of({"topic": "T"}).connect.namesrv_addr == ("x:1",)
    monkeypatch.delenv("NAMESRV_ADDR")
    with pytest.raises(ConfigError, match="namesrvAddr"):
        ReadOptions.of({"topic": "T"})


def test_columns() -> None:
    assert ReadOptions.of(BASE | {"columns": "BODY, queueid"}).columns == ("body", "queueId")
    assert ReadOptions.of(BASE | {"includeProperties": "false"}).columns == COLUMNS[:-1]


@pytest.mark.parametrize(
    ("more", "message"),
    [
        ({"startingOffset": "earliest"}, "did you mean 'startingOffsets'"),
        ({"arrowbatchrow": "1"}, "did you mean 'arrowBatchRows'"),
        ({"subscribe": "U"}, "mean the same"),
        ({"failOnDataLoss": "maybe"}, "failOnDataLoss"),
        ({"pullBatchSize": "0"}, "at least 1"),
        ({"pullBatchSize": "1e3"}, "not an integer"),
        ({"maxRecordsPerPartition": "0"}, "maxRecordsPerPartition"),
        ({"arrowBatchBytes": "16q"}, "not a size"),
        ({"arrowBatchBytes": "2g"}, "at most"),
        ({"columns": "bdoy"}, "did you mean 'body'"),
        ({"columns": "body,BODY"}, "twice"),
        ({"columns": "properties", "includeProperties": "false"}, "includeProperties"),
        ({"group": "not a group"}, "group"),
        ({"tags": "||"}, "separators"),
        ({"onCorruptMessage": "ignore"}, "fail, skip"),
        ({"endingOffsets": "earliest"}, "endingOffsets"),
        ({"topic": "T,a b"}, "a b"),
        ({"topic": ""}, "blank"),
        ({"topicPattern": "T.*"}, "'topic' and 'topicPattern'"),
        ({"accessKey": "a"}, "'secretKey'"),
        ({"tlsCaFile": "a"}, "useTLS"),
        ({"namespace": "a b"}, "namespace"),
        ({"expression": "a > 1", "tags": "A"}, "two filters"),
        ({"expressionType": "SQL92"}, "'expression' is not set"),
        ({"startingOffsets": '{"X":{}}', "topic": "T"}, "'X', which is not read"),
        ({"startingOffsets": '{"X":"latest"}'}, "topic 'X', which is not read"),
        ({"endingOffsets": "group"}, "cannot be 'group'"),
        ({"startingTimestamp": "yesterday"}, "'startingTimestamp' is 'yesterday'"),
        ({"startingTimestamp": "2", "endingTimestamp": "1"}, "after 'endingTimestamp'"),
        ({"startingTimestamp": "-5m", "endingTimestamp": "-1h"}, "after 'endingTimestamp'"),
        ({"maxRecordsPerTrigger": "5"}, "'maxRecordsPerTrigger' is for streaming"),
        ({"commitOffsets": "true"}, "for streaming"),
    ],
)
def test_wrong_options(more: dict[str, str], message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        ReadOptions.of(BASE | more)


@pytest.mark.parametrize(
    ("more", "message"),
    [
        ({"endingOffsets": "latest"}, "'endingOffsets' is for batch"),
        ({"pushFilters": "true"}, "'pushFilters' is for batch"),
        ({"minOffsetsPerTrigger": "5", "maxOffsetsPerTrigger": "4"}, "5, more than"),
        ({"maxTriggerDelay": "5m"}, "needs 'minOffsetsPerTrigger'"),
        ({"minOffsetsPerTrigger": "5", "maxTriggerDelay": "5"}, "not a duration"),
        ({"maxBytesPerTrigger": "0"}, "at least 1"),
        ({"commitOffsets": "true"}, "needs 'group'"),
    ],
)
def test_wrong_options_of_a_stream(more: dict[str, str], message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        ReadOptions.of(BASE | more, streaming=True)


def test_what_is_read() -> None:
    base = {"namesrvAddr": "a:1"}
    assert ReadOptions.of(base | {"subscribePattern": "T[0-9]+"}).pattern == "T[0-9]+"
    options = ReadOptions.of(base | {"assign": '{"T":{"broker-a":[0,2]}}'})
    assert options.topics == ("T",)
    assert options.assigned == {queue(0), queue(2)}
    for wrong in ('{"T":{"b":0}}', '{"T":[0]}', "[]", "{}", '{"T":{"b":[-1]}}', "T"):
        with pytest.raises(ConfigError, match="assign"):
            ReadOptions.of(base | {"assign": wrong})
    with pytest.raises(ConfigError, match="regular expression"):
        ReadOptions.of(base | {"topicPattern": "(T"})
    with pytest.raises(ConfigError, match="'topic', 'topicPattern' and 'assign'"):
        ReadOptions.of(base)
    sql = ReadOptions.of(BASE | {"expression": "a > 1", "expressionType": "sql92"})
    assert (sql.tags, sql.sql) == ("*", "a > 1")
    assert ReadOptions.of(BASE | {"expression": "A,B"}).tags == "A||B"


def test_secrets_are_not_shown() -> None:
    given = BASE | {"accessKey": "id", "secretKey": "hush-hush", "securityToken": "hush-token"}
    options = ReadOptions.of(given)
    assert options.connect.client_options().signer() is not None
    assert "hush" not in repr(options)


def test_sizes_have_units() -> None:
    for text, size in {"16m": 16 << 20, "64 KB": 64 << 10, "1g": 1 << 30, "77": 77}.items():
        assert ReadOptions.of(BASE | {"arrowBatchBytes": text}).arrow_batch_bytes == size


# -------------------------------------------------------------- one wrong value of each option

# Option -> its wrong values, with what is said of each beside the option's name.
NOT_A_TIME = "2026-01-31T12:00:00Z, or a time ago as -10m"
CONNECTION: dict[str, dict[str, str]] = {
    "namesrvAddr": {"": "host:port", " ; ": "host:port", "a": "'a' is not host:port"},
    "nameServer": {"a:0": "'a:0' is not host:port"},
    "nameServerAddress": {"a:65536": "not host:port"},
    "namespace": {"": "a-z A-Z 0-9 _ -", "a b": "a-z A-Z 0-9 _ -"},
    "accessKey": {"id": "'secretKey' are needed both"},
    "secretKey": {"secret": "'accessKey' and 'secretKey' are needed both"},
    "securityToken": {"token": "needs 'accessKey' and 'secretKey'"},
    "useTLS": {"yes": "'yes', not true or false"},
    "tlsCaFile": {"/ca.pem": "needs 'useTLS'"},
    "tlsCertFile": {"/cert.pem": "'tlsKeyFile' are needed both"},
    "tlsKeyFile": {"/key.pem": "'tlsCertFile' and 'tlsKeyFile' are needed both"},
    "tlsInsecure": {"true": "needs 'useTLS' to be true"},
}
TOPICS = {"": "is blank", "no topic": "other than % | a-z", "x" * 128: "longer than 127"}
READ: dict[str, dict[str, str]] = {
    "topic": TOPICS | {"T,,U": "is blank"},
    "subscribe": TOPICS,
    "path": TOPICS,
    "paths": {"T": 'as ["A","B"]', "[]": 'as ["A","B"]', "[1]": 'as ["A","B"]', '["a b"]': "a-z"},
    "topicPattern": {"": "is blank", "(": "not a regular expression"},
    "subscribePattern": {"T[": "not a regular expression"},
    "assign": {"": "not JSON", "[]": "not an object of topics", '{"T":[0]}': "an object of brokers",
               '{"T":{"b":0}}': "not a list of queues", '{"T":{"b":["x"]}}': "'x', not a number",
               "{}": "names no queue", '{"a b":{"b":[0]}}': "other than % | a-z"},
    "tags": {"||": "separators only"},
    "subExpression": {",": "separators only"},
    "expression": {"||": "separators only"},
    "expressionType": {"SQL": "not one of tag, sql92", "SQL92": "'expression' is not set"},
    "group": {"": "is blank", "a b": "other than % | a-z", "x" * 256: "longer than 255",
              "DEFAULT_CONSUMER": "choose another name"},
    "columns": {"": "did you mean", "bodi": "did you mean 'body'", "body,Body": "twice"},
    "includeProperties": {"1": "not true or false"},
    "decodeBody": {"UTF-8": "not true or false"},
    "startingTimestamp": {"": NOT_A_TIME, "-10": NOT_A_TIME},
    "startingOffsetsByTimestamp": {"": "not JSON", "7": "not a JSON object of topics",
                                   '{"T":{"b":{"0":"x"}}}': NOT_A_TIME,
                                   '{"T":[7]}': NOT_A_TIME, '{"U":7}': "which is not read"},
    "startingOffsets": {"": "earliest, latest, group or JSON", "{": "earliest, latest, group or",
                        '{"T":"new"}': "earliest, latest, group or JSON",
                        '{"T":{"b":{"0":"7"}}}': "T@b:0 is '7', not an integer",
                        '{"T":{"b":{"0":-4}}}': "it must be -3 to",
                        '{"T":{"b":{"0":1,"0":2}}}': "twice", '{"U":{}}': "which is not read"},
    "startingOffsetsByTimestampStrategy": {"none": "not one of latest, error"},
    "groupOffsetFallback": {"none": "not one of earliest, latest, error"},
    "endingTimestamp": {"now": NOT_A_TIME},
    "endingOffsetsByTimestamp": {'{"T":"now"}': NOT_A_TIME},
    "endingOffsets": {"earliest": "it is latest or JSON", '{"T":{"b":{"0":-2}}}': "it must be -1",
                      '{"T":"earliest"}': "not latest or JSON"},
    "failOnDataLoss": {"": "not true or false"},
    "onCorruptMessage": {"ignore": "not one of fail, skip, raw"},
    "fetchOffset.numRetries": {"-1": "at least 0", "many": "not an integer"},
    "fetchOffset.retryIntervalMs": {"1s": "not an integer", "9999999999": "at most 3600000"},
    "pullTimeoutMs": {"0": "at least 1", "9999999999": "at most 2147483647"},
    "maxRecordsPerPartition": {"0": "at least 1"},
    "minPartitions": {"0": "at least 1"},
    "minRecordsPerPartition": {"-1": "at least 0"},
    "arrowBatchRows": {"0": "at least 1"},
    "arrowBatchBytes": {"16q": "not a size as 16m", "2g": "at most 1073741824"},
    "pullBatchSize": {"0": "at least 1", "65537": "at most 65536"},
    "pullPipeline": {"257": "at most 256"},
    "pushFilters": {"on": "not true or false"},
}  # fmt: skip
STREAM: dict[str, dict[str, str]] = {
    "maxOffsetsPerTrigger": {"0": "at least 1"},
    "maxRecordsPerTrigger": {"1k": "not an integer"},
    "maxBytesPerTrigger": {"0": "at least 1", "x": "not a size as 16m"},
    "minOffsetsPerTrigger": {"0": "at least 1"},
    "minRecordsPerTrigger": {"x": "not an integer"},
    "maxTriggerDelay": {"15": "not a duration as 30s", "15m": "needs 'minOffsetsPerTrigger'"},
    "latestOffsetIntervalMs": {"-1": "at least 0"},
    "routeRefreshMs": {"30s": "not an integer"},
    "commitOffsets": {"yes": "not true or false", "true": "needs 'group'"},
}
WRITE: dict[str, dict[str, str]] = {
    "topic": TOPICS | {"SCHEDULE_TOPIC_XXXX": "it takes no messages"},
    "path": TOPICS,
    "producerGroup": {"": "is blank", "a b": "other than", "DEFAULT_PRODUCER": "choose another"},
    "group": {"x" * 256: "longer than 255"},
    "sendMode": {"each": "not one of batch, single"},
    "batchBytes": {"5m": "at most 4194304", "x": "not a size as 16m"},
    "maxInFlight": {"0": "at least 1", "1001": "at most 1000"},
    "sendTimeoutMs": {"0": "at least 1"},
    "retries": {"-1": "at least 0", "101": "at most 100"},
    "retryIntervalMs": {"1s": "not an integer"},
    "compressOver": {"0": "at least 1"},
    "reservedProperties": {"keep": "not one of fail, drop"},
}
NEEDED = {
    "maxTriggerDelay": {"15": {"minOffsetsPerTrigger": "1"}},
}


def said(source: str, name: str, value: str) -> str:
    """The error of one wrong option; the topic is given in one way only."""
    ways = ("topic", "subscribe", "path", "paths", "topicPattern", "subscribePattern", "assign")
    given = {"topic": "T"} if name not in ways else {}
    if not name.startswith("nameServer"):
        given["namesrvAddr"] = "127.0.0.1:1"
    given |= NEEDED.get(name, {}).get(value, {}) | {name: value}
    with pytest.raises(ConfigError) as caught:
        WriteOptions.of(given) if source == "write" else ReadOptions.of(
            given, streaming=source == "stream"
        )
    return str(caught.value)


def test_each_wrong_option_is_named_with_what_would_be_right() -> None:
    tables = {"read": CONNECTION | READ, "stream": CONNECTION | STREAM, "write": CONNECTION | WRITE}
    for source, table in tables.items():
        for name, values in table.items():
            for value, right in values.items():
                text = said(source, name, value)
                assert f"{name!r}" in text, (source, name, value)
                assert right in text, (source, name, value)
                assert text.startswith("option"), (source, name, value)


def test_no_option_is_left_out_above() -> None:
    def names(options: dict[str, tuple[str, ...]]) -> set[str]:
        return {name for one, others in options.items() for name in (one, *others)}

    assert names(READ_OPTIONS) == {*CONNECTION, *READ, *STREAM}
    assert names(WRITE_OPTIONS) == {*CONNECTION, *WRITE}


def test_blank_credentials_and_missing_files(tmp_path: Path) -> None:
    keys = {"accessKey": "id", "secretKey": "hush-hush", "securityToken": "hush-token"}
    for name in keys:
        with pytest.raises(ConfigError, match=f"option '{name}' is blank") as caught:
            ReadOptions.of(BASE | keys | {name: ""})
        assert "hush" not in str(caught.value)
    there = tmp_path / "cert.pem"
    there.touch()
    files = {"useTLS": "true", "tlsCertFile": str(there), "tlsKeyFile": str(there)}
    for name in ("tlsCaFile", "tlsCertFile", "tlsKeyFile"):
        missing = files | {name: str(tmp_path / "no.pem")}
        for source in (ReadOptions, WriteOptions):
            with pytest.raises(ConfigError, match=rf"'{name}' is '.*no\.pem': the driver has no"):
                source.of(BASE | missing)  # type: ignore[attr-defined]


def test_a_name_has_room_for_the_namespace() -> None:
    """It is longer on the wire."""
    fits = BASE | {"topic": "x" * 122, "namespace": "shop"}
    assert ReadOptions.of(fits).topics == ("x" * 122,)
    for source in (ReadOptions, WriteOptions):
        with pytest.raises(ConfigError, match=r"option 'topic'.*longer than 127"):
            source.of(fits | {"topic": "x" * 123})  # type: ignore[attr-defined]


# ------------------------------------------------------------------------------ decodeBody


def test_body_as_text() -> None:
    from pyspark.sql.types import BinaryType, StringType, StructField, StructType

    given = BASE | {"decodeBody": "true", "columns": "queueId,body"}
    assert [field.dataType for field in RocketMQDataSource(given).schema()][1] == StringType()
    text = StructType([StructField("body", StringType())])
    assert check_schema(text, decode_body=True) == ("body",)
    with pytest.raises(ConfigError, match=r"'body' is binary.*option 'decodeBody' makes it text"):
        check_schema(text)
    with pytest.raises(ConfigError, match="'body' is string, the schema says binary"):
        check_schema(StructType([StructField("body", BinaryType())]), decode_body=True)
    with pytest.raises(ConfigError, match=r"'onCorruptMessage' is raw.*'decodeBody'"):
        ReadOptions.of(given | {"onCorruptMessage": "raw"})
    assert schema_of(["body"]) != schema_of(["body"], decode_body=True)


def test_bytes_that_are_no_text_are_replaced() -> None:
    import pyarrow as pa

    from rocketmq_fast.spark.tasks import _as_text

    good = pa.array(["grün".encode(), b"", "✓".encode()])
    assert _as_text(good).equals(pa.array(["grün", "", "✓"]))
    bad = pa.array([b"a\xffb", None, b"\xe2\x9c", b"c"])
    assert _as_text(bad).equals(pa.array(["a\ufffdb", None, "\ufffd", "c"]))
