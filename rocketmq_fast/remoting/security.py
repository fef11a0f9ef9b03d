"""Signing of requests for brokers with access control, and TLS contexts."""

from __future__ import annotations

import base64
import hashlib
import hmac
import logging
import ssl
from collections.abc import Callable
from dataclasses import dataclass, field

from rocketmq_fast._core import RemotingCommand
from rocketmq_fast.errors import ConfigError
from rocketmq_fast.protocol.codes import RequestCode

logger = logging.getLogger(__name__)

# A request for messages by unique key carries this flag, which 4.x servers leave out of the text
# they verify, and 5.x servers leave out only for clients before 4.9.4.
_UNSIGNED_OF_QUERY = "_UNIQUE_KEY_QUERY"
_VERSION_4_9_3 = 399


@dataclass(frozen=True, slots=True)
class Credentials:
    """Access key and secret key, with the security token of temporary credentials.

    Secrets do not show in repr.
    """

    access_key: str
    secret_key: str = field(repr=False)
    security_token: str | None = field(default=None, repr=False)

    def __post_init__(self) -> None:
        for name in ("access_key", "secret_key"):
            value = getattr(self, name)
            if not isinstance(value, str) or not value:
                raise ConfigError(f"{name} must be text and not empty")


# Asked before every request, so that credentials can be rotated; must not block.
CredentialsProvider = Callable[[], Credentials]


def signature(fields: dict[str, str], body: bytes, secret_key: str) -> str:
    """HMAC-SHA1 over the values in the order of their names and the body, as Java's AclSigner."""
    text = "".join(fields[name] for name in sorted(fields) if name != "Signature")
    digest = hmac.new(secret_key.encode(), text.encode() + body, hashlib.sha1).digest()
    return base64.b64encode(digest).decode("ascii")


class Signer:
    """Adds access key and signature to requests. Any thread."""

    def __init__(self, provider: CredentialsProvider) -> None:
        self._provider = provider

    def sign(self, command: RemotingCommand) -> None:
        """Sign in place. The last thing to happen to a request before it is encoded."""
        credentials = self._provider()
        fields = command.ext_fields
        fields.pop("Signature", None)
        fields["AccessKey"] = credentials.access_key
        if credentials.security_token is not None:
            fields["SecurityToken"] = credentials.security_token
        signed = fields
        if command.code == RequestCode.QUERY_MESSAGE and _UNSIGNED_OF_QUERY in fields:
            signed = {name: text for name, text in fields.items() if name != _UNSIGNED_OF_QUERY}
            command.version = _VERSION_4_9_3
        fields["Signature"] = signature(signed, command.body, credentials.secret_key)


def tls_context(
    *,
    ca_file: str | None = None,
    cert_file: str | None = None,
    key_file: str | None = None,
    key_password: str | None = None,
    insecure: bool = False,
) -> ssl.SSLContext:
    """A client context: TLS 1.2 or later, certificate and host name verified.

    `insecure` turns the verification off, for test servers, and says so in the log.
    Raises ConfigError when a file cannot be used.
    """
    context = ssl.create_default_context()
    context.minimum_version = ssl.TLSVersion.TLSv1_2
    try:
        if ca_file is not None:
            context.load_verify_locations(ca_file)
        if cert_file is not None:
            context.load_cert_chain(cert_file, key_file, key_password)
    except (OSError, ssl.SSLError) as error:
        raise ConfigError(f"TLS files {ca_file!r}, {cert_file!r}, {key_file!r}: {error}") from error
    if insecure:
        logger.warning("TLS without verification: anybody in between can read and change messages")
        context.check_hostname = False
        context.verify_mode = ssl.CERT_NONE
    return context
