"""Producers and admins in real programs: fork, and an exit without a shutdown."""

from __future__ import annotations

from tests.brokers import TestBroker
from tests.test_lifecycle import clean, run


def test_forked_child_is_told_and_may_start_anew(embedded_broker: TestBroker) -> None:
    """The child's copy of the connections is closed: it must not wait for answers on them."""
    broker = embedded_broker
    topic, group = broker.topic(1), broker.group()
    program = """
        producer = rmq.Producer(group, namesrv_addr=address)
        producer.start()
        producer.send(rmq.Message(topic, b"before"))
        admin = rmq.Admin(namesrv_addr=address)
        admin.start()
        pid = os.fork()
        if pid == 0:
            for call in (lambda: producer.send(rmq.Message(topic, b"never")), admin.topics):
                try:
                    call()
                except rmq.ClientStateError as error:
                    say("child:", "not started" in str(error))
            with producer, admin:
                say("child", topic in admin.topics())
                say("child", producer.send(rmq.Message(topic, b"child")).status.name)
            sys.exit(0)
        say("status", os.waitpid(pid, 0)[1])
        say("parent", producer.send(rmq.Message(topic, b"parent")).status.name)
        say("parent", topic in admin.topics())
        producer.shutdown()
    """
    assert clean(run(broker, group, topic, program)) == [
        "child: True", "child: True", "child True", "child SEND_OK", "status 0",
        "parent SEND_OK", "parent True",
    ]  # fmt: skip
    assert broker.max_offset(topic, 0) == 3


def test_exit_without_a_shutdown_sends_what_is_in_flight(embedded_broker: TestBroker) -> None:
    """The consumer, which was started last, ends first: its listener may still send."""
    broker = embedded_broker
    topic, group, out = broker.topic(1), broker.group(), broker.topic(1)
    broker.send(topic, [b"one"])
    program = f"""
        entered, ending = threading.Event(), threading.Event()
        producer = rmq.Producer(group, namesrv_addr=address, enable_msg_trace=True)
        producer.start()
        def forward(messages, context):
            entered.set()
            assert ending.wait(30)
            say(producer.send(rmq.Message({out!r}, b"forwarded")).status.name)
            return rmq.ConsumeStatus.CONSUME_SUCCESS
        consumer = make()
        consumer.register_listener(forward)
        consumer.start()
        assert entered.wait(30)
        stop = consumer.shutdown_at_exit
        def shutdown_at_exit():
            ending.set()
            stop()
        consumer.shutdown_at_exit = shutdown_at_exit
        for number in range(100):
            producer.send_async(rmq.Message({out!r}, b"%d" % number))
    """
    ended = run(broker, group, topic, program)
    assert clean(ended) == ["SEND_OK"]
    said = [line for line in ended.stderr.splitlines() if "was not shut down" in line]
    assert [line.split()[1] for line in said] == ["consumer", "producer"]
    assert broker.max_offset(out, 0) == 101
    assert broker.members(group) == []
