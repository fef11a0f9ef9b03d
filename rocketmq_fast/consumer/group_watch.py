"""Signs that the members of a group subscribe differently, which loses messages without an error.

A broker keeps one table of subscriptions for a group: each heartbeat takes out the topics that it
does not name, and the newest expression of a topic filters the pulls of all members.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable

from rocketmq_fast._core import MessageBatch
from rocketmq_fast._core.tags import java_hash
from rocketmq_fast.consumer.subscription import Subscription
from rocketmq_fast.model import MessageQueue

logger = logging.getLogger(__name__)

# So often within the window a broker forgets a topic before another member is thought of.
_TIMES = 3
_WINDOW_SECONDS = 300.0
# A long poll and a heartbeat after a subscription was made, pulls by an older one have ended.
SETTLED_SECONDS = 60.0
_ADVICE = "all members of a group must subscribe to the same topics with the same expressions"

_Place = tuple[str, str]


class GroupWatch:
    """Warns once for each topic. Event loop's thread."""

    def __init__(self, group: str, clock: Callable[[], float] = time.monotonic) -> None:
        self._group = group
        self._clock = clock
        self._forgotten: dict[_Place, list[float]] = {}
        self._unknown: set[_Place] = set()
        self._warned: set[str] = set()

    def unknown(self, queue: MessageQueue) -> None:
        """A broker does not know the group's subscription of the queue's topic."""
        place = queue.broker_name, queue.topic
        if place in self._unknown:
            return  # other queues of the topic, until one is answered
        self._unknown.add(place)
        now = self._clock()
        times = [at for at in self._forgotten.get(place, ()) if now - at < _WINDOW_SECONDS]
        times.append(now)
        self._forgotten[place] = times
        if len(times) >= _TIMES:
            self._warn(
                queue.topic,
                f"broker {queue.broker_name} forgot the subscription {len(times)} times in "
                f"{now - times[0]:.0f} s; another member probably subscribes to other topics",
            )

    def known(self, queue: MessageQueue) -> None:
        """A pull was answered."""
        if self._unknown:
            self._unknown.discard((queue.broker_name, queue.topic))

    def away(self, broker: str) -> None:
        """A broker could not be reached: what it forgets then says nothing."""
        for place in [place for place in self._forgotten if place[0] == broker]:
            del self._forgotten[place]
            self._unknown.discard(place)

    def filtered(self, batch: MessageBatch, subscription: Subscription) -> None:
        """The exact filter dropped messages of a pull. Hashes that collide are no sign."""
        topic, codes = subscription.data.topic, subscription.data.codes
        if topic in self._warned or self._clock() - subscription.made_at < SETTLED_SECONDS:
            return
        for message in batch:
            if java_hash(message.tags or "") not in codes:
                self._warn(
                    topic,
                    f"a broker gave a message with tag {message.tags!r}, which is not in "
                    f"{subscription.data.sub_string!r}; another member probably subscribes by "
                    "another expression, and messages are passed over",
                )
                return

    def _warn(self, topic: str, sign: str) -> None:
        if topic not in self._warned:
            self._warned.add(topic)
            logger.warning("group %s, topic %s: %s. %s", self._group, topic, sign, _ADVICE)
