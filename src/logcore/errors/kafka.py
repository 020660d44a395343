"""Kafka's errors: one table, and a class for every row of it.

INVALID_RECORD (87) is `InvalidRecordError`, KAFKA_STORAGE_ERROR (56) is `KafkaStorageError`: the name in CamelCase,
ending in "Error" once. NONE (0) is a row like any other, so that the table is whole, but has no class: it is the
absence of an error. The codes are those of Apache Kafka 4.3.
"""

from collections.abc import Iterable
from typing import TYPE_CHECKING, ClassVar, NamedTuple

from .tree import LogcoreError, RecordError, UsageError


class ErrorRow(NamedTuple):
    """One row of Kafka's error table."""

    code: int
    name: str
    retriable: bool  # the same request may succeed later
    refresh_metadata: bool  # … once the client has asked anew who leads what

    @property
    def class_name(self) -> str:
        """The name of the row's exception class, also for NONE, which has none."""
        return "".join(word.capitalize() for word in self.name.removesuffix("_ERROR").split("_")) + "Error"


# retriable: the exception of Kafka's client extends RetriableException; refresh: it extends InvalidMetadataException.
_TABLE = """
  -1  UNKNOWN_SERVER_ERROR
   0  NONE
   1  OFFSET_OUT_OF_RANGE
   2  CORRUPT_MESSAGE                         retriable
   3  UNKNOWN_TOPIC_OR_PARTITION              retriable refresh
   4  INVALID_FETCH_SIZE
   5  LEADER_NOT_AVAILABLE                    retriable refresh
   6  NOT_LEADER_OR_FOLLOWER                  retriable refresh
   7  REQUEST_TIMED_OUT                       retriable
   8  BROKER_NOT_AVAILABLE
   9  REPLICA_NOT_AVAILABLE                   retriable refresh
  10  MESSAGE_TOO_LARGE
  11  STALE_CONTROLLER_EPOCH
  12  OFFSET_METADATA_TOO_LARGE
  13  NETWORK_EXCEPTION                       retriable refresh
  14  COORDINATOR_LOAD_IN_PROGRESS            retriable
  15  COORDINATOR_NOT_AVAILABLE               retriable
  16  NOT_COORDINATOR                         retriable
  17  INVALID_TOPIC_EXCEPTION
  18  RECORD_LIST_TOO_LARGE
  19  NOT_ENOUGH_REPLICAS                     retriable
  20  NOT_ENOUGH_REPLICAS_AFTER_APPEND        retriable
  21  INVALID_REQUIRED_ACKS
  22  ILLEGAL_GENERATION
  23  INCONSISTENT_GROUP_PROTOCOL
  24  INVALID_GROUP_ID
  25  UNKNOWN_MEMBER_ID
  26  INVALID_SESSION_TIMEOUT
  27  REBALANCE_IN_PROGRESS
  28  INVALID_COMMIT_OFFSET_SIZE
  29  TOPIC_AUTHORIZATION_FAILED
  30  GROUP_AUTHORIZATION_FAILED
  31  CLUSTER_AUTHORIZATION_FAILED
  32  INVALID_TIMESTAMP
  33  UNSUPPORTED_SASL_MECHANISM
  34  ILLEGAL_SASL_STATE
  35  UNSUPPORTED_VERSION
  36  TOPIC_ALREADY_EXISTS
  37  INVALID_PARTITIONS
  38  INVALID_REPLICATION_FACTOR
  39  INVALID_REPLICA_ASSIGNMENT
  40  INVALID_CONFIG
  41  NOT_CONTROLLER                          retriable
  42  INVALID_REQUEST
  43  UNSUPPORTED_FOR_MESSAGE_FORMAT
  44  POLICY_VIOLATION
  45  OUT_OF_ORDER_SEQUENCE_NUMBER
  46  DUPLICATE_SEQUENCE_NUMBER
  47  INVALID_PRODUCER_EPOCH
  48  INVALID_TXN_STATE
  49  INVALID_PRODUCER_ID_MAPPING
  50  INVALID_TRANSACTION_TIMEOUT
  51  CONCURRENT_TRANSACTIONS                 retriable
  52  TRANSACTION_COORDINATOR_FENCED
  53  TRANSACTIONAL_ID_AUTHORIZATION_FAILED
  54  SECURITY_DISABLED
  55  OPERATION_NOT_ATTEMPTED
  56  KAFKA_STORAGE_ERROR                     retriable refresh
  57  LOG_DIR_NOT_FOUND
  58  SASL_AUTHENTICATION_FAILED
  59  UNKNOWN_PRODUCER_ID
  60  REASSIGNMENT_IN_PROGRESS
  61  DELEGATION_TOKEN_AUTH_DISABLED
  62  DELEGATION_TOKEN_NOT_FOUND
  63  DELEGATION_TOKEN_OWNER_MISMATCH
  64  DELEGATION_TOKEN_REQUEST_NOT_ALLOWED
  65  DELEGATION_TOKEN_AUTHORIZATION_FAILED
  66  DELEGATION_TOKEN_EXPIRED
  67  INVALID_PRINCIPAL_TYPE
  68  NON_EMPTY_GROUP
  69  GROUP_ID_NOT_FOUND
  70  FETCH_SESSION_ID_NOT_FOUND              retriable
  71  INVALID_FETCH_SESSION_EPOCH             retriable
  72  LISTENER_NOT_FOUND                      retriable refresh
  73  TOPIC_DELETION_DISABLED
  74  FENCED_LEADER_EPOCH                     retriable refresh
  75  UNKNOWN_LEADER_EPOCH                    retriable
  76  UNSUPPORTED_COMPRESSION_TYPE
  77  STALE_BROKER_EPOCH
  78  OFFSET_NOT_AVAILABLE                    retriable
  79  MEMBER_ID_REQUIRED
  80  PREFERRED_LEADER_NOT_AVAILABLE          retriable refresh
  81  GROUP_MAX_SIZE_REACHED
  82  FENCED_INSTANCE_ID
  83  ELIGIBLE_LEADERS_NOT_AVAILABLE          retriable refresh
  84  ELECTION_NOT_NEEDED                     retriable refresh
  85  NO_REASSIGNMENT_IN_PROGRESS
  86  GROUP_SUBSCRIBED_TO_TOPIC
  87  INVALID_RECORD
  88  UNSTABLE_OFFSET_COMMIT                  retriable
  89  THROTTLING_QUOTA_EXCEEDED               retriable
  90  PRODUCER_FENCED
  91  RESOURCE_NOT_FOUND
  92  DUPLICATE_RESOURCE
  93  UNACCEPTABLE_CREDENTIAL
  94  INCONSISTENT_VOTER_SET
  95  INVALID_UPDATE_VERSION
  96  FEATURE_UPDATE_FAILED
  97  PRINCIPAL_DESERIALIZATION_FAILURE
  98  SNAPSHOT_NOT_FOUND
  99  POSITION_OUT_OF_RANGE
 100  UNKNOWN_TOPIC_ID                        retriable refresh
 101  DUPLICATE_BROKER_REGISTRATION
 102  BROKER_ID_NOT_REGISTERED
 103  INCONSISTENT_TOPIC_ID                   retriable refresh
 104  INCONSISTENT_CLUSTER_ID
 105  TRANSACTIONAL_ID_NOT_FOUND
 106  FETCH_SESSION_TOPIC_ID_ERROR            retriable
 107  INELIGIBLE_REPLICA
 108  NEW_LEADER_ELECTED
 109  OFFSET_MOVED_TO_TIERED_STORAGE
 110  FENCED_MEMBER_EPOCH
 111  UNRELEASED_INSTANCE_ID
 112  UNSUPPORTED_ASSIGNOR
 113  STALE_MEMBER_EPOCH
 114  MISMATCHED_ENDPOINT_TYPE
 115  UNSUPPORTED_ENDPOINT_TYPE
 116  UNKNOWN_CONTROLLER_ID
 117  UNKNOWN_SUBSCRIPTION_ID
 118  TELEMETRY_TOO_LARGE
 119  INVALID_REGISTRATION
 120  TRANSACTION_ABORTABLE
 121  INVALID_RECORD_STATE
 122  SHARE_SESSION_NOT_FOUND                 retriable
 123  INVALID_SHARE_SESSION_EPOCH             retriable
 124  FENCED_STATE_EPOCH
 125  INVALID_VOTER_KEY
 126  DUPLICATE_VOTER
 127  VOTER_NOT_FOUND
 128  INVALID_REGULAR_EXPRESSION
 129  REBOOTSTRAP_REQUIRED
 130  STREAMS_INVALID_TOPOLOGY
 131  STREAMS_INVALID_TOPOLOGY_EPOCH
 132  STREAMS_TOPOLOGY_FENCED
 133  SHARE_SESSION_LIMIT_REACHED             retriable
"""


def _parse(line: str) -> ErrorRow:
    code, name, *marks = line.split()
    return ErrorRow(int(code), name, "retriable" in marks, "refresh" in marks)


ERROR_TABLE: tuple[ErrorRow, ...] = tuple(map(_parse, _TABLE.strip().splitlines()))


class KafkaError(LogcoreError):
    """An error of Kafka's protocol; each row of the table is a subclass with its own `code`, `name` and marks.

    Raised by itself it counts as UNKNOWN_SERVER_ERROR, as every failure without a code of its own does in Kafka.

    >>> error = error_for_code(87)("no key in a compacted topic", record_errors=[RecordError(3, "key is null")])
    >>> error.name, error.code, error.retriable, str(error)
    ('INVALID_RECORD', 87, False, 'no key in a compacted topic')
    """

    code: ClassVar[int] = -1
    name: ClassVar[str] = "UNKNOWN_SERVER_ERROR"
    retriable: ClassVar[bool] = False
    refresh_metadata: ClassVar[bool] = False

    def __init__(self, message: str, *, record_errors: Iterable[RecordError] = ()) -> None:
        super().__init__(message)
        self.message = message
        self.record_errors = tuple(record_errors)


def _class_for(row: ErrorRow) -> type[KafkaError]:
    doc = f"{row.name}, code {row.code}."
    # Pickle and tracebacks find the class where users do: in the package, not in this file.
    return type(row.class_name, (KafkaError,), {"__doc__": doc, "__module__": __package__, **row._asdict()})


_CLASS_BY_CODE = {row.code: _class_for(row) for row in ERROR_TABLE if row.name != "NONE"}
_CLASS_BY_NAME = {cls.name: cls for cls in _CLASS_BY_CODE.values()}
CLASSES: dict[str, type[KafkaError]] = {cls.__name__: cls for cls in _CLASS_BY_CODE.values()}


if TYPE_CHECKING:  # to type checkers the generated classes are KafkaErrors
    _OutOfRange = KafkaError
else:
    _OutOfRange = CLASSES["OffsetOutOfRangeError"]


class LogTruncatedError(_OutOfRange):
    """The log was cut below what a reader has read, or was about to read.

    What lies at those offsets now, if anything, is not what was there. offset: from here on; what was read before it is
    still the log's. A reader that had not come so far misses nothing if it goes on where it was.
    """

    def __init__(self, message: str, *, offset: int) -> None:
        super().__init__(message)
        self.offset = offset


CLASSES["LogTruncatedError"] = LogTruncatedError


def error_for_code(code: int) -> type[KafkaError]:
    """The class of a code, UnknownServerError for a code that the table does not have (a newer broker's).

    Raises UsageError for 0, which is no error.
    """
    if code == 0:
        raise UsageError("Kafka error code", got="0 (NONE)", wanted="the code of an error")
    return _CLASS_BY_CODE.get(code, _CLASS_BY_CODE[-1])


def error_for_name(name: str) -> type[KafkaError]:
    """The class of a Kafka name such as "INVALID_RECORD"; UsageError if no error has it."""
    if name not in _CLASS_BY_NAME:
        raise UsageError("Kafka error name", got=repr(name), wanted="a name of Kafka's error table other than NONE")
    return _CLASS_BY_NAME[name]


def kafka_error(code: int, message: str | None = None, *, record_errors: Iterable[RecordError] = ()) -> KafkaError:
    """The exception for a code and the message, if any, that came with it.

    A code that the table does not have stays readable in the message:

    >>> kafka_error(999, "try again")
    UnknownServerError('unknown error code 999: try again')
    """
    cls = error_for_code(code)
    if cls.code != code:
        message = f"unknown error code {code}: {message}" if message else f"unknown error code {code}"
    return cls(message or cls.name, record_errors=record_errors)
