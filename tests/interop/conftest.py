"""One JVM for all tests of this directory."""

from collections.abc import Iterator

import pytest

from tests.interop.kafka import KafkaReader


@pytest.fixture(scope="session")
def kafka() -> Iterator[KafkaReader]:
    reader = KafkaReader()
    yield reader
    reader.close()
