"""JSON values: as texts on the wire, and the parts of them that a path names.

A path is a text as in `spec/deepstream.md`, such as `address.streets[2].name`, or a sequence of its steps. The functions here never change
a value. They copy it where it differs, so that an unchanged part stays the same object.
"""

from __future__ import annotations

import json
import re
import sys
from collections.abc import Sequence
from enum import Enum
from typing import Any, Final, Literal, Union

from ._error import invalid, invalid_message, is_encodable

Step = Union[str, int]
"""One step of a path: a key of an object, or an index of an array."""
Path = Union[str, Sequence[Step]]
"""A path as a text, such as `address.streets[2].name`, or as its steps, such as `["items", "a.b", 2]`. Keys of steps may be any text."""

# The white space of JavaScript, with which the server reads paths. Python's own differs.
_SPACE = "\t\n\v\f\r \u00a0\u1680\u2000-\u200a\u2028\u2029\u202f\u205f\u3000\ufeff"
_SPACES = "\t\n\v\f\r \u00a0\u1680" + "".join(map(chr, range(0x2000, 0x200B))) + "\u2028\u2029\u202f\u205f\u3000\ufeff"
_PART = re.compile(rf"[{_SPACE}]*[^{_SPACE}\[\]][^\[\]]*(\[[0-9]+\])*[{_SPACE}]*")
_KEY = re.compile(rf"[^{_SPACE}.\[\]]([^.\[\]]*[^{_SPACE}.\[\]])?")
_INDEX = re.compile(r"0|[1-9][0-9]*")
_REFUSED_KEYS = ("__proto__", "constructor", "prototype")
_INDEX_MAX = 2**32 - 2


class Missing(Enum):
    """The type of `MISSING`."""

    MISSING = "MISSING"

    def __bool__(self) -> Literal[False]:
        return False

    def __repr__(self) -> str:
        return "MISSING"

    __str__ = __repr__


MISSING: Final = Missing.MISSING
"""No value, as JavaScript's `undefined`. It differs from None, which is JSON's `null`."""


def payload(value: Any) -> str | None:
    """Returns `value` as JSON text; None for MISSING. Raises INVALID_ARGUMENT if JSON can't express it."""
    if value is MISSING:
        return None
    try:
        text = json.dumps(value, ensure_ascii=False, separators=(",", ":"), allow_nan=False)
    except (TypeError, ValueError, RecursionError) as cause:
        raise invalid(f"the value can't be written as JSON: {cause}") from cause
    # Only an escape can express a lone surrogate.
    return text if is_encodable(text) else json.dumps(value, separators=(",", ":"), allow_nan=False)


def value_of(data: str | None) -> Any:
    """Decodes the payload of a message; MISSING if there is none. Raises INVALID_MESSAGE if it is not JSON."""
    if data is None:
        return MISSING
    try:
        return json.loads(data)
    except json.JSONDecodeError as cause:
        raise invalid_message("the server sent a payload that is not JSON", cause) from cause
    except ValueError:
        # By default Python refuses integers of more than 4,300 digits, which JSON allows.
        return json.loads(data, parse_int=_long_number)


def _long_number(text: str) -> int | float:
    """An integer, or its approximation as in JavaScript if it has more digits than Python always converts."""
    return int(text) if len(text) <= sys.int_info.str_digits_check_threshold else float(text)


def none_if_missing(value: Any) -> Any:
    """Returns None instead of MISSING, where the difference has no meaning."""
    return None if value is MISSING else value


def copied(value: Any) -> Any:
    """A deep copy in the types that JSON has. Raises while the app's call is on the stack if JSON can't express `value`."""
    return value_of(payload(value))


def steps(path: Path) -> list[Step]:
    """Returns the steps of `path`. Raises INVALID_ARGUMENT for a path that the server would refuse."""
    found: list[Step]
    if isinstance(path, str):
        found = [step for part in path.split(".") for step in _steps_of_part(path, part)]
    else:
        found = list(path) if isinstance(path, Sequence) else []
    if not found or not all(_is_step(step) for step in found):
        raise _invalid_path(path)
    return found


def _steps_of_part(path: str, part: str) -> list[Step]:
    text = part.strip(_SPACES)
    if text == "":
        return []
    key, *indices = re.split(r"[\[\]]", text)
    try:
        return [key, *(int(index) for index in indices if index != "")]
    except ValueError:
        raise _invalid_path(path) from None


def _is_step(step: object) -> bool:
    if isinstance(step, str):
        return step not in _REFUSED_KEYS and is_encodable(step)
    return isinstance(step, int) and not isinstance(step, bool) and 0 <= step <= _INDEX_MAX


def checked_path(path: Path) -> str | list[Step]:
    """Returns the path that an app gives, as a text if a text can spell it.

    Raises INVALID_ARGUMENT for a path that the server would refuse, and for a text that the server reads differently than it looks: one
    with an empty part, or with an index that has no key before it.
    """
    found = steps(path)
    if isinstance(path, str):
        if not all(_PART.fullmatch(part) for part in path.split(".")):
            raise _invalid_path(path)
        return path
    if isinstance(found[0], int) or not all(isinstance(step, int) or _KEY.fullmatch(step) for step in found):
        return found
    text = "".join(f"[{step}]" if isinstance(step, int) else f".{step}" for step in found)
    return text[1:]


def _invalid_path(path: object) -> Exception:
    return invalid(f'{path!r} is not a path: write it like "address.streets[2].name", or as a list of keys and indices')


def is_container(value: object) -> bool:
    return isinstance(value, (dict, list))


def value_at(value: Any, path: Path) -> Any:
    """Returns the value at `path`; MISSING if there is none."""
    for step in steps(path):
        value = _inside(value, step)
    return value


def _inside(value: Any, step: Step) -> Any:
    if isinstance(value, dict):
        return value.get(str(step), MISSING)
    if isinstance(value, list):
        if step == "length":
            return len(value)
        index = _index(step)
        return MISSING if index is None or index >= len(value) else value[index]
    return MISSING


def _index(step: Step) -> int | None:
    if isinstance(step, int):
        return step
    return int(step) if _INDEX.fullmatch(step) else None


def with_value(value: Any, path: Path, leaf: Any, own: dict[int, Any] | None = None) -> Any:
    """Returns `value` with `leaf` at `path`; if `leaf` is MISSING, without the value there.

    The containers in `own`, by their identity, are copies from an earlier call, and are changed in place.
    """
    return _changed(value, steps(path), 0, leaf, {} if own is None else own)


def _changed(value: Any, path: list[Step], depth: int, leaf: Any, own: dict[int, Any]) -> Any:
    if depth == len(path):
        return leaf
    step = path[depth]
    is_new = not is_container(value)
    if is_new:
        copy: Any = [] if isinstance(step, int) else {}
    else:
        copy = value if id(value) in own else value.copy()
    own[id(copy)] = copy
    changed = _changed(_inside(copy, step), path, depth + 1, leaf, own)
    if isinstance(copy, list):
        _set_entry(copy, step, changed, is_new)
    elif changed is MISSING:
        copy.pop(str(step), None)
    else:
        copy[str(step)] = changed
    return copy


def _set_entry(entries: list[Any], step: Step, value: Any, is_new: bool) -> None:
    """Sets or removes an entry as the server does: gaps become None, and a removed entry leaves None."""
    if step == "length" and isinstance(value, int):
        del entries[value:]
        entries.extend([None] * (value - len(entries)))
        return
    index = _index(step)
    # An array can't store other keys.
    if index is None:
        return
    if value is not MISSING or index < len(entries) or is_new:
        entries.extend([None] * (index - len(entries)))
    if index < len(entries):
        entries[index] = None if value is MISSING else value
    elif value is not MISSING:
        entries.append(value)


def is_equal(one: Any, other: Any) -> bool:
    """Whether both values are equal JSON; the order of their keys does not matter."""
    if one is other:
        return True
    if isinstance(one, dict):
        return isinstance(other, dict) and one.keys() == other.keys() and all(is_equal(value, other[key]) for key, value in one.items())
    if isinstance(one, list):
        return isinstance(other, list) and len(one) == len(other) and all(map(is_equal, one, other))
    # In Python, True equals 1.
    return isinstance(one, bool) == isinstance(other, bool) and not is_container(other) and bool(one == other)


def reuse(old: Any, new: Any) -> Any:
    """Returns `new`, but with the objects of `old` where both are equal, so that an unchanged part stays the same object."""
    if isinstance(old, dict) and isinstance(new, dict):
        result = {key: reuse(old.get(key, MISSING), value) for key, value in new.items()}
        # The order of keys counts: all copies of a value have the same bytes.
        is_same = list(old) == list(result) and all(is_same_value(old[key], value) for key, value in result.items())
        return old if is_same else result
    if isinstance(old, list) and isinstance(new, list):
        entries = [reuse(old[at] if at < len(old) else MISSING, value) for at, value in enumerate(new)]
        return old if len(old) == len(entries) and all(map(is_same_value, old, entries)) else entries
    return new


def is_same_value(one: Any, other: Any) -> bool:
    """Whether both are the same object, or equal values that are not containers."""
    return one is other or (not is_container(one) and is_equal(one, other))
