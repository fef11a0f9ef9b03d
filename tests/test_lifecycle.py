"""Consumers in real programs: fork, exit, signals, restarts, and starts that fail."""

from __future__ import annotations

import multiprocessing
import os
import signal
import subprocess
import sys
import textwrap
import threading
from pathlib import Path

import pytest

from rocketmq_fast import ClientStateError, ConfigError, PushConsumer, RocketMQError
from rocketmq_fast.protocol.codes import RequestCode
from tests.brokers import TestBroker
from tests.consuming import Recorder, assert_once, bodies, consuming, make
from tests.member import member
from tests.ordering import written
from tests.proxy import Frame, ProxiedCluster
from tests.waiting import wait_for

_ROOT = Path(__file__).resolve().parent.parent
_SECONDS = 240.0  # a program that hangs; forty forks took 40 s on a machine with a load of 40

_HEAD = """
import logging, multiprocessing, os, signal, sys, threading, time
import rocketmq_fast as rmq
from tests.waiting import wait_for
logging.basicConfig(level=logging.WARNING, format="%(levelname)s %(message)s")
address, group, topic = sys.argv[1:4]
got = []

def listen(messages, context):
    got.extend(message.body for message in messages)
    return rmq.ConsumeStatus.CONSUME_SUCCESS

def make(group=group):
    consumer = rmq.PushConsumer(
        group, namesrv_addr=address, consume_from_where="CONSUME_FROM_FIRST_OFFSET")
    consumer.subscribe(topic)
    consumer.register_listener(listen)
    return consumer

def say(*words):
    os.write(1, (" ".join(map(str, words)) + "\\n").encode())
"""


def run(
    broker: TestBroker, group: str, topic: str, program: str
) -> subprocess.CompletedProcess[str]:
    """Run a program to its end; it must not hang and not die by a signal."""
    text = _HEAD + textwrap.dedent(program)
    try:
        ended = subprocess.run(
            [sys.executable, "-X", "dev", "-c", text, broker.namesrv_addr, group, topic],
            cwd=_ROOT,
            capture_output=True,
            text=True,
            timeout=_SECONDS,
            check=False,
        )
    except subprocess.TimeoutExpired as error:
        raise AssertionError(f"no end within {_SECONDS:.0f} s: {error.stderr!r}") from None
    assert ended.returncode >= 0, ended.stderr
    return ended


def clean(ended: subprocess.CompletedProcess[str]) -> list[str]:
    """The lines of a program that ended with code 0 and no trace of an error."""
    assert ended.returncode == 0, ended.stderr
    for text in ("Traceback", "Exception ignored", "Fatal Python error"):
        assert text not in ended.stderr, ended.stderr
    return str(ended.stdout).splitlines()


# ---------------------------------------------------------------------------------- exit


@pytest.mark.parametrize(
    "last",
    [
        "",
        "sys.exit(0)",
        "del consumer",
        "consumer.shutdown(); consumer.shutdown()",
    ],
    ids=["end", "exit", "del", "twice"],
)
def test_interpreter_ends_without_a_shutdown(embedded_broker: TestBroker, last: str) -> None:
    broker = embedded_broker
    topic, group = broker.topic(2), broker.group()
    broker.send(topic, bodies(10), queues=(0, 1))
    program = f"""
        consumer = make()
        consumer.start()
        wait_for(lambda: len(got) == 10, "the messages")
        say("got", len(got))
        {last}
    """
    assert clean(run(broker, group, topic, program)) == ["got 10"]
    # Left at once, with its progress: nothing comes again.
    assert broker.members(group) == []
    assert broker.committed(group, topic) == {0: 5, 1: 5}


def test_exception_in_main_ends_the_program_with_its_code(embedded_broker: TestBroker) -> None:
    broker = embedded_broker
    topic, group = broker.topic(1), broker.group()
    program = """
        with make() as consumer:
            consumer.wait_assigned()
            raise ValueError("trouble of the program")
    """
    ended = run(broker, group, topic, program)
    assert ended.returncode == 1
    assert "trouble of the program" in ended.stderr
    assert "Exception ignored" not in ended.stderr
    assert broker.members(group) == []


def test_listener_that_never_returns_does_not_hold_the_exit(embedded_broker: TestBroker) -> None:
    broker = embedded_broker
    topic, group = broker.topic(1), broker.group()
    broker.send(topic, [b"one"])
    program = """
        entered = threading.Event()
        def stuck(messages, context):
            entered.set()
            threading.Event().wait()
        consumer = make()
        consumer.register_listener(stuck)
        consumer.start()
        assert entered.wait(30)
        say("entered")
    """
    assert clean(run(broker, group, topic, program)) == ["entered"]
    assert broker.committed(group, topic).get(0, 0) == 0


# ---------------------------------------------------------------------------------- fork


def test_forked_child_is_told_and_may_start_anew(embedded_broker: TestBroker) -> None:
    broker = embedded_broker
    topic, group = broker.topic(2), broker.group()
    broker.send(topic, bodies(10), queues=(0, 1))
    program = """
        consumer = make()
        consumer.start()
        wait_for(lambda: len(got) == 10, "the messages")
        pid = os.fork()
        if pid == 0:
            try:
                consumer.stats()
            except rmq.ClientStateError as error:
                say("child:", type(error).__name__, "not started" in str(error))
            consumer.start()
            say("child assigned", consumer.wait_assigned(20))
            consumer.shutdown()
            sys.exit(0)
        say("status", os.waitpid(pid, 0)[1])
        wait_for(lambda: len([q for q in consumer.assigned() if q.topic == topic]) == 2, "queues")
        say("more")
        sys.stdin.readline()
        wait_for(lambda: len(got) == 12, "more messages")
        consumer.shutdown()
        say("parent", len(got))
    """
    text = _HEAD + textwrap.dedent(program)
    process = subprocess.Popen(
        [sys.executable, "-c", text, broker.namesrv_addr, group, topic],
        cwd=_ROOT, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
    )  # fmt: skip
    try:
        assert process.stdout is not None
        lines = [process.stdout.readline().strip() for _ in range(4)]
        assert lines == [
            "child: ClientStateError True", "child assigned True", "status 0", "more",
        ]  # fmt: skip
        broker.send(topic, bodies(2, "n"), queues=(0, 1))
        out, errors = process.communicate("\n", timeout=_SECONDS)
    finally:
        process.kill()
        process.wait()
    assert out.strip() == "parent 12", errors
    assert process.returncode == 0, errors
    assert "Traceback" not in errors
    assert broker.committed(group, topic) == {0: 6, 1: 6}


def test_forks_under_load_neither_hang_nor_disturb_the_parent(embedded_broker: TestBroker) -> None:
    """Children that only end; locks may be held by any thread at the moment of each fork."""
    broker = embedded_broker
    topic, group = broker.topic(4), broker.group()
    broker.send(topic, bodies(2000), queues=(0, 1, 2, 3))
    program = """
        consumer = make()
        consumer.start()
        codes = set()
        for _ in range(40):
            pid = os.fork()
            if pid == 0:
                sys.exit(0)  # the exit handlers run
            codes.add(os.waitpid(pid, 0)[1])
        wait_for(lambda: len(got) == 2000, "the messages")
        consumer.shutdown()
        say(codes, len(got), len(set(got)))
    """
    assert clean(run(broker, group, topic, program)) == ["{0} 2000 2000"]
    assert broker.committed(group, topic) == dict.fromkeys(range(4), 500)


def test_fork_within_a_listener(embedded_broker: TestBroker) -> None:
    broker = embedded_broker
    topic, group = broker.topic(1), broker.group()
    broker.send(topic, bodies(5))
    program = """
        codes = []
        def forking(messages, context):
            pid = os.fork()
            if pid == 0:
                os._exit(7)
            codes.append(os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]))
            return listen(messages, context)
        consumer = make()
        consumer.register_listener(forking)
        consumer.start()
        wait_for(lambda: len(got) == 5, "the messages")
        consumer.shutdown()
        say(codes)
    """
    assert clean(run(broker, group, topic, program)) == ["[7, 7, 7, 7, 7]"]


def _count(address: str, group: str, topic: str, wanted: int) -> int:
    """Consume in a process of multiprocessing; how many came."""
    recorder = Recorder()
    with consuming(address, group, topic, recorder):
        recorder.wait(wanted)
    return len(recorder.bodies)


@pytest.mark.parametrize("method", ["spawn", "fork", "forkserver"])
def test_multiprocessing_beside_a_running_consumer(
    embedded_broker: TestBroker, method: str
) -> None:
    broker = embedded_broker
    topic, group, other = broker.topic(1), broker.group(), broker.group()
    broker.send(topic, bodies(10))
    program = f"""
        from tests.test_lifecycle import _count
        if __name__ == "__main__":
            consumer = make()
            consumer.start()
            wait_for(lambda: len(got) == 10, "the messages")
            with multiprocessing.get_context({method!r}).Pool(1) as pool:
                say(pool.apply(_count, (address, {other!r}, topic, 10)))
            consumer.shutdown()
    """
    assert method in multiprocessing.get_all_start_methods()
    assert clean(run(broker, group, topic, program)) == ["10"]
    assert broker.committed(group, topic) == broker.committed(other, topic) == {0: 10}


# ------------------------------------------------------------------------------- signals


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_run_drains_at_a_signal(broker: TestBroker, tmp_path: Path, number: signal.Signals) -> None:
    topic, group = broker.topic(2), broker.group()
    broker.send(topic, bodies(400), queues=(0, 1))
    with member(
        tmp_path,
        "first",
        broker.namesrv_addr,
        group,
        topic,
        pause=0.02,
        consume_thread_min=4,
        consume_thread_max=4,
    ) as first:
        wait_for(lambda: len(first.lines("E")) > 10, first.said)
        first.process.send_signal(number)
        assert first.ended() == 0, first.said()
    done = written(tmp_path, ["first"])
    assert all(call.good for call in done)  # what had begun has ended
    count = sum(len(call.offsets) for call in done)
    assert count < 400
    assert "Traceback" not in first.said()
    recorder = Recorder()
    with consuming(broker.namesrv_addr, group, topic, recorder):
        recorder.wait(400 - count)
    places = [(c.queue, o) for c in done for o in c.offsets]
    places += [(seen.queue.queue_id, seen.offset) for seen in recorder.seen]
    # Nothing twice, nothing left out.
    assert sorted(places) == [(queue, offset) for queue in (0, 1) for offset in range(200)]


def test_signal_while_idle_and_twice(embedded_broker: TestBroker, tmp_path: Path) -> None:
    broker = embedded_broker
    topic, group = broker.topic(1), broker.group()
    with member(tmp_path, "first", broker.namesrv_addr, group, topic) as first:
        first.wait_ready()
        first.process.send_signal(signal.SIGTERM)
        first.process.send_signal(signal.SIGTERM)
        assert first.ended() == 0, first.said()
    assert "Traceback" not in first.said()
    assert broker.members(group) == []


def test_second_signal_ends_the_wait_for_listeners(
    embedded_broker: TestBroker, tmp_path: Path
) -> None:
    """What is waited for is said, and what the listener holds is not acknowledged."""
    broker = embedded_broker
    topic, group = broker.topic(1), broker.group()
    broker.send(topic, bodies(3))
    with member(
        tmp_path,
        "first",
        broker.namesrv_addr,
        group,
        topic,
        pause=600.0,
        consume_thread_max=2,
        consume_thread_min=2,
        await_termination_millis_when_shutdown=600_000,
    ) as first:
        wait_for(lambda: len(first.lines("B")) == 2, first.said)
        first.process.send_signal(signal.SIGINT)
        text = f"group {group}: waiting up to 600 s for running listener calls (2)"
        wait_for(lambda: text in first.said(), first.said)
        first.process.send_signal(signal.SIGINT)
        assert first.ended() == 0, first.said()
    assert "what they hold is delivered again" in first.said()
    assert "Traceback" not in first.said()
    assert broker.members(group) == []
    assert broker.committed(group, topic).get(0, 0) == 0
    recorder = Recorder()
    with consuming(broker.namesrv_addr, group, topic, recorder):
        recorder.wait(3)


def test_run_gives_the_signals_back(embedded_broker: TestBroker) -> None:
    broker = embedded_broker
    topic, group = broker.topic(1), broker.group()
    program = """
        before = [signal.getsignal(n) for n in (signal.SIGINT, signal.SIGTERM)]
        def stop():
            while signal.getsignal(signal.SIGTERM) == before[1]:
                time.sleep(0.01)  # until run() has taken it over
            os.kill(os.getpid(), signal.SIGTERM)
        threading.Thread(target=stop, daemon=True).start()
        make().run()  # starts by itself
        say([signal.getsignal(n) for n in (signal.SIGINT, signal.SIGTERM)] == before)
        try:
            thread = threading.Thread(target=lambda: errors.append(attempt()))
            errors = []
            def attempt():
                try:
                    make().run()
                except rmq.ClientStateError as error:
                    return "main thread" in str(error)
            thread.start()
            thread.join()
            say(errors)
        finally:
            pass
    """
    assert clean(run(broker, group, topic, program)) == ["True", "[True]"]


# ------------------------------------------------------------------------------ restarts


def _resources() -> tuple[set[str], int]:
    """Threads of clients, and the number of open files."""
    names = {thread.name for thread in threading.enumerate()}
    ours = {n for n in names if n.startswith("rocketmq") and "embedded" not in n}
    return ours, len(os.listdir("/proc/self/fd"))


@pytest.mark.parametrize("orderly", [False, True], ids=["concurrent", "orderly"])
def test_thirty_starts_and_stops_leave_nothing(embedded_broker: TestBroker, orderly: bool) -> None:
    from rocketmq_fast import ConsumeStatus, OrderlyStatus

    broker = embedded_broker
    topic, group = broker.topic(2), broker.group()
    status = OrderlyStatus.SUCCESS if orderly else ConsumeStatus.CONSUME_SUCCESS
    recorder = Recorder(lambda *_: status)
    consumer = make(broker.namesrv_addr, group, topic, recorder, orderly=orderly)

    def cycle(number: int) -> None:
        consumer.start()
        assert consumer.wait_assigned(20)
        broker.send(topic, bodies(2, f"{number}_"), queues=(0, 1))
        recorder.wait(2 * number + 2)
        consumer.shutdown()

    cycle(0)  # what is made once and kept
    names, descriptors = _resources()
    for number in range(1, 31):
        cycle(number)
    # The embedded server notices the end of the last connection a moment later.
    wait_for(lambda: _resources()[1] <= descriptors, lambda: f"{_resources()}, {descriptors}")
    assert _resources()[0] == names
    assert len(recorder.seen) == len(set(recorder.bodies)) == 62
    assert broker.members(group) == []


def test_start_and_shutdown_out_of_turn(
    embedded_broker: TestBroker, caplog: pytest.LogCaptureFixture
) -> None:
    broker = embedded_broker
    topic, group = broker.topic(1), broker.group()
    consumer = make(broker.namesrv_addr, group, {}, Recorder())
    for _ in range(2):  # as in Java, it may begin so; once is not enough to learn it
        caplog.clear()
        with consumer:
            assert f"consumer of group {group} starts without a topic" in caplog.text
    assert repr(consumer) == f"<PushConsumer group={group!r} not started>"
    consumer.subscribe(topic)
    caplog.clear()
    consumer.shutdown()  # not started
    for call in (consumer.stats, consumer.assigned, consumer.lag, consumer.wait_assigned):
        with pytest.raises(ClientStateError, match=group):
            call()
    with consumer:
        assert "without a topic" not in caplog.text
        cid = consumer.stats()["client_id"]
        assert repr(consumer) == (
            f"<PushConsumer group={group!r} topics=[{topic!r}] client_id={cid!r}>"
        )
        with pytest.raises(ClientStateError, match="started already"):
            consumer.start()
        with pytest.raises(ClientStateError, match="listener"):
            consumer.register_listener(Recorder())
    with pytest.raises(ClientStateError, match=group):
        consumer.stats()


def test_several_consumers_of_one_process(embedded_broker: TestBroker) -> None:
    broker = embedded_broker
    topic = broker.topic(2)
    groups = [broker.group() for _ in range(3)]
    broker.send(topic, bodies(20), queues=(0, 1))
    recorders = [Recorder() for _ in groups]
    with (
        consuming(broker.namesrv_addr, groups[0], topic, recorders[0], instance_name="shared"),
        consuming(broker.namesrv_addr, groups[1], topic, recorders[1], instance_name="shared"),
        consuming(broker.namesrv_addr, groups[2], topic, recorders[2]),
    ):
        for recorder in recorders:
            recorder.wait(20)
    for recorder in recorders:
        assert_once(recorder, bodies(20))


# ------------------------------------------------------------------- starts that fail


def test_failed_start_leaves_nothing_and_may_be_repeated(embedded_broker: TestBroker) -> None:
    broker = embedded_broker
    topic, group = broker.topic(1), broker.group()
    broker.send(topic, [b"one"])
    names, descriptors = _resources()
    silent = make("127.0.0.1:1", group, topic, Recorder())
    for _ in range(3):
        with pytest.raises(RocketMQError, match=r"127\.0\.0\.1:1"):
            silent.start()
    nothing = PushConsumer(group, namesrv_addr=broker.namesrv_addr)
    with pytest.raises(ConfigError, match="no listener"):
        nothing.start()
    wait_for(lambda: _resources() == (names, descriptors), lambda: f"{_resources()} {descriptors}")
    recorder = Recorder()
    with consuming(
        broker.namesrv_addr, group, topic, recorder, instance_name="same"
    ):  # fmt: skip
        twin = make(broker.namesrv_addr, group, topic, Recorder(), instance_name="same")
        with pytest.raises(ConfigError, match="already"):
            twin.start()
        recorder.wait(1)
    wait_for(lambda: _resources()[0] == names, lambda: f"threads {_resources()[0]}")


def test_last_commit_waits_for_the_one_under_way(
    embedded_broker: TestBroker, embedded_proxied: ProxiedCluster
) -> None:
    """A broker carries out what is under way in any order: the older one must not come last."""
    broker = embedded_broker
    topic, group = broker.topic(1), broker.group()
    commits: list[int] = []
    held, go = threading.Event(), threading.Event()

    def on_request(frame: Frame) -> None:
        fields = frame.command.ext_fields
        if frame.code == RequestCode.UPDATE_CONSUMER_OFFSET and fields["topic"] == topic:
            commits.append(int(fields["commitOffset"]))

    def on_answer(frame: Frame) -> None:
        if frame.code == RequestCode.UPDATE_CONSUMER_OFFSET and commits == [5]:
            held.set()
            go.wait(3)  # long enough for a second commit to be sent, if there were one

    embedded_proxied.broker.on_request = on_request
    embedded_proxied.broker.on_answer = on_answer
    recorder = Recorder()
    broker.send(topic, bodies(5))
    with consuming(
        embedded_proxied.namesrv_addr, group, topic, recorder, persist_consumer_offset_interval=50
    ) as consumer:
        recorder.wait(5)
        assert held.wait(20)
        running = consumer._running
        assert running is not None
        running.store.update(broker.queue(topic), 6, increase_only=True)
        stopping = threading.Thread(target=consumer.shutdown)
        stopping.start()
        wait_for(lambda: not running.pulling, "the shutdown to begin")
        stopping.join(1.0)
        assert commits == [5]
        go.set()
        stopping.join(20)
    assert commits == [5, 6]
    assert broker.committed(group, topic) == {0: 6}
