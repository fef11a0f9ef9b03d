"""What queues cost a push consumer that has many of them and nothing to do.

Every queue holds one message. Times run from the start of the consumer; then rebalance rounds are
timed, and the CPU time of the process while nothing comes. ``python -m benchmarks.many_queues
--namesrv A --topics T,U --queues N`` prints a JSON object.
"""

from __future__ import annotations

import argparse
import json
import threading
import time
import uuid

import rocketmq_fast as rmq
from benchmarks.push_client import Reader
from benchmarks.usage import rss_bytes, used
from rocketmq_fast.consumer.running import RunningConsumer

_ROUNDS = 5
_LOOK_SECONDS = 0.02


class _Rounds:
    """Times the rounds of a consumer, on the rebalance thread as they are."""

    def __init__(self, running: RunningConsumer) -> None:
        self.seconds: list[float] = []
        self._running = running
        self._ended = threading.Event()
        self._round = running.rebalance
        running.rebalance = self._timed  # type: ignore[method-assign]

    def _timed(self) -> None:
        began = time.perf_counter()
        self._round()
        self.seconds.append(time.perf_counter() - began)
        self._ended.set()

    def run(self, count: int, timeout: float) -> list[float]:
        """Ask for rounds one after another; the seconds of each."""
        self.seconds.clear()
        for _ in range(count):
            self._ended.clear()
            self._running.instance.rebalance_soon()
            if not self._ended.wait(timeout):
                raise RuntimeError(f"no rebalance round within {timeout} s")
        return self.seconds[:count]


def measure_queues(
    namesrv: str, topics: list[str], queues: int, *, group: str, idle: float, timeout: float
) -> dict[str, object]:
    """Own ``queues`` queues with a message each, then be idle for ``idle`` seconds."""
    reader = Reader(queues)
    consumer = rmq.PushConsumer(
        group, namesrv_addr=namesrv, consume_from_where="CONSUME_FROM_FIRST_OFFSET"
    )
    for topic in topics:
        consumer.subscribe(topic)
    consumer.register_listener(reader.listen)
    wanted = frozenset(topics)
    before = rss_bytes()
    began = time.perf_counter()
    consumer.start()
    running = consumer._running
    if running is None:
        raise RuntimeError("the consumer did not start")
    until = began + timeout

    def owned() -> int:
        return sum(queue.message_queue.topic in wanted for queue in running.assignment.queues())

    while owned() < queues and time.perf_counter() < until:
        time.sleep(_LOOK_SECONDS)
    assigned = time.perf_counter() - began
    complete = reader.wait(max(0.0, until - time.perf_counter()))
    pulled = time.perf_counter() - began
    rounds = _Rounds(running).run(_ROUNDS, timeout)
    cpu, wall = time.process_time(), time.perf_counter()
    time.sleep(idle)
    idle_cpu, idle_wall = time.process_time() - cpu, time.perf_counter() - wall
    result: dict[str, object] = {
        "queues": queues,
        "topics": len(topics),
        "messages": reader.total("messages"),
        "complete": complete,
        "bytes": reader.total("bytes"),
        "assigned_seconds": assigned,
        "reached_seconds": pulled,
        "round_seconds": rounds,
        "idle_seconds": idle_wall,
        "idle_cpu_seconds": idle_cpu,
        "process_threads": threading.active_count(),
        "rss_bytes": rss_bytes(),
        "rss_grown_bytes": rss_bytes() - before,
        **used(),
    }
    consumer.shutdown()
    return result


def main() -> None:
    """Command line."""
    parser = argparse.ArgumentParser(prog="benchmarks.many_queues", description=__doc__)
    parser.add_argument("--namesrv", required=True)
    parser.add_argument("--topics", required=True, help="joined by commas")
    parser.add_argument("--queues", type=int, required=True, help="of all topics")
    parser.add_argument("--group", default=f"queues_{uuid.uuid4().hex[:12]}")
    parser.add_argument("--idle", type=float, default=30.0, help="seconds without messages")
    parser.add_argument("--timeout", type=float, default=120.0)
    options = vars(parser.parse_args())
    options["topics"] = options["topics"].split(",")
    print(json.dumps(measure_queues(**options)))


if __name__ == "__main__":
    main()
