"""Kafka's programs in a JVM of ours (Host.java): DumpLogSegments, kafka-storage, a broker, its producer and consumer.

A broker listens on free ports of 127.0.0.1. Whatever a test does, its processes end with it: hosts are context
managers, and an answer that does not come in time ends the process that owes it.
"""

import json
import os
import selectors
import signal
import socket
import subprocess
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from types import TracebackType
from typing import Any, NamedTuple

from logcore import Record
from tests.interop.kafka import classpath, content

ANSWER_SECONDS_MAX = 120  # A broker starts in a few seconds; a machine that is busy with other things takes its time.

# As few and as small internal topics as there can be, and no waiting for a group that has no members.
BROKER_CONFIG = {
    "process.roles": "broker,controller",
    "node.id": "1",
    "controller.listener.names": "CONTROLLER",
    "inter.broker.listener.name": "PLAINTEXT",
    "listener.security.protocol.map": "PLAINTEXT:PLAINTEXT,CONTROLLER:PLAINTEXT",
    "offsets.topic.num.partitions": "1",
    "offsets.topic.replication.factor": "1",
    "transaction.state.log.num.partitions": "1",
    "transaction.state.log.replication.factor": "1",
    "transaction.state.log.min.isr": "1",
    "auto.create.topics.enable": "false",
    "num.io.threads": "2",
    "num.network.threads": "1",
    "log.cleaner.dedupe.buffer.size": "16777216",
    # Kafka looks for something to compact or to delete all the time, so that no test waits for it long.
    "log.cleaner.backoff.ms": "100",
    "log.retention.check.interval.ms": "100",
    "log.initial.task.delay.ms": "100",
}  # fmt: skip


class HostError(AssertionError):
    """A command failed in the JVM: its exception, in its words."""


class Host:
    """A running Host.java: a command in, an answer out."""

    def __init__(self, classes: Path, errors: Path) -> None:
        self._errors = errors
        with errors.open("ab") as stderr:
            self._process = subprocess.Popen(
                [
                    "java", "-Xmx512m", "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1",
                    "-cp", f"{classes}{os.pathsep}{classpath()}", "Host",
                ],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=stderr,
            )  # fmt: skip
        assert self._process.stdout is not None
        self._selector = selectors.DefaultSelector()
        self._selector.register(self._process.stdout, selectors.EVENT_READ)

    @property
    def pid(self) -> int:
        """Of the JVM."""
        return self._process.pid

    def run(self, do: str, **arguments: Any) -> dict[str, Any]:
        """Run a command. HostError if it failed, or if no answer came in time."""
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._process.stdin.write(json.dumps({"do": do, **arguments}).encode() + b"\n")
        self._process.stdin.flush()
        if not self._selector.select(ANSWER_SECONDS_MAX):
            self.kill()
            raise HostError(f"{do}: no answer within {ANSWER_SECONDS_MAX} s; {self._told()}")
        line = self._process.stdout.readline()
        if not line:
            raise HostError(f"{do}: the JVM ended with {self._process.wait()}; {self._told()}")
        answer: dict[str, Any] = json.loads(line)
        if "failed" in answer:
            raise HostError(f"{do}: {answer['failed']}")
        return answer

    def _told(self) -> str:
        return f"its last words: {self._errors.read_text(errors='replace')[-2000:]}"

    def kill(self) -> None:
        """SIGKILL: it does not get to close anything."""
        self._process.send_signal(signal.SIGKILL)
        self._process.wait()

    def close(self) -> None:
        """End of input, which ends the program, broker and all."""
        try:
            self._process.communicate(timeout=ANSWER_SECONDS_MAX)
        except (subprocess.TimeoutExpired, BrokenPipeError):
            self.kill()
        self._selector.close()

    def __enter__(self) -> "Host":
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self.close()


def free_ports(count: int) -> list[int]:
    """Ports of 127.0.0.1 that nobody listens on."""
    sockets = [socket.create_server(("127.0.0.1", 0)) for _ in range(count)]
    ports = [one.getsockname()[1] for one in sockets]
    for one in sockets:
        one.close()
    return ports


class Consumed(NamedTuple):
    """What Kafka's consumer sees of a partition; records as told() tells them."""

    start_offset: int
    end_offset: int
    records: list[list[Any]]


class Broker:
    """A Kafka broker on a log root of its own, to be started and stopped again and again.

    clients: the JVM that its producers and consumers run in
    """

    def __init__(self, classes: Path, directory: Path, clients: Host, config: Mapping[str, str] | None = None) -> None:
        directory.mkdir(parents=True)
        self.root = directory / "root"
        self._classes = classes
        self._errors = directory / "stderr.txt"
        self._clients = clients
        self._host: Host | None = None
        broker, controller = free_ports(2)
        self._bootstrap = f"127.0.0.1:{broker}"
        self._config = BROKER_CONFIG | {
            "listeners": f"PLAINTEXT://127.0.0.1:{broker},CONTROLLER://127.0.0.1:{controller}",
            "controller.quorum.voters": f"1@127.0.0.1:{controller}",
            "log.dirs": str(self.root),
            **(config or {}),
        }
        properties = directory / "server.properties"
        properties.write_text("".join(f"{name}={value}\n" for name, value in self._config.items()))
        done = clients.run("format", arguments=["format", "-t", "BeMU7GzZSzSGU12VFMhhAA", "-c", str(properties)])
        assert done["exit"] == 0, done["out"]

    def __enter__(self) -> "Broker":
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        if self._host is not None:
            self._host.close()

    @property
    def pid(self) -> int:
        """Of the JVM that the broker runs in."""
        assert self._host is not None
        return self._host.pid

    def start(self) -> None:
        """Start it, in the JVM that it was stopped in if there is one. HostError with Kafka's words if it will not."""
        if self._host is None:
            self._host = Host(self._classes, self._errors)
        self._host.run("start", properties=self._config)

    def stop(self) -> None:
        """Shut it down in order."""
        assert self._host is not None
        self._host.run("stop")

    @contextmanager
    def running(self) -> Iterator[None]:
        """Start it, and shut it down in order, unless it was killed meanwhile."""
        self.start()
        try:
            yield
        finally:
            if self._host is not None:
                self.stop()

    def kill(self) -> None:
        """SIGKILL it."""
        assert self._host is not None
        self._host.kill()
        self._host.close()
        self._host = None

    def _client(self, properties: Mapping[str, str] | None = None) -> dict[str, str]:
        return {"bootstrap.servers": self._bootstrap, **(properties or {})}

    def create(self, topic: str, *, partitions: int = 1, config: Mapping[str, str] | None = None) -> str:
        """Create a topic; returns its id."""
        done = self._clients.run(
            "create", topic=topic, partitions=partitions, config=dict(config or {}), properties=self._client()
        )
        return str(done["id"])

    def produce(
        self,
        topic: str,
        *runs: Sequence[Record] | tuple[str, Sequence[Record]],
        partition: int = 0,
        properties: Mapping[str, str] | None = None,
    ) -> list[int]:
        """Produce records with an idempotent producer of Kafka's; returns their offsets.

        A run is sent and flushed by itself; as ("commit", records) or ("abort", records) it is a transaction, and a
        transactional.id has to be among the properties.
        """
        sent = []
        for run in runs:
            end, records = (run[0], run[1]) if isinstance(run, tuple) else (None, run)
            assert not isinstance(records, str)
            sent.append({"end": end, "records": [[partition, one.timestamp, *content(one)] for one in records]})
        done = self._clients.run("produce", topic=topic, properties=self._client(properties), runs=sent)
        return list(done["offsets"])

    def consume(self, topic: str, *, isolation: str = "read_uncommitted") -> dict[int, Consumed]:
        """All of a topic, as Kafka's consumer sees it, by partition."""
        properties = self._client({"isolation.level": isolation})
        answer = self._clients.run("consume", topic=topic, properties=properties)
        return {int(partition): Consumed(*one.values()) for partition, one in answer.items()}


def told(records: Iterable[Record]) -> list[list[Any]]:
    """Records as Kafka's consumer tells them: offset, timestamp, and the rest in hex."""
    return [[one.offset, one.timestamp, *content(one)] for one in records]


def wait_until(condition: Callable[[], bool], what: str) -> None:
    """Ask again and again, until it is so or the time is over."""
    deadline = time.monotonic() + ANSWER_SECONDS_MAX
    while not condition():
        assert time.monotonic() < deadline, f"{what}: not within {ANSWER_SECONDS_MAX} s"
        time.sleep(0.02)
