"""Messages to bytes and back: deepstream's protobuf in frames with a length.

Contract: `spec/deepstream.md`, "Frames", in Tidewire's repository.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from ._protocol import FIELDS, FLAGS, NUMBERS, UNSIGNED, Message, NamedPosition, Position

_VARINT_BYTES_MAX = 10
_ENVELOPE_TOPIC = 2
_ENVELOPE_FIELDS = 3


class UnreadableError(Exception):
    """The server sent bytes that are not a message."""

    def __init__(self) -> None:
        super().__init__("the server sent bytes that are not a message")


def _varint(value: int) -> bytes:
    """The varint of an unsigned number of 64 bits, or of a negative number, which takes ten bytes."""
    if 0 <= value < 128:
        return bytes((value,))
    value &= 0xFFFF_FFFF_FFFF_FFFF
    found = bytearray()
    while value > 127:
        found.append(value & 127 | 128)
        value >>= 7
    found.append(value)
    return bytes(found)


def _sized(number: int, content: bytes) -> bytes:
    return _varint(number * 8 + 2) + _varint(len(content)) + content


def _field(number: int, value: Any) -> bytes:
    """Encodes a field by the type of its value; a list as one field for each entry."""
    if value is None:
        return b""
    if isinstance(value, str):
        return _sized(number, value.encode())
    if isinstance(value, bytes):
        return _sized(number, value)
    if isinstance(value, int):
        return _varint(number * 8) + _varint(int(value))
    if isinstance(value, NamedPosition):
        epoch, offset = value.position or (None, None)
        return _sized(number, _field(1, value.name) + _field(2, epoch) + _field(3, offset))
    if isinstance(value, dict):
        return b"".join(_sized(number, _field(1, name) + _field(2, version)) for name, version in value.items())
    return b"".join(_field(number, one) for one in value)


def encode(message: Message) -> bytes:
    """Encodes `message` as one frame."""
    fields = b"".join(_field(number, getattr(message, name)) for number, name in FIELDS[message.topic].items())
    envelope = _field(_ENVELOPE_TOPIC, int(message.topic)) + _sized(_ENVELOPE_FIELDS, fields)
    return _varint(len(envelope)) + envelope


def _read_varint(data: bytes, at: int) -> tuple[int, int]:
    """Returns the unsigned varint at index `at`, and the index after it."""
    value = 0
    for shift in range(0, 7 * _VARINT_BYTES_MAX, 7):
        if at >= len(data):
            break
        byte = data[at]
        at += 1
        value |= (byte & 127) << shift
        if byte < 128:
            return value & 0xFFFF_FFFF_FFFF_FFFF, at
    raise UnreadableError


def _read_sized(data: bytes, at: int) -> tuple[bytes, int]:
    length, at = _read_varint(data, at)
    end = at + length
    if end > len(data):
        raise UnreadableError
    return data[at:end], end


def _fields(data: bytes) -> Iterator[tuple[int, int | bytes]]:
    """Yields the number of every field with its number or its bytes."""
    at = 0
    value: int | bytes
    while at < len(data):
        tag, at = _read_varint(data, at)
        kind = tag & 7
        if kind == 0:
            value, at = _read_varint(data, at)
        elif kind == 2:
            value, at = _read_sized(data, at)
        elif kind in (1, 5):
            # No field has a fixed size, so this one is unknown, and skipped.
            at += 8 if kind == 1 else 4
            if at > len(data):
                raise UnreadableError
            continue
        else:
            raise UnreadableError
        yield tag >> 3, value


def _signed(value: int) -> int:
    """The signed 32-bit number in the lowest bits of a varint."""
    return (value & 0xFFFF_FFFF) - ((value & 0x8000_0000) << 1)


def _text(data: bytes) -> str:
    try:
        return data.decode()
    except UnicodeDecodeError:
        raise UnreadableError from None


def _entry(data: bytes) -> dict[int, int | str]:
    return {number: value if isinstance(value, int) else _text(value) for number, value in _fields(data)}


def _take(message: Message, name: str, value: int | bytes) -> None:
    """Stores a decoded field in `message`."""
    if isinstance(value, int) != (name in NUMBERS):
        raise UnreadableError
    if isinstance(value, int):
        setattr(message, name, value != 0 if name in FLAGS else value if name in UNSIGNED else _signed(value))
    elif name == "content":
        message.content = value
    elif name == "names":
        message.names.append(_text(value))
    elif name == "versions":
        entry = _entry(value)
        message.versions[str(entry.get(1, ""))] = _signed(int(entry.get(2, 0)))
    elif name == "positions":
        entry = _entry(value)
        position = Position(int(entry[2]), int(entry[3])) if 2 in entry and 3 in entry else None
        message.positions.append(NamedPosition(str(entry.get(1, "")), position))
    else:
        setattr(message, name, _text(value))


def decode(data: bytes) -> list[Message]:
    """Returns the messages of one WebSocket message: one, or several with batches. Unknown fields are skipped.

    Raises UnreadableError if the bytes are not valid messages.
    """
    messages: list[Message] = []
    at = 0
    while at < len(data):
        envelope, at = _read_sized(data, at)
        message = Message(0)
        content = b""
        for number, value in _fields(envelope):
            if number == _ENVELOPE_TOPIC and isinstance(value, int):
                message.topic = value
            elif number == _ENVELOPE_FIELDS and isinstance(value, bytes):
                content = value
        names = FIELDS.get(message.topic, {})
        for number, value in _fields(content):
            name = names.get(number)
            if name is not None:
                _take(message, name, value)
        messages.append(message)
    return messages
