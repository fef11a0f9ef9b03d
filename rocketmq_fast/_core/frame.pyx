"""Remoting frames: command objects, encoding, decoding, and the splitter of a byte stream."""

from cpython.buffer cimport PyBUF_READ, PyBUF_SIMPLE, PyBUF_WRITE, PyBuffer_FillInfo
from cpython.bytes cimport PyBytes_AS_STRING, PyBytes_FromStringAndSize
from cpython.buffer cimport PyBuffer_Release, PyObject_GetBuffer
from cpython.memoryview cimport PyMemoryView_FromMemory, PyMemoryView_FromObject
from libc.stddef cimport size_t
from libc.stdint cimport uint8_t
from libc.string cimport memcpy, memset

from rocketmq_fast._core.c_buffer cimport rmf_buffer, rmf_buffer_clear, rmf_buffer_init
from rocketmq_fast._core.c_common cimport (
    RMF_ERR_NO_MEMORY,
    RMF_FRAME_MAX_BYTES_DEFAULT,
    RMF_OK,
    rmf_error,
    rmf_free,
    rmf_slice,
    rmf_status,
)
from rocketmq_fast._core.c_frame cimport (
    RMF_FRAME_FIXED_BYTES,
    RMF_SERIALIZE_JSON,
    RMF_SERIALIZE_ROCKETMQ,
    rmf_frame_parts,
    rmf_frame_split,
    rmf_frame_write_fixed,
    rmf_splitter_commit,
    rmf_splitter_free,
    rmf_splitter_new,
    rmf_splitter_pending,
    rmf_splitter_reserve,
    rmf_splitter_reset,
    rmf_splitter_take,
)
from rocketmq_fast._core.c_header cimport (
    RMF_LANGUAGE_UNKNOWN,
    rmf_header,
    rmf_header_add_ext,
    rmf_header_clear,
    rmf_header_decode_compact,
    rmf_header_decode_json,
    rmf_header_encode_compact,
    rmf_header_encode_json,
    rmf_header_init,
    rmf_language_name,
    rmf_language_of,
)
from rocketmq_fast._core.c_socket cimport (
    RMF_RECEIVE_FRAMES,
    RMF_SOCKET_SUPPORTED,
    rmf_received,
    rmf_socket_receive,
    rmf_socket_send,
)
from rocketmq_fast._core.status cimport check
from rocketmq_fast._core.text cimport checked_utf8, text_of

import os

from rocketmq_fast.errors import FrameError, HeaderError


cdef class FrameBuffer:
    def __cinit__(self):
        self.data = NULL
        self.size = 0

    def __dealloc__(self):
        rmf_free(self.data)

    def __getbuffer__(self, Py_buffer *buffer, int flags):
        PyBuffer_FillInfo(buffer, self, self.data, <Py_ssize_t>self.size, 1, flags)


cdef class RemotingCommand:
    """A request or response of the remoting protocol.

    `code` is a request code, or a response code when bit 0 of `flag` is set; bit 1 marks a one-way
    request. `serialize_type` is the header codec: 0 JSON, 1 ROCKETMQ. `ext_fields` maps str to str.
    A decoded command keeps its frame alive until it is dropped; `body` copies on first use.
    Not thread-safe.
    """

    def __init__(self, int code, dict ext_fields=None, body=b"", *, int opaque=0, int flag=0,
                 str remark=None, language="PYTHON", int version=401, int serialize_type=0):
        self.code = code
        self.ext_fields = {} if ext_fields is None else ext_fields
        self._body = body
        self.opaque = opaque
        self.flag = flag
        self.remark = remark
        self.language = language
        self.version = version
        self.serialize_type = serialize_type

    @property
    def language(self):
        """LanguageCode name, or None when the sender's is unknown."""
        cdef const char *name = rmf_language_name(self._language)
        return None if name == NULL else (<bytes>name).decode("ascii")

    @language.setter
    def language(self, name):
        if name is None:
            self._language = RMF_LANGUAGE_UNKNOWN
            return
        self._language = rmf_language_of(checked_utf8(name, "language", HeaderError))
        if self._language == RMF_LANGUAGE_UNKNOWN:
            raise HeaderError(f"unknown language {name!r}")

    @property
    def body(self):
        """The body as bytes; empty when there is none (the wire does not tell the two apart)."""
        if self._body is None:
            self._body = PyBytes_FromStringAndSize(<const char *>self._body_ptr,
                                                   <Py_ssize_t>self._body_len)
        return self._body

    @body.setter
    def body(self, value):
        self._body = value

    def body_view(self):
        """The body without a copy: a memoryview over the frame that keeps the frame alive."""
        cdef Py_ssize_t start
        if self._frame is None:
            return memoryview(self.body)
        start = self._body_ptr - self._frame.data
        return PyMemoryView_FromObject(self._frame)[start:start + <Py_ssize_t>self._body_len]

    @property
    def is_response(self):
        """Bit 0 of the flag."""
        return (self.flag & 1) != 0

    @property
    def is_oneway(self):
        """Bit 1 of the flag: the sender wants no answer."""
        return (self.flag & 2) != 0

    def __repr__(self):
        kind = "response" if self.flag & 1 else "request"
        remark = f" remark={self.remark!r}" if self.remark else ""
        return (f"<RemotingCommand {kind} code={self.code} opaque={self.opaque} "
                f"flag={self.flag}{remark} fields={sorted(self.ext_fields)}>")


cdef RemotingCommand _command_of(rmf_frame_parts *parts, rmf_header *header):
    """Decode the header of a split frame. The caller attaches the body."""
    cdef rmf_error error
    cdef rmf_status status
    cdef size_t i
    cdef dict ext = {}
    cdef RemotingCommand command = RemotingCommand.__new__(RemotingCommand)
    if parts.serialize_type == RMF_SERIALIZE_JSON:
        status = rmf_header_decode_json(parts.header, header, &error)
    else:
        status = rmf_header_decode_compact(parts.header, header, &error)
    check(status, &error, HeaderError)
    command.code = header.code
    command._language = header.language
    command.version = header.version
    command.opaque = header.opaque
    command.flag = header.flag
    command.serialize_type = parts.serialize_type
    if header.has_remark:
        command.remark = text_of(header.remark)
    for i in range(header.ext_count):
        ext[text_of(header.ext[i].key)] = text_of(header.ext[i].value)
    command.ext_fields = ext
    return command


def decode_frame(buffer, *, unsigned int max_frame=RMF_FRAME_MAX_BYTES_DEFAULT):
    """Decode one whole frame, length prefix included, into a RemotingCommand.

    Raises FrameError when length, type or header length are wrong, HeaderError when the header is.
    """
    cdef rmf_frame_parts parts
    cdef rmf_error error
    cdef rmf_header header
    cdef Py_buffer view
    cdef RemotingCommand command
    PyObject_GetBuffer(buffer, &view, PyBUF_SIMPLE)
    rmf_header_init(&header)
    try:
        check(rmf_frame_split(<const uint8_t *>view.buf, <size_t>view.len, max_frame, &parts,
                              &error), &error, FrameError)
        command = _command_of(&parts, &header)
        command._body = PyBytes_FromStringAndSize(<const char *>parts.body.ptr,
                                                  <Py_ssize_t>parts.body.len)
    finally:
        rmf_header_clear(&header)
        PyBuffer_Release(&view)
    return command


def encode_frame(RemotingCommand command not None, *,
                 unsigned int max_frame=RMF_FRAME_MAX_BYTES_DEFAULT):
    """Encode a command as a whole frame, length prefix included.

    Raises HeaderError for values that the header codec cannot carry, FrameError when it is too long.
    """
    cdef rmf_header header
    cdef rmf_buffer text
    cdef rmf_slice name
    cdef rmf_slice field
    cdef rmf_error error
    cdef rmf_status status
    cdef Py_buffer body
    cdef bytes frame
    cdef char *to
    cdef bint have_body = False
    memset(&error, 0, sizeof(error))
    rmf_header_init(&header)
    rmf_buffer_init(&text)
    try:
        header.code = command.code
        header.language = command._language
        header.version = command.version
        header.opaque = command.opaque
        header.flag = command.flag
        if command.remark is not None:
            header.has_remark = True
            header.remark = checked_utf8(command.remark, "remark", HeaderError)
        if command.ext_fields is not None:
            for key, value in command.ext_fields.items():
                if value is None:
                    continue  # Java does not write null fields
                name = checked_utf8(key, "ext field name", HeaderError)
                field = checked_utf8(value, f"ext field {key!r}", HeaderError)
                check(rmf_header_add_ext(&header, name, field), &error, HeaderError)
        if command.serialize_type == RMF_SERIALIZE_JSON:
            status = rmf_header_encode_json(&header, &text)
        elif command.serialize_type == RMF_SERIALIZE_ROCKETMQ:
            status = rmf_header_encode_compact(&header, &text, &error)
        else:
            raise HeaderError(f"unknown serialize type {command.serialize_type}")
        check(status, &error, HeaderError)
        PyObject_GetBuffer(b"" if command.body is None else command.body, &body, PyBUF_SIMPLE)
        have_body = True
        frame = PyBytes_FromStringAndSize(
            NULL, <Py_ssize_t>(RMF_FRAME_FIXED_BYTES + text.size) + body.len)
        to = PyBytes_AS_STRING(frame)
        check(rmf_frame_write_fixed(<uint8_t>command.serialize_type, text.size, <size_t>body.len,
                                    max_frame, <uint8_t *>to, &error), &error, FrameError)
        memcpy(to + RMF_FRAME_FIXED_BYTES, text.data, text.size)
        if body.len > 0:
            memcpy(to + RMF_FRAME_FIXED_BYTES + text.size, body.buf, <size_t>body.len)
    finally:
        if have_body:
            PyBuffer_Release(&body)
        rmf_buffer_clear(&text)
        rmf_header_clear(&header)
    return frame


# Whether FrameSplitter.receive and send_small know the sockets of this platform.
NATIVE_SOCKETS = bool(RMF_SOCKET_SUPPORTED)


def send_small(int fd, bytes data not None):
    """Send what a non-blocking socket takes at once; how many bytes. Raises OSError.

    With the GIL held: for some kilobytes, to take it back from a busy listener costs more than the
    system call.
    """
    cdef rmf_slice slice
    cdef size_t sent
    cdef int error_number
    slice.ptr = <const uint8_t *>PyBytes_AS_STRING(data)
    slice.len = <size_t>len(data)
    sent = rmf_socket_send(fd, slice, &error_number)
    if error_number:
        raise OSError(error_number, os.strerror(error_number))
    return sent


cdef class FrameSplitter:
    """Cuts a byte stream into commands, however it is fragmented.

    Give bytes with `feed`, receive straight into `get_buffer` and tell `commit` how many came, or have
    `receive` do that with a socket.
    Commands that were complete before a corruption are returned first; `failure` is then set and every
    later call raises it until `reset`. Raises FrameError or HeaderError. Not thread-safe.
    """

    def __cinit__(self, unsigned int max_frame=RMF_FRAME_MAX_BYTES_DEFAULT):
        rmf_header_init(&self._header)
        self._max_frame = max_frame
        self._splitter = rmf_splitter_new(max_frame)
        if self._splitter == NULL:
            raise MemoryError("frame splitter")

    def __dealloc__(self):
        rmf_splitter_free(self._splitter)
        rmf_header_clear(&self._header)

    cdef int _check_usable(self) except -1:
        if self.failure is not None:
            raise self.failure
        return 0

    def get_buffer(self):
        """Writable memoryview to receive into. Valid only until the next call on this splitter."""
        cdef uint8_t *room
        cdef size_t room_bytes
        cdef rmf_error error
        self._check_usable()
        check(rmf_splitter_reserve(self._splitter, &room, &room_bytes, &error), &error, FrameError)
        return PyMemoryView_FromMemory(<char *>room, <Py_ssize_t>room_bytes, PyBUF_WRITE)

    def commit(self, size_t received):
        """List of the commands that `received` more bytes completed."""
        cdef rmf_error error
        self._check_usable()
        check(rmf_splitter_commit(self._splitter, received, &error), &error, FrameError)
        return self._drain()

    def feed(self, data):
        """List of the commands that `data` completed."""
        cdef Py_buffer view
        cdef uint8_t *room
        cdef size_t room_bytes
        cdef size_t done = 0
        cdef rmf_error error
        cdef list commands = []
        self._check_usable()
        PyObject_GetBuffer(data, &view, PyBUF_SIMPLE)
        try:
            while done < <size_t>view.len:
                check(rmf_splitter_reserve(self._splitter, &room, &room_bytes, &error), &error,
                      FrameError)
                if room_bytes > <size_t>view.len - done:
                    room_bytes = <size_t>view.len - done
                memcpy(room, <const uint8_t *>view.buf + done, room_bytes)
                check(rmf_splitter_commit(self._splitter, room_bytes, &error), &error, FrameError)
                done += room_bytes
                try:
                    commands.extend(self._drain())
                except (FrameError, HeaderError):
                    if not commands:
                        raise
                if self.failure is not None:
                    break
        finally:
            PyBuffer_Release(&view)
        return commands

    def receive(self, int fd, size_t most):
        """(bytes, commands) that wait in a non-blocking socket, at most about `most` bytes.

        0 bytes: the peer sends no more. Raises OSError, BlockingIOError when nothing waits. Receiving
        and cutting happen in one go without the GIL: to take it back after each system call is what
        costs, when a listener has it. POSIX only.
        """
        cdef size_t received = 0
        cdef list commands = []
        self._check_usable()
        if not self._error_number:
            try:
                while self._receive_once(fd, most, &received, commands):
                    most = 0  # frames that had no room are taken, nothing more is received
            except (FrameError, HeaderError) as failure:
                self.failure = failure
                if not commands:
                    raise
        if received == 0 and self._error_number:
            number, self._error_number = self._error_number, 0
            raise OSError(number, os.strerror(number))
        return received, commands

    cdef bint _receive_once(self, int fd, size_t most, size_t *bytes, list commands) except -1:
        """One round of `receive`. Whether more frames may be complete."""
        cdef rmf_received received
        cdef rmf_status status
        cdef rmf_error error
        cdef size_t taken = 0
        with nogil:
            status = rmf_socket_receive(fd, self._splitter, most, &received, &error)
        self._pending = rmf_splitter_pending(self._splitter)
        bytes[0] += received.bytes
        # What ended a call that brought bytes is told by the next one.
        self._error_number = self._error_number or received.error_number
        try:
            while taken < received.frame_count:
                taken += 1
                commands.append(
                    self._command_from(received.frames[taken - 1].data, received.frames[taken - 1].size)
                )
            check(status, &error, FrameError)
        finally:
            while taken < received.frame_count:
                rmf_free(received.frames[taken].data)
                taken += 1
        return received.frame_count == RMF_RECEIVE_FRAMES

    cdef RemotingCommand _command_from(self, uint8_t *data, size_t size):
        """The command of a frame, which becomes its owner."""
        cdef rmf_error error
        cdef rmf_frame_parts parts
        cdef RemotingCommand command
        cdef FrameBuffer frame = FrameBuffer.__new__(FrameBuffer)
        frame.data = data
        frame.size = size
        check(rmf_frame_split(data, size, self._max_frame, &parts, &error), &error, FrameError)
        command = _command_of(&parts, &self._header)
        command._frame = frame
        command._body_ptr = parts.body.ptr
        command._body_len = parts.body.len
        return command

    cdef list _drain(self):
        cdef uint8_t *data
        cdef size_t size
        cdef rmf_error error
        cdef list commands = []
        try:
            while check(rmf_splitter_take(self._splitter, &data, &size, &error), &error,
                        FrameError) == RMF_OK:
                commands.append(self._command_from(data, size))
        except (FrameError, HeaderError) as failure:
            self.failure = failure
            if not commands:
                raise
        finally:
            self._pending = rmf_splitter_pending(self._splitter)
        return commands

    @property
    def pending(self):
        """Number of received bytes that belong to no complete frame yet. Any thread."""
        return self._pending

    def reset(self):
        """Forget everything received, and the corruption."""
        rmf_splitter_reset(self._splitter)
        self.failure = None
        self._error_number = 0
        self._pending = 0
