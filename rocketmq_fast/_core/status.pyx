"""From status codes of the C units to typed exceptions."""

from rocketmq_fast._core.c_common cimport (
    RMF_ERR_ARGUMENT,
    RMF_ERR_CORRUPT,
    RMF_ERR_CRC,
    RMF_ERR_DEPTH,
    RMF_ERR_LENGTH,
    RMF_ERR_MAGIC,
    RMF_ERR_NO_MEMORY,
    RMF_ERR_NUMBER,
    RMF_ERR_SYNTAX,
    RMF_ERR_TRUNCATED,
    RMF_NEED_MORE,
    RMF_OK,
    rmf_error,
    rmf_status,
)


cdef str _peer_hint(long long length):
    """What the peer probably speaks, judged by the bytes that stand where the length should be."""
    cdef long long first = (length >> 24) & 0xFF
    cdef long long second = (length >> 16) & 0xFF
    if first in (0x14, 0x15, 0x16, 0x17) and second == 3:
        return "; this looks like TLS: the peer wants or sends TLS on this port"
    if bytes([first, second]) in (b"HT", b"GE", b"PO", b"PU"):
        return "; this looks like HTTP"
    return ""


cdef str describe(const rmf_error *error):
    """One line: what was wrong, where, and the bound it broke."""
    cdef str field = (<bytes>error.field).decode("ascii") if error.field != NULL else "input"
    cdef str at = f" at byte {error.position}"
    if error.status == RMF_ERR_TRUNCATED:
        return f"{field} ends too early{at}"
    if error.status == RMF_ERR_LENGTH:
        hint = _peer_hint(error.value) if field == "frame length" else ""
        return f"{field} {error.value} is out of bounds (limit {error.limit}){at}{hint}"
    if error.status == RMF_ERR_MAGIC:
        return f"unknown {field} {error.value} (0x{error.value & 0xFFFFFFFF:08X}){at}"
    if error.status == RMF_ERR_SYNTAX:
        return f"expected {field}{at}"
    if error.status == RMF_ERR_NUMBER:
        return f"{field} is missing, not an integer, or out of range{at}"
    if error.status == RMF_ERR_CRC:
        return f"{field} does not match: stored {error.value}, computed {error.limit}{at}"
    if error.status == RMF_ERR_CORRUPT:
        return "the stream was corrupt before; reset the decoder first"
    if error.status == RMF_ERR_DEPTH:
        return f"{field} is nested deeper than {error.limit}{at}"
    if error.status == RMF_ERR_ARGUMENT:
        return f"{field}: {error.value} is not allowed (limit {error.limit})"
    return f"{field}: status {<int>error.status}{at}"


cdef int check(rmf_status status, const rmf_error *error, object error_class) except -1:
    """Return `status` when it is RMF_OK or RMF_NEED_MORE, else raise."""
    if status == RMF_OK or status == RMF_NEED_MORE:
        return status
    if status == RMF_ERR_NO_MEMORY:
        raise MemoryError("out of memory in the native codec")
    raise error_class(describe(error), error.position)
