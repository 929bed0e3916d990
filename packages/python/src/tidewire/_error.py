"""The errors that an app receives. The code of an error identifies its cause."""

from __future__ import annotations

from typing import Any


class TidewireError(Exception):
    """An error of the client or of the server. Act on `code`, never on the text.

    Attributes:
        code: The cause, such as `MESSAGE_DENIED`. `@tidewire/client` has the same codes.
        subject: The name of the event, rpc or record, or the user id; None if the error concerns none.
        data: The reason that the other side gave; None if it gave none.
    """

    def __init__(self, code: str, message: str, *, subject: str | None = None, data: Any = None) -> None:
        super().__init__(message)
        self.code = code
        self.subject = subject
        self.data = data

    def __str__(self) -> str:
        return f"{self.code}: {self.args[0]}"


class RpcError(Exception):
    """A provider raises this to fail a call with a reason, which the caller receives as the `data` of its error."""

    def __init__(self, data: Any = None) -> None:
        super().__init__(data if isinstance(data, str) else "the provider refused the call")
        self.data = data


class RpcReject(Exception):
    """A provider raises this to pass a call to another provider."""


def refused(code: str, subject: str | None = None) -> TidewireError:
    """The error of a request that the server refused with `code`."""
    return TidewireError(code, f"the server refused a request{_about(subject)}", subject=subject)


def too_large(size: int, size_max: int | None, subject: str | None = None) -> TidewireError:
    """The error of a message that exceeds the server's limit."""
    limit = "the server accepts" if size_max is None else f"the {size_max} that the server accepts"
    text = f"the message{_about(subject)} has {size} bytes, more than {limit}: send less at a time, or raise limits.message_bytes_max"
    return TidewireError("TOO_LARGE", text, subject=subject)


def too_many(pending_max: int) -> TidewireError:
    """The error of one more request or event than may wait at a time."""
    return TidewireError("TOO_MANY_PENDING", f"more than {pending_max} requests or events wait: wait for answers, or raise pending_max")


def invalid(message: str, subject: str | None = None) -> TidewireError:
    """The error of an argument that a function can't use."""
    return TidewireError("INVALID_ARGUMENT", message, subject=subject)


def invalid_message(text: str, cause: Exception | None = None) -> TidewireError:
    """The error of bytes from the server that the client can't use."""
    error = TidewireError("INVALID_MESSAGE", text)
    error.__cause__ = cause
    return error


def check_name(text: object, what: str = "name") -> None:
    """Raises INVALID_ARGUMENT unless `text` is a non-empty text that UTF-8 can encode."""
    if not isinstance(text, str) or text == "":
        raise invalid(f"the {what} must be a text that is not empty")
    if not is_encodable(text):
        raise invalid(f"the {what} has a lone surrogate, which UTF-8 can't encode")


def is_encodable(text: str) -> bool:
    """Whether UTF-8 can encode `text`: it can't if the text has a lone surrogate."""
    try:
        text.encode()
    except UnicodeEncodeError:
        return False
    return True


def _about(subject: str | None) -> str:
    return "" if subject is None else f' about "{subject}"'
