"""`python -m tests.reliability --seeds 20`: a line for each round, and a report of all."""

from __future__ import annotations

import argparse
import logging
import sys
import tempfile
import threading
from pathlib import Path

from tests.reliability.grounds import ApacheGround, EmbeddedGround, Ground
from tests.reliability.plan import EMBEDDED, KINDS_OF_BROKERS, Plan
from tests.reliability.run import Report, Round

_unhandled: list[str] = []


def _watch_threads() -> None:
    """Note what ends a thread, or cannot be raised (I14)."""

    def on_thread(found: threading.ExceptHookArgs) -> None:
        _unhandled.append(f"{found.thread}: {found.exc_value!r}")

    def on_unraisable(found: sys.UnraisableHookArgs) -> None:
        _unhandled.append(f"{found.object!r}: {found.exc_value!r}")

    threading.excepthook = on_thread
    sys.unraisablehook = on_unraisable


def _run(plan: Plan, ground: Ground | None) -> Report:
    with tempfile.TemporaryDirectory(prefix="rocketmq-fast-trouble-") as folder:
        own = EmbeddedGround(Path(folder) / "store", plan.seed) if ground is None else None
        try:
            used = own or ground
            assert used is not None
            report = Round(plan, used, Path(folder)).run()
        finally:
            if own is not None:
                own.close()
    report.violations += _unhandled
    _unhandled.clear()
    return report


def _row(words: str, reports: list[Report]) -> str:
    """A line of the table in docs/reliability.md."""

    def total(name: str) -> str:
        return f"{sum(getattr(report, name) for report in reports):,}"

    wrong = [report.seed for report in reports if report.violations]
    cells = (
        f"`{words}`",
        str(len(reports)),
        *map(total, ("sent", "deliveries", "duplicates", "commits")),
        f"{sum(sum(report.strikes.values()) for report in reports):,}",
        *map(total, ("killed", "paused")),
        f"{max(report.settled_seconds for report in reports):.0f} s",
        f"seeds {wrong}" if wrong else "nothing",
    )
    return f"| {' | '.join(cells)} |"


def main() -> int:
    """Command line; 1 when a round showed something wrong."""
    parser = argparse.ArgumentParser(prog="tests.reliability", description=__doc__)
    parser.add_argument("--seeds", type=int, default=10, help="how many")
    parser.add_argument("--first", type=int, default=0, help="the first seed")
    parser.add_argument("--seconds", type=float, default=15.0, help="of trouble in each round")
    parser.add_argument("--broker", choices=KINDS_OF_BROKERS, default=EMBEDDED)
    parser.add_argument(
        "--processes", action="store_true", help="members are processes; some are killed or stopped"
    )
    parser.add_argument("--storm", action="store_true", help="it is mostly members that change")
    parser.add_argument("--plan", action="store_true", help="show what happens in the rounds")
    parser.add_argument("--log", help="file for the log of the clients and of the servers")
    parser.add_argument("--row", action="store_true", help="end with a line of the report's table")
    options = parser.parse_args()
    logging.basicConfig(
        filename=options.log,
        level=logging.INFO if options.log else logging.CRITICAL,
        format="%(asctime)s %(threadName)s %(name)s %(levelname)s %(message)s",
    )
    _watch_threads()
    ground: Ground | None = None
    if options.broker != EMBEDDED:
        ground = ApacheGround(options.broker.removeprefix("apache-"))
    reports: list[Report] = []
    try:
        for seed in range(options.first, options.first + options.seeds):
            plan = Plan.of(
                seed, options.seconds, long=True, broker=options.broker,
                processes=options.processes, storm=options.storm,
            )  # fmt: skip
            if options.plan:
                print(*plan.steps, sep="\n")
            reports.append(_run(plan, ground))
            print(reports[-1], flush=True)
    finally:
        if ground is not None:
            ground.close()
    wrong = [report.seed for report in reports if report.violations]
    print(
        f"{len(reports)} rounds, {sum(report.sent for report in reports):,} messages, "
        f"{sum(report.deliveries for report in reports):,} deliveries, "
        f"{sum(report.duplicates for report in reports):,} of them again, "
        f"{sum(report.commits for report in reports):,} commits, "
        f"{sum(sum(report.strikes.values()) for report in reports):,} faults, "
        f"{sum(report.killed for report in reports):,} members killed, "
        f"{sum(report.paused for report in reports):,} stopped for a while; "
        + (f"WRONG: seeds {wrong}" if wrong else "nothing wrong")
    )
    if options.row:
        words = " ".join(
            word for word in sys.argv[1:] if word not in ("--row", "--log", options.log)
        )
        print(_row(words, reports))
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
