"""`rocketmq-fast view` and `dlq`: single messages, and what a group failed for good."""

from __future__ import annotations

import argparse
import itertools
from collections.abc import Iterator
from datetime import datetime
from typing import Any

from rocketmq_fast import Admin, MessageExt, MessageQueue
from rocketmq_fast.cli import arguments
from rocketmq_fast.cli.inspect import running_admin
from rocketmq_fast.cli.output import Output, counted
from rocketmq_fast.cli.render import fields, printable, shown
from rocketmq_fast.errors import ConfigError, QueryNotFound
from rocketmq_fast.protocol import props
from rocketmq_fast.protocol.codes import ResponseCode


def add_parser(commands: Any, common: argparse.ArgumentParser) -> None:
    """Describe the commands."""
    parser = arguments.add_client_command(
        commands,
        "view",
        view,
        common,
        help="show a message by its id or key",
        description="Shows a message with its properties and body. An offset message id is enough "
        "alone; a unique message id needs the topic. --key shows all messages that have it.",
    )
    parser.add_argument("msg_id", nargs="?", metavar="MSGID")
    parser.add_argument("--topic")
    parser.add_argument("--key", help="of a message of --topic, instead of MSGID")
    dlq = commands.add_parser(
        "dlq",
        parents=[common],
        help="list a group's dead letters, or send them again",
        description="Dead letters are what a group failed max_reconsume_times times.",
    )
    actions = dlq.add_subparsers(dest="action", metavar="list|resend", required=True)
    parser = arguments.add_client_command(
        actions, "list", dlq_list, common, help="list them, oldest first"
    )
    parser.add_argument("--group", required=True)
    parser.add_argument(
        "--limit", type=arguments.count, default=100, metavar="N", help="at most (default 100)"
    )
    parser = arguments.add_client_command(
        actions,
        "resend",
        dlq_resend,
        common,
        help="give them to the group again",
        description="Sends dead letters to the retry topic of the group, so that only this group "
        "gets them, with all its tries. They stay listed.",
    )
    parser.add_argument("--group", required=True)
    parser.add_argument("msg_ids", nargs="*", metavar="MSGID", help="these")
    parser.add_argument("--all", action="store_true", help="all that are stored")


def _queue(message: MessageExt) -> MessageQueue:
    return MessageQueue(message.topic, message.broker_name or "?", message.queue_id)


def details(message: MessageExt) -> str:
    """A message in several lines, one for each thing that is known of it."""

    def moment(milliseconds: int) -> str:
        return datetime.fromtimestamp(milliseconds / 1000).isoformat(" ", "milliseconds")

    rows = [
        ("topic", message.topic),
        ("queue, offset", f"{_queue(message)} {message.queue_offset}"),
        ("message id", message.msg_id),
        ("offset message id", message.offset_msg_id),
        ("born", f"{moment(message.born_timestamp)} at {message.born_host[0]}"),
        ("stored", f"{moment(message.store_timestamp)} at {message.store_host[0]}"),
        ("reconsumed", f"{message.reconsume_times} times"),
        *((f"property {name}", value) for name, value in message.properties.items()),
        ("body", message.body.decode("utf-8", "backslashreplace")),
    ]
    rows = [(printable(name), printable(value)) for name, value in rows]
    width = max(len(name) for name, _ in rows)
    return "\n".join(f"{name.ljust(width)}  {value}" for name, value in rows)


def view(options: argparse.Namespace, output: Output) -> int:
    """Show messages."""
    if (options.msg_id is None) == (options.key is None):
        raise ConfigError("give either MSGID or --key")
    if options.key is not None and options.topic is None:
        raise ConfigError("--key needs --topic")
    with running_admin(options) as admin:
        if options.msg_id is not None:
            found = [admin.view(options.msg_id, options.topic)]
        else:
            found = admin.query(options.topic, options.key)
    if not found:
        raise QueryNotFound(
            ResponseCode.QUERY_NOT_FOUND,
            f"no message of topic {options.topic!r} has key {options.key!r}",
        )
    rows = [
        {
            **fields(_queue(message), message),
            "offset_msg_id": message.offset_msg_id,
            "store_timestamp": message.store_timestamp,
            "properties": dict(message.properties),
        }
        for message in found
    ]
    output.result({"messages": rows}, "\n\n".join(map(details, found)))
    return 0


def dlq_list(options: argparse.Namespace, output: Output) -> int:
    """List dead letters."""
    with running_admin(options) as admin:
        letters = admin.dead_letters(options.group)
        count = 0
        for message in itertools.islice(letters, options.limit):
            count += 1
            origin = message.properties.get(props.RETRY_TOPIC, "?")
            if output.as_json:
                output.line(shown(_queue(message), message, as_json=True))
            else:
                text = shown(_queue(message), message, as_json=False)
                output.line(printable(f"{message.msg_id} from {origin}: {text}"))
        more = next(letters, None) is not None
    end = f"{counted(count, 'dead letter')} of group {options.group}"
    end += " shown, there are more" * more
    output.result({"group": options.group, "dead_letters": count, "more": more}, end)
    return 0


def dlq_resend(options: argparse.Namespace, output: Output) -> int:
    """Give dead letters to their group again."""
    if bool(options.msg_ids) == options.all:
        raise ConfigError("give either MSGIDs or --all")
    with running_admin(options) as admin:
        chosen = (
            admin.dead_letters(options.group)
            if options.all
            else _with_ids(admin, options.group, options.msg_ids)
        )
        sent = 0
        with output.progress("resend") as progress:
            for message in chosen:
                admin.resend_dead_letter(options.group, message)
                sent += 1
                progress.update(sent)
    text = f"{counted(sent, 'message')} given to group {options.group} again"
    output.result({"group": options.group, "resent": sent}, text)
    return 0


def _with_ids(admin: Admin, group: str, msg_ids: list[str]) -> Iterator[MessageExt]:
    """The dead letters with these ids, each once. Raises QueryNotFound, with nothing given out."""
    missing = dict.fromkeys(msg_ids)
    found = []
    for message in admin.dead_letters(group):
        for name in (message.msg_id, message.offset_msg_id):
            if name in missing:
                del missing[name]
                found.append(message.detach())
                break
    if missing:
        first = next(iter(missing))
        raise QueryNotFound(
            ResponseCode.QUERY_NOT_FOUND, f"group {group!r} has no dead letter {first}"
        )
    return iter(found)
