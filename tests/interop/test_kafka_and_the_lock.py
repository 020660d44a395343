"""A root is written by one process at a time, be it a broker or we; it is read beside either."""

import threading

import pytest

import logcore
from logcore.errors import LockedError
from tests.interop.host import HostError, told
from tests.interop.written import SMALL, Writer, writing

pytestmark = pytest.mark.peers


def test_we_do_not_open_a_root_that_a_broker_has_and_say_whose_it_is(broker):
    with broker.running():
        broker.create("orders", config=SMALL)
        for attempt in (
            lambda: logcore.open_log(broker.root / "orders-0"),
            lambda: logcore.open_root(broker.root),
        ):
            with pytest.raises(LockedError, match=str(broker.pid)) as caught:
                attempt()
            assert caught.value.holder == broker.pid
            assert str(broker.root / ".lock") in str(caught.value)
        # It was not disturbed.
        assert broker.produce("orders", Writer(None).rows(5)) == [0, 1, 2, 3, 4]
    with logcore.open_log(broker.root / "orders-0", config=SMALL) as log:
        assert len(log) == 5
        assert not log.recovery


def test_a_broker_does_not_start_on_a_root_that_we_have_open(broker):
    with writing(broker.root / "locked-0") as writer:
        writer.append(3)
        refusal = f"Failed to acquire lock on file .lock in {broker.root}"
        try:
            with pytest.raises(HostError, match=refusal):
                broker.start()
        finally:
            broker.kill()
        writer.append(3)
    with logcore.open_log(broker.root / "locked-0", read_only=True) as log:
        assert list(log.read(0)) == writer.records
    with broker.running():
        pass


def test_we_follow_a_partition_that_kafkas_producer_writes(broker):
    model = Writer(None, 1)
    runs = [model.rows(20) for _ in range(60)]
    with broker.running():
        broker.create("followed", config=SMALL)
        log = logcore.open_log(broker.root / "followed-0", read_only=True, config=SMALL)
        with log, logcore.open_root(broker.root, read_only=True) as root:
            assert "followed" in root.topics()
            offsets: list[int] = []

            def produce() -> None:
                offsets.extend(broker.produce("followed", *runs))

            producer = threading.Thread(target=produce)
            producer.start()
            try:
                wanted = sum(map(len, runs))
                seen = []
                for record in log.follow(0, timeout=60):
                    seen.append(record)
                    if len(seen) == wanted:
                        break
            finally:
                producer.join()
            model.note([row for run in runs for row in run], offsets)
            assert told(seen) == told(model.records)
            assert len(log.segments) > 5
            assert list(root.log("followed", 0).read(0)) == model.records
            # Transactions: what is committed, once it is.
            kept, dropped = model.rows(5), model.rows(5)
            sent = [("abort", dropped), ("commit", kept)]
            offsets = broker.produce("followed", *sent, properties={"transactional.id": "one"})
            follower = log.follow(wanted, isolation="read_committed", timeout=60)
            assert [next(follower).offset for _ in kept] == offsets[5:]
    with broker.running():
        assert len(broker.consume("followed")[0].records) == wanted + 10
