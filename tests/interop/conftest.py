"""One JVM for each kind of helper, for all tests of this directory."""

import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

pytest.register_assert_rewrite("tests.interop.dumping", "tests.interop.written")

from tests.interop.host import Broker, Host  # noqa: E402
from tests.interop.kafka import KafkaReader, classpath  # noqa: E402


@pytest.fixture(scope="session")
def kafka() -> Iterator[KafkaReader]:
    reader = KafkaReader()
    yield reader
    reader.close()


@pytest.fixture(scope="session")
def classes(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Host.java, compiled."""
    directory = tmp_path_factory.mktemp("classes")
    source = Path(__file__).with_name("Host.java")
    subprocess.run(["javac", "-cp", classpath(), "-d", str(directory), str(source)], check=True)
    return directory


@pytest.fixture(scope="session")
def tools(classes: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Host]:
    """Kafka's tools and clients. Brokers have processes of their own, to be killed."""
    with Host(classes, tmp_path_factory.mktemp("tools") / "stderr.txt") as host:
        yield host


@pytest.fixture(scope="module")
def broker(classes: Path, tools: Host, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Broker]:
    """A broker of the module's own, formatted and not started. Its second start takes a second, its first some five."""
    with Broker(classes, tmp_path_factory.mktemp("broker") / "one", tools) as made:
        yield made
