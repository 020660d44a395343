"""Logs that logcore writes for Kafka to read, and a model of what is in them.

As a program, `python -m tests.interop.written PARTITION SEED`, it writes the mixed log of a seed and kills itself with
SIGKILL: nothing is closed, nothing is flushed after the middle.
"""

import os
import random
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from logcore import Log, Record, encode_batch, encode_transaction_marker, open_log

CODECS = ("none", "gzip", "snappy", "lz4", "zstd")

# Many segments, and many index entries in each, out of few records. The same for Kafka's topics.
SMALL = {
    "internal.segment.bytes": "16384",
    "index.interval.bytes": "512",
    "retention.ms": "-1",
    "file.delete.delay.ms": "0",
}

FIRST_MS = 1_700_000_000_000


class Writer:
    """A log that is open, and the records that whoever reads it must see.

    Kafka numbers its producers from 0, so those of a log that it goes on writing have large ids.
    """

    def __init__(self, log: Log | None, seed: int = 0, known: "Writer | None" = None) -> None:
        self._log = log
        self._random = random.Random(seed)
        self.records: list[Record] = [] if known is None else known.records
        self._aborted: set[int] = set() if known is None else known._aborted
        self._now_ms = FIRST_MS if known is None else known._now_ms
        self._next_sequence: dict[int, int] = {} if known is None else known._next_sequence

    @property
    def log(self) -> Log:
        """The log. A model of what Kafka alone writes has none."""
        assert self._log is not None
        return self._log

    @property
    def committed(self) -> list[Record]:
        """What read_committed shows. Every transaction has ended."""
        return [one for one in self.records if one.offset not in self._aborted]

    def rows(self, count: int) -> list[Record]:
        """Records of all kinds: keys or none, values or none, headers, times that mostly go on."""
        dice = self._random
        made = []
        for _ in range(count):
            self._now_ms += dice.randrange(10)
            key = dice.choice([None, b"", b"k%d" % dice.randrange(20), b"k%d" % dice.randrange(20)])
            value = dice.choice([None, b"", b"v" * dice.randrange(300), dice.randbytes(dice.randrange(200))])
            headers = [(f"h{dice.randrange(3)}", dice.choice([None, b"", b"x"])) for _ in range(dice.randrange(3))]
            made.append(Record(-1, self._now_ms - dice.choice([0, 0, 0, 50]), key, value, headers))
        return made

    def note(self, rows: list[Record], offsets: list[int], *, is_aborted: bool = False) -> None:
        """Somebody wrote these records at these offsets."""
        self.records += [Record(offset, *list(row)[1:]) for offset, row in zip(offsets, rows, strict=True)]
        if is_aborted:
            self._aborted.update(offsets)

    def _note(self, rows: list[Record], first_offset: int, *, is_aborted: bool = False) -> None:
        self.note(rows, list(range(first_offset, first_offset + len(rows))), is_aborted=is_aborted)

    def append(self, count: int, *, compression: str | None = None) -> None:
        """Append some records, in one batch."""
        rows = self.rows(count)
        self._note(rows, self.log.append(rows, compression=compression).first_offset)

    def keyed_rows(self, count: int, keys: int, *, tombstones: bool = True) -> list[Record]:
        """Records that have one of a few keys each, and now and then delete one."""
        return [
            Record(
                -1, row.timestamp, b"key-%d" % self._random.randrange(keys),
                b"" if row.value is None and not tombstones else row.value, row.headers,
            )
            for row in self.rows(count)
        ]  # fmt: skip

    def append_keyed(self, count: int, keys: int, *, tombstones: bool = True) -> None:
        """Append such records."""
        rows = self.keyed_rows(count, keys, tombstones=tombstones)
        self._note(rows, self.log.append(rows).first_offset)

    def append_idempotent(self, producer_id: int, rows: list[Record]) -> None:
        """Append a batch of a producer, and once more: the second is a duplicate."""
        sequence = self._next_sequence.get(producer_id, 0)
        batch = {"producer_id": producer_id, "producer_epoch": 0, "base_sequence": sequence}
        first = self.log.append(rows, **batch)
        again = self.log.append(rows, **batch)
        assert again.is_duplicate
        assert again.first_offset == first.first_offset
        self._next_sequence[producer_id] = sequence + len(rows)
        self._note(rows, first.first_offset)

    def transact(self, producer_id: int, *sizes: int, commit: bool, between: int = 0) -> None:
        """Append a transaction as a replica gets it from its leader: batches of these sizes, and the marker.

        between: records of nobody's transaction, after each batch
        """
        epoch = max(self.log.append([(b"t", b"t", self._now_ms)]).leader_epoch, 0)
        self._note([Record(-1, self._now_ms, b"t", b"t", ())], self.log.log_end_offset - 1)
        for size in sizes:
            rows, first = self.rows(size), self.log.log_end_offset
            sequence = self._next_sequence.get(producer_id, 0)
            batch = encode_batch(
                rows, base_offset=first, producer_id=producer_id, producer_epoch=0, base_sequence=sequence,
                is_transactional=True, leader_epoch=epoch,
            )  # fmt: skip
            self.log.append_batches(batch, leader_epoch=epoch, origin="follower")
            self._next_sequence[producer_id] = sequence + size
            self._note(rows, first, is_aborted=not commit)
            if between:
                self.append(between)
        marker = encode_transaction_marker(
            producer_id, 0, commit=commit, coordinator_epoch=0, offset=self.log.log_end_offset, timestamp=self._now_ms,
            leader_epoch=epoch,
        )  # fmt: skip
        self.log.append_batches(marker, leader_epoch=epoch, origin="follower")

    def truncate_to(self, offset: int) -> None:
        """Cut the log before the batch that has `offset`, and check the model against what is left."""
        self.log.truncate_to(offset)
        left = {one.offset for one in self.log.read(self.log.log_start_offset)}
        assert max(left, default=-1) < offset
        self.records = [one for one in self.records if one.offset in left]

    def delete_records(self, before_offset: int) -> None:
        """Let the log begin later."""
        start = self.log.delete_records(before_offset)
        self.records = [one for one in self.records if one.offset >= start]

    def write_mixed(self, appends: int) -> None:
        """Append batches of every codec, of producers and of transactions that commit and abort, by the seed."""
        for _ in range(appends):
            match self._random.randrange(8):
                case 0:
                    self.append_idempotent(5000 + self._random.randrange(3), self.rows(self._random.randrange(1, 5)))
                case 1:
                    sizes = [self._random.randrange(1, 5) for _ in range(self._random.randrange(1, 4))]
                    self.transact(
                        6000 + self._random.randrange(3), *sizes, commit=bool(self._random.randrange(2)),
                        between=self._random.randrange(3),
                    )  # fmt: skip
                case _:
                    self.append(self._random.randrange(1, 20), compression=self._random.choice(CODECS))


@contextmanager
def writing(path: Path, seed: int = 0, known: Writer | None = None, **config: str) -> Iterator[Writer]:
    """A log to write to; closed in order. known: what was written to it before."""
    with open_log(path, config=SMALL | config) as log:
        yield Writer(log, seed, known)


def kill_a_writer(partition: Path, seed: int) -> None:
    """Run this file, which ends with SIGKILL."""
    command = [sys.executable, "-m", "tests.interop.written", str(partition), str(seed)]
    done = subprocess.run(command, cwd=Path(__file__).parents[2], check=False)
    assert done.returncode == -signal.SIGKILL


def write_mixed_log(writer: Writer) -> None:
    """What a killed writer has written: flushed in the middle, and then no more."""
    writer.write_mixed(60)
    writer.log.flush()
    writer.write_mixed(60)


if __name__ == "__main__":
    write_mixed_log(Writer(open_log(sys.argv[1], config=SMALL), int(sys.argv[2])))
    os.kill(os.getpid(), signal.SIGKILL)
