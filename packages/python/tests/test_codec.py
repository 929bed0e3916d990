"""Checks the codec against the same vectors as the server's codec and the one of `@tidewire/client`."""

from __future__ import annotations

import base64
import json
import random
import re
import unittest
from dataclasses import fields
from pathlib import Path
from typing import Any

from tidewire._codec import UnreadableError, decode, encode
from tidewire._protocol import Message, NamedPosition, Position

_FOLDER = Path(__file__).parents[3] / "spec/vectors/deepstream"
_NAMES = [field.name for field in fields(Message)]


def _all_vectors() -> list[dict[str, Any]]:
    return [vector for file in ("messages.json", "additions.json") for vector in json.loads((_FOLDER / file).read_text())]


def _vectors() -> list[dict[str, Any]]:
    """All vectors without attachments, which this client does not read."""
    return [vector for vector in _all_vectors() if "attachments" not in vector["fields"]]


def _message(vector: dict[str, Any]) -> Message:
    message = Message(vector["topicNumber"], vector["actionNumber"])
    for camel, value in vector["fields"].items():
        name = re.sub(r"[A-Z]", lambda letter: f"_{letter[0].lower()}", camel)
        if name == "base64":
            message.content = base64.b64decode(value)
            continue
        assert name in _NAMES, name
        if name == "positions":
            value = [NamedPosition(one["name"], Position(one["epoch"], one["offset"]) if "epoch" in one else None) for one in value]
        setattr(message, name, int(value) if name == "incarnation" else value)
    return message


def _plain(message: Message) -> dict[str, Any]:
    return {name: getattr(message, name) for name in _NAMES}


class CodecTest(unittest.TestCase):
    def test_the_number_of_vectors_matches_the_specification(self) -> None:
        self.assertGreaterEqual(len(_vectors()), 130)

    def test_every_vector_decodes_to_its_message_and_back(self) -> None:
        for vector in _vectors():
            with self.subTest(vector["name"]):
                data = bytes.fromhex(vector["hex"])
                self.assertEqual([_plain(message) for message in decode(data)], [_plain(_message(vector))])
                self.assertEqual(encode(_message(vector)).hex(), vector["hex"])

    def test_attachments_of_events_are_skipped(self) -> None:
        vectors = [vector for vector in _all_vectors() if "attachments" in vector["fields"]]
        self.assertEqual(len(vectors), 2)
        for vector in vectors:
            fields = {name: value for name, value in vector["fields"].items() if name != "attachments"}
            expected = _message({**vector, "fields": fields})
            self.assertEqual([_plain(message) for message in decode(bytes.fromhex(vector["hex"]))], [_plain(expected)])

    def test_a_batch_decodes_to_its_messages_in_order(self) -> None:
        batch = bytes.fromhex("".join(vector["hex"] for vector in _vectors()))
        self.assertEqual([_plain(message) for message in decode(batch)], [_plain(_message(vector)) for vector in _vectors()])

    def test_every_incomplete_message_is_refused(self) -> None:
        for vector in _vectors():
            whole = bytes.fromhex(vector["hex"])
            for length in range(1, len(whole)):
                with self.assertRaises(UnreadableError):
                    decode(whole[:length])

    def test_random_bytes_decode_to_messages_or_are_refused(self) -> None:
        chance = random.Random(1)
        wholes = [bytes.fromhex(vector["hex"]) for vector in _vectors()]
        refused = 0
        for _ in range(5_000):
            noise = bytearray(chance.choice(wholes))
            noise[chance.randrange(len(noise))] = chance.randrange(256)
            try:
                decode(bytes(noise))
            except UnreadableError:
                refused += 1
        self.assertGreater(refused, 500)
        self.assertLess(refused, 5_000)


if __name__ == "__main__":
    unittest.main()
