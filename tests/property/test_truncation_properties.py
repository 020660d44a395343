"""Replicas that lead in turn: cut to where epochs end, a follower has nothing that its leader has not."""

from __future__ import annotations

import tempfile
from pathlib import Path

from hypothesis import event, given
from hypothesis import strategies as st

from logcore.log.truncation import truncate_to_epoch_end
from tests.logs import Partition, batch

# Who leads, how many batches it appends, how many of them the other fetches (None: it is away), and who is opened anew.
ROUNDS = st.lists(
    st.tuples(
        st.integers(0, 1),
        st.integers(0, 3),
        st.one_of(st.none(), st.integers(0, 4)),
        st.one_of(st.none(), st.none(), st.tuples(st.integers(0, 1), st.booleans())),
    ),
    min_size=4,
    max_size=12,
)


class Cluster:
    """Two replicas, one of which is the leader. Batches are told apart by their values."""

    def __init__(self, directory: Path) -> None:
        config = {"internal.segment.bytes": 400}
        self.replicas = [Partition(directory / name, config) for name in "ab"]
        self.leader, self.epoch, self.count = 0, -1, 0
        self.elect(0)

    def elect(self, number: int) -> None:
        """Let one be the leader: its epoch begins where its log ends."""
        self.leader, self.epoch = number, self.epoch + 1
        log = self.replicas[number].log
        log.epochs.assign(self.epoch, log.log_end_offset)
        log.epochs.flush(log.disk)

    def lead(self, count: int) -> None:
        """Append batches of one record to three."""
        for size in range(1, count + 1):
            self.count += 1
            self.replicas[self.leader].lead(batch(0, size, value=b"%d" % self.count), epoch=self.epoch)

    def fetch(self, count: int) -> None:
        """Let the follower cut off what its leader has not, and take some batches of it."""
        leader, follower = self.replicas[self.leader], self.replicas[1 - self.leader]
        rounds = 0
        while (latest := follower.log.epochs.latest_epoch) is not None:
            rounds += 1
            assert rounds <= self.epoch + 2
            told = leader.log.end_offset_for_epoch(latest)
            if truncate_to_epoch_end(follower.log, told, 0):
                break
        event(f"asked {min(rounds, 3)} times")
        self.check()
        for _ in range(count):
            view = leader.log.view
            part = view.fetch(follower.log.log_end_offset, bytes_max=1, end_offset=view.log_end_offset).slice
            if part is None:
                break
            follower.follow(part.segment.file.read(part.position, part.size_in_bytes), epoch=self.epoch)
        self.check()

    def reopen(self, number: int, clean: bool) -> None:
        """Let one end, in order or not, and come back; a leader leads on in a new epoch."""
        self.replicas[number].reopen(clean=clean)
        if number == self.leader:
            self.elect(number)

    def check(self) -> None:
        leader, follower = self.replicas[self.leader], self.replicas[1 - self.leader]
        found = follower.read(0)
        assert found == leader.read(0)[: len(found)]
        assert follower.log.log_end_offset == len(found)
        known = [entry for entry in leader.epochs if entry[1] < len(found)]
        assert [entry for entry in follower.epochs if entry[1] < len(found)] == known


@given(ROUNDS)
def test_a_follower_that_was_cut_to_the_end_of_its_epochs_has_a_beginning_of_its_leaders_log(
    rounds: list[tuple[int, int, int | None, tuple[int, bool] | None]],
) -> None:
    with tempfile.TemporaryDirectory() as directory:
        cluster = Cluster(Path(directory))
        try:
            for leader, appended, fetched, reopened in rounds:
                if leader != cluster.leader:
                    cluster.elect(leader)
                cluster.lead(appended)
                if fetched is not None:
                    cluster.fetch(fetched)
                if reopened is not None:
                    cluster.reopen(*reopened)
            cluster.fetch(100)
            first, second = (replica.read(0) for replica in cluster.replicas)
            assert first == second
        finally:
            for replica in cluster.replicas:
                replica.close()
