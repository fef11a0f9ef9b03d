"""Stored messages without the namespace that their names have on the wire."""

from __future__ import annotations

from rocketmq_fast._core.stored import StoredMessage, assemble_message, read_stored
from rocketmq_fast.client.namespaces import Namespace
from rocketmq_fast.errors import CodecError

_SIZE_BYTES = 4
_RETRY_TOPIC = b"RETRY_TOPIC\x01"
_PROPERTY_END = b"\x02"


def _plain_properties(properties: bytes, names: Namespace) -> bytes:
    if _RETRY_TOPIC not in properties:
        return properties
    return _PROPERTY_END.join(
        _RETRY_TOPIC + names.unwrap(part[len(_RETRY_TOPIC) :].decode(errors="replace")).encode()
        if part.startswith(_RETRY_TOPIC)
        else part
        for part in properties.split(_PROPERTY_END)
    )


def _plain_record(record: bytes, names: Namespace, check_crc: bool) -> bytes:
    try:
        stored: StoredMessage = read_stored(record, check_crc)
    except CodecError:
        return record  # as it is, for the decoder to say what is wrong with it
    topic = names.unwrap(stored.topic)
    properties = _plain_properties(stored.properties, names)
    if topic == stored.topic and properties == stored.properties:
        return record
    plain, _ = assemble_message(
        stored.body,
        topic=topic.encode(),
        properties=properties,
        born_host=stored.born_host,
        store_host=stored.store_host,
        queue_id=stored.queue_id,
        queue_offset=stored.queue_offset,
        position=stored.position,
        flag=stored.flag,
        sys_flag=stored.sys_flag,
        born_timestamp=stored.born_timestamp,
        store_timestamp=stored.store_timestamp,
        reconsume_times=stored.reconsume_times,
        prepared_transaction_offset=stored.prepared_transaction_offset,
    )
    return plain


def plain_records(body: bytes, names: Namespace, check_crc: bool) -> bytes:
    """Stored messages, one after another, with the names that the program knows.

    Only the topic and the RETRY_TOPIC property change, and the record's length with them.
    """
    parts = []
    position = 0
    while position + _SIZE_BYTES <= len(body):
        size = int.from_bytes(body[position : position + _SIZE_BYTES], "big")
        if size <= _SIZE_BYTES or position + size > len(body):
            break  # for the decoder to say
        parts.append(_plain_record(body[position : position + size], names, check_crc))
        position += size
    return b"".join((*parts, body[position:]))
