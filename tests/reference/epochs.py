"""Leader epochs, slowly: a list that is filtered from end to end, by the words of KIP-101 and KIP-279."""

from __future__ import annotations

Entry = tuple[int, int]


class RefEpochs:
    """Pairs of epoch and start offset, in order."""

    def __init__(self) -> None:
        self.entries: list[Entry] = []

    def assign(self, epoch: int, start_offset: int) -> None:
        if self.entries and max(self.entries)[0] == epoch and max(self.entries)[1] <= start_offset:
            return
        kept = [entry for entry in self.entries if entry[0] < epoch and entry[1] < start_offset]
        self.entries = [*kept, (epoch, start_offset)]

    def truncate_from_end(self, end_offset: int) -> None:
        self.entries = [entry for entry in self.entries if end_offset < 0 or entry[1] < end_offset]

    def truncate_from_start(self, start_offset: int) -> None:
        epoch = self.epoch_for_offset(start_offset)
        if epoch is not None:
            later = [entry for entry in self.entries if entry[1] > start_offset]
            self.entries = [(epoch, start_offset), *later]

    def clear(self) -> None:
        self.entries = []

    def epoch_for_offset(self, offset: int) -> int | None:
        return max((epoch for epoch, start_offset in self.entries if start_offset <= offset), default=None)

    def end_offset_for(self, epoch: int, log_end_offset: int) -> Entry:
        higher = [entry for entry in self.entries if entry[0] > epoch]
        lower = [entry for entry in self.entries if entry[0] <= epoch]
        if epoch == -1 or not self.entries:
            return -1, -1
        if not higher:
            return (epoch, log_end_offset) if lower[-1][0] == epoch else (-1, -1)
        return lower[-1][0] if lower else epoch, higher[0][1]

    def previous_epoch(self, epoch: int) -> int | None:
        return max((known for known, _ in self.entries if known < epoch), default=None)

    def next_epoch(self, epoch: int) -> int | None:
        return min((known for known, _ in self.entries if known > epoch), default=None)
