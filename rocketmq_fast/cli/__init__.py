"""The command `rocketmq-fast`: a demonstration, a broker, and what an operator asks first."""

from rocketmq_fast.cli.entry import main

__all__ = ["main"]
