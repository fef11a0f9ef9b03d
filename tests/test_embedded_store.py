"""The store of the embedded broker: what was acknowledged is there after any end."""

from __future__ import annotations

import os
import shutil
import stat
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from rocketmq_fast._core import decode_messages
from rocketmq_fast._core.stored import CodeSet
from rocketmq_fast.embedded import BrokerConfig, StoreError
from rocketmq_fast.embedded import store as store_module
from rocketmq_fast.embedded.consume_queue import ConsumeQueue
from rocketmq_fast.embedded.files import directory_of, load_json, replace_file, save_json
from rocketmq_fast.embedded.groups import GroupConfig, GroupTable, OffsetTable
from rocketmq_fast.embedded.schedule import ScheduleService
from rocketmq_fast.embedded.store import SCHEDULE_TOPIC, MessageStore
from rocketmq_fast.embedded.topics import TopicConfig, TopicTable
from tests.embedded_raw import element

HOST = bytes([127, 0, 0, 1, 0, 0, 0x2A, 0x9F])


class Clock:
    def __init__(self) -> None:
        self.now = 1_700_000_000_000

    def __call__(self) -> int:
        return self.now


@pytest.fixture
def clock() -> Clock:
    return Clock()


def everything(_: str) -> bool:
    return True


Open = Callable[..., MessageStore]


@pytest.fixture
def open_store(tmp_path: Path, clock: Clock) -> Iterator[Open]:
    opened: list[MessageStore] = []

    def open_one(
        path: Path | None = None, exists: Callable[[str], bool] = everything, **options: object
    ) -> MessageStore:
        config = BrokerConfig(**options)  # type: ignore[arg-type]
        store = MessageStore(path or tmp_path / "store", config, store_host=HOST, clock=clock)
        opened.append(store)
        store.recover(exists)
        return store

    yield open_one
    for store in opened:
        store.abandon()


def put(store: MessageStore, topic: str, queue: int, body: bytes, properties: bytes = b"") -> int:
    stored = store.put(topic, queue, body, properties=properties, born_timestamp=1, born_host=HOST)
    return stored.queue_offset


def put_batch(store: MessageStore, topic: str, queue: int, count: int, size: int = 100) -> None:
    body = b"".join(element(bytes([i % 256]) * size, "TAGS\x01t") for i in range(count))
    store.put_batch(topic, queue, body, properties=b"", born_timestamp=1, born_host=HOST)


def bodies(store: MessageStore, topic: str, queue: int, offset: int = 0) -> list[bytes]:
    """All bodies of a queue, checked for their offsets."""
    found = []
    while True:
        got = store.get(topic, queue, offset, 32, None)
        if got.status != store_module.FOUND:
            return found
        batch = decode_messages(got.body, check_crc=True)
        assert not batch.errors
        for i, message in enumerate(batch):
            assert (message.queue_offset, message.queue_id) == (offset + i, queue)
            found.append(message.body)
        assert got.next_offset == offset + len(batch)
        offset = got.next_offset


def test_clean_stop_and_start_keep_everything(open_store: Open) -> None:
    store = open_store()
    for i in range(100):
        assert put(store, "T", i % 3, b"%d" % i) == i // 3
    put_batch(store, "%RETRY%g", 0, 40)
    store.close()
    again = open_store()
    assert bodies(again, "T", 1) == [b"%d" % i for i in range(1, 100, 3)]
    assert len(bodies(again, "%RETRY%g", 0)) == 40
    assert put(again, "T", 0, b"next") == 34
    assert again.log.end > store.log.end


@pytest.mark.parametrize("saved", [False, True])
def test_a_killed_store_is_rebuilt_from_the_log(open_store: Open, saved: bool) -> None:
    store = open_store()
    put_batch(store, "A", 0, 500)
    if saved:
        store.checkpoint().write()
    put_batch(store, "A", 0, 500)
    put_batch(store, "B", 7, 3)
    store.abandon()
    again = open_store()
    assert (again.max_offset("A", 0), again.max_offset("B", 7)) == (1000, 3)
    assert len(bodies(again, "A", 0)) == 1000
    got = again.get("A", 0, 999, 32, CodeSet([ord("t")]))
    assert got.count == 1


def test_every_torn_tail_is_cut_to_whole_messages(open_store: Open, tmp_path: Path) -> None:
    store = open_store()
    put_batch(store, "T", 0, 3, size=20)
    whole = store.log.end
    store.checkpoint().write()
    put_batch(store, "T", 0, 1, size=20)
    end = store.log.end
    store.abandon()
    for cut in range(whole, end + 1):
        copy = tmp_path / f"cut-{cut}"
        shutil.copytree(store.root, copy)
        os.truncate(copy / "commitlog" / f"{0:020d}", cut)
        torn = open_store(copy)
        expected = 4 if cut == end else 3
        assert len(bodies(torn, "T", 0)) == expected
        assert torn.log.end == (end if cut == end else whole)
        assert put(torn, "T", 0, b"after") == expected
        torn.abandon()


def test_a_damaged_tail_is_cut_and_a_zero_filled_one_too(open_store: Open, tmp_path: Path) -> None:
    store = open_store()
    put_batch(store, "T", 0, 3, size=50)
    whole = store.log.end
    put_batch(store, "T", 0, 1, size=50)
    store.abandon()
    log = store.root / "commitlog" / f"{0:020d}"
    data = bytearray(log.read_bytes())
    for change in (data[:-30] + bytes([data[-30] ^ 1]) + data[-29:], data[:whole] + bytes(500)):
        copy = tmp_path / "damaged"
        shutil.copytree(store.root, copy)
        (copy / "commitlog" / log.name).write_bytes(change)
        torn = open_store(copy)
        assert torn.log.end <= len(data)
        assert len(bodies(torn, "T", 0)) >= 3
        torn.abandon()
        shutil.rmtree(copy)


@pytest.mark.parametrize("damage", ["missing", "garbage", "short index", "future", "no index"])
def test_a_damaged_index_is_rebuilt(open_store: Open, damage: str) -> None:
    store = open_store()
    put_batch(store, "T", 0, 200)
    put_batch(store, "U", 1, 10)
    store.close()
    checkpoint = store.root / "checkpoint"
    index = store.root / "consumequeue" / "T" / "0" / f"{0:020d}"
    if damage == "missing":
        checkpoint.unlink()
    elif damage == "garbage":
        checkpoint.write_bytes(b"{")
    elif damage == "short index":
        os.truncate(index, 30)
    elif damage == "future":
        checkpoint.write_text('{"position": 99999999, "queues": {}}')
    else:
        shutil.rmtree(index.parent)
    again = open_store()
    assert len(bodies(again, "T", 0)) == 200
    assert len(bodies(again, "U", 1)) == 10


def test_segments_follow_without_a_gap_and_survive(open_store: Open) -> None:
    store = open_store(mapped_file_size_commit_log=4096)
    for i in range(100):
        put(store, "T", i % 2, b"x" * 200)
    put(store, "T", 0, b"y" * 9000)
    assert len(store.log.segment_starts()) > 5
    store.abandon()
    again = open_store(mapped_file_size_commit_log=4096)
    assert len(bodies(again, "T", 0)) == 51
    assert len(bodies(again, "T", 1)) == 50
    again.close()
    starts = again.log.segment_starts()
    (again.root / "commitlog" / f"{starts[2]:020d}").unlink()
    with pytest.raises(StoreError, match="starts at"):
        open_store()


def test_records_longer_than_the_scan_piece_are_recovered(
    open_store: Open, monkeypatch: pytest.MonkeyPatch
) -> None:
    store = open_store()
    for size in (10, 5000, 10, 70000, 10):
        put(store, "T", 0, b"z" * size)
    store.abandon()
    monkeypatch.setattr(store_module, "_SCAN_BYTES", 512)
    assert [len(b) for b in bodies(open_store(), "T", 0)] == [10, 5000, 10, 70000, 10]


def test_a_deleted_topic_stays_deleted_and_starts_at_zero(open_store: Open) -> None:
    store = open_store()
    put_batch(store, "T", 0, 5)
    store.delete_topic("T")
    assert put(store, "T", 0, b"new") == 0
    store.abandon()
    again = open_store()
    assert bodies(again, "T", 0) == [b"new"]
    again.close()
    (again.root / "checkpoint").unlink()
    assert bodies(open_store(), "T", 0) == [b"new"]


def test_messages_of_unknown_topics_are_not_indexed(open_store: Open) -> None:
    store = open_store()
    put_batch(store, "T", 0, 5)
    store.abandon()
    assert open_store(exists=lambda topic: topic != "T").queue_ids("T") == []


def test_two_stores_in_one_directory_are_refused(open_store: Open) -> None:
    open_store()
    with pytest.raises(StoreError, match="in use"):
        open_store()


def test_a_full_disk_refuses_the_message_and_keeps_the_log_whole(
    open_store: Open, monkeypatch: pytest.MonkeyPatch
) -> None:
    store = open_store()
    put(store, "T", 0, b"before")
    real = os.pwrite

    def short_write(fd: int, data: bytes, offset: int) -> int:
        real(fd, bytes(data)[:10], offset)
        raise OSError(28, "No space left on device")

    monkeypatch.setattr("rocketmq_fast.embedded.files.os.pwrite", short_write)
    with pytest.raises(StoreError, match="No space"):
        put(store, "T", 0, b"lost")
    monkeypatch.undo()
    assert put(store, "T", 0, b"after") == 1
    store.abandon()
    assert bodies(open_store(), "T", 0) == [b"before", b"after"]


@settings(max_examples=30, deadline=None)
@given(
    st.lists(
        st.one_of(
            st.tuples(st.just("put"), st.integers(0, 2), st.integers(1, 60)),
            st.tuples(
                st.sampled_from(["checkpoint", "kill", "stop", "tear"]),
                st.just(0),
                st.integers(0, 50),
            ),
        ),
        max_size=25,
    )
)
def test_any_history_of_sends_and_ends_loses_nothing(
    tmp_path_factory: pytest.TempPathFactory, steps: list[tuple[str, int, int]]
) -> None:
    root = tmp_path_factory.mktemp("history")
    config = BrokerConfig(mapped_file_size_commit_log=20_000)
    clock = Clock()

    def start() -> MessageStore:
        store = MessageStore(root, config, store_host=HOST, clock=clock, durable=False)
        store.recover(everything)
        return store

    store = start()
    counts = [0, 0, 0]
    for kind, queue, number in steps:
        if kind == "put":
            put_batch(store, "T", queue, number)
            counts[queue] += number
        elif kind == "checkpoint":
            store.checkpoint().write()
        elif kind == "stop":
            store.close()
            store = start()
        else:
            store.abandon()
            starts = store.log.segment_starts()
            if kind == "tear" and starts:  # a write that was never acknowledged
                with (root / "commitlog" / f"{starts[-1]:020d}").open("ab") as log:
                    log.write(b"\x00\x00\x01\x00\xda\xa3\x20\xa7"[:number])
            store = start()
        for queue_id in range(3):
            assert store.max_offset("T", queue_id) == counts[queue_id]
    for queue_id in range(3):
        assert len(bodies(store, "T", queue_id)) == counts[queue_id]
    store.abandon()


def test_retention_deletes_whole_segments_and_raises_the_minimum(
    open_store: Open, clock: Clock
) -> None:
    options = {"mapped_file_size_commit_log": 10_000, "max_log_bytes": 35_000,
               "file_reserved_time": 3600.0}  # fmt: skip
    store = open_store(**options)
    clock.now = int(time.time() * 1000)
    for i in range(400):
        put(store, "T", i % 2, b"%04d" % i * 50)
    put(store, "once", 0, b"x")
    size = store.log.end
    store.expire()
    assert size - 45_000 < store.log.start < size - 25_000
    low = store.min_offset("T", 0)
    assert 0 < low < 200
    assert store.get("T", 0, 0, 32, None).status == store_module.OFFSET_TOO_SMALL
    assert bodies(store, "T", 0, low) == [b"%04d" % i * 50 for i in range(2 * low, 400, 2)]
    store.abandon()
    for damage in (False, True):
        if damage:
            (store.root / "checkpoint").unlink(missing_ok=True)
        again = open_store(**options)
        assert (again.min_offset("T", 0), again.max_offset("T", 0)) == (low, 200)
        assert bodies(again, "T", 0, low)[-1] == b"0398" * 50
        again.close()
    last = open_store(**options)
    clock.now += 7_200_000
    last.expire()
    assert len(last.log.segment_starts()) == 1
    assert last.get("once", 0, 0, 32, None).count == 1


def test_an_emptied_queue_keeps_its_offsets(open_store: Open, clock: Clock) -> None:
    options = {"mapped_file_size_commit_log": 1000, "file_reserved_time": 1.0}
    store = open_store(**options)
    put(store, "old", 0, b"x" * 900)
    put(store, "new", 0, b"x" * 900)
    clock.now = int(time.time() * 1000) + 60_000
    store.expire()
    assert (store.min_offset("old", 0), store.max_offset("old", 0)) == (1, 1)
    assert store.get("old", 0, 0, 32, None).status == store_module.OFFSET_TOO_SMALL
    assert store.get("old", 0, 1, 32, None).status == store_module.OFFSET_OVERFLOW_ONE
    assert store.offset_by_time("old", 0, 0) == 0
    store.close()
    again = open_store(**options)
    assert put(again, "old", 0, b"next") == 1


# ------------------------------------------------------------------------------ lookups


def test_lookup_statuses(open_store: Open) -> None:
    store = open_store()
    assert store.get("T", 0, 0, 32, None).status == store_module.NO_MATCHED_LOGIC_QUEUE
    put_batch(store, "T", 0, 10)
    assert store.get("T", 0, 10, 32, None).status == store_module.OFFSET_OVERFLOW_ONE
    beyond = store.get("T", 0, 50, 32, None)
    assert (beyond.status, beyond.next_offset) == (store_module.OFFSET_OVERFLOW_BADLY, 10)
    small = store.get("T", 0, -1, 32, None)
    assert (small.status, small.next_offset) == (store_module.OFFSET_TOO_SMALL, 0)
    none = store.get("T", 0, 2, 32, CodeSet([1]))
    assert (none.status, none.next_offset) == (store_module.NO_MATCHED_MESSAGE, 10)


def test_pull_limits_are_the_brokers(open_store: Open) -> None:
    store = open_store()
    put_batch(store, "T", 0, 1000, size=10)
    assert store.get("T", 0, 0, 1000, None).count == 32
    assert store.get("T", 0, 0, 5, None).count == 5
    assert store.get("T", 0, 0, 0, None).count == 1
    put_batch(store, "U", 0, 10, size=100_000)
    got = store.get("U", 0, 0, 32, None)
    assert got.count == 2
    assert len(got.body) <= 262_144
    # 800 index entries are looked at for a pull of up to 800 messages.
    assert store.get("T", 0, 0, 32, CodeSet([1])).next_offset == 800
    assert store.get("T", 0, 0, 900, CodeSet([1])).next_offset == 900
    raised = open_store(store.root.parent / "raised", max_transfer_count_on_message_in_memory=256)
    put_batch(raised, "T", 0, 1000, size=10)
    assert raised.get("T", 0, 0, 256, None).count == 256


def test_scattered_messages_are_gathered(open_store: Open) -> None:
    store = open_store(mapped_file_size_commit_log=100_000)
    for i in range(300):
        put(store, "T", i % 5, b"%d" % i * 50)
    for queue in range(5):
        assert bodies(store, "T", queue) == [b"%d" % i * 50 for i in range(queue, 300, 5)]


def test_old_entries_come_from_the_files(open_store: Open, tmp_path: Path) -> None:
    queue = ConsumeQueue("T", 0, tmp_path / "T" / "0")
    entries = [i.to_bytes(20, "big") for i in range(20_000)]
    for start in range(0, 20_000, 1000):
        queue.append(b"".join(entries[start : start + 1000]))
        queue.save()
    for offset in (0, 1, 4095, 4096, 17_000, 17_952, 19_999):
        assert queue.entries(offset, 1) == entries[offset]
        assert queue.entries(offset, 10).startswith(entries[offset])
    again = ConsumeQueue("T", 0, tmp_path / "T" / "0", 0, 20_000)
    assert again.is_complete()
    assert again.entries(19_999, 5) == entries[19_999]


def test_time_search_finds_the_nearer_neighbour(open_store: Open, clock: Clock) -> None:
    store = open_store()
    start = clock.now
    for at in (0, 10, 20, 20, 20, 40):
        clock.now = start + at
        put(store, "T", 0, b"x")

    def search(at: int) -> int:
        return store.offset_by_time("T", 0, start + at)

    assert [search(at) for at in (-5, 0, 4, 5, 6, 10, 29, 31, 40, 999)] == [
        0, 0, 0, 0, 1, 1, 4, 5, 5, 5,
    ]  # fmt: skip
    assert search(20) in (2, 3, 4)
    assert store.offset_by_time("nope", 0, start) == 0


def test_store_time_never_goes_back(open_store: Open, clock: Clock) -> None:
    store = open_store()
    put(store, "T", 0, b"1")
    clock.now -= 3_600_000
    put(store, "T", 0, b"2")
    queue = store.find_queue("T", 0)
    assert queue is not None
    assert store.store_time(queue, 1) == store.store_time(queue, 0)


# ----------------------------------------------------------------------------- schedule


def delayed(store: MessageStore, level: int, topic: str, queue: int, body: bytes) -> None:
    properties = f"DELAY\x01{level}\x02REAL_TOPIC\x01{topic}\x02REAL_QID\x01{queue}\x02TAGS\x01a"
    store.put(
        SCHEDULE_TOPIC, level - 1, body, properties=properties.encode(), born_timestamp=5,
        born_host=HOST, reconsume_times=2, delay_level=level,
    )  # fmt: skip


def test_delayed_messages_come_when_their_time_has_come(
    open_store: Open, clock: Clock, tmp_path: Path
) -> None:
    store = open_store(delay_levels="1s 5s")
    schedule = ScheduleService(store, tmp_path / "delayOffset.json", everything)
    delayed(store, 1, "T", 3, b"one")
    delayed(store, 2, "T", 3, b"five")
    assert not schedule.deliver()
    assert store.max_offset("T", 3) == 0
    clock.now += 999
    schedule.deliver()
    assert store.max_offset("T", 3) == 0
    clock.now += 1
    schedule.deliver()
    schedule.deliver()
    assert bodies(store, "T", 3) == [b"one"]
    clock.now += 4000
    schedule.deliver()
    assert bodies(store, "T", 3) == [b"one", b"five"]
    message = decode_messages(store.get("T", 3, 0, 1, None).body)[0]
    assert message.properties["DELAY"] == "1"
    assert message.properties["REAL_QID"] == "3"
    assert (message.reconsume_times, message.born_timestamp) == (2, 5)
    assert store.get("T", 3, 0, 32, CodeSet([ord("a")])).count == 2
    snapshot = schedule.take_snapshot()
    assert snapshot is not None
    snapshot.save()
    again = ScheduleService(store, tmp_path / "delayOffset.json", everything)
    assert again.offsets == {1: 1, 2: 1}
    again.deliver()
    assert store.max_offset("T", 3) == 2


def test_delivery_times_survive_a_rebuild_of_the_index(
    open_store: Open, clock: Clock, tmp_path: Path
) -> None:
    store = open_store(delay_levels="1s 5s")
    delayed(store, 2, "T", 0, b"five")
    store.abandon()
    again = open_store(delay_levels="1s 5s")
    schedule = ScheduleService(again, tmp_path / "delayOffset.json", everything)
    clock.now += 4999
    schedule.deliver()
    assert again.max_offset("T", 0) == 0
    clock.now += 1
    schedule.deliver()
    assert bodies(again, "T", 0) == [b"five"]


def test_a_clock_that_was_set_back_does_not_hold_messages(
    open_store: Open, clock: Clock, tmp_path: Path
) -> None:
    store = open_store(delay_levels="5s")
    schedule = ScheduleService(store, tmp_path / "delayOffset.json", everything)
    delayed(store, 1, "T", 0, b"x")
    clock.now -= 86_400_000
    # Its due time is a day away; the level says that five seconds are the most it may wait.
    for _ in range(3):
        schedule.deliver()
        clock.now += 5000
    assert store.max_offset("T", 0) in (0, 1)
    clock.now += 86_400_000
    schedule.deliver()
    assert bodies(store, "T", 0) == [b"x"]


def test_bursts_are_delivered_in_order(open_store: Open, clock: Clock, tmp_path: Path) -> None:
    store = open_store(delay_levels="1s")
    schedule = ScheduleService(store, tmp_path / "delayOffset.json", everything)
    for i in range(1000):
        delayed(store, 1, "T", 0, b"%d" % i)
    clock.now += 1000
    rounds = 1
    while schedule.deliver():
        rounds += 1
    assert rounds == 4
    assert bodies(store, "T", 0) == [b"%d" % i for i in range(1000)]


def test_messages_for_a_deleted_topic_are_passed_over(
    open_store: Open, clock: Clock, tmp_path: Path
) -> None:
    store = open_store(delay_levels="1s")
    schedule = ScheduleService(store, tmp_path / "delayOffset.json", lambda topic: topic != "gone")
    delayed(store, 1, "gone", 0, b"a")
    delayed(store, 1, "T", 0, b"b")
    clock.now += 1000
    schedule.deliver()
    assert store.queue_ids("gone") == []
    assert bodies(store, "T", 0) == [b"b"]


# -------------------------------------------------------------------------------- files


@pytest.mark.parametrize(
    "name", ["..", "a/b", "../../x", "a\\b", "", "a" * 256, "a\0b", "a.b", "~", "T\n"]
)
def test_names_never_leave_the_store(tmp_path: Path, name: str) -> None:
    with pytest.raises(StoreError):
        directory_of(tmp_path, name)


def test_files_are_private_and_never_half_written(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "x.json"
    save_json(path, {"a": 1}, durable=True)
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    save_json(path, {"a": 2}, durable=True)
    assert load_json(path) == {"a": 2}
    for call in ("os.pwrite", "os.fsync", "os.link"):

        def fail(*_: object) -> int:
            raise OSError(5, "Input/output error")

        monkeypatch.setattr(f"rocketmq_fast.embedded.files.{call}", fail)
        if call == "os.link":
            replace_file(path, b'{"a": 3}', durable=True)
            assert load_json(path) == {"a": 3}
        else:
            with pytest.raises(OSError, match="Input"):
                replace_file(path, b'{"a": 3}', durable=True)
            assert load_json(path) == {"a": 2}
        monkeypatch.undo()


def test_a_damaged_file_falls_back_to_its_backup(tmp_path: Path) -> None:
    path = tmp_path / "x.json"
    assert load_json(path) is None
    save_json(path, {"a": 1}, durable=False)
    save_json(path, {"a": 2}, durable=False)
    for damage in (b"", b"{", b"[1]", b"\xff\xfe", b"null"):
        path.write_bytes(damage)
        assert load_json(path) == {"a": 1}
    (tmp_path / "x.json.bak").write_bytes(b"junk")
    with pytest.raises(StoreError, match=r"x\.json"):
        load_json(path)


def test_a_symbolic_link_is_not_followed(tmp_path: Path) -> None:
    victim = tmp_path / "victim"
    victim.write_bytes(b"keep")
    (tmp_path / "x.json.tmp").symlink_to(victim)
    with pytest.raises(OSError, match=r"."):
        replace_file(tmp_path / "x.json", b"{}", durable=False)
    assert victim.read_bytes() == b"keep"


# ------------------------------------------------------------------------------- tables


def test_offsets_are_kept_and_may_go_back(tmp_path: Path) -> None:
    path = tmp_path / "consumerOffset.json"
    table = OffsetTable(path, durable=False)
    table.commit("g", "T", 0, 5)
    table.commit("g", "T", 0, 3)
    table.commit("g@x", "%RETRY%g@x", 1, 9)
    assert table.query("g", "T", 0) == 3
    assert table.query("g", "T", 1) == -1
    table.save()
    assert table.take_snapshot() is None
    again = OffsetTable(path, durable=False)
    assert again.query("g", "T", 0) == 3
    assert again.topics_of("g") == ["T"]
    again.clone("g", "h", "T")
    assert sorted(again.groups_of("T")) == ["g", "h"]
    again.delete_group("g")
    assert again.query("g", "T", 0) == -1
    path.write_text('{"offsetTable": {"T@g": {"a": 1}}}')
    with pytest.raises(StoreError):
        OffsetTable(path, durable=False)


def test_topics_and_groups_are_kept(tmp_path: Path) -> None:
    topics = TopicTable(tmp_path / "topics.json", BrokerConfig(), durable=False)
    topics.put(TopicConfig("T", 3, 2, 4))
    created = topics.for_send("auto", "TBW102", 16)
    assert (created.read_queue_nums, created.perm) == (8, 6)
    again = TopicTable(tmp_path / "topics.json", BrokerConfig(), durable=False)
    assert again.get("T") == TopicConfig("T", 3, 2, 4)
    assert again.get("auto") == created
    assert again.version == topics.version

    groups = GroupTable(tmp_path / "groups.json", auto_create=True, durable=False)
    assert groups.get("g") == GroupConfig("g")
    groups.put(GroupConfig("h", retry_max_times=3))
    closed = GroupTable(tmp_path / "groups.json", auto_create=False, durable=False)
    assert closed.get("h") == GroupConfig("h", retry_max_times=3)
    assert closed.get("unknown") is None
