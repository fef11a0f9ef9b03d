"""Clusters of two brokers in trouble: one after the other restarts, and members that disagree."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from rocketmq_fast import Message, MessageQueue, Producer, PushConsumer
from rocketmq_fast.embedded import Cluster
from tests.brokers import TestBroker
from tests.consuming import Recorder, assert_once, bodies, consuming, make
from tests.history import History
from tests.proxy import ProxiedCluster
from tests.waiting import wait_for
from tests.witness import Witness, listener, orderly_listener

FAST: dict[str, Any] = {
    "poll_name_server_interval": 200,
    "heartbeat_broker_interval": 200,
    "persist_consumer_offset_interval": 50,
    "mq_client_api_timeout": 1_000,
    "pull_time_delay_millis_when_exception": 50,
}


def test_rolling_restart(tmp_path: Path) -> None:
    """Five restarts, of two brokers in turn: nothing is lost, and nothing comes again."""
    history, sent = History(), list[bytes]()
    recorder = Recorder(history.listener())
    with Cluster(tmp_path, brokers=2) as cluster:
        cluster.create_topic("T", queues=2)
        names = dict(zip(cluster.broker_addrs, cluster.broker_names, strict=True))
        with (
            Producer("p", namesrv_addr=cluster.namesrv_addr) as producer,
            consuming(
                cluster.namesrv_addr, "g", "T", recorder,
                rpc_hooks=Witness("A", history.note, names), **FAST,
            ),
        ):  # fmt: skip
            for turn in range(5):
                for number, name in enumerate(cluster.broker_names):
                    if turn and number == (turn - 1) % 2:
                        continue  # it may not be known to the producer again yet
                    more = bodies(4, f"{turn}_{number}_")
                    queues = [MessageQueue("T", name, index % 2) for index in range(4)]
                    results = [
                        producer.send(Message("T", body), queue=queue)
                        for body, queue in zip(more, queues, strict=True)
                    ]
                    history.note_sent(results, more)
                    sent += more
                recorder.wait(len(sent))
                cluster.stop_broker(turn % 2)
                cluster.start_broker(turn % 2)
        ends = {
            (name, queue): cluster.committed("g", "T", queue, number)
            for number, name in enumerate(cluster.broker_names)
            for queue in (0, 1)
        }
    history.check()
    assert_once(recorder, sent)
    assert sum(ends.values()) == len(sent)


@pytest.mark.parametrize("orderly", [False, True])
def test_members_that_disagree_about_who_they_are(
    orderly: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A member that one of two brokers does not know: who asks that one, sees the other alone.

    It gets the other's queues when their locks have run out.
    """
    monkeypatch.setattr("rocketmq_fast.consumer.running.RENEW_SECONDS", 0.1)
    monkeypatch.setattr("rocketmq_fast.consumer.assigned.LOCK_LIFE_SECONDS", 0.5)
    history, number = History(), 0
    with (
        Cluster(tmp_path, brokers=2, lock_expiry_ms=1000) as cluster,
        ProxiedCluster(cluster.namesrv_addr, cluster.broker_addrs[1]) as proxied,
    ):
        cluster.create_topic("T", queues=2)
        names = dict(zip(cluster.broker_addrs, cluster.broker_names, strict=True))
        names[proxied.broker.address] = cluster.broker_names[1]

        def member(name: str, namesrv_addr: str) -> PushConsumer:
            called: Any = (
                orderly_listener(history.note, name) if orderly else listener(history.note)
            )
            return make(
                namesrv_addr, "g", "T", called, orderly=orderly, instance_name=name,
                rpc_hooks=Witness(name, history.note, names), **FAST,
            )  # fmt: skip

        def held() -> dict[str, set[MessageQueue]]:
            return {
                name: {queue for queue in consumer.assigned() if queue.topic == "T"}
                for name, consumer in (("A", first), ("B", second))
            }

        def halves() -> bool:
            parts = held()
            return len(parts["A"]) == len(parts["B"]) == 2 and not parts["A"] & parts["B"]

        first, second = member("A", cluster.namesrv_addr), member("B", proxied.namesrv_addr)

        def more(producer: Producer) -> bool:
            nonlocal number
            sent = bodies(4, f"{number}_")
            number += 4
            history.note_sent([producer.send(Message("T", body)) for body in sent], sent)
            for consumer in (first, second):
                consumer.resume()  # a round of rebalancing, which is due every 20 s
            return False

        with Producer("p", namesrv_addr=cluster.namesrv_addr) as producer:
            first.start()
            second.start()
            try:
                wait_for(halves, lambda: f"half of the queues each: {held()}")
                more(producer)
                proxied.broker.refuse()
                # The first one sees itself alone when it asks the second broker, not when it asks
                # the other: it takes queues and gives them up again.
                wait_for(lambda: len(held()["A"]) > 2 or more(producer), "the disagreement")
                proxied.broker.listen()
                wait_for(lambda: halves() or more(producer), lambda: f"halves again: {held()}")
                more(producer)
                wait_for(lambda: not history.unacked(), lambda: f"the rest: {history.unacked()}")
            finally:
                first.shutdown()
                second.shutdown()
    found = history.violations(duplicates=sum(history.duplicates().values()))
    assert not found, "\n".join(found)


def test_black_hole_among_name_servers(
    embedded_broker: TestBroker, embedded_proxied: ProxiedCluster
) -> None:
    """One of three takes connections and never answers: it costs a time-out, not the start."""
    broker, proxied = embedded_broker, embedded_proxied
    proxied.namesrv.freeze()
    topic = broker.topic(1)
    broker.send(topic, [b"x"])
    recorder = Recorder()
    with ProxiedCluster(broker.namesrv_addr, broker.broker_addr) as other:
        addresses = f"{proxied.namesrv_addr};{broker.namesrv_addr};{other.namesrv_addr}"
        with consuming(addresses, broker.group(), topic, recorder, mq_client_api_timeout=300):
            recorder.wait(1)
    proxied.namesrv.thaw()
