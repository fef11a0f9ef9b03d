"""`rocketmq-fast broker`: the embedded name server and broker until stopped."""

from __future__ import annotations

import argparse
import errno
import os
from dataclasses import fields
from typing import Any

from rocketmq_fast.cli import arguments
from rocketmq_fast.cli.faults import FaultPlan
from rocketmq_fast.cli.output import Output
from rocketmq_fast.cli.signals import stop_on_signals
from rocketmq_fast.embedded import Cluster
from rocketmq_fast.embedded.config import BrokerConfig
from rocketmq_fast.errors import ConfigError

_TRUE, _FALSE = ("true", "1", "yes", "on"), ("false", "0", "no", "off")


def add_parser(commands: Any, common: argparse.ArgumentParser) -> None:
    """Describe the command."""
    parser = commands.add_parser(
        "broker",
        parents=[common],
        help="run a name server and a broker until stopped",
        description="Runs the embedded name server and broker until Ctrl-C or SIGTERM. "
        "It checks no credentials, so it listens on loopback unless told otherwise.",
    )
    parser.add_argument(
        "--namesrv-port",
        type=arguments.port,
        default=9876,
        metavar="PORT",
        help="port of the name server, 0 for a free one (default 9876)",
    )
    parser.add_argument(
        "--broker-port",
        type=arguments.port,
        default=10911,
        metavar="PORT",
        help="port of the broker, 0 for a free one (default 10911)",
    )
    parser.add_argument(
        "--store", metavar="DIR", help="directory of the messages (default: a temporary one)"
    )
    parser.add_argument(
        "--host", default="127.0.0.1", help="address to listen on (default 127.0.0.1)"
    )
    parser.add_argument(
        "--allow-remote", action="store_true", help="allow a --host that other machines can reach"
    )
    parser.add_argument(
        "--advertised-host", metavar="IP", help="address that clients are told (default: --host)"
    )
    parser.add_argument(
        "--brokers", type=arguments.count, default=1, metavar="N", help="brokers (default 1)"
    )
    parser.add_argument(
        "--name-servers", type=arguments.count, default=1, metavar="N",
        help="name servers (default 1)",
    )  # fmt: skip
    parser.add_argument(
        "--register-at", metavar="ADDR", help="other name servers that the brokers register at"
    )
    parser.add_argument(
        "--fault",
        action="append",
        default=[],
        dest="faults",
        metavar="FAULT",
        help="what goes wrong, such as 'error requests=PULL_MESSAGE code=2 probability=0.1' or "
        "'stop_broker after=5'; may be repeated",
    )
    parser.add_argument(
        "--fault-seed", type=int, metavar="N", help="repeat the decisions of an earlier run"
    )
    parser.add_argument(
        "--set",
        type=arguments.assignment,
        action="append",
        default=[],
        dest="settings",
        metavar="NAME=VALUE",
        help="broker setting such as delay_levels='1s 5s'; may be repeated",
    )
    parser.set_defaults(run=run)


def settings_of(pairs: list[tuple[str, str]]) -> dict[str, Any]:
    """Values of BrokerConfig by the types of its defaults. Raises ConfigError."""
    known = {field.name: field.default for field in fields(BrokerConfig)}
    values: dict[str, Any] = {}
    for name, text in pairs:
        if name not in known:
            raise ConfigError(f"--set {name}: no such setting; there are {', '.join(known)}")
        default = known[name]
        try:
            if isinstance(default, bool):
                if text.lower() not in (*_TRUE, *_FALSE):
                    raise ValueError("true or false is expected")
                values[name] = text.lower() in _TRUE
            elif isinstance(default, (int, float)):
                values[name] = type(default)(text)
            else:
                values[name] = text
        except ValueError as error:
            raise ConfigError(f"--set {name}={text}: {error}") from error
    return values


def run(options: argparse.Namespace, output: Output) -> int:
    """Serve until a signal comes."""
    settings = settings_of(options.settings)
    plan = FaultPlan(options.faults)
    try:
        cluster = Cluster(
            options.store,
            options.namesrv_port,
            options.broker_port,
            options.host,
            options.allow_remote,
            brokers=options.brokers,
            name_servers=options.name_servers,
            register_at=options.register_at,
            advertised_host=options.advertised_host,
            fault_seed=options.fault_seed,
            **settings,
        )
        plan.put_into(cluster.faults)
    except ConfigError as error:
        hint = str(error).replace("Set allow_remote=True", "Give --allow-remote")
        raise ConfigError(hint.replace("give advertised_host", "give --advertised-host")) from error
    with stop_on_signals() as stop, _started(cluster, options):
        kept = "" if options.store else " (temporary)"
        output.result(
            {
                "namesrv_addr": cluster.namesrv_addr,
                "broker_addr": cluster.broker_addr,
                "broker_addrs": cluster.broker_addrs,
                "fault_seed": cluster.faults.seed,
                "store": str(cluster.store),
                "pid": os.getpid(),
            },
            f"ready: name server {cluster.namesrv_addr}, broker {', '.join(cluster.broker_addrs)}, "
            f"store {cluster.store}{kept}"
            + (f", fault seed {cluster.faults.seed}" if options.faults else ""),
        )
        plan.start(cluster)
        try:
            stop.wait()
        finally:
            plan.stop()
    return 0


def _started(cluster: Cluster, options: argparse.Namespace) -> Cluster:
    try:
        return cluster.start()
    except OSError as error:
        if error.errno not in (errno.EADDRINUSE, errno.EACCES):
            raise
        raise OSError(
            f"cannot listen on {options.host}, ports {options.namesrv_port} (--namesrv-port) and "
            f"{options.broker_port} (--broker-port): {error.strerror}"
        ) from error
