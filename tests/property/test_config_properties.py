"""Configurations of every kind: what is told makes the same one again, and any text is refused or read."""

from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from logcore.errors import UsageError
from logcore.log.config import SETTINGS, LogConfig

NAMES = sorted(SETTINGS)
TEXTS = st.one_of(
    st.text(max_size=20),
    st.integers(-(2**70), 2**70).map(str),
    st.floats().map(str),
    st.lists(st.sampled_from(["compact", "delete", "", "0:1", "*", " "]), max_size=4).map(",".join),
    st.sampled_from(["true", "FALSE", " zstd ", "producer", "LogAppendTime", "+5", "1e-3f", "\x00 7\x1f"]),
)
GIVEN: st.SearchStrategy[Any] = st.one_of(
    TEXTS, st.integers(), st.booleans(), st.floats(), st.none(), st.binary(max_size=3)
)


def valid(name: str) -> st.SearchStrategy[Any]:
    """A value that the setting may have, whatever the others are."""
    setting = SETTINGS[name]
    if name in ("remote.storage.enable", "local.retention.ms", "local.retention.bytes"):
        return st.just(setting.default)
    if name == "min.compaction.lag.ms":
        return st.integers(0, 1000)
    if name == "max.compaction.lag.ms":
        return st.integers(1000, 2**63 - 1)
    if name == "cleanup.policy":
        return st.sampled_from(["", "compact", "delete", "compact,delete"])
    if name.endswith(".throttled.replicas"):
        return st.one_of(st.just("*"), st.lists(st.sampled_from(["0:1", "12:34"]), max_size=3).map(",".join))
    if name == "compression.type":
        return st.sampled_from(["producer", "uncompressed", "gzip", "snappy", "lz4", "zstd"])
    if name == "message.timestamp.type":
        return st.sampled_from(["CreateTime", "LogAppendTime"])
    if setting.kafka_type == "BOOLEAN":
        return st.booleans()
    if setting.kafka_type == "DOUBLE":
        return st.floats(0.01, 1)
    if name.startswith("compression."):
        return st.integers(1, 9)
    return st.integers(2 << 20, 2**31 - 1)


CONFIGS = st.fixed_dictionaries({}, optional={name: valid(name) for name in NAMES})


@given(CONFIGS)
def test_what_is_told_makes_the_same_configuration_again(given_config):
    config = LogConfig.of(given_config)
    assert {name: config.to_dict()[name] for name in given_config} == given_config
    assert LogConfig.of(config.to_dict()) == config
    assert LogConfig.of({name: f" {value}\n" for name, value in config.to_dict().items()}) == config
    assert eval(repr(config)) == config
    assert hash(LogConfig.of(config.to_dict())) == hash(config)


@given(CONFIGS, CONFIGS)
def test_changes_are_as_if_told_at_once(given_config, changes):
    assert LogConfig.of(given_config).with_changes(changes) == LogConfig.of(given_config | changes)


@given(st.dictionaries(st.one_of(st.sampled_from(NAMES), st.text(max_size=20)), GIVEN, max_size=3))
def test_anything_is_read_or_refused_by_a_usage_error_that_names_it(given_config):
    try:
        config = LogConfig.of(given_config)
    except UsageError as error:
        assert error.what in given_config
    else:
        assert LogConfig.of(config.to_dict()) == config
