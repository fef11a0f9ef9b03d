"""`python -m tests.reliability --seeds 20`: a line for each round, and a report of all."""

from __future__ import annotations

import argparse
import logging
import sys
import tempfile
from pathlib import Path

from tests.reliability.plan import Plan
from tests.reliability.run import Report, Round


def main() -> int:
    """Command line; 1 when a round showed something wrong."""
    parser = argparse.ArgumentParser(prog="tests.reliability", description=__doc__)
    parser.add_argument("--seeds", type=int, default=10, help="how many")
    parser.add_argument("--first", type=int, default=0, help="the first seed")
    parser.add_argument("--seconds", type=float, default=15.0, help="of trouble in each round")
    parser.add_argument("--plan", action="store_true", help="show what happens in the rounds")
    parser.add_argument("--log", help="file for the log of the clients and of the servers")
    options = parser.parse_args()
    logging.basicConfig(
        filename=options.log,
        level=logging.INFO if options.log else logging.CRITICAL,
        format="%(asctime)s %(threadName)s %(name)s %(levelname)s %(message)s",
    )
    reports: list[Report] = []
    for seed in range(options.first, options.first + options.seeds):
        plan = Plan.of(seed, options.seconds, long=True)
        if options.plan:
            print(*plan.steps, sep="\n")
        with tempfile.TemporaryDirectory(prefix="rocketmq-fast-trouble-") as folder:
            reports.append(Round(plan, Path(folder)).run())
        print(reports[-1], flush=True)
    wrong = [report.seed for report in reports if report.violations]
    print(
        f"{len(reports)} rounds, {sum(report.sent for report in reports):,} messages, "
        f"{sum(report.deliveries for report in reports):,} deliveries, "
        f"{sum(report.duplicates for report in reports):,} of them again, "
        f"{sum(sum(report.strikes.values()) for report in reports):,} faults; "
        + (f"WRONG: seeds {wrong}" if wrong else "nothing wrong")
    )
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
