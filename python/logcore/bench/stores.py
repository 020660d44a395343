"""What a Python program would keep records in: our log, and sqlite3, lmdb and rocksdict in its place.

All do the same: records (key, value) are appended in batches and get the next offsets; they are read in order, or one
by its offset. What append() returned for survives the process and not yet the machine. Every peer is set up as its own
documentation recommends for that, and where there is a choice, as it is fastest:

    sqlite3     a table by INTEGER PRIMARY KEY, WAL, synchronous=OFF, executemany() in one transaction a batch
    lmdb        offsets as keys of eight bytes, sync=False, put(append=True) in one transaction a batch
    lmdb bulk   the same by cursor.putmulti(): one call a batch, a loop in C
    rocksdict   offsets as keys too, raw mode, a WriteBatch a batch, with the write-ahead log, which is not synced

lmdb and rocksdict have one value to a key: it is given them as one, key and value joined before the clock runs.
"""

import importlib
import os
import shutil
import sqlite3
from collections import deque
from collections.abc import Iterable, Sequence
from typing import Any, Protocol

from logcore import UsageError, open_log
from logcore.bench.operations import LOGCORE

SQLITE3 = "sqlite3"
LMDB = "lmdb"
LMDB_BULK = "lmdb bulk"
ROCKSDICT = "rocksdict"
PEERS = (SQLITE3, LMDB, LMDB_BULK, ROCKSDICT)

Rows = Sequence[tuple[bytes, bytes]]

_MAP_BYTES = 4 << 30  # of lmdb: address space, not memory


class Store(Protocol):
    """Records in a directory of their own."""

    name: str

    def batch(self, rows: Rows) -> Any:
        """`rows` in the shape that append() takes: made before the clock runs."""
        ...

    def append(self, batch: Any) -> object:
        """Append a batch."""
        ...

    def scan(self) -> object:
        """Read every record, in order, into Python objects."""
        ...

    def get(self, offset: int) -> tuple[bytes, bytes]:
        """The key and value of one record."""
        ...

    def close(self) -> None:
        """Close, and remove the directory."""
        ...


class LogStore:
    """A log. `batch_bytes` is the largest that columns are cut into, for fill(); `policy` its cleanup.policy."""

    name = LOGCORE

    def __init__(self, directory: str, *, batch_bytes: int = 1 << 20, policy: str = "delete") -> None:
        self._directory = directory
        config: dict[str, str | int] = {
            "segment.bytes": 1 << 30,
            "max.message.bytes": batch_bytes,
            "cleanup.policy": policy,
        }
        self.log = open_log(os.path.join(directory, "bench-0"), config=config)

    def batch(self, rows: Rows) -> Rows:
        """See Store."""
        return rows

    def append(self, batch: Rows) -> object:
        """See Store."""
        return self.log.append(batch)

    def fill(self, columns: object) -> None:
        """Append many at once."""
        self.log.append_columns(columns)

    def scan(self) -> object:
        """See Store."""
        return deque(self.log.read(0), maxlen=0)

    def get(self, offset: int) -> tuple[bytes, bytes]:
        """See Store."""
        record = next(self.log.read(offset))
        return record.key, record.value  # type: ignore[return-value]

    def close(self) -> None:
        """See Store."""
        self.log.close()
        shutil.rmtree(self._directory)


class SqliteStore:
    """A table."""

    name = SQLITE3

    def __init__(self, directory: str) -> None:
        self._directory = directory
        os.makedirs(directory)
        self._connection = sqlite3.connect(os.path.join(directory, "bench.sqlite"), isolation_level=None)
        self._connection.execute("PRAGMA journal_mode=WAL")
        self._connection.execute("PRAGMA synchronous=OFF")
        self._connection.execute('CREATE TABLE log ("offset" INTEGER PRIMARY KEY, "key" BLOB, value BLOB)')

    def batch(self, rows: Rows) -> Rows:
        """See Store."""
        return rows

    def append(self, batch: Rows) -> object:
        """See Store."""
        self._connection.execute("BEGIN")
        self._connection.executemany('INSERT INTO log ("key", value) VALUES (?, ?)', batch)
        return self._connection.execute("COMMIT")

    def scan(self) -> object:
        """See Store."""
        return deque(self._connection.execute('SELECT "offset", "key", value FROM log ORDER BY "offset"'), maxlen=0)

    def get(self, offset: int) -> tuple[bytes, bytes]:
        """See Store. Its numbers begin with 1."""
        found: tuple[bytes, bytes] = self._connection.execute(
            'SELECT "key", value FROM log WHERE "offset" = ?', (offset + 1,)
        ).fetchone()
        return found

    def close(self) -> None:
        """See Store."""
        self._connection.close()
        shutil.rmtree(self._directory)


class _JoinedStore:
    """A store of one value to a key: offsets are keys, and a value is a record's key and value end to end."""

    def __init__(self) -> None:
        self._end_offset = 0

    def batch(self, rows: Rows) -> list[bytes]:
        """See Store: without the offsets, which a batch gets only when it is appended."""
        return [key + value for key, value in rows]

    def _numbered(self, batch: Sequence[bytes]) -> Iterable[tuple[bytes, bytes]]:
        first, self._end_offset = self._end_offset, self._end_offset + len(batch)
        return zip([offset.to_bytes(8, "big") for offset in range(first, self._end_offset)], batch, strict=True)


class LmdbStore(_JoinedStore):
    """A memory map."""

    name = LMDB

    def __init__(self, directory: str) -> None:
        super().__init__()
        self._directory = directory
        lmdb = _import(LMDB)
        os.makedirs(directory)
        self._environment = lmdb.open(directory, map_size=_MAP_BYTES, sync=False)

    def append(self, batch: Sequence[bytes]) -> None:
        """See Store."""
        with self._environment.begin(write=True) as transaction:
            put = transaction.put
            for key, value in self._numbered(batch):
                put(key, value, append=True)

    def scan(self) -> object:
        """See Store."""
        with self._environment.begin() as transaction, transaction.cursor() as cursor:
            return deque(cursor.iternext(), maxlen=0)

    def get(self, offset: int) -> tuple[bytes, bytes]:
        """See Store."""
        with self._environment.begin() as transaction:
            found: bytes = transaction.get(offset.to_bytes(8, "big"))
        return found[:10], found[10:]

    def close(self) -> None:
        """See Store."""
        self._environment.close()
        shutil.rmtree(self._directory)


class LmdbBulkStore(LmdbStore):
    """The same, a batch a call."""

    name = LMDB_BULK

    def append(self, batch: Sequence[bytes]) -> None:
        """See Store."""
        with self._environment.begin(write=True) as transaction, transaction.cursor() as cursor:
            cursor.putmulti(self._numbered(batch), append=True)


class RocksStore(_JoinedStore):
    """A log-structured tree."""

    name = ROCKSDICT

    def __init__(self, directory: str) -> None:
        super().__init__()
        self._directory = directory
        self._rocksdict = _import(ROCKSDICT)
        os.makedirs(os.path.dirname(directory), exist_ok=True)
        self._store = self._rocksdict.Rdict(directory, self._rocksdict.Options(raw_mode=True))

    def append(self, batch: Sequence[bytes]) -> object:
        """See Store."""
        written = self._rocksdict.WriteBatch(raw_mode=True)
        put = written.put
        for key, value in self._numbered(batch):
            put(key, value)
        return self._store.write(written)

    def scan(self) -> object:
        """See Store."""
        return deque(self._store.items(), maxlen=0)

    def get(self, offset: int) -> tuple[bytes, bytes]:
        """See Store."""
        found: bytes = self._store[offset.to_bytes(8, "big")]
        return found[:10], found[10:]

    def close(self) -> None:
        """See Store."""
        self._store.close()
        shutil.rmtree(self._directory)


def open_peer(name: str, directory: str) -> Store:
    """One of PEERS, empty; raises UsageError if it is not installed."""
    kinds: dict[str, Any] = {
        SQLITE3: SqliteStore, LMDB: LmdbStore, LMDB_BULK: LmdbBulkStore, ROCKSDICT: RocksStore
    }  # fmt: skip
    store: Store = kinds[name](directory)
    return store


def _import(name: str) -> Any:
    try:
        return importlib.import_module(name)
    except ImportError as error:
        raise UsageError(name, got=str(error), wanted="pip install 'logcore[bench]'") from None
