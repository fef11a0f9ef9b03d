"""Where the name servers are: given, from an address server over HTTP, and changed at run time."""

from __future__ import annotations

import http.server
import logging
import threading
from collections.abc import Iterator

import pytest

from rocketmq_fast import ConfigError, Message, Producer, PushConsumer
from rocketmq_fast.client.address_server import AddressServer, split_addresses
from rocketmq_fast.client.instances import acquire_instance, release_instance
from rocketmq_fast.client.options import ClientOptions
from rocketmq_fast.errors import NoNameServer
from tests.brokers import TestBroker
from tests.consuming import Recorder, assert_once, consuming
from tests.proxy import Proxy
from tests.waiting import wait_for


class Page:
    """A web server that answers with what the test says."""

    def __init__(self) -> None:
        self.body = b""
        self.status = 200
        self.asked: list[str] = []
        page = self

        class Handler(http.server.BaseHTTPRequestHandler):
            def do_GET(self) -> None:
                page.asked.append(self.path)
                self.send_response(page.status)
                self.end_headers()
                self.wfile.write(page.body)

            def log_message(self, *_: object) -> None:
                """Nothing on standard error."""

        self._server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self._thread = threading.Thread(
            target=self._server.serve_forever, args=(0.02,), daemon=True
        )
        self._thread.start()

    @property
    def domain(self) -> str:
        return f"127.0.0.1:{self._server.server_address[1]}"

    def close(self) -> None:
        self._server.shutdown()
        self._server.server_close()
        self._thread.join(10.0)


@pytest.fixture
def page(monkeypatch: pytest.MonkeyPatch) -> Iterator[Page]:
    monkeypatch.delenv("NAMESRV_ADDR", raising=False)
    made = Page()
    monkeypatch.setenv("ROCKETMQ_NAMESRV_DOMAIN", made.domain)
    yield made
    made.close()


def test_an_instance_that_ends_while_another_joins_is_made_anew_with_name_servers(
    page: Page, monkeypatch: pytest.MonkeyPatch
) -> None:
    page.body = b"127.0.0.1:1"
    options = ClientOptions()
    first = acquire_instance("joins", options)

    class Overtaken:
        """The table's lock; before it is had for the first time, the other one lets go."""

        lock = threading.Lock()
        waits = True

        def __enter__(self) -> None:
            if self.waits:
                self.waits = False
                release_instance(first)
            self.lock.acquire()

        def __exit__(self, *_: object) -> None:
            self.lock.release()

    monkeypatch.setattr("rocketmq_fast.client.instances._instances_lock", Overtaken())
    second = acquire_instance("joins", options)
    assert second is not first
    assert second.name_servers.addresses == ("127.0.0.1:1",)
    release_instance(second)


@pytest.mark.parametrize(
    ("text", "addresses"),
    [
        ("a:1", ("a:1",)),
        ("a:1;b.example:2", ("a:1", "b.example:2")),
        (" a:1 ; a:1;b:2,", ("a:1", "b:2")),
        ("[::1]:9876;[fe80::1%eth0]:9876", ("[::1]:9876", "[fe80::1%eth0]:9876")),
        ("http://MQ_INST_1_2.host:80", ("MQ_INST_1_2.host:80",)),
        ("", ()),
    ],
)
def test_lists_of_addresses(text: str, addresses: tuple[str, ...]) -> None:
    assert split_addresses(text) == addresses


@pytest.mark.parametrize(
    ("domain", "subgroup", "unit", "url"),
    [
        ("a.b", "nsaddr", None, "http://a.b:8080/rocketmq/nsaddr"),
        ("a.b:81", "mine", None, "http://a.b:81/rocketmq/mine"),
        ("a.b", "nsaddr", "u1", "http://a.b:8080/rocketmq/nsaddr-u1?nofix=1"),
    ],
)
def test_url_is_java_s(domain: str, subgroup: str, unit: str | None, url: str) -> None:
    assert AddressServer(domain, subgroup, unit).url == url


def test_options_name_the_address_server(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("NAMESRV_ADDR", raising=False)
    for name in ("ROCKETMQ_NAMESRV_DOMAIN", "ROCKETMQ_NAMESRV_DOMAIN_SUBGROUP"):
        monkeypatch.delenv(name, raising=False)

    def url(**options: str) -> str | None:
        server = ClientOptions(**options).address_server()
        return server.url if server is not None else None

    assert url() == "http://jmenv.tbsite.net:8080/rocketmq/nsaddr"
    monkeypatch.setenv("ROCKETMQ_NAMESRV_DOMAIN", "env.example")
    monkeypatch.setenv("ROCKETMQ_NAMESRV_DOMAIN_SUBGROUP", "group")
    assert url() == "http://env.example:8080/rocketmq/group"
    assert url(namesrv_domain="x:1", namesrv_domain_subgroup="y", unit_name="u") == (
        "http://x:1/rocketmq/y-u?nofix=1"
    )
    assert url(namesrv_addr="a:1", namesrv_domain="x") is None
    with pytest.raises(ConfigError, match="x:y"):
        url(namesrv_domain="x:y")
    monkeypatch.setenv("NAMESRV_ADDR", "a:1;b:2")
    assert url(namesrv_domain="x") is None


@pytest.mark.parametrize(
    ("body", "addresses"),
    [
        (b"a:1;b:2", ("a:1", "b:2")),
        (b"\n a:1;b:2 \r\nsecond line", ("a:1", "b:2")),
        (b"a:1\nb:2", ("a:1",)),
    ],
)
def test_list_is_the_first_line(page: Page, body: bytes, addresses: tuple[str, ...]) -> None:
    page.body = body
    assert AddressServer(page.domain, "nsaddr", "u").fetch() == addresses
    assert page.asked == ["/rocketmq/nsaddr-u?nofix=1"]


@pytest.mark.parametrize(
    ("status", "body", "reason"),
    [
        (404, b"a:1", "404"),
        (200, b" \n", "empty"),
        (200, b"no address", "no"),
        (200, b"\xff\xfe", "UnicodeDecodeError"),
        (200, b"<html>", "<html>"),
    ],
)
def test_answer_that_is_no_list(page: Page, status: int, body: bytes, reason: str) -> None:
    page.status, page.body = status, body
    server = AddressServer(page.domain, "nsaddr", None)
    with pytest.raises(NoNameServer, match=reason) as caught:
        server.fetch()
    assert server.url in str(caught.value)


def test_refresh_backs_off_and_is_quiet(page: Page, caplog: pytest.LogCaptureFixture) -> None:
    now = 0.0
    server = AddressServer(page.domain, "nsaddr", None, lambda: now)

    def wait() -> float:
        """Seconds until it is due again."""
        nonlocal now
        began = now
        while not server.due:
            now += 1.0
        return now - began

    assert wait() == 10.0
    page.body = b"a:1"
    assert server.refresh() == ("a:1",)
    assert wait() == 120.0
    page.status = 500
    waits = []
    with caplog.at_level(logging.DEBUG, "rocketmq_fast.client.address_server"):
        for _ in range(6):
            assert server.refresh() is None
            waits.append(wait())
        page.status = 200
        assert server.refresh() == ("a:1",)
    assert waits == [10.0, 20.0, 40.0, 80.0, 120.0, 120.0]
    assert wait() == 120.0
    levels = [record.levelname for record in caplog.records]
    assert levels == ["WARNING", *["DEBUG"] * 5, "INFO"]


def test_start_without_a_list_says_why(page: Page) -> None:
    page.status = 503
    consumer = PushConsumer("group")
    consumer.subscribe("topic")
    consumer.register_listener(Recorder())
    with pytest.raises(NoNameServer, match=r"NAMESRV_ADDR.*503"):
        consumer.start()
    with pytest.raises(NoNameServer, match="503"):
        Producer("group").start()


def test_addresses_over_http(broker: TestBroker, page: Page) -> None:
    page.body = f"{broker.namesrv_addr}\n".encode()
    topic, seen = broker.topic(2), Recorder()
    consumer = PushConsumer(broker.group(), consume_from_where="CONSUME_FROM_FIRST_OFFSET")
    consumer.subscribe(topic)
    consumer.register_listener(seen)
    with Producer(broker.group()) as producer, consumer:
        producer.send(Message(topic, b"one"))
        seen.wait(1)
    assert_once(seen, [b"one"])
    assert set(page.asked) == {"/rocketmq/nsaddr"}


def test_changed_list_takes_over_and_connections_stay(
    embedded_broker: TestBroker, page: Page
) -> None:
    broker = embedded_broker
    first, second = broker.proxied(), broker.proxied()
    page.body = first.namesrv_addr.encode()
    options = ClientOptions(instance_name=broker.name("shared"))
    instance = acquire_instance(options.client_id(options.instance_name), options)
    try:
        topic = broker.topic(1)
        instance.update_route(topic)
        channel = instance.remoting.channel(first.namesrv_addr)
        # The same address server: it is the same instance, whatever the list is by now.
        page.body = second.namesrv_addr.encode()
        again = acquire_instance(instance.client_id, options)
        assert again is instance
        release_instance(again)
        now = 1e9
        server = AddressServer(page.domain, "nsaddr", None, lambda: now)
        server._due = now
        instance._address_server = server
        instance._ask_address_server()
        assert instance.name_servers.addresses == (second.namesrv_addr,)
        first.namesrv.refuse()
        instance.update_route(topic)
        assert instance.remoting.channel(first.namesrv_addr) is channel
        # An empty or broken list changes nothing.
        for page.body in (b"", b"nonsense"):
            server._due = now
            instance._ask_address_server()
        assert instance.name_servers.addresses == (second.namesrv_addr,)
    finally:
        release_instance(instance)
        first.close()
        second.close()


def test_list_given_by_hand_stays_when_a_question_is_under_way(
    page: Page, monkeypatch: pytest.MonkeyPatch
) -> None:
    page.body = b"127.0.0.1:1"
    options = ClientOptions(instance_name="asked")
    instance = acquire_instance(options.client_id("asked"), options)
    try:
        server = AddressServer(page.domain, "nsaddr", None, lambda: 1e9)
        server._due = 0.0
        instance._address_server = server
        fetch = server.fetch

        def late() -> tuple[str, ...]:
            found = fetch()
            instance.update_name_servers(["127.0.0.1:2"])
            return found

        monkeypatch.setattr(server, "fetch", late)
        instance._ask_address_server()
        assert instance.name_servers.addresses == ("127.0.0.1:2",)
    finally:
        release_instance(instance)


def test_chosen_server_is_kept_when_it_is_still_listed(embedded_broker: TestBroker) -> None:
    alive = embedded_broker.namesrv_addr
    options = ClientOptions(namesrv_addr=alive, instance_name=embedded_broker.name("i"))
    instance = acquire_instance(options.client_id(options.instance_name), options)
    try:
        for _ in range(8):
            assert instance.name_servers.update(["10.1.1.1:1", alive, "10.1.1.2:1"])
            assert instance.name_servers.addresses[0] == alive
            assert not instance.name_servers.update([alive, "10.1.1.2:1", "10.1.1.1:1"])
            assert instance.name_servers.update([alive])
    finally:
        release_instance(instance)


def test_other_name_servers_at_run_time(broker: TestBroker) -> None:
    # The name server alone: the broker must not see this client on two connections.
    proxy = Proxy(broker.namesrv_addr)
    topic, seen = broker.topic(2), Recorder()
    try:
        with (
            consuming(proxy.address, broker.group(), topic, seen) as consumer,
            Producer(broker.group(), namesrv_addr=proxy.address) as producer,
        ):
            producer.send(Message(topic, b"before"))
            for client in (consumer, producer):
                client.update_name_server_address([broker.namesrv_addr])
                with pytest.raises(ConfigError):
                    client.update_name_server_address("")
            proxy.refuse()
            later = broker.topic(1)
            producer.send(Message(topic, b"after"))
            producer.send(Message(later, b"other topic"))
            consumer.subscribe(later)
            seen.wait(3)
            wait_for(
                lambda: {queue.topic for queue in consumer.assigned()} >= {topic, later},
                "the queues of both topics",
            )
    finally:
        proxy.close()
    assert_once(seen, [b"before", b"after", b"other topic"])
