"""The trial of an installed wheel: standard library and the package, no test framework.

Usage: wheel_smoke.py [--not-from FOLDER]      (the golden vectors lie beside this file)
"""

from __future__ import annotations

import argparse
import hashlib
import json
import sys
import threading
from pathlib import Path

import rocketmq_fast as rmq
from rocketmq_fast.embedded import Cluster

GOLDEN = Path(__file__).resolve().parent / "golden"
COUNT = 1_000
TIMEOUT_S = 60


def imported_from(forbidden: Path | None) -> None:
    """The package is the installed one, compiled modules and all."""
    loaded = [
        Path(module.__file__).resolve()
        for name, module in sorted(sys.modules.items())
        if name.split(".")[0] == "rocketmq_fast" and getattr(module, "__file__", None)
    ]
    compiled = [path for path in loaded if path.suffix in (".so", ".pyd")]
    assert compiled, f"no compiled module among {loaded}"
    if forbidden is not None:
        reached = [path for path in loaded if path.is_relative_to(forbidden)]
        assert not reached, f"taken from the source tree: {reached}"
    assert (Path(rmq.__file__).parent / "py.typed").exists(), "py.typed is missing"


def golden_messages() -> int:
    """Each message that Java wrote is read as Java read it."""
    count = 0
    for name in ("stored_v4_9_4", "stored_v5_3_3"):
        buffer = (GOLDEN / f"{name}.bin").read_bytes()
        lines = (GOLDEN / f"{name}.jsonl").read_text(encoding="utf-8").splitlines()
        batch = rmq.decode_messages(buffer)
        assert not batch.errors, batch.errors
        assert len(batch) == len(lines), (name, len(batch), len(lines))
        for message, line in zip(batch, lines, strict=True):
            want = json.loads(line)
            where = f"{name}, queue offset {want['queueOffset']}"
            assert message.topic == want["topic"], where
            assert message.queue_id == want["queueId"], where
            assert message.queue_offset == want["queueOffset"], where
            assert message.commit_log_offset == want["commitLogOffset"], where
            assert message.born_timestamp == want["bornTimestamp"], where
            assert message.tags == want["tags"], where
            assert message.keys == want["keys"], where
            assert message.properties == want["properties"], where
            assert message.msg_id == want["msgId"], where
            if want["bodySha256"] is not None:
                assert hashlib.sha256(message.body).hexdigest() == want["bodySha256"], where
            count += 1
    return count


def arrow_columns() -> None:
    """Columns leave by the Arrow C data interface, without pyarrow here."""
    batch = rmq.decode_arrow((GOLDEN / "stored_v4_9_4.bin").read_bytes())
    schema, array = batch.__arrow_c_array__()
    assert type(schema).__name__ == "PyCapsule", schema
    assert type(array).__name__ == "PyCapsule", array
    assert len(batch) == 200, len(batch)


def round_trip() -> int:
    """A push consumer of the embedded cluster gets each body that a producer sent."""
    wanted = {b"body %d" % i for i in range(COUNT)}
    got: set[bytes] = set()
    complete = threading.Event()
    guard = threading.Lock()

    def on_messages(messages: list[rmq.MessageExt], context: object) -> rmq.ConsumeStatus:
        with guard:
            got.update(message.body for message in messages)
            if len(got) >= COUNT:
                complete.set()
        return rmq.ConsumeStatus.CONSUME_SUCCESS

    with Cluster(store=None) as cluster:
        address = cluster.namesrv_addr
        with rmq.Producer("smoke_producer", namesrv_addr=address) as producer:
            for body in sorted(wanted):
                result = producer.send(rmq.Message("Smoke", body, tags="TagA"))
                assert result.status == rmq.SendStatus.SEND_OK, result
        consumer = rmq.PushConsumer(
            "smoke_consumer",
            namesrv_addr=address,
            consume_from_where=rmq.ConsumeFromWhere.CONSUME_FROM_FIRST_OFFSET,
        )
        consumer.subscribe("Smoke", "TagA || TagB")
        consumer.register_listener(on_messages)
        with consumer:
            assert complete.wait(TIMEOUT_S), f"{len(got)} of {COUNT} messages"
    assert got == wanted, f"{len(got - wanted)} bodies that nobody sent"
    return len(got)


def main() -> None:
    """Run all of it and say what was seen."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--not-from", type=Path, default=None)
    options = parser.parse_args()
    imported_from(options.not_from)
    messages = golden_messages()
    arrow_columns()
    delivered = round_trip()
    text = f"rocketmq-fast {rmq.__version__}: {messages} golden messages, {delivered} delivered"
    sys.stdout.write(text + "\n")


if __name__ == "__main__":
    main()
