"""The worker threads of a consumer, as many as the backlog and the listener's pace call for.

How many workers are woken follows from the measured time of a listener call: enough to work off the
backlog within milliseconds, one for a listener of microseconds, so that a fast listener costs one
hand-over a pull. A worker that ends no call for much longer than expected, in a call or behind it,
is held up and does not count; a watch on the event loop doubles the workers each time that it finds
a line and all of them held up. Threads above the minimum end when they were idle for a minute,
those above the maximum with the work that they are on.

Threads that only wait for the GIL look like slow listeners, and more of them would wait longer.
So the time that counts is what a call computes where its thread shares a core with others
(`mean_seconds`), and the low quartile of the latest means of a topic (`Pace`). Calls too short to
wait for anything else get one worker or two (`enough_for`), those above it go idle
(`_has_surplus`). Nobody is called up but as many again as there are (`_call_up`).
"""

from __future__ import annotations

import _thread
import logging
import math
import sys
import threading
import time
from abc import ABC, abstractmethod
from collections import deque
from collections.abc import Callable, Iterable
from itertools import islice
from typing import Generic, Protocol, TypeVar

from rocketmq_fast._core.consume import ConsumeWorker, QueueState
from rocketmq_fast.consumer.options import PushConsumerOptions
from rocketmq_fast.consumer.stats import ConsumerStats, TopicCounters
from rocketmq_fast.remoting.loop import EventLoop

logger = logging.getLogger(__name__)

# The backlog that is due at once should be worked off in about this time.
_TARGET_SECONDS = 0.002
# So much of the line tells how many workers it deserves; with many queues it can be thousands long.
_LOOKED_AT = 64
# A worker is held up that ended no call for longer than this, and than so many times the pace.
_WATCH_SECONDS, _MUCH_LONGER = 0.01, 2
_IDLE_SECONDS = 60.0
# A call looks slow also when its thread had to wait for the GIL, and more threads would make that
# worse. The pace is a low quartile of so many pieces of work: most of them may have waited. Threads
# that together use so much of a core, and each less of it than its own would be, all wait.
_REMEMBERED = 7
_GIL_BOUND, _OWN_CORE = 0.5, 0.8
# A call shorter than this waits for nothing but the GIL: so many workers are enough for it.
_ENOUGH = ((10e-6, 1), (50e-6, 2))


class Work(Protocol):
    """Something that workers take from the pool's line."""

    @property
    def calls_left(self) -> int:
        """Listener calls that nobody has claimed yet; 0 when the work can be forgotten."""

    @property
    def topic(self) -> str:
        """Calls of one topic are expected to take about the same time."""


W = TypeVar("W", bound=Work)


def mean_seconds(calls: int, seconds: float, cpu_seconds: float, active: int) -> float:
    """The mean time of calls; where `active` threads wait for the GIL, what they compute alone.

    `seconds` by the clock, `cpu_seconds` on the CPU.
    """
    share = cpu_seconds / seconds if seconds > 0 else 1.0
    waits = share < _OWN_CORE and share * active >= _GIL_BOUND
    return (cpu_seconds if waits else seconds) / calls


class Pace:
    """The time a call is expected to take: the low quartile of the latest means. Any thread."""

    def __init__(self) -> None:
        self.seconds = 0.0
        self._means: deque[float] = deque(maxlen=_REMEMBERED)
        self._lock = threading.Lock()

    def note(self, mean: float) -> None:
        """Take a further mean into account."""
        with self._lock:
            self._means.append(mean)
            self.seconds = sorted(self._means)[len(self._means) // 4]


def workers_for(backlog_seconds: float, call_seconds: float) -> int:
    """How many workers a backlog of listener calls deserves, the longest of which take so long."""
    workers = max(1, math.ceil(backlog_seconds / _TARGET_SECONDS))
    return min(workers, enough_for(call_seconds))


def enough_for(call_seconds: float) -> int:
    """Above so many workers, calls that take so long only stand in each other's way."""
    for seconds, workers in _ENOUGH:
        if call_seconds < seconds:
            return workers
    return sys.maxsize


class Worker:
    """One thread's state. `run.calls` and `run.seconds` count its listener calls."""

    __slots__ = ("_calls_seen", "_reported", "moved_at", "park", "run", "thread")

    def __init__(self) -> None:
        self.run = ConsumeWorker()
        self.park = _thread.allocate_lock()
        self.park.acquire()
        self.thread: threading.Thread | None = None
        self._reported = (0, 0.0, 0)
        self._calls_seen = 0
        self.moved_at = time.monotonic()

    def look(self, now: float) -> None:
        """Keep in `moved_at` when calls were last seen to have ended. Lock of the pool held."""
        if self.run.calls != self._calls_seen:
            self._calls_seen = self.run.calls
            self.moved_at = now

    def report(self, counters: TopicCounters, lock: threading.Lock) -> None:
        """Add what was done since the last report, all of it on one topic, to its counters."""
        run = self.run
        calls, seconds, succeeded = self._reported
        self._reported = run.calls, run.seconds, run.succeeded
        with lock:
            counters.calls += run.calls - calls
            counters.call_seconds += run.seconds - seconds
            counters.succeeded += run.succeeded - succeeded


class WorkerPool(Generic[W]):
    """Runs `perform(work, worker)` on its threads.

    Work that is `shared` stays first in line until nothing of it is left, and several workers may
    be on it; other work leaves the line when a worker takes it. Any thread may submit.
    """

    def __init__(
        self,
        name: str,
        limits: tuple[int, int],
        loop: EventLoop,
        perform: Callable[[W, Worker], None],
        *,
        shared: bool,
        idle_seconds: float = _IDLE_SECONDS,
    ) -> None:
        self._paces: dict[str, Pace] = {}
        self._name = name
        self._fewest, self._most = limits
        self._idle_seconds = idle_seconds
        self._loop = loop
        self._perform = perform
        self._shared = shared
        self._lock = threading.Lock()
        self._line: deque[W] = deque()
        self._workers: list[Worker] = []
        self._idle: list[Worker] = []
        self._named = 0
        self._stopping = False
        self._patient = True
        self._mustering = False
        self._watching = False
        self._one_ended = threading.Condition(self._lock)

    # ------------------------------------------------------------------------------- intake

    def submit(self, work: W) -> None:
        """Put work in line, for as many workers as it deserves. Ignored once stopping.

        On the loop's thread they are woken at the end of its round: several pulls may be answered
        in it.
        """
        with self._lock:
            if self._stopping:
                return
            self._line.append(work)
            if self._mustering:
                return
            later = self._mustering = self._loop.in_loop
        if later:
            self._loop.call_soon(self._muster)
        else:
            self._muster()

    def _muster(self) -> None:
        """Wake the workers that the line deserves. Any thread."""
        with self._lock:
            self._mustering = False
            if self._stopping:
                return
            missing = self._wanted() - self._moving()
            woken = self._call_up(missing) if missing > 0 else ()
            watch = not self._watching
            self._watching = True
        self._wake(woken)
        if watch:
            self._loop.call_later(_WATCH_SECONDS, self._watch)

    def _active(self) -> int:
        return len(self._workers) - len(self._idle)

    def _moving(self) -> int:
        """Active workers that are not held up. Lock held."""
        now = time.monotonic()
        before = now - max(_WATCH_SECONDS, _MUCH_LONGER * self.call_seconds)
        moving = 0
        for worker in self._workers:
            worker.look(now)
            moving += worker.moved_at >= before and worker not in self._idle
        return moving

    def _expected(self, topic: str) -> float:
        """The time of a call of a topic; 0.0 when nothing is known yet."""
        pace = self._paces.get(topic)
        return 0.0 if pace is None else pace.seconds

    def _wanted(self) -> int:
        """Workers that the line deserves. Lock held."""
        backlog = longest = 0.0
        for work in islice(self._line, _LOOKED_AT):
            seconds = self._expected(work.topic)
            backlog += work.calls_left * seconds
            longest = max(longest, seconds)
        return workers_for(backlog, longest)

    def _has_surplus(self) -> bool:
        """Whether workers stand in each other's way. Lock held."""
        active = self._active()
        if active < 2:
            return False
        expected = [self._expected(work.topic) for work in islice(self._line, _LOOKED_AT)]
        if 0.0 in expected:
            return False  # nothing is known yet
        enough = enough_for(max(expected))
        return active > enough and self._moving() > enough

    def _call_up(self, count: int) -> list[Worker]:
        """Choose `count` more workers, new ones if none is idle. Lock held; `_wake` them after.

        At most twice as many as there are: whether they help or wait for the GIL is seen then.
        """
        count = min(count, max(1, self._active()))
        chosen: list[Worker] = []
        while len(chosen) < count:
            if self._idle:
                chosen.append(self._idle.pop())
            elif len(self._workers) < self._most:
                chosen.append(self._new_worker())
            else:
                break
        now = time.monotonic()
        for worker in chosen:
            worker.moved_at = now
        return chosen

    def _wake(self, workers: Iterable[Worker]) -> None:
        """Set chosen workers to work. Without the lock: the first thing they do is to take it."""
        for worker in workers:
            if worker.thread is None or worker.thread.ident is not None:
                worker.park.release()
                continue
            try:
                worker.thread.start()
            except RuntimeError as error:  # the process may have no more threads
                logger.warning("%s: %s; going on with the other threads", self._name, error)
                with self._lock:
                    self._remove(worker)

    def _new_worker(self) -> Worker:
        worker = Worker()
        self._named += 1
        worker.thread = threading.Thread(
            target=self._work, args=(worker,), name=f"{self._name}-{self._named}", daemon=True
        )
        self._workers.append(worker)
        return worker

    def _watch(self) -> None:
        """Add workers while there is a line and all are held up. Event loop's thread."""
        with self._lock:
            if not self._line or self._stopping:
                self._watching = False
                return
            moving = self._moving()
            woken = self._call_up(self._wanted() - moving if moving else max(1, self._active()))
        self._wake(woken)
        self._loop.call_later(_WATCH_SECONDS, self._watch)

    # ------------------------------------------------------------------------------ workers

    def _next(self, worker: Worker) -> W | None:
        """Work with something left; None when the worker shall end. Parks in between."""
        while True:
            with self._lock:
                if len(self._workers) > self._most:
                    self._remove(worker)
                    return None
                while self._line and not self._stopping and not self._has_surplus():
                    work = self._line[0]
                    if not self._shared:
                        self._line.popleft()
                    if work.calls_left:
                        return work
                    if self._shared:
                        self._line.popleft()
                if self._stopping:
                    self._remove(worker)
                    return None
                self._idle.append(worker)
            if worker.park.acquire(timeout=self._idle_seconds):
                continue
            with self._lock:
                if worker not in self._idle:
                    worker.park.acquire()  # woken just after the wait ended
                    continue
                self._idle.remove(worker)
                if len(self._workers) > self._fewest:
                    self._remove(worker)
                    return None

    def _remove(self, worker: Worker) -> None:
        self._workers.remove(worker)
        self._one_ended.notify_all()

    def _work(self, worker: Worker) -> None:
        run = worker.run
        while (work := self._next(worker)) is not None:
            calls, seconds, cpu = run.calls, run.seconds, time.thread_time()
            try:
                self._perform(work, worker)
            except Exception:
                logger.exception("%s: messages stay unacknowledged", self._name)
            calls = run.calls - calls
            if calls:
                cpu = time.thread_time() - cpu
                mean = mean_seconds(calls, run.seconds - seconds, cpu, self._active())
                pace = self._paces.get(work.topic) or self._paces.setdefault(work.topic, Pace())
                pace.note(mean)

    # ----------------------------------------------------------------------------- lifecycle

    def resize(self, fewest: int, most: int) -> None:
        """Change the limits. Workers above the new maximum end with the work that they are on."""
        with self._lock:
            self._fewest, self._most = fewest, most
            surplus = min(len(self._workers) - most, len(self._idle))
            for _ in range(surplus):
                self._idle.pop().park.release()

    @property
    def call_seconds(self) -> float:
        """The expected time of a listener call, of the topic where they take longest."""
        return max((pace.seconds for pace in tuple(self._paces.values())), default=0.0)

    @property
    def stopping(self) -> bool:
        """Whether `stop` was called."""
        return self._stopping

    @property
    def waiting(self) -> bool:
        """Whether work stands in line."""
        return bool(self._line)

    @property
    def threads(self) -> int:
        """Threads of the pool."""
        return len(self._workers)

    def line(self) -> list[W]:
        """A copy of the work in line."""
        with self._lock:
            return list(self._line)

    def workers(self) -> list[Worker]:
        """A copy of the workers."""
        with self._lock:
            return list(self._workers)

    def stop(self, timeout: float, forget: Callable[[W], object] | None = None) -> bool:
        """Hand out nothing more and wait for the running work. Returns whether all has ended.

        `forget` is called for each work still in line. The calling thread, when it is a worker, is
        not waited for.
        """
        end = time.monotonic() + timeout
        with self._lock:
            self._stopping = True
            if forget is not None:
                for work in self._line:
                    forget(work)
            self._line.clear()
            while self._idle:
                self._idle.pop().park.release()
            me = threading.current_thread()
            while any(worker.thread is not me for worker in self._workers):
                rest = end - time.monotonic()
                if rest <= 0 or not self._patient:
                    return False
                self._one_ended.wait(rest)
        return True

    def stop_waiting(self) -> None:
        """Have `stop` return, also one that is still to come. Any thread, but no signal handler."""
        with self._lock:
            self._patient = False
            self._one_ended.notify_all()


class PooledService(ABC, Generic[W]):
    """What is the same for all services that call a listener on the threads of a pool."""

    def __init__(
        self,
        group: str,
        options: PushConsumerOptions,
        loop: EventLoop,
        stats: ConsumerStats,
        *,
        shared: bool,
    ) -> None:
        self._stats = stats
        self._options = options
        self._loop = loop
        self._lock = threading.Lock()
        self._batch_size = options.consume_message_batch_max_size
        self._pool: WorkerPool[W] = WorkerPool(
            f"rocketmq-consume-{group}",
            (options.consume_thread_min, options.consume_thread_max),
            loop,
            self._perform,
            shared=shared,
        )

    @abstractmethod
    def _perform(self, work: W, worker: Worker) -> None:
        """Do work. A worker's thread."""

    def _count(self, queue: QueueState, succeeded: int, failed: int) -> None:
        """Count messages of a call that was settled outside of the workers' loops."""
        counters = self._stats.topic(queue.message_queue.topic)
        with self._lock:
            counters.succeeded += succeeded
            counters.failed += failed

    def flush(self) -> None:
        """Acknowledge what workers gathered before the listener calls that hold them up."""
        for worker in self._pool.workers():
            worker.run.flush()

    @property
    def threads(self) -> int:
        """Threads of the pool."""
        return self._pool.threads

    @property
    def call_seconds(self) -> float:
        """The expected time of a listener call, of the topic where they take longest."""
        return self._pool.call_seconds

    def stop_waiting(self) -> None:
        """Have the stop wait no longer for running calls."""
        self._pool.stop_waiting()

    def resize(self, fewest: int, most: int) -> None:
        """Change how many threads there may be."""
        self._pool.resize(fewest, most)
