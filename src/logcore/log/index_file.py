"""An index file that is looked into where it lies: a search reads some twenty entries, and not the rest.

    .index      offset - base offset (4 bytes), position (4 bytes)      unused while the position is 0
    .timeindex  timestamp (8 bytes), offset - base offset (4 bytes)     unused while all is 0

Behind the entries a file may have zeros, for those to come. What is found is not believed: whoever uses an entry checks
it, as with any index (segment.py). So entries in disorder may mislead a search, and do no harm.
"""

import errno

from logcore.errors import StorageError

from .disk import Disk, DiskFile
from .names import INDEX

OFFSET_ENTRY_BYTES = 8
TIME_ENTRY_BYTES = 12


class IndexFile:
    """The entries of an offset index or a time index, by number. A context manager that closes the file."""

    def __init__(self, file: DiskFile | None, kind: str) -> None:
        self._file = file
        self._is_offsets = kind == INDEX
        self._entry_bytes = OFFSET_ENTRY_BYTES if self._is_offsets else TIME_ENTRY_BYTES
        self._places = 0 if file is None else file.size // self._entry_bytes

    def _entry(self, number: int) -> bytes:
        """The bytes of a place, b"" where there is none: the file may have been cut under way."""
        if self._file is None or not 0 <= number < self._places:
            return b""
        data = self._file.read(number * self._entry_bytes, self._entry_bytes)
        is_used = len(data) == self._entry_bytes and any(data[4:] if self._is_offsets else data)
        return data if is_used else b""

    def _key(self, entry: bytes) -> int:
        return int.from_bytes(entry[:4] if self._is_offsets else entry[:8], "big", signed=True)

    @property
    def count(self) -> int:
        """How many entries are used."""
        return self.count_up_to(None)

    def count_up_to(self, key: int | None) -> int:
        """How many entries have this key (offset behind the base offset, or timestamp) or a lower one; None: any."""
        low, high = 0, self._places
        while low < high:
            middle = (low + high) // 2
            entry = self._entry(middle)
            if entry and (key is None or self._key(entry) <= key):
                low = middle + 1
            else:
                high = middle
        return low

    def has(self, number: int) -> bool:
        """Whether there is an entry of that number."""
        return bool(self._entry(number))

    def offset_at(self, number: int) -> int:
        """The key of an entry of an offset index."""
        return self._key(self._entry(number))

    def entry_before(self, number: int) -> bytes:
        """The entry before that number, as an index of one entry; of none, if there is none."""
        return self._entry(number - 1)

    def all(self) -> bytes:
        """All entries that are used."""
        return b"" if self._file is None else self._file.read(0, self.count * self._entry_bytes)

    def __enter__(self) -> "IndexFile":
        return self

    def __exit__(self, *_: object) -> None:
        if self._file is not None:
            self._file.close()


def open_index_file(disk: Disk, path: str, kind: str) -> IndexFile:
    """The index at `path`, of a kind ".index" or ".timeindex"; one without entries if there is no file."""
    try:
        return IndexFile(disk.open(path), kind)
    except StorageError as error:
        if error.errno != errno.ENOENT:
            raise
        return IndexFile(None, kind)
