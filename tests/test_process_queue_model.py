"""ProcessQueue against a plain dict, in any order of insertion and from many threads."""

from __future__ import annotations

import itertools
import random
import subprocess
import sys
import threading
from typing import Any

import numpy as np
import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from rocketmq_fast import _core
from tests.reference import process_queue as reference
from tests.reference.messages_factory import build_message
from tests.require import require


def batch_of(offsets: list[int], *sizes: int) -> Any:
    """Messages whose bodies have these sizes in turn, 3 where none is given."""
    return _core.decode_messages(
        b"".join(
            build_message(queue_offset=offset, body=b"b" * size)
            for offset, size in zip(offsets, itertools.cycle(sizes or (3,)))
        )
    )


def offsets_of(messages: Any) -> list[int]:
    return [message.queue_offset for message in messages]


class Model:
    """The queue as simply as it can be said: two dicts from offset to body size."""

    def __init__(self) -> None:
        self.waiting: dict[int, int] = {}
        self.taken: dict[int, int] = {}
        self.largest = 0
        self.consuming = False

    def put(self, offsets: list[int], sizes: tuple[int, ...]) -> bool:
        for offset, size in zip(offsets, itertools.cycle(sizes)):
            if offset not in self.waiting:
                self.waiting[offset] = size
                self.largest = max(self.largest, offset)
        dispatch = bool(self.waiting) and not self.consuming
        self.consuming = self.consuming or dispatch
        return dispatch

    def remove(self, offsets: list[int]) -> int:
        if not self.waiting:
            return -1
        for offset in offsets:
            self.waiting.pop(offset, None)
        return min(self.waiting, default=self.largest + 1)

    def take(self, count: int) -> list[int]:
        taken = sorted(self.waiting)[:count]
        for offset in taken:
            self.taken[offset] = self.waiting.pop(offset)
        if not taken:
            self.consuming = False
        return taken

    def commit(self) -> int:
        last = max(self.taken, default=-2)
        self.taken.clear()
        return last + 1

    def again(self, offsets: list[int]) -> None:
        for offset in offsets:
            if offset in self.taken:
                size = self.taken.pop(offset)
                self.waiting.setdefault(offset, size)

    def clear(self) -> None:
        self.waiting.clear()
        self.taken.clear()
        self.largest = 0


# The last offset that has a successor.
LAST = (1 << 63) - 2
OFFSETS = (
    st.integers(0, 40)
    | st.integers(0, 700)
    | st.integers(0, 1 << 40)
    | st.integers(LAST - 300, LAST)
)
RUN = st.builds(
    lambda first, count, step: list(range(first, min(first + count * step, LAST + 1), step)),
    OFFSETS,
    st.integers(1, 150),
    st.sampled_from([1, 1, 1, 2, 3, 40]),
)
OFFSET_LISTS = RUN | st.lists(OFFSETS, max_size=40) | RUN.map(lambda run: run[::-1])
SIZES = st.sampled_from([(0,), (1,), (100,), (1, 20, 300)])


class QueueMachine(RuleBasedStateMachine):
    def __init__(self) -> None:
        super().__init__()
        self.native = _core.ProcessQueue()
        self.reference = reference.ProcessQueue()
        self.model = Model()
        self.batches: list[Any] = []

    def some(self, data: st.DataObject, known: dict[int, int]) -> list[int]:
        """Offsets to name in a call: known ones, in any order, and strangers."""
        chosen: list[int] = []
        if known:
            ordered = sorted(known)
            first = data.draw(st.integers(0, len(ordered) - 1))
            chosen = ordered[first : first + data.draw(st.integers(1, 100))]
            chosen = chosen[:: data.draw(st.sampled_from([1, 1, 2, -1, 7]))]
        return chosen + data.draw(st.lists(OFFSETS, max_size=3))

    @rule(offsets=OFFSET_LISTS, sizes=SIZES)
    def put(self, offsets: list[int], sizes: tuple[int, ...]) -> None:
        expected = self.model.put(offsets, sizes)
        batch = batch_of(offsets, *sizes)
        self.batches.append(batch)
        assert self.native.put(batch) is expected
        assert self.reference.put(batch) is expected

    @rule(data=st.data())
    def remove(self, data: st.DataObject) -> None:
        offsets = self.some(data, self.model.waiting)
        expected = self.model.remove(offsets)
        assert self.native.remove(offsets) == expected
        assert self.reference.remove(offsets) == expected

    @rule(data=st.data())
    def remove_run_of_batch(self, data: st.DataObject) -> None:
        offsets = self.some(data, self.model.waiting)
        batch = batch_of(offsets)
        start = data.draw(st.integers(0, len(offsets)))
        stop = data.draw(st.integers(start, len(offsets)))
        expected = self.model.remove(offsets[start:stop])
        assert self.native.remove_batch(batch, start, stop) == expected
        assert self.reference.remove(offsets[start:stop]) == expected

    @precondition(lambda self: bool(self.batches))
    @rule(data=st.data())
    def remove_part_of_a_batch_that_was_put(self, data: st.DataObject) -> None:
        batch = data.draw(st.sampled_from(self.batches))
        stop = data.draw(st.integers(0, len(batch)))
        start = data.draw(st.integers(0, stop))
        offsets = offsets_of(batch)[start:stop]
        expected = self.model.remove(offsets)
        assert self.native.remove_batch(batch, start, stop) == expected
        assert self.reference.remove(offsets) == expected

    @rule(count=st.integers(0, 200))
    def take(self, count: int) -> None:
        expected = self.model.take(count)
        assert offsets_of(self.native.take(count)) == expected
        assert offsets_of(self.reference.take(count)) == expected

    @rule()
    def commit(self) -> None:
        expected = self.model.commit()
        assert self.native.commit() == expected
        assert self.reference.commit() == expected

    @rule()
    def rollback(self) -> None:
        self.model.again(list(self.model.taken))
        self.native.rollback()
        self.reference.rollback()

    @rule(data=st.data())
    def make_consume_again(self, data: st.DataObject) -> None:
        offsets = self.some(data, self.model.taken)
        self.model.again(offsets)
        self.native.make_consume_again(offsets)
        self.reference.make_consume_again(offsets)

    @precondition(lambda self: len(self.model.waiting) > 300)
    @rule()
    def clear(self) -> None:
        self.model.clear()
        self.native.clear()
        self.reference.clear()

    @invariant()
    def all_agree(self) -> None:
        self.native.check()
        waiting, taken = self.model.waiting, self.model.taken
        first, last = min(waiting, default=-1), max(waiting, default=-1)
        size = sum(waiting.values()) + sum(taken.values())
        for queue in (self.native, self.reference):
            assert queue.count == len(waiting) + len(taken)
            assert queue.size == size
            assert (queue.min_offset, queue.max_offset, queue.span) == (first, last, last - first)
        assert self.native.taken_count == len(taken)
        assert self.native.taken_min_offset == min(taken, default=-1)
        assert self.native.taken_max_offset == max(taken, default=-1)
        head = self.native.first()
        assert (None if head is None else head.queue_offset) == (first if waiting else None)


TestQueueMachine = QueueMachine.TestCase
TestQueueMachine.settings = settings(max_examples=200, stateful_step_count=40, deadline=None)


def test_the_recorded_minimum_offsets() -> None:
    queue = _core.ProcessQueue()
    assert queue.put(batch_of([10, 11, 12], 5)) is True
    assert (queue.count, queue.size, queue.span) == (3, 15, 2)
    assert queue.put(batch_of([13])) is False
    assert queue.remove([11]) == 10
    assert queue.remove([10]) == 12
    assert queue.remove([12, 13]) == 14
    assert queue.remove([13]) == -1


def test_the_recorded_takes_and_commits() -> None:
    queue = _core.ProcessQueue()
    queue.put(batch_of([5, 6, 7]))
    assert offsets_of(queue.take(2)) == [5, 6]
    assert (queue.span, queue.count) == (0, 3)
    assert (queue.commit(), queue.count) == (7, 1)
    assert offsets_of(queue.take(2)) == [7]
    queue.make_consume_again([7])
    assert (queue.min_offset, queue.taken_count) == (7, 0)
    assert offsets_of(queue.take(1)) == [7]
    queue.rollback()
    assert (queue.min_offset, queue.taken_count) == (7, 0)
    queue.take(1)
    assert queue.commit() == 8
    assert queue.take(1) == []
    assert queue.put(batch_of([9])) is True
    assert queue.commit() == -1
    assert (queue.put(batch_of([9])), queue.count) == (False, 1)


def test_an_offset_put_again_while_it_is_taken_counts_once_they_meet() -> None:
    for meet in ("take", "rollback", "make_consume_again"):
        queue = _core.ProcessQueue()
        queue.put(batch_of([5], 10))
        queue.take(1)
        queue.put(batch_of([5], 3))
        assert (queue.count, queue.size) == (2, 13)
        if meet == "take":
            assert [len(message.body) for message in queue.take(1)] == [3]
        elif meet == "rollback":
            queue.rollback()
        else:
            queue.make_consume_again([5])
        assert (queue.count, queue.size) == (1, 3)
        queue.check()
        queue.clear()
        assert (queue.count, queue.size) == (0, 0)


ORDERS = ["ascending", "descending", "shuffled", "inside out"]


@pytest.mark.parametrize("order", ORDERS)
@pytest.mark.parametrize("gap", [1, 3])
def test_any_order_of_insertion_and_removal(order: str, gap: int) -> None:
    count = 5000
    offsets = list(range(0, count * gap, gap))
    source = random.Random(order)
    shuffled = source.sample(offsets, count)
    inserted = {
        "ascending": offsets,
        "descending": offsets[::-1],
        "shuffled": shuffled,
        "inside out": offsets[count // 2 :] + offsets[: count // 2][::-1],
    }[order]
    for removed in (offsets, offsets[::-1], source.sample(offsets, count)):
        queue = _core.ProcessQueue()
        for start in range(0, count, 100):
            queue.put(batch_of(inserted[start : start + 100]))
        queue.check()
        assert (queue.count, queue.min_offset, queue.max_offset) == (count, 0, offsets[-1])
        left = set(offsets)
        for start in range(0, count, 250):
            gone = removed[start : start + 250]
            left.difference_update(gone)
            assert queue.remove(gone) == min(left, default=offsets[-1] + 1)
        queue.check()
        assert (queue.count, queue.size) == (0, 0)


def test_offsets_may_come_as_an_array() -> None:
    queue = _core.ProcessQueue()
    batch = batch_of([1, 2, 3])
    queue.put(batch)
    assert queue.remove(batch.queue_offsets[:2]) == 3
    assert queue.remove(np.array([3], dtype=np.int32)) == 4
    assert queue.remove([]) == -1


def test_the_largest_offsets_are_kept() -> None:
    last = (1 << 62) + 5
    queue = _core.ProcessQueue()
    queue.put(batch_of([last, 0]))
    assert (queue.min_offset, queue.max_offset, queue.span) == (0, last, last)
    assert queue.remove([0]) == last
    assert queue.remove([last]) == last + 1


def test_batches_are_released_with_their_last_message() -> None:
    first, second = batch_of([1, 2, 3]), batch_of([3, 4])
    before = sys.getrefcount(first), sys.getrefcount(second)
    queue = _core.ProcessQueue()
    queue.put(first)
    queue.put(second)
    assert (sys.getrefcount(first), sys.getrefcount(second)) == (before[0] + 1, before[1] + 1)
    queue.put(first)
    queue.remove([1, 2])
    assert sys.getrefcount(first) == before[0] + 1
    queue.remove([3])
    assert sys.getrefcount(first) == before[0]
    taken = queue.take(5)
    assert offsets_of(taken) == [4]
    del taken
    queue.commit()
    assert sys.getrefcount(second) == before[1]
    queue.put(first)
    queue.take(2)
    queue.clear()
    assert sys.getrefcount(first) == before[0]
    queue.put(first)
    del queue
    assert sys.getrefcount(first) == before[0]


def test_the_largest_offset_has_no_successor() -> None:
    largest = (1 << 63) - 1
    queue = _core.ProcessQueue()
    queue.put(batch_of(list(range(largest - 40, largest + 1))))
    queue.check()
    assert queue.remove(range(largest - 40, largest)) == largest
    assert queue.remove([largest]) == largest


WITHOUT_MEMORY = """
import sys
import _testcapi
from tests.test_process_queue_model import batch_of
from rocketmq_fast import _core

batch = batch_of(list(range(400)))
before = sys.getrefcount(batch)
failures = 0
for allowed in range(2000):
    queue = _core.ProcessQueue()
    queue.put(batch)
    failed = False
    _testcapi.set_nomemory(allowed)
    try:
        taken = queue.take(400)
    except MemoryError:
        failed = True
    finally:
        _testcapi.remove_mem_hooks()
    taken = None
    queue.clear()
    assert sys.getrefcount(batch) == before, (allowed, sys.getrefcount(batch), before)
    failures += failed
    if not failed:
        break
assert failures > 100, failures
print("ok")
"""


def test_a_take_that_runs_out_of_memory_keeps_no_batch() -> None:
    require("testcapi")  # which makes allocations fail
    done = subprocess.run(
        [sys.executable, "-c", WITHOUT_MEMORY], capture_output=True, text=True, check=False
    )
    assert (done.returncode, done.stdout) == (0, "ok\n"), done.stderr[-2000:]


def test_a_run_outside_its_batch_is_refused() -> None:
    queue = _core.ProcessQueue()
    batch = batch_of([1, 2])
    for start, stop in ((0, 3), (2, 1), (3, 3)):
        with pytest.raises(IndexError):
            queue.remove_batch(batch, start, stop)


@pytest.fixture
def _quick_switches() -> Any:
    """Threads change places as often as the interpreter allows."""
    before = sys.getswitchinterval()
    sys.setswitchinterval(1e-6)
    yield
    sys.setswitchinterval(before)


def run_threads(*functions: Any) -> None:
    """Start all at once, wait for all, raise the first error."""
    barrier = threading.Barrier(len(functions))
    errors: list[BaseException] = []

    def body(function: Any) -> None:
        try:
            barrier.wait(30)
            function()
        except BaseException as error:  # noqa: BLE001  handed to the test below
            errors.append(error)

    threads = [threading.Thread(target=body, args=(function,)) for function in functions]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(120)
        assert not thread.is_alive()
    if errors:
        raise errors[0]


@pytest.mark.usefixtures("_quick_switches")
def test_threads_that_put_and_remove_their_own_offsets_leave_nothing() -> None:
    queue = _core.ProcessQueue()
    count, rounds, workers = 20, 60, 8

    def work(worker: int) -> None:
        source = random.Random(worker)
        for number in range(rounds):
            # Offsets of the workers interleave.
            offsets = [(number * count + n) * workers + worker for n in range(count)]
            queue.put(batch_of(offsets))
            source.shuffle(offsets)
            for start in range(0, count, 4):
                result = queue.remove(offsets[start : start + 4])
                assert result >= 0
            assert queue.count >= 0

    def watch() -> None:
        for _ in range(300):
            queue.check()
            first = queue.first()
            assert first is None or first.queue_offset >= 0

    run_threads(*[lambda w=worker: work(w) for worker in range(workers)], watch)
    queue.check()
    assert (queue.count, queue.size, queue.min_offset) == (0, 0, -1)


@pytest.mark.usefixtures("_quick_switches")
def test_the_minimum_offset_never_passes_a_message_that_is_not_removed() -> None:
    queue = _core.ProcessQueue()
    total, step = 4000, 50
    lock = threading.Lock()
    pending: list[list[int]] = []
    outstanding: set[int] = set()
    done = threading.Event()

    def pull() -> None:
        for start in range(0, total, step):
            offsets = list(range(start, start + step))
            with lock:
                outstanding.update(offsets)
                queue.put(batch_of(offsets))
                pending.extend([n] for n in offsets)
                random.Random(start).shuffle(pending)
        done.set()

    def consume() -> None:
        while True:
            with lock:
                work = pending.pop() if pending else None
                ended = work is None and done.is_set()
            if ended:
                return
            if work is None:
                continue
            with lock:
                outstanding.difference_update(work)
            commit = queue.remove(work)
            with lock:
                # Others may have removed more since: the offset may be low, never high.
                assert commit <= min(outstanding, default=total)

    run_threads(pull, consume, consume, consume)
    assert queue.count == 0


@pytest.mark.usefixtures("_quick_switches")
def test_threads_that_take_and_commit_see_every_message_once() -> None:
    queue = _core.ProcessQueue()
    total, step = 4000, 40
    seen: list[int] = []
    pulled = threading.Event()

    def pull() -> None:
        for start in range(0, total, step):
            queue.put(batch_of(list(range(start, start + step))))
        pulled.set()

    def consume() -> None:
        while True:
            ended = pulled.is_set()
            messages = queue.take(7)
            if not messages and ended:
                return
            seen.extend(offsets_of(messages))
            if len(seen) % 3:
                queue.commit()

    run_threads(pull, consume, consume)
    queue.commit()
    assert sorted(seen) == list(range(total))
    queue.check()
    assert (queue.count, queue.size) == (0, 0)


@pytest.mark.usefixtures("_quick_switches")
def test_threads_that_do_everything_keep_the_queue_sound() -> None:
    queue = _core.ProcessQueue()

    def work(seed: int) -> None:
        source = random.Random(seed)
        for _ in range(300):
            offsets = [source.randrange(500) for _ in range(source.randint(1, 20))]
            match source.randrange(8):
                case 0 | 1:
                    queue.put(batch_of(offsets, source.choice((0, 9))))
                case 2:
                    queue.remove(offsets)
                case 3:
                    for message in queue.take(source.randint(0, 9)):
                        assert len(message.body) in (0, 9)
                case 4:
                    queue.commit()
                case 5:
                    queue.rollback()
                case 6:
                    queue.make_consume_again(offsets)
                case _:
                    assert queue.size % 9 == 0
                    queue.check()

    run_threads(*[lambda s=seed: work(s) for seed in range(6)])
    queue.check()
    queue.clear()
    assert (queue.count, queue.size) == (0, 0)
