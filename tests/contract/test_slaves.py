"""A broker with a slave: what goes on while the master is away, and when it is back."""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Iterator

import pytest

from rocketmq_fast import PullConsumer, RemotingCommand, encode_frame
from rocketmq_fast.errors import BrokerError, RemotingError
from rocketmq_fast.protocol import fastjson
from rocketmq_fast.protocol.codes import RequestCode, ResponseCode
from tests.apache import SHORT_DELAYS, ApacheCluster, ArtifactError, jars
from tests.brokers import TestBroker, Wire
from tests.consuming import Recorder, bodies, consuming
from tests.proxy import Frame, ProxiedCluster
from tests.require import missing, require
from tests.waiting import wait_for

QUEUES = 2
# A 5.x slave copies topics, groups and offsets once a minute, a 4.x slave every ten seconds.
COPIED_SECONDS = 150.0
ONLY_4 = pytest.mark.parametrize("pair", ["4.9.4"], indirect=True)
# Routes and heartbeats often, so that a test need not wait for half a minute.
FAST = {
    "poll_name_server_interval": 500,
    "heartbeat_broker_interval": 1000,
    "persist_consumer_offset_interval": 100,
}


TOPIC, GROUP = "SlavesTopic", "SlavesGroup"  # known to a slave since its first copy


def started_pair(version: str) -> ApacheCluster:
    """A master with its slave."""
    try:
        jars(version)
    except ArtifactError as error:
        missing("apache", str(error))
    # Without it a 5.x slave refuses pulls, as busy; a 4.x slave answers them in any case.
    more = {} if version.startswith("4.") else {"slaveReadEnable": "true"}
    cluster = ApacheCluster(version, {**SHORT_DELAYS, **more}, slaves=True)
    cluster.start()
    cluster.create_topic(TOPIC, queues=QUEUES)
    cluster.create_group(GROUP)
    return cluster


@pytest.fixture(scope="module")
def pairs() -> Iterator[dict[str, ApacheCluster]]:
    """Both pairs, for this module alone: its tests kill them.

    The newer one first: its slave's first copy of topics and groups is a minute away.
    """
    require("apache")
    with contextlib.ExitStack() as stack:
        made = {}
        for version in ("5.3.3", "4.9.4"):
            made[version] = started_pair(version)
            stack.callback(made[version].close)
        yield made


@pytest.fixture(params=["4.9.4", "5.3.3"])
def pair(request: pytest.FixtureRequest, pairs: dict[str, ApacheCluster]) -> ApacheCluster:
    """Each pair in turn."""
    return pairs[request.param]


@pytest.fixture
def master(pair: ApacheCluster, wire: Wire, request: pytest.FixtureRequest) -> Iterator[TestBroker]:
    """The master, running before and after the test."""
    made = TestBroker(pair.version, pair, wire)
    made.for_test(request.node.originalname)
    yield made
    if f"{pair.broker_name} {pair.version}" not in pair.pids:
        pair.start_broker()


def slave_max(pair: ApacheCluster, wire: Wire, topic: str, queue_id: int) -> int:
    """The slave's end of a queue; 0 while it does not know the topic."""
    fields = {"topic": topic, "queueId": str(queue_id)}
    answer = wire.invoke(pair.slave_addr, RemotingCommand(RequestCode.GET_MAX_OFFSET, fields))
    return int(answer.ext_fields["offset"]) if answer.code == 0 else 0


def offsets_at(address: str, wire: Wire, group: str, topic: str) -> dict[int, int]:
    """A broker's own table of offsets."""
    answer = wire.invoke(address, RemotingCommand(RequestCode.GET_ALL_CONSUMER_OFFSET))
    table = fastjson.loads(answer.body)["offsetTable"].get(f"{topic}@{group}", {})
    return {int(queue_id): int(offset) for queue_id, offset in table.items()}


def knows(address: str, wire: Wire, topic: str) -> bool:
    """Whether a broker has the topic, and so takes pulls of it."""
    answer = wire.invoke(address, RemotingCommand(RequestCode.GET_ALL_TOPIC_CONFIG))
    return topic.encode() in answer.body


def group_at_both(pair: ApacheCluster, wire: Wire, group: str) -> str:
    """Create a group, and wait for the slave to know it: a 5.x slave takes no others' offsets."""
    if group != GROUP:
        pair.create_group(group)
    command = RemotingCommand(RequestCode.GET_ALL_SUBSCRIPTIONGROUP_CONFIG)
    wait_for(
        lambda: group.encode() in wire.invoke(pair.slave_addr, command).body,
        "the group at the slave",
        COPIED_SECONDS,
    )
    return group


def replicated(pair: ApacheCluster, wire: Wire, topic: str, ends: dict[int, int]) -> None:
    """Wait until the slave has topic and messages."""
    wait_for(
        lambda: (
            knows(pair.slave_addr, wire, topic)
            and all(slave_max(pair, wire, topic, queue) == end for queue, end in ends.items())
        ),
        lambda: f"the slave to have {ends} of {topic}",
        COPIED_SECONDS,
    )


@pytest.mark.apache
@pytest.mark.slow
@ONLY_4
def test_member_that_starts_while_the_master_is_away(
    pair: ApacheCluster, master: TestBroker, wire: Wire
) -> None:
    topic, group = master.topic(QUEUES), group_at_both(pair, wire, master.group())
    master.send(topic, bodies(20), queues=range(QUEUES))
    replicated(pair, wire, topic, {0: 10, 1: 10})
    one = Recorder()
    with consuming(pair.namesrv_addr, group, topic, one, **FAST):
        one.wait(20)
    assert master.committed(group, topic) == {0: 10, 1: 10}
    wait_for(
        lambda: offsets_at(pair.slave_addr, wire, group, topic) == {0: 10, 1: 10},
        "the offsets at the slave",
        COPIED_SECONDS,
    )
    late = bodies(6, "late")
    master.send(topic, late, queues=range(QUEUES))
    replicated(pair, wire, topic, {0: 13, 1: 13})
    pair.kill_broker()
    other = Recorder()
    with consuming(pair.namesrv_addr, group, topic, other, **FAST):
        other.wait(6, 60.0)
    # What the last member stored was read, from the slave: nothing comes again.
    assert sorted(other.bodies) == sorted(late)
    assert offsets_at(pair.slave_addr, wire, group, topic) == {0: 13, 1: 13}


@pytest.mark.parametrize("bounds", [(0, 5), (0, 0), (100, 200)], ids=["lags", "empty", "younger"])
@pytest.mark.parametrize(
    ("code", "corrects"),
    [
        # A slave corrects offsets only with offsetCheckInSlave=true, and 5.x says "at once" then.
        (ResponseCode.PULL_RETRY_IMMEDIATELY, False),
        (ResponseCode.PULL_RETRY_IMMEDIATELY, True),
        (ResponseCode.PULL_OFFSET_MOVED, True),
    ],
    ids=["at once", "at once, elsewhere", "moved"],
)
def test_slave_that_has_less_moves_nobody(
    embedded_broker: TestBroker,
    embedded_proxied: ProxiedCluster,
    caplog: pytest.LogCaptureFixture,
    bounds: tuple[int, int],
    code: ResponseCode,
    *,
    corrects: bool,
) -> None:
    """The embedded broker plays its own slave: the route names id 1, and it lacks our offset."""
    broker, proxied = embedded_broker, embedded_proxied
    topic, group = broker.topic(1), broker.group()
    as_slave = threading.Event()
    lacking = threading.Event()
    refused: list[int] = []
    redirect = proxied.namesrv.on_answer
    assert redirect is not None

    def on_route(frame: Frame) -> bytes | None:
        answer = redirect(frame)
        if not as_slave.is_set() or frame.code != RequestCode.GET_ROUTEINFO_BY_TOPIC:
            return answer
        body = frame.command.body  # which redirect has changed
        frame.command.body = body.replace(b'"brokerAddrs":{"0":', b'"brokerAddrs":{"1":')
        return encode_frame(frame.command)

    def on_pull(frame: Frame) -> bytes | None:
        if not lacking.is_set() or frame.code != RequestCode.PULL_MESSAGE:
            return None
        low, high = bounds
        there = high if low == 0 else low
        fields = {
            "nextBeginOffset": str(there if corrects else 10),
            "minOffset": str(low),
            "maxOffset": str(high),
            "suggestWhichBrokerId": "0",
        }
        refused.append(int(fields["nextBeginOffset"]))
        return encode_frame(RemotingCommand(code, fields, opaque=frame.command.opaque, flag=1))

    def at_once(frame: Frame) -> bytes | None:
        if not lacking.is_set() or frame.code != RequestCode.PULL_MESSAGE:
            return None
        frame.command.ext_fields["sysFlag"] = "0"  # or it would be held at the end of the queue
        return encode_frame(frame.command)

    proxied.namesrv.on_answer = on_route
    proxied.broker.on_request = at_once
    proxied.broker.on_answer = on_pull
    broker.send(topic, bodies(10))
    seen = Recorder()
    with consuming(proxied.namesrv_addr, group, topic, seen, **FAST) as consumer:
        seen.wait(10)
        wait_for(lambda: broker.committed(group, topic) == {0: 10}, "the commit")
        instance = consumer._require_running().instance
        as_slave.set()
        wait_for(
            lambda: instance.broker_address(broker.broker_name)[1], "the route without a master"
        )
        lacking.set()
        proxied.broker.cut()
        wait_for(lambda: len(refused) >= 2, "pulls that the slave cannot answer")
        # Or it would be asked without a pause.
        wait_for(lambda: "waiting for the master" in caplog.text, lambda: caplog.text)
        stats = consumer.stats()["queues"][f"{topic}@{broker.broker_name}:0"]
        assert stats["next_offset"] == 10
        lacking.clear()
        as_slave.clear()
        broker.send(topic, bodies(3, "later"))
        seen.wait(13)
    assert seen.bodies == [*bodies(10), *bodies(3, "later")]
    assert broker.committed(group, topic) == {0: 13}


@pytest.mark.apache
@pytest.mark.slow
@ONLY_4
def test_pull_consumer_commits_at_the_slave_and_then_at_the_master(
    pair: ApacheCluster, master: TestBroker, wire: Wire
) -> None:
    topic, group = master.topic(1), group_at_both(pair, wire, master.group())
    master.send(topic, bodies(4))
    replicated(pair, wire, topic, {0: 4})
    options = {"namesrv_addr": pair.namesrv_addr, "auto_commit_interval_millis": 100, **FAST}
    options.pop("persist_consumer_offset_interval")
    with PullConsumer(group, **options) as pull:
        pull.assign(pull.queues(topic))
        pull.seek(master.queue(topic), 0)
        found: list[bytes] = []

        def polled() -> int:
            found.extend(message.body for message in pull.poll(0.2, 2))
            return len(found)

        wait_for(lambda: polled() >= 2, "the first messages")
        pair.kill_broker()

        def committed() -> bool:
            with contextlib.suppress(BrokerError, RemotingError):
                pull.commit()
                return True
            return False

        wait_for(committed, "a commit that the slave takes", 60.0)
        wait_for(lambda: polled() >= 4, "the other messages", 60.0)
        pull.poll(0)
        wait_for(
            lambda: offsets_at(pair.slave_addr, wire, group, topic) == {0: 4},
            "the commit at the slave",
            30.0,
        )
        pair.start_broker()
        wait_for(
            lambda: offsets_at(master.broker_addr, wire, group, topic) == {0: 4},
            lambda: f"the commit; {offsets_at(master.broker_addr, wire, group, topic)}",
            60.0,
        )
    assert found == bodies(4)


# At the end: by now the slaves have copied the topic and the group.
@pytest.mark.apache
@pytest.mark.slow
def test_consumption_goes_on_from_the_slave(
    pair: ApacheCluster, master: TestBroker, wire: Wire
) -> None:
    topic, group = TOPIC, group_at_both(pair, wire, GROUP)
    first = bodies(20, "first")
    master.send(topic, first, queues=range(QUEUES))
    replicated(pair, wire, topic, {0: 10, 1: 10})
    held = Recorder()
    with consuming(pair.namesrv_addr, group, topic, held, pull_batch_size=1, **FAST) as consumer:
        held.wait(20)
        # Stop short of what comes now, so that there is something to read from the slave.
        consumer.pause()
        second = bodies(20, "second")
        master.send(topic, second, queues=range(QUEUES))
        replicated(pair, wire, topic, {0: 20, 1: 20})
        # The pulls that were parked at the pause bring a message each.
        held.wait(20 + QUEUES)
        before = set(held.bodies)
        pair.kill_broker()
        consumer.resume()
        held.wait(40, 60.0)
        came_from_slave = set(held.bodies) - before
        assert came_from_slave
        # The slave takes the commits while it stands alone.
        wait_for(
            lambda: offsets_at(pair.slave_addr, wire, group, topic) == {0: 20, 1: 20},
            lambda: f"commits at the slave; {offsets_at(pair.slave_addr, wire, group, topic)}",
            30.0,
        )
        pair.start_broker()
        # The master, which was killed with older offsets, is told without a new message.
        wait_for(
            lambda: offsets_at(master.broker_addr, wire, group, topic) == {0: 20, 1: 20},
            lambda: f"commits at the master; {offsets_at(master.broker_addr, wire, group, topic)}",
            60.0,
        )
        third = bodies(10, "third")
        master.send(topic, third, queues=range(QUEUES))
        held.wait(50, 60.0)
    assert set(held.bodies) == {*first, *second, *third}
    assert len(held.bodies) == 50, "nothing was delivered twice"
