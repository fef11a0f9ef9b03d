"""The parser, and what becomes of errors."""

from __future__ import annotations

import argparse
import logging
import os
import sys
from collections.abc import Sequence

from rocketmq_fast._version import __version__
from rocketmq_fast.cli import broker, consume, demo, inspect, messages, produce
from rocketmq_fast.cli.output import Output, set_up_logging
from rocketmq_fast.errors import ConfigError, QueryNotFound, RocketMQError

EXIT_FAILED = 1
EXIT_BAD_OPTIONS = 2
EXIT_INTERRUPTED = 130

_COMMANDS = (demo, broker, produce, consume, inspect, messages)


def _parser() -> argparse.ArgumentParser:
    common = argparse.ArgumentParser(add_help=False, argument_default=argparse.SUPPRESS)
    group = common.add_argument_group("output")
    group.add_argument(
        "--json", action="store_true", help="one JSON object as the last line of standard output"
    )
    group.add_argument("--verbose", action="store_true", help="show what the client does")
    group.add_argument("--debug", action="store_true", help="show everything, with tracebacks")
    parser = argparse.ArgumentParser(
        prog="rocketmq-fast",
        description="Produce to, consume from and look into Apache RocketMQ.",
        epilog="Without --namesrv the environment's NAMESRV_ADDR is used. "
        "Exit code: 0 done, 1 failed, 2 wrong options, 130 interrupted.",
        parents=[common],
    )
    parser.add_argument("--version", action="version", version=f"rocketmq-fast {__version__}")
    commands = parser.add_subparsers(dest="command", metavar="COMMAND", required=True)
    for module in _COMMANDS:
        module.add_parser(commands, common)
    return parser


def main(argv: Sequence[str] | None = None) -> int:
    """Run the command line. Returns the exit code; argparse itself exits with 2."""
    options = _parser().parse_args(argv)
    debug = getattr(options, "debug", False)
    verbose = getattr(options, "verbose", False)
    set_up_logging(logging.DEBUG if debug else logging.INFO if verbose else logging.WARNING)
    output = Output(as_json=getattr(options, "json", False))
    try:
        code: int = options.run(options, output)
        output.flush()
        return code
    except BrokenPipeError:
        # The reader of our output went away, as `head` does: nothing is left to say to it.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return EXIT_FAILED
    except KeyboardInterrupt:
        return EXIT_INTERRUPTED
    except (RocketMQError, OSError) as error:
        if debug:
            raise
        sys.stderr.write(f"rocketmq-fast: error: {_one_line(error)}\n")
        return EXIT_BAD_OPTIONS if isinstance(error, ConfigError) else EXIT_FAILED


def _one_line(error: BaseException) -> str:
    text = str(error)
    if isinstance(error, QueryNotFound) and error.address is None and error.remark:
        # We looked and found nothing: no broker answered with this code.
        text = error.remark
    return " ".join(text.split()) or type(error).__name__
