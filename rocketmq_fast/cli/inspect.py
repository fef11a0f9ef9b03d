"""`rocketmq-fast topics`, `groups`, `lag` and `offsets`: what an operator asks first."""

from __future__ import annotations

import argparse
import contextlib
from collections.abc import Iterator
from datetime import datetime
from typing import Any, Literal

from rocketmq_fast import Admin, MessageQueue
from rocketmq_fast.cli import arguments
from rocketmq_fast.cli.output import Output, counted, only_errors, table
from rocketmq_fast.errors import ConfigError, RocketMQError, TopicRouteNotFound
from rocketmq_fast.protocol.bodies import QueueData


def add_parser(commands: Any, common: argparse.ArgumentParser) -> None:
    """Describe the commands."""
    parser = arguments.add_client_command(
        commands,
        "topics",
        topics,
        common,
        help="list topics, or create one",
        description="Lists topics with their queues and messages; --create makes one; with "
        "--update it also changes the number of queues of one that is there.",
    )
    parser.add_argument("--create", metavar="TOPIC", help="create a topic on every master")
    parser.add_argument(
        "--queues", type=arguments.count, metavar="N", help="its queues on each master (default 8)"
    )
    parser.add_argument(
        "--update",
        action="store_true",
        help="give a topic that --create finds as many queues as --queues says",
    )
    parser.add_argument("--all", action="store_true", help="also list RocketMQ's own topics")
    parser = arguments.add_client_command(
        commands,
        "groups",
        groups,
        common,
        help="list consumer groups",
        description="Lists consumer groups with their members and lag.",
    )
    parser.add_argument("--all", action="store_true", help="also list RocketMQ's own groups")
    parser = arguments.add_client_command(
        commands,
        "lag",
        lag,
        common,
        help="what a group has not consumed yet",
        description="Shows the committed and the last offset of each queue of a group.",
    )
    parser.add_argument("--group", required=True)
    parser.add_argument("--topic", help="only this topic")
    parser = arguments.add_client_command(
        commands,
        "offsets",
        offsets,
        common,
        help="where a group is in a topic, and moving it",
        description="Shows the first, committed and last offset of each queue. --reset moves the "
        "group, running or not; by number a running group is moved by 5.x brokers only.",
    )
    parser.add_argument("--group", required=True)
    parser.add_argument("--topic", required=True)
    parser.add_argument(
        "--reset",
        type=arguments.position,
        metavar="first|last|TIME|OFFSET",
        help="go on there: 2026-01-31T08:00:00, 20260131080000, milliseconds since 1970 "
        "(12 digits or more) or an offset",
    )
    parser.add_argument(
        "--queue",
        type=arguments.queue,
        action="append",
        default=[],
        metavar="BROKER:ID",
        help="only this queue, with an offset; may be repeated",
    )


@contextlib.contextmanager
def running_admin(options: argparse.Namespace) -> Iterator[Admin]:
    """An administrator that logs no warnings."""
    # What goes wrong is in the error that is raised: no warnings beside it.
    admin = Admin(namesrv_addr=arguments.namesrv(options))
    with only_errors("rocketmq_fast.client"), admin:
        yield admin


def topics(options: argparse.Namespace, output: Output) -> int:
    """List topics, or create one."""
    if options.queues is not None and options.create is None:
        raise ConfigError("--queues belongs to --create")
    if options.update and (options.create is None or options.queues is None):
        raise ConfigError("--update belongs to --create with --queues")
    with running_admin(options) as admin:
        if options.create is not None:
            found, text = _create(admin, options.create, options.queues, update=options.update)
            output.result(found, text)
            return 0
        rows: list[dict[str, Any]] = []
        for name in admin.topics(internal=options.all):
            try:
                ranges = admin.offsets(name)
            except RocketMQError as error:
                # One topic whose broker is down must not hide the others.
                rows.append({"topic": name, "error": str(error)})
                continue
            stored = sum(bounds.max_offset - bounds.min_offset for bounds in ranges.values())
            brokers = sorted({queue.broker_name for queue in ranges})
            rows.append(
                {"topic": name, "queues": len(ranges), "messages": stored, "brokers": brokers}
            )
    shown = [
        [row["topic"], row["queues"], row["messages"], ", ".join(row["brokers"])]
        if "error" not in row
        else [row["topic"], "-", "-", row["error"]]
        for row in rows
    ]
    output.result({"topics": rows}, table(("topic", "queues", "messages", "brokers"), shown))
    return 0


def _create(
    admin: Admin, topic: str, queues: int | None, *, update: bool
) -> tuple[dict[str, Any], str]:
    """Create a topic where it is missing. Returns the outcome as values and as text."""
    try:
        there = {data.broker_name: data for data in admin.route(topic).queue_datas}
    except TopicRouteNotFound:
        there = {}
    if not there:
        number = queues or 8
        admin.create_topic(topic, queues=number)
        text = f"topic {topic} has {counted(number, 'queue')} on each master"
        return {"created": topic, "queues": number}, text
    texts = {name: _queue_numbers(data) for name, data in sorted(there.items())}
    before = {
        name: {"read_queues": data.read_queue_nums, "write_queues": data.write_queue_nums}
        for name, data in sorted(there.items())
    }
    shown = " and ".join(f"{text} queues on {name}" for name, text in texts.items())
    if queues is None:
        return {"unchanged": topic, "before": before}, f"topic {topic} stays with {shown}"
    changed = [name for name, text in texts.items() if text != str(queues)]
    if changed and not update:
        raise ConfigError(f"topic {topic} has {shown}, not {queues}; --update would change that")
    for name in changed:
        admin.create_topic(topic, queues=queues, perm=there[name].perm, broker=name)
    masters = [name for name, data in admin.cluster().brokers.items() if data.master is not None]
    for name in sorted(set(masters) - set(there)):
        admin.create_topic(topic, queues=queues, broker=name)
    after = f"{counted(queues, 'queue')} on each master"
    if not changed:
        return {"unchanged": topic, "queues": queues}, f"topic {topic} has {after}"
    old = " and ".join(dict.fromkeys(texts[name] for name in changed))
    text = f"topic {topic} changed from {old} to {after}"
    return {"updated": topic, "before": before, "queues": queues}, text


def _queue_numbers(data: QueueData) -> str:
    reads, writes = data.read_queue_nums, data.write_queue_nums
    return str(reads) if reads == writes else f"{reads} read and {writes} write"


def groups(options: argparse.Namespace, output: Output) -> int:
    """List groups."""
    with running_admin(options) as admin:
        rows: list[dict[str, Any]] = []
        for name in admin.groups(internal=options.all):
            try:
                progress = admin.lag(name)
                members = len(admin.members(name))
            except RocketMQError as error:
                rows.append({"group": name, "error": str(error)})
                continue
            rows.append(
                {
                    "group": name,
                    "members": members,
                    "topics": sorted({queue.topic for queue in progress}),
                    "lag": sum(one.lag for one in progress.values()),
                }
            )
    shown = [
        [row["group"], row["members"], row["lag"], ", ".join(row["topics"])]
        if "error" not in row
        else [row["group"], "-", "-", row["error"]]
        for row in rows
    ]
    output.result({"groups": rows}, table(("group", "members", "lag", "topics"), shown))
    return 0


def lag(options: argparse.Namespace, output: Output) -> int:
    """Show the lag of a group."""
    with running_admin(options) as admin:
        progress = admin.lag(options.group, options.topic)
    total = sum(one.lag for one in progress.values())
    rows = [
        {
            "topic": queue.topic,
            "broker_name": queue.broker_name,
            "queue_id": queue.queue_id,
            "committed": one.committed,
            "max_offset": one.max_offset,
            "lag": one.lag,
            "last_timestamp": one.last_timestamp,
        }
        for queue, one in progress.items()
    ]
    shown = [
        [str(queue), one.committed, one.max_offset, one.lag, _time(one.last_timestamp)]
        for queue, one in progress.items()
    ]
    heads = ("queue", "committed", "end", "lag", "last consumed was stored")
    text = f"{table(heads, shown)}\n\n{options.group} is {counted(total, 'message')} behind"
    if not rows:
        text = f"group {options.group} has no offsets"
    output.result({"group": options.group, "lag": total, "queues": rows}, text)
    return 0


def offsets(options: argparse.Namespace, output: Output) -> int:
    """Show, or move, the offsets of a group in a topic."""
    if options.queue and not isinstance(options.reset, int):
        raise ConfigError("--queue belongs to --reset OFFSET")
    group, topic, moved = options.group, options.topic, None
    had_none = False
    with running_admin(options) as admin:
        if options.reset is not None:
            # For a running group brokers tell of all queues of its topics.
            had_none = all(queue.topic != topic for queue in admin.lag(group))
            moved = _reset(admin, group, topic, options.reset, options.queue)
        ranges = admin.offsets(topic)
        # For a topic by name brokers tell 0 where the group has no offset.
        progress = admin.lag(group)
    rows: list[dict[str, Any]] = []
    for queue, bounds in ranges.items():
        row = {
            "broker_name": queue.broker_name,
            "queue_id": queue.queue_id,
            "min_offset": bounds.min_offset,
            "committed": progress[queue].committed if queue in progress else None,
            "max_offset": bounds.max_offset,
        }
        rows.append(row if moved is None else {**row, "reset": moved.get(queue)})
    heads = ["queue", "first", "committed", "end"] + (["moved to"] if moved is not None else [])
    shown = [
        [f"{row['broker_name']}:{row['queue_id']}"]
        + ["-" if value is None else value for value in list(row.values())[2:]]
        for row in rows
    ]
    found = {"group": group, "topic": topic, "queues": rows}
    if had_none:
        output.say(f"note: group {group} had no offsets here")
    output.result(found, table(heads, shown))
    return 0


def _reset(
    admin: Admin,
    group: str,
    topic: str,
    position: str | int | datetime,
    queues: list[tuple[str, int]],
) -> dict[MessageQueue, int]:
    if isinstance(position, datetime):
        return admin.reset_offsets(group, topic, timestamp=position)
    if isinstance(position, str):
        where: Literal["earliest", "latest"] = "earliest" if position == "first" else "latest"
        return admin.reset_offsets(group, topic, offset=where)
    if not queues:
        return admin.reset_offsets(group, topic, offset=position)
    wanted = {MessageQueue(topic, broker, number): position for broker, number in queues}
    return admin.reset_offsets(group, topic, offset=wanted)


def _time(milliseconds: int) -> str:
    if milliseconds <= 0:
        return "-"
    return datetime.fromtimestamp(milliseconds / 1000).isoformat(" ", "seconds")
