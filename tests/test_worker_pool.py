"""The listener threads: how many there are for a backlog and a pace, and that they end again."""

from __future__ import annotations

import asyncio
import threading
import time
from collections.abc import Callable, Iterator
from typing import Any, cast

import pytest

from rocketmq_fast import ConfigError, ConsumeStatus, MessageExt, OrderlyStatus, PushConsumer
from rocketmq_fast._core.consume import ConsumeContext
from rocketmq_fast.consumer.pool import (
    Pace,
    Worker,
    WorkerPool,
    mean_seconds,
    workers_for,
)
from rocketmq_fast.remoting.loop import EventLoop
from tests.brokers import TestBroker
from tests.consuming import SUCCESS, Recorder, bodies, consuming, releasing
from tests.waiting import wait_for


@pytest.mark.parametrize(
    ("calls", "call_seconds", "workers"),
    [
        (0, 1.0, 1),
        (1000, 0.0, 1),  # nothing is known yet: one, and the watch sees whether it is stuck
        (32, 1e-6, 1),  # a fast listener: no hand-over to a second thread
        (16_000, 1e-5, 2),  # nor to many: they would wait for the GIL and for each other
        (32, 1e-4, 2),
        (1, 0.002, 1),
        (2, 0.002, 2),
        (32, 0.01, 160),  # more than the limit: the pool takes what it may have
    ],
)
def test_workers_for_a_backlog(calls: int, call_seconds: float, workers: int) -> None:
    assert workers_for(calls * call_seconds, call_seconds) == workers


def test_the_pace_of_a_listener_is_found() -> None:
    pace = Pace()
    assert pace.seconds == 0.0
    pace.note(0.25)
    assert pace.seconds == 0.25
    pace = Pace()
    # Pulls whose calls waited 5 ms for the GIL, more than half, do not make a fast listener slow.
    for number in range(210):
        pace.note(1.5e-6 if number % 7 in (0, 3, 5) else 160e-6)
        assert workers_for(128 * pace.seconds, pace.seconds) == 1
    # A listener that blocks from now on gets its threads within a few pulls, and gives them back.
    for _ in range(6):
        pace.note(0.001)
    assert workers_for(1000 * pace.seconds, pace.seconds) > 64
    for _ in range(5):
        pace.note(1.5e-6)
    assert workers_for(1000 * pace.seconds, pace.seconds) == 1


def test_waiting_for_the_gil_is_no_reason_for_more_threads() -> None:
    assert mean_seconds(10, 1.0, 0.01, 1) == 0.1  # it waits for something else
    assert mean_seconds(10, 1.0, 0.01, 20) == 0.1
    assert mean_seconds(10, 1.0, 0.95, 1) == 0.1  # it has a core for itself
    assert mean_seconds(10, 1.0, 0.3, 3) == 0.03  # three share one
    assert mean_seconds(10, 1.0, 0.01, 60) == 0.001
    assert mean_seconds(1, 0.0, 0.0, 1) == 0.0


class Clock:
    """A loop whose time passes when the test says so, and whose rounds are over at once."""

    in_loop = True

    def __init__(self) -> None:
        self.due: list[Callable[[], object]] = []

    def call_soon(self, callback: Callable[[], object]) -> None:
        callback()

    def call_later(self, _: float, callback: Callable[[], object]) -> None:
        self.due.append(callback)

    def tick(self) -> None:
        """Run what waits, once."""
        due, self.due = self.due, []
        for callback in due:
            callback()


class Task:
    """Some listener calls."""

    def __init__(self, calls: int = 1, topic: str = "T") -> None:
        self.calls_left = calls
        self.topic = topic


class Run:
    """What a worker's loop counts."""

    def __init__(self) -> None:
        self.calls = 0
        self.seconds = 0.0

    def count(self, calls: int, seconds: float) -> None:
        self.calls += calls
        self.seconds += seconds


class Pool:
    """A pool whose work waits for the test."""

    def __init__(self, fewest: int, most: int, *, idle_seconds: float = 60.0) -> None:
        self.clock = Clock()
        self.running = threading.Semaphore(0)
        self.go = threading.Semaphore(0)
        self.pool: WorkerPool[Any] = WorkerPool(
            "test-pool",
            (fewest, most),
            cast(EventLoop, self.clock),
            self._perform,
            shared=False,
            idle_seconds=idle_seconds,
        )

    def _perform(self, _: Task, worker: Worker) -> None:
        worker.moved_at = time.monotonic() + 60.0  # not held up, however slow the machine is
        self.running.release()
        assert self.go.acquire(timeout=30.0)
        cast(Run, worker.run).count(1, 0.0)  # a call that took no time: the pace says nothing

    def wait_running(self, count: int) -> None:
        for _ in range(count):
            assert self.running.acquire(timeout=30.0)

    def hold_up(self) -> None:
        """No call has ended for long; the watch looks."""
        for worker in self.pool.workers():
            worker.look(0.0)
            worker.moved_at = 0.0
        self.clock.tick()

    def finish(self, count: int) -> None:
        for _ in range(count):
            self.go.release()


@pytest.fixture
def pools(monkeypatch: pytest.MonkeyPatch) -> Iterator[Callable[..., Pool]]:
    monkeypatch.setattr("rocketmq_fast.consumer.pool.ConsumeWorker", Run)
    made: list[Pool] = []

    def make(*args: Any, **options: Any) -> Pool:
        made.append(Pool(*args, **options))
        return made[-1]

    yield make
    for one in made:
        one.finish(1000)
        assert one.pool.stop(10.0)


def test_stuck_workers_are_doubled_up_to_the_limit(pools: Callable[..., Pool]) -> None:
    it = pools(1, 10)
    for _ in range(30):
        it.pool.submit(Task())
    it.wait_running(1)
    assert it.pool.threads == 1
    for threads, new in ((2, 1), (4, 2), (8, 4), (10, 2), (10, 0)):
        it.hold_up()
        it.wait_running(new)
        assert it.pool.threads == threads


def test_no_thread_is_added_while_calls_end_fast(pools: Callable[..., Pool]) -> None:
    it = pools(1, 10)
    for _ in range(30):
        it.pool.submit(Task())
    it.wait_running(1)
    it.clock.tick()
    for _ in range(5):
        it.finish(1)
        it.wait_running(1)
        it.clock.tick()
        assert it.pool.threads == 1


def test_backlog_at_a_known_pace_wakes_as_many_as_it_deserves(pools: Callable[..., Pool]) -> None:
    it = pools(1, 10)
    it.pool._paces["T"] = pace_of(0.001)
    it.pool.submit(Task(calls=8))
    it.wait_running(1)
    it.pool.submit(Task(calls=8))
    it.pool.submit(Task(calls=8))
    it.pool.submit(Task(calls=8))
    it.wait_running(3)
    assert 4 <= it.pool.threads <= 10


def pace_of(seconds: float) -> Pace:
    pace = Pace()
    pace.note(seconds)
    return pace


def test_a_topic_of_short_calls_keeps_no_threads_from_another(
    pools: Callable[..., Pool],
) -> None:
    it = pools(1, 10)
    it.pool._paces |= {"fast": pace_of(1e-6), "slow": pace_of(0.005)}
    it.pool.submit(Task(topic="fast"))
    it.wait_running(1)
    for _ in range(3):
        it.pool.submit(Task(calls=8, topic="slow"))
    it.wait_running(3)


def test_a_worker_that_is_held_up_stands_in_nobodys_way(pools: Callable[..., Pool]) -> None:
    it = pools(1, 10)
    it.pool._paces["T"] = pace_of(1e-6)
    for _ in range(3):
        it.pool.submit(Task())
    it.wait_running(1)
    assert it.pool.threads == 1
    it.hold_up()
    it.wait_running(1)
    it.hold_up()
    it.wait_running(1)


def test_pace_follows_the_listener(pools: Callable[..., Pool]) -> None:
    it = pools(1, 1)

    def perform(task: Any, worker: Worker) -> None:
        cast(Run, worker.run).count(task.calls_left, task.calls_left * task.seconds)
        it.running.release()

    it.pool._perform = perform
    for seconds, times in ((0.1, 3), (0.0, 4)):
        for _ in range(times):
            task = Task()
            task.seconds = seconds  # type: ignore[attr-defined]
            it.pool.submit(task)
            it.wait_running(1)
        wait_for(lambda s=seconds: it.pool.call_seconds == s, "the pace")


def test_idle_threads_end_down_to_the_least(pools: Callable[..., Pool]) -> None:
    it = pools(2, 8, idle_seconds=0.05)
    for _ in range(8):
        it.pool.submit(Task())
    for new in (1, 1, 2, 4):
        it.wait_running(new)
        it.hold_up()
    assert it.pool.threads == 8
    it.finish(8)
    wait_for(lambda: it.pool.threads == 2, lambda: f"2 threads; {it.pool.threads}")
    # They come back when they are wanted.
    for _ in range(4):
        it.pool.submit(Task())
    for new in (1, 1, 2):
        it.wait_running(new)
        it.hold_up()
    # One that was woken for work which another took before ends again.
    wait_for(lambda: it.pool.threads == 4, lambda: f"4 threads; {it.pool.threads}")


def test_limits_change_while_it_runs(pools: Callable[..., Pool]) -> None:
    it = pools(1, 2)
    for _ in range(12):
        it.pool.submit(Task())
    for _ in range(2):
        it.wait_running(1)
        it.hold_up()
    assert it.pool.threads == 2
    it.pool.resize(1, 4)
    it.hold_up()
    it.wait_running(2)
    assert it.pool.threads == 4
    it.pool.resize(1, 1)
    it.finish(3)
    # Three of four end with their work, the last goes on with the line.
    wait_for(lambda: it.pool.threads == 1, lambda: f"1 thread; {it.pool.threads}")
    it.finish(9)
    wait_for(lambda: not it.pool.waiting, "the line to end")


def test_idle_threads_above_a_lowered_limit_end(pools: Callable[..., Pool]) -> None:
    it = pools(4, 4)
    for _ in range(4):
        it.pool.submit(Task())
    for new in (1, 1, 2):
        it.wait_running(new)
        it.hold_up()
    it.finish(4)
    wait_for(lambda: len(it.pool._idle) == 4, "idle threads")
    it.pool.resize(1, 2)
    wait_for(lambda: it.pool.threads == 2, lambda: f"2 threads; {it.pool.threads}")
    it.pool.submit(Task())
    it.wait_running(1)


@pytest.mark.parametrize("kind", ["concurrent", "orderly", "async"])
def test_threads_of_a_running_consumer(embedded_broker: TestBroker, kind: str) -> None:
    broker = embedded_broker
    topic = broker.topic(4)
    at_once = threading.Semaphore(0)
    allowed = threading.Event()

    def block(messages: list[MessageExt], _: ConsumeContext) -> Any:
        at_once.release()
        assert allowed.wait(30.0)
        return SUCCESS if kind == "concurrent" else None

    async def wait(messages: list[MessageExt], _: ConsumeContext) -> ConsumeStatus:
        at_once.release()
        while not allowed.is_set():
            await asyncio.sleep(0.01)
        return SUCCESS

    broker.send(topic, bodies(8), queues=(0, 1, 2, 3))
    with (
        consuming(
            broker.namesrv_addr,
            broker.group(),
            topic,
            wait if kind == "async" else Recorder(block),
            orderly=kind == "orderly",
            consume_thread_min=1,
            consume_thread_max=2,
        ) as consumer,
        releasing(allowed),
    ):
        for _ in range(2):
            assert at_once.acquire(timeout=20.0)
        with pytest.raises(ConfigError, match="consume_thread_min 3 is over"):
            consumer.update_consume_threads(consume_thread_min=3)
        consumer.update_consume_threads(consume_thread_max=4)
        for _ in range(2):
            assert at_once.acquire(timeout=20.0)
        assert not at_once.acquire(blocking=False)
        allowed.set()


@pytest.mark.parametrize("orderly", [False, True], ids=["concurrent", "orderly"])
def test_a_fast_listener_that_begins_to_block_gets_its_threads(
    embedded_broker: TestBroker, orderly: bool
) -> None:
    broker = embedded_broker
    topic = broker.topic(16)
    at_once = threading.Semaphore(0)
    blocking, allowed = threading.Event(), threading.Event()

    def listen(_: list[MessageExt], __: ConsumeContext) -> Any:
        if blocking.is_set():
            at_once.release()
            assert allowed.wait(120.0)
        return OrderlyStatus.SUCCESS if orderly else SUCCESS

    seen = Recorder(listen)
    broker.send(topic, bodies(800), queues=range(16))
    with (
        consuming(
            broker.namesrv_addr,
            broker.group(),
            topic,
            seen,
            orderly=orderly,
            consume_thread_min=1,
            consume_thread_max=8,
        ),
        releasing(allowed),
    ):
        wait_for(lambda: len(seen.bodies) == 800, "the fast part")
        blocking.set()
        broker.send(topic, bodies(160), queues=range(16))
        for _ in range(8):
            assert at_once.acquire(timeout=60.0)


def test_awaited_calls_above_a_lowered_maximum_end(embedded_broker: TestBroker) -> None:
    broker = embedded_broker
    topic = broker.topic(1)
    begun, go = threading.Semaphore(0), threading.Semaphore(0)
    over = threading.Event()

    async def listener(_: list[MessageExt], __: ConsumeContext) -> ConsumeStatus:
        begun.release()
        while not over.is_set() and not go.acquire(blocking=False):
            await asyncio.sleep(0.01)
        return SUCCESS

    broker.send(topic, bodies(20))
    with (
        consuming(
            broker.namesrv_addr,
            broker.group(),
            topic,
            listener,
            consume_thread_min=1,
            consume_thread_max=4,
        ) as consumer,
        releasing(over),
    ):
        for _ in range(4):
            assert begun.acquire(timeout=20.0)
        consumer.update_consume_threads(consume_thread_max=1)
        go.release(4)
        wait_for(lambda: consumer.stats()["threads"] == 1, "one call at a time")
        for _ in range(3):
            assert begun.acquire(timeout=20.0)
            assert consumer.stats()["threads"] == 1
            go.release()


def test_threads_before_start() -> None:
    consumer = PushConsumer("g", namesrv_addr="a:1")
    consumer.update_consume_threads(consume_thread_min=5, consume_thread_max=6)
    assert (consumer._options.consume_thread_min, consumer._options.consume_thread_max) == (5, 6)
    with pytest.raises(ConfigError, match="1 to 1000"):
        consumer.update_consume_threads(consume_thread_max=0)
