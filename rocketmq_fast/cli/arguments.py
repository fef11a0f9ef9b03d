"""Types of command line arguments. Each raises ArgumentTypeError with what would be right."""

from __future__ import annotations

import argparse
import os
from collections.abc import Callable
from datetime import datetime
from typing import Any

from rocketmq_fast.cli.output import Output
from rocketmq_fast.errors import ConfigError

_COUNT_UNITS = {"k": 1_000, "m": 1_000_000}
_SIZE_UNITS = {"k": 1 << 10, "m": 1 << 20}


def _scaled(text: str, units: dict[str, int], what: str) -> int:
    digits, factor = text.strip().lower().replace("_", "").replace(",", ""), 1
    if digits[-1:] in units:
        digits, factor = digits[:-1], units[digits[-1]]
    if not digits.isdecimal():
        raise argparse.ArgumentTypeError(f"{text!r} is not a {what}, such as 1000, 10k or 1m")
    return int(digits) * factor


def count(text: str) -> int:
    """A number over 0: 1000, 1_000, 10k, 1m."""
    value = _scaled(text, _COUNT_UNITS, "number over 0")
    if value < 1:
        raise argparse.ArgumentTypeError(f"{text!r} is not over 0")
    return value


def size(text: str) -> int:
    """A number of bytes, 0 included: 100, 4k (4096)."""
    return _scaled(text, _SIZE_UNITS, "number of bytes")


def seconds(text: str) -> float:
    """A time over 0."""
    try:
        value = float(text)
    except ValueError:
        value = 0.0
    if not 0 < value < 1e9:
        raise argparse.ArgumentTypeError(f"{text!r} is not a number of seconds over 0")
    return value


def port(text: str) -> int:
    """A TCP port; 0 lets the system choose."""
    if not text.isdecimal() or int(text) > 65535:
        raise argparse.ArgumentTypeError(f"{text!r} is not a port (0 to 65535)")
    return int(text)


def start(text: str) -> str | datetime:
    """Where to begin: first, last, or a time."""
    word = text.strip()
    if word.lower() in ("first", "last"):
        return word.lower()
    try:
        if word.isdecimal() and len(word) == 14:
            return datetime.strptime(word, "%Y%m%d%H%M%S").astimezone()
        if word.isdecimal() and len(word) in (12, 13):
            return datetime.fromtimestamp(int(word) / 1000).astimezone()
        return datetime.fromisoformat(word).astimezone()
    except (ValueError, OverflowError, OSError):
        raise argparse.ArgumentTypeError(
            f"{text!r} is not first, last or a time: 2026-01-31T08:00:00, 20260131080000 or "
            "milliseconds since 1970"
        ) from None


def position(text: str) -> str | datetime | int:
    """Where a group shall be: first, last, a time, or an offset of less than 12 digits."""
    word = text.strip()
    if word.isdecimal() and len(word) < 12:
        return int(word)
    try:
        return start(text)
    except argparse.ArgumentTypeError as error:
        raise argparse.ArgumentTypeError(f"{error}, or an offset") from None


def queue(text: str) -> tuple[str, int]:
    """BROKER:ID."""
    broker, colon, number = text.strip().rpartition(":")
    if not colon or not broker or not number.isdecimal():
        raise argparse.ArgumentTypeError(f"{text!r} is not BROKER:QUEUE_ID, such as broker-a:0")
    return broker, int(number)


def names(text: str) -> list[str]:
    """A list with commas, without blanks."""
    found = [item.strip() for item in text.split(",") if item.strip()]
    if not found:
        raise argparse.ArgumentTypeError(f"{text!r} names nothing")
    return found


def assignment(text: str) -> tuple[str, str]:
    """NAME=VALUE."""
    name, equals, value = text.partition("=")
    if not equals or not name.strip():
        raise argparse.ArgumentTypeError(f"{text!r} is not NAME=VALUE")
    return name.strip().replace("-", "_"), value.strip()


def user_property(text: str) -> tuple[str, str]:
    """NAME=VALUE, both as they are."""
    name, equals, value = text.partition("=")
    if not equals or not name.strip() or not value.strip():
        raise argparse.ArgumentTypeError(f"{text!r} is not NAME=VALUE")
    return name, value


def add_client_command(
    commands: Any,
    name: str,
    run: Callable[[argparse.Namespace, Output], int],
    common: argparse.ArgumentParser,
    **texts: str,
) -> argparse.ArgumentParser:
    """A command that talks to a cluster: it has the options of all, and --namesrv."""
    parser: argparse.ArgumentParser = commands.add_parser(name, parents=[common], **texts)
    parser.add_argument(
        "--namesrv", metavar="ADDR", help="host:port of the name servers (default NAMESRV_ADDR)"
    )
    parser.set_defaults(run=run)
    return parser


def namesrv(options: argparse.Namespace) -> str:
    """Addresses of the name servers. Raises ConfigError when there are none."""
    address = options.namesrv or os.environ.get("NAMESRV_ADDR", "")
    if not address.strip():
        raise ConfigError("give --namesrv HOST:PORT, or set NAMESRV_ADDR")
    return str(address)
