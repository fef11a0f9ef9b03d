"""The address server: a web page that holds the list of the name servers.

For clients that were given no name server, as in Java: asked at start, and again while they run.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable

from rocketmq_fast.errors import ConfigError, NoNameServer
from rocketmq_fast.remoting.client import parse_address

logger = logging.getLogger(__name__)

DEFAULT_DOMAIN = "jmenv.tbsite.net"
DEFAULT_SUBGROUP = "nsaddr"
# How often a running client looks whether the next question is due.
CHECK_SECONDS = 10.0
_REFRESH_SECONDS = 120.0
_TIMEOUT_SECONDS = 3.0
_MAX_BYTES = 64 << 10
_OK = 200


def split_addresses(text: str) -> tuple[str, ...]:
    """Addresses of "host:port;host:port", each once, in order. Raises ConfigError.

    Commas separate too, and a scheme in front ("http://host:80") is dropped, as in Java.
    """
    addresses: list[str] = []
    for item in text.replace(",", ";").split(";"):
        address = item.strip().rpartition("/")[2]
        if not address:
            continue
        parse_address(address)
        if address not in addresses:
            addresses.append(address)
    return tuple(addresses)


class AddressServer:
    """Asks for the list. `due` and `refresh` belong to one thread; `clock` is monotonic seconds.

    domain: "host", with Java's port 8080, or "host:port".
    """

    def __init__(
        self,
        domain: str,
        subgroup: str,
        unit_name: str | None,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        host = domain if domain.find(":") > 0 else f"{domain}:8080"
        self._place = parse_address(host)
        self._path = f"/rocketmq/{subgroup}"
        if unit_name:
            self._path += f"-{unit_name}?nofix=1"
        self.url = f"http://{host}{self._path}"
        self._clock = clock
        self._due = clock() + CHECK_SECONDS
        self._failures = 0

    def fetch(self) -> tuple[str, ...]:
        """Ask once; blocks for some seconds at most. Raises NoNameServer, which names the URL."""
        import http.client  # here: it takes longer to load than all of this package does

        host, port = self._place
        connection = http.client.HTTPConnection(host, port, timeout=_TIMEOUT_SECONDS)
        try:
            headers = {"Accept": "text/plain, */*", "Connection": "close"}
            connection.request("GET", self._path, headers=headers)
            answer = connection.getresponse()
            if answer.status != _OK:
                raise NoNameServer(f"{self.url} answered with status {answer.status}", self.url)
            lines = answer.read(_MAX_BYTES).decode().split()
            # One line holds the list; Java takes the first too.
            addresses = split_addresses(lines[0]) if lines else ()
        except (OSError, http.client.HTTPException, UnicodeDecodeError, ConfigError) as error:
            raise NoNameServer(
                f"no list of name servers from {self.url}: {type(error).__name__}: {error}",
                self.url,
            ) from error
        finally:
            connection.close()
        if not addresses:
            raise NoNameServer(f"the list of name servers at {self.url} is empty", self.url)
        return addresses

    @property
    def due(self) -> bool:
        """Whether it is time to ask again."""
        return self._clock() >= self._due

    def refresh(self) -> tuple[str, ...] | None:
        """Ask again; None when there was no list.

        The first failure in a row is logged as a warning, the others for debugging only. They are
        repeated after 10 s and then twice that each time, up to the 120 s of a list that was got.
        """
        try:
            addresses = self.fetch()
        except NoNameServer as error:
            level = logging.DEBUG if self._failures else logging.WARNING
            logger.log(level, "%s; going on with the name servers known", error)
            wait = min(CHECK_SECONDS * 2 ** min(self._failures, 10), _REFRESH_SECONDS)
            self._failures += 1
            self._due = self._clock() + wait
            return None
        if self._failures:
            logger.info("the list of name servers at %s can be read again", self.url)
        self._failures = 0
        self._due = self._clock() + _REFRESH_SECONDS
        return addresses
