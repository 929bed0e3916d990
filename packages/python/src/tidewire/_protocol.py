"""The numbers of the native protocol, and the positions of its fields.

Contract: `spec/deepstream.md`, "Topics and fields", in Tidewire's repository.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import IntEnum
from typing import NamedTuple


class Topic(IntEnum):
    """The first number of every message."""

    PARSER = 1
    CONNECTION = 2
    AUTH = 3
    EVENT = 4
    RECORD = 5
    RPC = 6
    PRESENCE = 7
    QUERY = 32


class Position(NamedTuple):
    """A position in an event's history: the session has received everything up to `offset` of `epoch`."""

    epoch: int
    offset: int


class NamedPosition(NamedTuple):
    """The position of one event; without a position, only its name."""

    name: str
    position: Position | None


@dataclass(slots=True, eq=False)
class Message:
    """One message of the protocol. A field that is None is not sent; 0, False and "" are."""

    topic: int
    action: int = 0
    data: str | None = None
    correlation_id: str | None = None
    is_error: bool | None = None
    is_ack: bool | None = None
    is_write_ack: bool | None = None
    name: str | None = None
    names: list[str] = field(default_factory=list)
    subscription: str | None = None
    original_topic: int | None = None
    original_action: int | None = None
    path: str | None = None
    version: int | None = None
    versions: dict[str, int] = field(default_factory=dict)
    incarnation: int | None = None
    only: int | None = None
    existed: bool | None = None
    key: str | None = None
    seen_version: int | None = None
    url: str | None = None
    protocol_version: str | None = None
    sdk_version: str | None = None
    sdk_type: str | None = None
    batches: bool | None = None
    jumps: bool | None = None
    missed: int | None = None
    epoch: int | None = None
    offset: int | None = None
    positions: list[NamedPosition] = field(default_factory=list)
    traceparent: str | None = None
    content_type: str | None = None
    content: bytes | None = None
    requestor_name: str | None = None
    requestor_data: str | None = None


FLAGS = frozenset({"is_error", "is_ack", "is_write_ack", "existed", "batches", "jumps"})
"""The fields with boolean values, which are numbers on the wire."""

UNSIGNED = frozenset({"incarnation", "epoch", "offset"})
"""The numbers that are not signed 32-bit numbers."""

NUMBERS = FLAGS | UNSIGNED | {"action", "original_topic", "original_action", "version", "only", "seen_version", "missed"}
"""The fields that are numbers on the wire."""

FIELDS: dict[int, dict[int, str]] = {
    Topic.PARSER: {1: "action", 2: "data", 8: "original_topic", 9: "original_action"},
    Topic.CONNECTION: {
        1: "action", 2: "data", 3: "is_error", 4: "is_ack", 5: "url", 6: "protocol_version", 7: "sdk_version", 8: "sdk_type",
        15: "batches", 16: "jumps",
    },
    Topic.AUTH: {1: "action", 2: "data", 3: "is_error", 4: "is_ack"},
    Topic.EVENT: {
        1: "action", 2: "data", 3: "correlation_id", 4: "is_error", 5: "is_ack", 6: "name", 7: "names", 8: "subscription",
        10: "original_topic", 11: "original_action", 15: "missed", 16: "epoch", 17: "offset", 18: "positions", 19: "traceparent",
        20: "content_type", 21: "content",
    },
    Topic.RECORD: {
        1: "action", 2: "data", 3: "correlation_id", 4: "is_error", 5: "is_ack", 6: "name", 7: "names", 9: "subscription",
        10: "original_action", 11: "is_write_ack", 12: "path", 13: "version", 14: "versions", 20: "incarnation", 21: "only",
        22: "existed", 23: "key", 24: "seen_version",
    },
    Topic.RPC: {
        1: "action", 2: "data", 3: "correlation_id", 4: "is_error", 5: "is_ack", 6: "names", 7: "name", 9: "original_action",
        10: "requestor_name", 11: "requestor_data",
    },
    Topic.PRESENCE: {
        1: "action", 2: "original_topic", 3: "original_action", 4: "data", 5: "correlation_id", 6: "is_error", 7: "is_ack", 8: "name",
        9: "names",
    },
    Topic.QUERY: {1: "action", 2: "data", 3: "correlation_id", 4: "is_error", 6: "name"},
}  # fmt: skip
"""The fields of each topic by their numbers, in ascending order."""


class ConnectionAction(IntEnum):
    PING = 2
    PONG = 3
    ACCEPT = 4
    CHALLENGE = 5
    REJECT = 6
    REDIRECT = 7
    AUTHENTICATION_TIMEOUT = 100


class AuthAction(IntEnum):
    REQUEST = 2
    SUCCESSFUL = 3
    UNSUCCESSFUL = 4
    TOO_MANY_ATTEMPTS = 100
    INVALID_MESSAGE_DATA = 102


class EventAction(IntEnum):
    EMIT = 2
    SUBSCRIBE = 3
    UNSUBSCRIBE = 4
    GAP = 120
    POSITION = 121
    SUBSCRIBE_PATTERNS = 122
    UNSUBSCRIBE_PATTERNS = 123
    PATTERN_GAP = 125


class RecordAction(IntEnum):
    READ = 3
    READ_RESPONSE = 4
    DELETE = 9
    DELETE_SUCCESS = 10
    DELETED = 13
    WRITE_ACKNOWLEDGEMENT = 14
    CREATE_AND_UPDATE = 16
    UPDATE = 18
    PATCH = 19
    ERASE = 20
    SUBSCRIBE_AND_READ = 22
    SUBSCRIBE_CREATE_AND_READ = 23
    UNSUBSCRIBE = 26
    HAS_PROVIDER = 31
    HAS_NO_PROVIDER = 32
    PATCH_MULTI = 35
    FETCH = 60
    FETCHED = 61
    VERSION_EXISTS = 102
    INVALID_VERSION = 108
    WRITE_UNKNOWN = 120


class RpcAction(IntEnum):
    REQUEST = 2
    ACCEPT = 4
    RESPONSE = 5
    REJECT = 6
    REQUEST_ERROR = 7
    PROVIDE = 8
    UNPROVIDE = 9


class PresenceAction(IntEnum):
    QUERY_ALL = 2
    QUERY_ALL_RESPONSE = 3
    QUERY = 4
    QUERY_RESPONSE = 5
    JOIN = 6
    JOIN_ALL = 7
    LEAVE = 8
    LEAVE_ALL = 9
    SUBSCRIBE = 10
    UNSUBSCRIBE = 11
    SUBSCRIBE_ALL = 12
    UNSUBSCRIBE_ALL = 13


_DENIED = "MESSAGE_DENIED"
_RULE_FAILED = "MESSAGE_PERMISSION_ERROR"
_INVALID = "INVALID_MESSAGE_DATA"

REFUSALS: dict[int, dict[int, str]] = {
    Topic.EVENT: {103: _RULE_FAILED, 104: _DENIED, 105: _INVALID, 124: "INVALID_PATTERN"},
    Topic.RECORD: {
        100: "STORAGE_RETRIEVAL_TIMEOUT",
        101: "STORAGE_RETRIEVAL_TIMEOUT",
        103: "RECORD_LOAD_ERROR",
        104: "RECORD_CREATE_ERROR",
        105: "RECORD_UPDATE_ERROR",
        106: "RECORD_DELETE_ERROR",
        107: "RECORD_NOT_FOUND",
        109: "INVALID_PATCH_ON_HOTPATH",
        114: _RULE_FAILED,
        115: _DENIED,
        116: _INVALID,
        120: "WRITE_UNKNOWN",
    },
    Topic.RPC: {
        100: "NO_RPC_PROVIDER",
        101: "ACCEPT_TIMEOUT",
        103: "INVALID_RPC_CORRELATION_ID",
        104: "RESPONSE_TIMEOUT",
        106: _RULE_FAILED,
        107: _DENIED,
        108: _INVALID,
    },
    Topic.PRESENCE: {100: "INVALID_PRESENCE_USERS", 101: _RULE_FAILED, 102: _DENIED},
}
"""The codes of the server's refusals, by topic and action."""


def refusal(message: Message) -> str | None:
    """Returns the code of the refusal, if `message` is one."""
    return REFUSALS.get(message.topic, {}).get(message.action)
