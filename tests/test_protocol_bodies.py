"""JSON bodies: what Java writes is read, what we write Java reads, anything else is an error."""

from __future__ import annotations

import contextlib
import copy
import json
import random
from collections.abc import Callable, Iterator
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rocketmq_fast.errors import BodyError
from rocketmq_fast.model import MessageQueue
from rocketmq_fast.protocol import fastjson
from rocketmq_fast.protocol.bodies import (
    ClusterInfo,
    ConsumerData,
    HeartbeatData,
    LockBatch,
    SubscriptionData,
    TopicRouteData,
    consumer_ids_of,
    locked_queues_body,
    locked_queues_of,
    offset_table_of,
    topic_list_of,
)

ROUTE = {
    "brokerDatas": [
        {"brokerAddrs": {"0": "10.0.0.1:10911", "1": "10.0.0.2:10911"}, "brokerName": "b",
         "cluster": "c"},
        {"brokerAddrs": {"1": "10.0.0.3:10911"}, "brokerName": "a", "cluster": "c"},
    ],
    "filterServerTable": {},
    "queueDatas": [
        {"brokerName": "b", "perm": 6, "readQueueNums": 3, "topicSysFlag": 0, "writeQueueNums": 2},
        {"brokerName": "a", "perm": 6, "readQueueNums": 1, "topicSysFlag": 0, "writeQueueNums": 1},
        {"brokerName": "c", "perm": 2, "readQueueNums": 1, "topicSysFlag": 0, "writeQueueNums": 1},
    ],
}  # fmt: skip
CLUSTER = {
    "brokerAddrTable": {"a": {"brokerAddrs": {"0": "h:1"}, "brokerName": "a", "cluster": "c"}},
    "clusterAddrTable": {"c": ["a"]},
}
HEARTBEAT = {
    "clientID": "10.0.0.1@1",
    "consumerDataSet": [
        {
            "consumeFromWhere": "CONSUME_FROM_LAST_OFFSET",
            "consumeType": "CONSUME_PASSIVELY",
            "groupName": "g",
            "messageModel": "CLUSTERING",
            "subscriptionDataSet": [
                {"classFilterMode": False, "codeSet": [2598919], "expressionType": "TAG",
                 "subString": "TagA", "subVersion": 5, "tagsSet": ["TagA"], "topic": "T"}
            ],
            "unitMode": False,
        }
    ],
    "producerDataSet": [{"groupName": "p"}],
}  # fmt: skip
LOCK = {
    "clientId": "c",
    "consumerGroup": "g",
    "mqSet": [{"brokerName": "b", "queueId": 1, "topic": "T"}],
}

READERS: dict[str, tuple[Callable[[bytes], object], Any]] = {
    "route": (lambda body: TopicRouteData.from_body(body, "T"), ROUTE),
    "cluster": (ClusterInfo.from_body, CLUSTER),
    "heartbeat": (HeartbeatData.from_body, HEARTBEAT),
    "lock": (LockBatch.from_body, LOCK),
    "locked": (locked_queues_of, {"lockOKMQSet": LOCK["mqSet"]}),
    "members": (consumer_ids_of, {"consumerIdList": ["a", "b"]}),
    "topics": (topic_list_of, {"topicList": ["a", "b"]}),
    "offsets": (
        offset_table_of,
        {"offsetTable": [{"brokerName": "b", "queueId": 1, "topic": "T", "offset": 7}]},
    ),
}


def test_route_gives_the_queues() -> None:
    route = TopicRouteData.from_body(json.dumps(ROUTE).encode(), "T")
    # A broker without a master can be read from and not written to.
    assert route.subscribe_queues("T") == [
        MessageQueue("T", "a", 0),
        *(MessageQueue("T", "b", i) for i in range(3)),
    ]
    assert route.publish_queues("T") == [MessageQueue("T", "b", i) for i in range(2)]
    broker = route.broker("b")
    assert broker is not None
    assert broker.broker_addrs == {0: "10.0.0.1:10911", 1: "10.0.0.2:10911"}
    assert route.broker("none") is None


def test_route_of_the_dialect_is_the_same_route() -> None:
    text = json.dumps(ROUTE).replace('"0":', "0:").replace('"1":', "1:")
    assert TopicRouteData.from_body(text, "T") == TopicRouteData.from_body(json.dumps(ROUTE), "T")


def test_order_configuration_pins_the_queues() -> None:
    route = TopicRouteData.from_body(json.dumps({**ROUTE, "orderTopicConf": "b:1;a:2"}), "T")
    assert route.publish_queues("T") == [
        MessageQueue("T", "b", 0),
        MessageQueue("T", "a", 0),
        MessageQueue("T", "a", 1),
    ]


def test_heartbeat_there_and_back() -> None:
    subscription = SubscriptionData("T", "TagA", frozenset({"TagA"}), frozenset({2598919}), 5)
    data = HeartbeatData(
        "10.0.0.1@1",
        ("p",),
        (
            ConsumerData(
                "g",
                "CONSUME_PASSIVELY",
                "CLUSTERING",
                "CONSUME_FROM_LAST_OFFSET",
                (subscription,),
            ),
        ),
    )
    assert json.loads(data.to_body()) == HEARTBEAT
    assert HeartbeatData.from_body(data.to_body()) == data


def test_locks_there_and_back() -> None:
    queues = frozenset({MessageQueue("T", "b", 1), MessageQueue("T", "a", 0)})
    batch = LockBatch("g", "c", queues)
    assert LockBatch.from_body(batch.to_body()) == batch
    assert locked_queues_of(locked_queues_body(queues)) == queues


def test_offsets_in_all_three_forms() -> None:
    wanted = {MessageQueue("T", "b", 1): 7}
    for text in (
        '{"offsetTable":{{"brokerName":"b","queueId":1,"topic":"T"}:7}}',
        '{"offsetTable":{"{\\"brokerName\\":\\"b\\",\\"queueId\\":1,\\"topic\\":\\"T\\"}":7}}',
        '{"offsetTable":[{"brokerName":"b","queueId":1,"topic":"T","offset":7}]}',
    ):
        assert offset_table_of(text) == wanted


# ------------------------------------------------------------------------------ bad bodies

ODD: list[Any] = [
    None, True, -1, 2**40, 10**30, 1.5, "", "x", "9" * 5000, [], {}, [[]], {"a": {"b": 1}}, [None],
    {"0": None}, {"x": "y"}, [{"a": 1}],
]  # fmt: skip


def places(node: Any, path: tuple[Any, ...] = ()) -> Iterator[tuple[Any, ...]]:
    """Paths of all values below a node, itself included."""
    yield path
    if isinstance(node, dict):
        for key, value in node.items():
            yield from places(value, (*path, key))
    elif isinstance(node, list):
        for index, value in enumerate(node):
            yield from places(value, (*path, index))


def changed(node: Any, path: tuple[Any, ...], value: Any) -> Any:
    """A copy with another value at a path."""
    if not path:
        return value
    made = copy.deepcopy(node)
    target = made
    for step in path[:-1]:
        target = target[step]
    target[path[-1]] = value
    return made


@pytest.mark.parametrize("name", READERS)
def test_every_place_with_every_odd_value(name: str) -> None:
    read, good = READERS[name]
    read(json.dumps(good).encode())
    tried = refused = 0
    for path in places(good):
        for odd in ODD:
            tried += 1
            try:
                read(json.dumps(changed(good, path, odd)).encode())
            except BodyError:
                refused += 1
    assert tried > 30
    assert refused > tried // 10


@pytest.mark.parametrize("name", READERS)
def test_every_prefix_is_refused(name: str) -> None:
    read, good = READERS[name]
    body = json.dumps(good).encode()
    for end in range(len(body)):
        with pytest.raises(BodyError):
            read(body[:end])


@pytest.mark.parametrize("name", READERS)
def test_changed_bytes_never_escape(name: str) -> None:
    read, good = READERS[name]
    generator = random.Random(7)
    body = json.dumps(good).encode()
    for _ in range(2000):
        made = bytearray(body)
        for _ in range(generator.randint(1, 3)):
            made[generator.randrange(len(made))] = generator.randrange(256)
        with contextlib.suppress(BodyError):
            read(bytes(made))


@pytest.mark.parametrize("text", ["[" * 100_000, '{"a":' * 100_000, "{" * 100_000])
def test_deep_nesting_is_refused(text: str) -> None:
    with pytest.raises(BodyError, match="nested deeper"):
        fastjson.loads(text)


@pytest.mark.parametrize("count", [-1, (1 << 20) + 1, 2**31 - 1])
def test_route_with_absurd_queues_is_refused(count: int) -> None:
    body = json.dumps(changed(ROUTE, ("queueDatas", 0, "readQueueNums"), count))
    with pytest.raises(BodyError, match=r"route of topic 'T'.*'b'"):
        TopicRouteData.from_body(body, "T")


VALUES = st.recursive(
    st.none() | st.booleans() | st.integers(-(2**63), 2**63) | st.text(max_size=8),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(max_size=5), inner),
    max_leaves=12,
)


@given(VALUES)
def test_standard_json_is_read_as_python_reads_it(value: Any) -> None:
    text = json.dumps(value)
    assert fastjson.loads(text) == json.loads(text)
    assert fastjson.loads(fastjson.dumps(value)) == value


@given(VALUES)
def test_the_reader_of_the_dialect_agrees_on_standard_json(value: Any) -> None:
    text = json.dumps(value)
    assert fastjson._Reader(text).value(0) == json.loads(text)


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ('{0:"a",1:"b",}', {0: "a", 1: "b"}),
        ("{'a':'it''s'}", None),
        ("{'a':'it\\'s', b:[1,2,],}", {"a": "it's", "b": [1, 2]}),
        ('{{"b":1,"a":2}:3}', {(("a", 2), ("b", 1)): 3}),
        ('{"a":"\\ud83d\\ude00\\ud800"}', {"a": "\U0001f600\ufffd"}),
        ("{a:-1.5e3,b:NaN,c:null}", {"a": -1500.0, "b": None, "c": None}),
    ],
)  # fmt: skip
def test_dialect(text: str, value: object) -> None:
    if value is None:
        with pytest.raises(BodyError):
            fastjson.loads(text)
    else:
        assert fastjson.loads(text) == value


def test_queue_keys_there_and_back() -> None:
    queue = MessageQueue("T", "b", 3)
    text = fastjson.dumps({"offsetTable": {queue: 5}})
    (key,) = fastjson.loads(text)["offsetTable"]
    assert fastjson.queue_of_key(key) == queue
    for wrong in ("x", (("topic", "T"),), 5, "[]", "{}"):
        with pytest.raises(BodyError):
            fastjson.queue_of_key(wrong)
