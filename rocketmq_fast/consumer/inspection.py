"""What operators see of a consumer through mqadmin: running info, stacks, direct consumption."""

from __future__ import annotations

import sys
import threading
import time
import traceback
from collections.abc import Iterable, Mapping
from dataclasses import fields
from typing import Any

from rocketmq_fast.client.options import ClientOptions
from rocketmq_fast.consumer.assigned import AssignedQueue
from rocketmq_fast.consumer.subscription import Subscription
from rocketmq_fast.model import ConsumeStatus, MessageQueue, OrderlyStatus
from rocketmq_fast.protocol import fastjson

_MIB = 1 << 20
# Options whose text would only be an object's address.
# And secrets, which no answer to anybody may hold.
_HIDDEN_OPTIONS = frozenset(
    """offset_store namesrv_addr access_key secret_key security_token credentials
    tls_key_password""".split()
)


def camel(name: str) -> str:
    """The Java property name of an option."""
    head, *tail = name.split("_")
    return head + "".join(part.capitalize() for part in tail)


def _wall_ms(monotonic: float) -> int:
    """A monotonic time as milliseconds since the epoch; 0 for never."""
    age = time.monotonic() - monotonic
    return int((time.time() - age) * 1000) if monotonic > 0 else 0


def stacks() -> str:
    """The Python stack of every thread, where Java's client sends a jstack."""
    names = {thread.ident: thread.name for thread in threading.enumerate()}
    parts = []
    for ident, frame in sys._current_frames().items():
        text = "".join(traceback.format_stack(frame))
        parts.append(f'"{names.get(ident, "unknown")}" id={ident}\n{text}\n')
    return "".join(parts)


def _queue_info(queue: AssignedQueue, commit_offset: int | None) -> dict[str, Any]:
    messages = queue.process_queue
    return {
        "cachedMsgCount": messages.count,
        "cachedMsgMaxOffset": max(0, messages.max_offset),
        "cachedMsgMinOffset": max(0, messages.min_offset),
        "cachedMsgSizeInMiB": messages.size // _MIB,
        "commitOffset": -1 if commit_offset is None else commit_offset,
        "droped": queue.dropped,
        "lastConsumeTimestamp": _wall_ms(queue.last_consume),
        "lastLockTimestamp": _wall_ms(queue.locked_at),
        "lastPullTimestamp": _wall_ms(queue.last_pull),
        "locked": queue.locked,
        "transactionMsgCount": messages.taken_count,
        "transactionMsgMaxOffset": max(0, messages.taken_max_offset),
        "transactionMsgMinOffset": max(0, messages.taken_min_offset),
        "tryUnlockTimes": 0,
    }


def running_info_body(
    *,
    options: ClientOptions,
    name_servers: Iterable[str],
    group: str,
    orderly: bool,
    started_at: float,
    queues: Mapping[AssignedQueue, int | None],
    subscriptions: Iterable[Subscription],
    status: Mapping[str, Mapping[str, float]],
    with_stacks: bool,
    threads: int = 0,
    active: bool = False,
) -> bytes:
    """Body of answer 307. `queues` maps owned queues to progress, `status` topics to rates."""
    properties = {
        camel(item.name): str(getattr(options, item.name))
        for item in fields(options)
        if item.name not in _HIDDEN_OPTIONS
    }
    properties |= {
        "consumerGroup": group,
        "PROP_NAMESERVER_ADDR": "".join(f"{address};" for address in name_servers),
        "PROP_CONSUME_TYPE": "CONSUME_ACTIVELY" if active else "CONSUME_PASSIVELY",
        "PROP_CLIENT_VERSION": "V4_9_4",
        "PROP_CONSUMEORDERLY": "true" if orderly else "false",
        "PROP_THREADPOOL_CORE_SIZE": str(threads),
        "PROP_CONSUMER_START_TIMESTAMP": str(int(started_at * 1000)),
    }
    table: dict[MessageQueue, Any] = {
        queue.message_queue: _queue_info(queue, offset) for queue, offset in queues.items()
    }
    body = {
        "mqTable": table,
        "properties": properties,
        "statusTable": {topic: dict(rates) for topic, rates in status.items()},
        "subscriptionSet": [item.data.to_json() for item in subscriptions],
    }
    if with_stacks:
        body["jstack"] = stacks()
    return fastjson.dumps(body).encode()


_DIRECT_RESULTS = {
    ConsumeStatus.CONSUME_SUCCESS: "CR_SUCCESS",
    ConsumeStatus.RECONSUME_LATER: "CR_LATER",
    OrderlyStatus.SUCCESS: "CR_SUCCESS",
    OrderlyStatus.COMMIT: "CR_COMMIT",
    OrderlyStatus.ROLLBACK: "CR_ROLLBACK",
    OrderlyStatus.SUSPEND_CURRENT_QUEUE_A_MOMENT: "CR_LATER",
}


def direct_result(
    *,
    orderly: bool,
    auto_commit: bool,
    status: object,
    error: BaseException | None,
    seconds: float,
) -> dict[str, object]:
    """Body of answer 309."""
    result: dict[str, object] = {
        "autoCommit": auto_commit,
        "order": orderly,
        "spentTimeMills": int(seconds * 1000),
    }
    if error is not None:
        result["consumeResult"] = "CR_THROW_EXCEPTION"
        result["remark"] = "".join(traceback.format_exception(error))
    elif isinstance(status, (ConsumeStatus, OrderlyStatus)):
        result["consumeResult"] = _DIRECT_RESULTS[status]
    else:
        result["consumeResult"] = "CR_RETURN_NULL"
    return result
