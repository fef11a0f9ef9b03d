"""The transactional producer: half message, local transaction, decision, and answers to checks."""

from __future__ import annotations

import copy
import logging
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import partial
from typing import Any, cast

from rocketmq_fast._core import MessageExt, RemotingCommand
from rocketmq_fast.client.addresses import parse_offset_id
from rocketmq_fast.client.options import check_range
from rocketmq_fast.errors import ConfigError, RocketMQError
from rocketmq_fast.model import (
    LocalTransactionState,
    Message,
    MessageQueue,
    SendResult,
    SendStatus,
    TransactionSendResult,
)
from rocketmq_fast.producer.checks import CheckPool
from rocketmq_fast.producer.hooks import EndTransactionContext, EndTransactionHook
from rocketmq_fast.producer.options import ProducerOptions
from rocketmq_fast.producer.producer import Producer, Running, Timeout
from rocketmq_fast.protocol import props
from rocketmq_fast.protocol.codes import MessageSysFlag, RequestCode
from rocketmq_fast.remoting.hooks import checked_calls

logger = logging.getLogger(__name__)

# fn(message with its transaction_id, the caller's argument); fn(half message of the broker).
ExecuteTransaction = Callable[[Message, Any], LocalTransactionState]
CheckTransaction = Callable[[MessageExt], LocalTransactionState]

_DECISIONS = {
    LocalTransactionState.COMMIT_MESSAGE: int(MessageSysFlag.TRANSACTION_COMMIT),
    LocalTransactionState.ROLLBACK_MESSAGE: int(MessageSysFlag.TRANSACTION_ROLLBACK),
    LocalTransactionState.UNKNOW: 0,
}


@dataclass(frozen=True, slots=True, kw_only=True)
class TransactionProducerOptions(ProducerOptions):
    """Options of TransactionProducer.

    check_thread_pool_min_size, check_thread_pool_max_size: threads that run `check`;
    check_request_hold_max: questions that wait for them, others are dropped and come again.
    end_transaction_hooks: a callable or several, told each decision before the broker is.
    """

    check_thread_pool_min_size: int = 1
    check_thread_pool_max_size: int = 1
    check_request_hold_max: int = 2000
    end_transaction_hooks: Any = None

    def __post_init__(self) -> None:
        ProducerOptions.__post_init__(self)
        hooks = checked_calls("end_transaction_hooks", self.end_transaction_hooks)
        object.__setattr__(self, "end_transaction_hooks", hooks)
        check_range("check_thread_pool_min_size", self.check_thread_pool_min_size, 1, 1000)
        check_range("check_thread_pool_max_size", self.check_thread_pool_max_size, 1, 1000)
        check_range("check_request_hold_max", self.check_request_hold_max, 1, 2**31 - 1)


class TransactionProducer(Producer):
    """A producer whose messages can hang on a local transaction.

    `send_in_transaction` stores a half message that no consumer sees, calls
    `execute(message, arg)` and tells the broker what it returned: COMMIT_MESSAGE delivers the
    message, ROLLBACK_MESSAGE drops it. While the broker knows neither (UNKNOW, an exception, a
    crash) it asks some producer of the group, again and again: `check(message)` answers for the
    half message, after a look at what the local transaction left behind. `check` must therefore
    know transactions of other processes of the group too; the id that both functions see is
    `message.transaction_id` in `execute` and `message.msg_id` in `check`.

    `execute` runs on the caller's thread, `check` on threads of its own. What they raise is logged
    and counts as UNKNOW. All other methods are those of Producer.
    """

    _options: TransactionProducerOptions

    def __init__(
        self,
        group: str,
        *,
        execute: ExecuteTransaction,
        check: CheckTransaction,
        **options: Any,
    ) -> None:
        for name, function in (("execute", execute), ("check", check)):
            if not callable(function):
                raise ConfigError(f"{name} is {function!r}, not callable")
        super().__init__(group, **options)
        self._execute = execute
        self._check = check

    @staticmethod
    def _checked_options(options: Mapping[str, Any]) -> TransactionProducerOptions:
        return TransactionProducerOptions.of("TransactionProducer", options)

    def _new_running(self) -> Running:
        return _TransactionRunning(self._group, self._options, self._check)

    def send_in_transaction(
        self, message: Message, arg: Any = None, *, timeout: Timeout = None
    ) -> TransactionSendResult:
        """Send a half message, run the local transaction, tell the broker how it ended.

        `execute` gets a copy of the message with its `transaction_id`. A half message whose status
        is not SEND_OK is rolled back and `execute` is not called. The decision is sent without
        waiting: when it gets lost, a check finds it. Raises ConfigError for a message with a delay
        level, and what `send` raises; nothing is delivered then.
        """
        running = cast(_TransactionRunning, self._require_running())
        if message.delay_time_level:
            raise ConfigError(
                f"a message for topic {message.topic!r} has delay level "
                f"{message.delay_time_level}: a transaction cannot be delayed"
            )
        out = self._packer.pack(message)
        out.properties[props.TRAN_MSG] = "true"
        out.properties[props.PGROUP] = running.group
        out.sys_flag |= MessageSysFlag.TRANSACTION_PREPARED
        result = running.sender.send(out, running.seconds(timeout), None)
        error: Exception | None = None
        given = copy.copy(message)
        given.transaction_id = result.msg_id
        if result.status is SendStatus.SEND_OK:
            state, error = _run(partial(self._execute, given, arg), "execute", result.msg_id)
        else:
            state = LocalTransactionState.ROLLBACK_MESSAGE
        try:
            running.tell(
                running.master(result.message_queue),
                given,
                state,
                error,
                {
                    "tranStateTableOffset": str(result.queue_offset),
                    "commitLogOffset": str(parse_offset_id(result.offset_msg_id)[1]),
                    "msgId": result.msg_id,
                },
                result.transaction_id,
                from_check=False,
            )
        except RocketMQError as failure:
            logger.warning(
                "%s of transaction %s was not sent; the broker will ask: %s",
                state.name, result.msg_id, failure,
            )  # fmt: skip
        fields = {name: getattr(result, name) for name in SendResult.__dataclass_fields__}
        fields["transaction_id"] = result.transaction_id or result.msg_id
        return TransactionSendResult(**fields, local_transaction_state=state)


def _run(
    function: Callable[[], object], name: str, transaction_id: str
) -> tuple[LocalTransactionState, Exception | None]:
    """What a function of the user says, UNKNOW when it fails or says something else."""
    try:
        state = function()
    except Exception as error:
        logger.exception("%s of transaction %s failed: its state is UNKNOW", name, transaction_id)
        return LocalTransactionState.UNKNOW, error
    if not isinstance(state, LocalTransactionState):
        logger.error(
            "%s of transaction %s returned %r, not a LocalTransactionState: its state is UNKNOW",
            name, transaction_id, state,
        )  # fmt: skip
        return LocalTransactionState.UNKNOW, None
    return state, None


class _TransactionRunning(Running):
    """A started transactional producer: also answers the broker's questions."""

    def __init__(
        self, group: str, options: TransactionProducerOptions, check: CheckTransaction
    ) -> None:
        self._check = check
        self._pool = CheckPool(
            f"rocketmq-check-{group}",
            options.check_thread_pool_min_size,
            options.check_thread_pool_max_size,
            options.check_request_hold_max,
        )
        super().__init__(group, options)
        self._hooks: list[EndTransactionHook] = list(options.end_transaction_hooks)
        if self.trace_hook is not None:
            self._hooks.append(self.trace_hook.end_transaction)

    def master(self, queue: MessageQueue) -> str:
        """Where decisions go: never the VIP channel, as in Java. Raises BrokerNotFound."""
        return self.instance.broker_address(queue.broker_name, only_this=True)[0]

    def check_transaction(
        self, address: str, message: MessageExt, fields: Mapping[str, str]
    ) -> None:
        """Line the question up. Event loop."""
        if not self._pool.submit(partial(self._answer, address, message, dict(fields))):
            logger.warning(
                "check of transaction %s dropped: too many wait for `check`", message.msg_id
            )

    def _answer(self, address: str, message: MessageExt, asked: dict[str, str]) -> None:
        """Find the state out and tell the broker that asked."""
        state, error = _run(partial(self._check, message), "check", message.msg_id)
        places = {name: asked[name] for name in ("tranStateTableOffset", "commitLogOffset")}
        self.tell(
            address,
            message,
            state,
            error,
            {**places, "msgId": message.msg_id},
            asked.get("transactionId"),
            from_check=True,
        )

    def tell(
        self,
        address: str,
        message: Message | MessageExt,
        state: LocalTransactionState,
        error: Exception | None,
        fields: dict[str, str],
        transaction_id: str | None,
        *,
        from_check: bool,
    ) -> None:
        """Tell a broker how a transaction ended, without an answer. Raises RocketMQError."""
        context = EndTransactionContext(
            self.options.names.unwrap(self.group),
            message,
            address,
            fields["msgId"],
            transaction_id,
            state,
            from_check,
        )
        for hook in self._hooks:
            try:
                hook(context)
            except Exception:
                logger.exception("%r failed at the end of transaction %s", hook, context.msg_id)
        fields["producerGroup"] = self.group
        fields["commitOrRollback"] = str(_DECISIONS[state])
        fields["fromTransactionCheck"] = "true" if from_check else "false"
        if transaction_id is not None:
            fields["transactionId"] = transaction_id
        remark = None if error is None else f"{type(error).__name__}: {error}"
        command = RemotingCommand(RequestCode.END_TRANSACTION, fields, remark=remark)
        self.instance.remoting.invoke_oneway(address, command)

    def stop(self, *, hurry: bool = False) -> None:
        """As every producer's, answering no more questions."""
        self._pool.stop()
        super().stop(hurry=hurry)
