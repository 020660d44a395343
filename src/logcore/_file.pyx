"""Files as a log uses them: appended to, read anywhere, cut, made durable; and mapped, for an index.

This is the compiled default behind logcore.log's seam to the disk: a test's disk has the same methods, and loses what
was not synced. Every call is a system call or a loop of one, without the GIL. It fails with a StorageError that has
errno and path; a call that a signal interrupts is made again, after Python's handlers have run.

A File keeps its own end, `size`. Behind it may lie preallocated space. One thread appends, cuts and closes; any thread
may read what lies before `size`. The descriptor is closed when the last call that uses it has returned: by then the
system may have given its number to another file.
"""

from cpython.buffer cimport PyBUF_SIMPLE, PyBuffer_FillInfo, PyBuffer_Release, PyObject_GetBuffer
from cpython.bytes cimport PyBytes_AS_STRING
from cpython.exc cimport PyErr_CheckSignals, PyErr_SetFromErrno
from libc.errno cimport EINTR, EIO, errno
from libc.stdint cimport int64_t, uint8_t

from logcore._arguments cimport check_range, close_type
from logcore._buffer cimport NewBytes

import os

import cython

from logcore.errors import StorageError, UsageError

cdef extern from * nogil:
    """
    #include <sys/mman.h>
    #include <sys/sendfile.h>
    #include <sys/uio.h>
    #include <unistd.h>
    """
    struct iovec:
        void* iov_base
        size_t iov_len

    ctypedef long off_t
    int close_descriptor "close"(int fd)
    ssize_t pread(int fd, void* data, size_t size, off_t position)
    ssize_t pwritev(int fd, const iovec* parts, int count, off_t position)
    ssize_t sendfile(int out, int fd, off_t* position, size_t size)
    int ftruncate(int fd, off_t size)
    int fdatasync(int fd)
    void* mmap(void* address, size_t size, int protection, int flags, int fd, off_t position)
    int munmap(void* address, size_t size)
    enum:
        PROT_READ
        MAP_SHARED
    void* MAP_FAILED

cdef enum:
    PARTS_MAX = 64                   # of one pwritev: far below IOV_MAX
    SEND_BYTES_MAX = 0x7FFFF000      # of one sendfile: what Linux takes

cdef int64_t FILE_BYTES_MAX = 0x7FFFFFFFFFFFFFFF


cdef int go_on(str what, object path, int code) except -1:
    """After a failed call: return to make it again, or raise."""
    if code != EINTR:
        raise StorageError(what, errno=code, path=path)
    PyErr_CheckSignals()
    return 0


@cython.final
cdef class File:
    """An open file; one that is forgotten is closed.

    path: as given; is_writable: whether it may be appended to, cut and synced; create: make it if there is none

    >>> import tempfile
    >>> with tempfile.TemporaryDirectory() as directory:
    ...     file = File(os.path.join(directory, "0.log"), is_writable=True, create=True)
    ...     file.append([b"two ", b"parts"]), file.size, file.read(4, 100)
    ...     file.close()
    (0, 9, b'parts')
    """

    def __cinit__(self, path, *, is_writable=False, create=False):
        self.path = os.fspath(path)
        self.is_writable = is_writable
        try:
            self.fd = os.open(
                self.path, os.O_CLOEXEC | (os.O_RDWR if is_writable else os.O_RDONLY) | (os.O_CREAT if create else 0),
                0o644)
            self.is_open = True
            self.size = self.end = os.fstat(self.fd).st_size
        except OSError as error:
            raise StorageError("open", errno=error.errno or EIO, path=self.path) from error

    def __dealloc__(self):
        if self.is_open:    # not so if __cinit__ was refused its arguments, and then fd is 0
            close_descriptor(self.fd)

    cdef int descriptor(self, bint to_write) except -1:
        if not self.is_open:
            raise UsageError("file", where=self.path, got="a call", wanted="none after close()")
        if to_write and not self.is_writable:
            raise UsageError("file", where=self.path, got="a write", wanted="a file that was opened to be written")
        return self.fd

    def fileno(self) -> int:
        """The descriptor."""
        return self.descriptor(False)

    def append(self, parts) -> int:
        """Write the buffers `parts` at the end, and return where they begin.

        All of it or nothing: when a write fails, what it left is cut off before anything else is written.
        """
        cdef int64_t begin = self.size, end
        self.descriptor(True)
        if self.is_torn:
            self.mend()
        self.is_torn = True
        try:
            end = self.write_parts(list(parts), begin)
        except BaseException:
            # What stays behind `size` could be whole batches, and be taken for written when the file is opened again.
            try:
                self.mend()
            except StorageError:
                pass    # append() tries again, and fails if it cannot be
            raise
        self.is_torn = False
        self.size = end
        self.end = max(self.end, end)
        return begin

    def write(self, position, data) -> None:
        """Overwrite bytes before the end."""
        cdef int64_t at = check_range("position", position, 0, self.end)
        self.descriptor(True)
        if len(data) > self.end - at:
            raise UsageError("write", where=self.path, got=f"{len(data)} bytes at {at}",
                             wanted=f"none behind the end at {self.end}")
        self.write_parts([data], at)

    cdef int64_t write_parts(self, list parts, int64_t at) except -1:
        """Write `parts` from byte `at` on, and return where they end."""
        cdef Py_buffer views[PARTS_MAX]
        cdef iovec vector[PARTS_MAX]
        cdef int held = 0, first, index
        cdef Py_ssize_t taken = 0
        cdef ssize_t written
        while taken < len(parts):
            try:
                while held < PARTS_MAX and taken < len(parts):
                    PyObject_GetBuffer(parts[taken], &views[held], PyBUF_SIMPLE)
                    vector[held].iov_base, vector[held].iov_len = views[held].buf, <size_t>views[held].len
                    held += 1
                    taken += 1
                first = 0
                while first < held:
                    with nogil:
                        written = pwritev(self.fd, &vector[first], held - first, at)
                    if written < 0:
                        go_on("write", self.path, errno)
                        continue
                    at += written
                    while first < held and <size_t>written >= vector[first].iov_len:
                        written -= <ssize_t>vector[first].iov_len
                        first += 1
                    if written:
                        vector[first].iov_base = <uint8_t*>vector[first].iov_base + written
                        vector[first].iov_len -= <size_t>written
            finally:
                for index in range(held):
                    PyBuffer_Release(&views[index])
                held = 0
        return at

    cdef int mend(self) except -1:
        """Cut off what a failed append left, and preallocate again what was."""
        cdef int64_t end = self.end
        self.set_length(self.size)
        self.is_torn = False
        if end > self.size:
            self.set_length(end)
        return 0

    cdef int set_length(self, int64_t length) except -1:
        cdef int status
        while True:
            with nogil:
                status = ftruncate(self.fd, length)
            if status == 0:
                self.end = length
                return 0
            go_on("truncate", self.path, errno)

    def truncate(self, size) -> None:
        """Keep the first `size` bytes; preallocated space goes too. If that is all, the file is not touched."""
        cdef int64_t kept = check_range("size", size, 0, self.size)
        self.descriptor(True)
        if kept != self.end or self.is_torn:
            self.set_length(kept)
        self.size = kept
        self.is_torn = False

    def preallocate(self, size_in_bytes) -> None:
        """Let the file be this long, with zeros behind what is written: close() and truncate() cut them off."""
        cdef int64_t length = check_range("size_in_bytes", size_in_bytes, 0, FILE_BYTES_MAX)
        self.descriptor(True)
        if length > self.end:
            self.set_length(length)

    def set_size(self, size) -> None:
        """Say where what is written ends, in a file that was preallocated and not cut."""
        cdef int64_t known = check_range("size", size, 0, self.end)
        self.descriptor(False)
        self.size = known

    def refresh(self) -> int:
        """Look how long the file is now: another process may write to it. Returns the size."""
        try:
            self.size = self.end = os.fstat(self.descriptor(False)).st_size
        except OSError as error:
            raise StorageError("stat", errno=error.errno or EIO, path=self.path) from error
        return self.size

    def read(self, position, size) -> bytes:
        """At most `size` bytes from `position` on; fewer where the file ends."""
        return self.read_bytes(check_range("position", position, 0, FILE_BYTES_MAX),
                               check_range("size", size, 0, FILE_BYTES_MAX))

    cdef bytes read_bytes(self, int64_t position, int64_t size):
        cdef NewBytes out = NewBytes.new(<Py_ssize_t>min(size, max(self.size - position, 0)))
        out.used = <Py_ssize_t>self.read_into(out.data, position, out.capacity)
        return out.finish()

    cdef int64_t read_into(self, uint8_t* into, int64_t position, int64_t size) except -1:
        """Read up to `size` bytes of what is written; says how many there were."""
        cdef int64_t used = 0
        cdef ssize_t got
        self.descriptor(False)
        size = min(size, max(self.size - position, 0))
        self.users += 1
        try:
            while used < size:
                with nogil:
                    got = pread(self.fd, into + used, <size_t>(size - used), position + used)
                if got == 0:
                    break    # cut by somebody else
                if got < 0:
                    go_on("read", self.path, errno)
                    continue
                used += got
        finally:
            self.leave()
        return used

    cdef void leave(self) noexcept:
        """A call is done with the descriptor. If the file was closed meanwhile, the last one closes it."""
        self.users -= 1
        if self.users == 0 and not self.is_open:
            close_descriptor(self.fd)

    def sync(self) -> None:
        """Make what was written survive the machine. After a failure nobody knows what did: do not go on."""
        cdef int status
        self.descriptor(True)
        self.users += 1
        try:
            while True:
                with nogil:
                    status = fdatasync(self.fd)
                if status == 0:
                    return
                go_on("sync", self.path, errno)
        finally:
            self.leave()

    def send_to(self, descriptor, position, size) -> int:
        """Send bytes to a socket without a copy; returns how many it took.

        Raises what os.sendfile() raises: BlockingIOError, BrokenPipeError, …
        """
        cdef int out = check_range("descriptor", descriptor, 0, 0x7FFFFFFF)
        cdef off_t at = check_range("position", position, 0, FILE_BYTES_MAX)
        cdef int64_t most = check_range("size", size, 0, FILE_BYTES_MAX)
        cdef ssize_t sent
        self.descriptor(False)
        most = min(most, max(self.size - at, 0), <int64_t>SEND_BYTES_MAX)
        self.users += 1
        try:
            while True:
                with nogil:
                    sent = sendfile(out, self.fd, &at, <size_t>most)
                if sent >= 0:
                    return sent
                if errno != EINTR:
                    PyErr_SetFromErrno(OSError)
                PyErr_CheckSignals()
        finally:
            self.leave()

    def close(self) -> None:
        """Cut off preallocated space and close. Again is harmless."""
        if not self.is_open:
            return
        try:
            if self.is_writable and (self.end > self.size or self.is_torn):
                self.set_length(self.size)
        finally:
            self.is_open = False
            if self.users == 0:
                try:
                    os.close(self.fd)
                except OSError as error:
                    raise StorageError("close", errno=error.errno or EIO, path=self.path) from error

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.close()

    def __repr__(self):
        return f"File({self.path!r}, {f'{self.size} bytes' if self.is_open else 'closed'})"


@cython.final
cdef class Mapping:
    """The bytes of a file at one length of it, unmapped when nobody looks at them any more."""

    @staticmethod
    cdef Mapping new(File file):
        cdef Mapping self = Mapping.__new__(Mapping)
        cdef void* address
        if file.end > 0:
            with nogil:
                address = mmap(NULL, <size_t>file.end, PROT_READ, MAP_SHARED, file.fd, 0)
            if address == MAP_FAILED:
                raise StorageError("map", errno=errno, path=file.path)
            self.address = <uint8_t*>address
            self.size = file.end
        return self

    def __dealloc__(self):
        if self.address != NULL:
            munmap(self.address, <size_t>self.size)

    def __getbuffer__(self, Py_buffer* view, int flags):
        # An empty buffer still has an address.
        PyBuffer_FillInfo(view, self, self.address if self.size else <uint8_t*>&self.size, self.size, 1, flags)


close_type(Mapping, "MappedFile(…).view()")


@cython.final
cdef class MappedFile:
    """A file whose bytes can be looked at in place. It is read through view() and written by write().

    A view stays what it is when the file gets another length, so that whoever reads meanwhile never finds nothing: only
    what was cut off must not be touched any more.

    size_in_bytes: the length it gets if there is none yet, or if it is empty
    """

    def __cinit__(self, path, size_in_bytes, *, is_writable=False):
        self.file = File(path, is_writable=is_writable, create=is_writable)
        self.is_new = self.file.size == 0
        if is_writable and self.is_new:
            self.file.preallocate(size_in_bytes)
        self.mapping = Mapping.new(self.file)

    def view(self):
        """The file's bytes, as a buffer. write() shows in it; after resize() there is another."""
        if not self.file.is_open:
            raise UsageError("mapped file", where=self.file.path, got="a look", wanted="none after close()")
        return self.mapping

    @property
    def path(self):
        """As given; whoever renames the file sets it."""
        return self.file.path

    @path.setter
    def path(self, path):
        self.file.path = path

    def __len__(self):
        return self.mapping.size

    def write(self, position, data) -> None:
        """Overwrite bytes of the file; views show them at once."""
        self.file.write(position, data)

    def resize(self, size_in_bytes) -> None:
        """Give the file another length."""
        cdef int64_t length = check_range("size_in_bytes", size_in_bytes, 0, FILE_BYTES_MAX)
        self.file.descriptor(True)
        self.file.set_length(length)
        self.file.size = min(self.file.size, length)
        self.mapping = Mapping.new(self.file)

    def flush(self) -> None:
        """Make what was written survive the machine."""
        self.file.sync()

    def close(self) -> None:
        """Close; the file keeps its length, and views their bytes. Again is harmless."""
        self.mapping = Mapping.__new__(Mapping)
        self.file.size = self.file.end
        self.file.close()

    def __repr__(self):
        return f"MappedFile({self.file.path!r}, {f'{self.mapping.size} bytes' if self.file.is_open else 'closed'})"
