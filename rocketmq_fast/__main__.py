"""`python -m rocketmq_fast` is the command `rocketmq-fast`."""

from __future__ import annotations

import sys

from rocketmq_fast.cli import main

if __name__ == "__main__":
    sys.exit(main())
