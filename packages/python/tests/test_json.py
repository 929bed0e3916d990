from __future__ import annotations

import math
import unittest
from typing import Any

from tidewire import MISSING, TidewireError
from tidewire._json import Path, checked_path, is_equal, payload, reuse, steps, value_at, value_of, with_value


class PayloadTest(unittest.TestCase):
    def test_a_value_is_the_same_after_it_was_sent(self) -> None:
        values: list[Any] = [None, True, 0, -1.5, "ünï 🎉", "\ud800", [], {"a": [1, {"b": None}]}, 10**600, MISSING]
        for value in values:
            self.assertEqual(value_of(payload(value)), value)
        self.assertEqual((str(MISSING), repr(MISSING)), ("MISSING", "MISSING"))

    def test_a_value_that_json_can_not_express_is_refused(self) -> None:
        cycle: list[Any] = []
        cycle.append(cycle)
        for value in (object(), math.nan, math.inf, {1, 2}, {(1, 2): 3}, b"bytes", [MISSING], cycle):
            with self.subTest(type(value)), self.assertRaises(TidewireError) as caught:
                payload(value)
            self.assertEqual(caught.exception.code, "INVALID_ARGUMENT")

    def test_a_number_that_is_too_long_for_python_is_read_as_in_javascript(self) -> None:
        self.assertEqual(value_of(f'{{"long":{"9" * 5_000},"short":7}}'), {"long": math.inf, "short": 7})
        self.assertIsInstance(value_of("7"), int)

    def test_text_that_is_not_json_is_refused(self) -> None:
        for text in ("", "{", "[1,]", "undefined"):
            with self.assertRaises(TidewireError) as caught:
                value_of(text)
            self.assertEqual(caught.exception.code, "INVALID_MESSAGE")


class PathTest(unittest.TestCase):
    def test_a_text_has_the_steps_that_the_server_reads(self) -> None:
        cases: list[tuple[str, list[str | int]]] = [
            ("a", ["a"]),
            ("a.b[0][2].c", ["a", "b", 0, 2, "c"]),
            (" spaced . key ", ["spaced", "key"]),
            ("a..b", ["a", "b"]),
            ("list.1", ["list", "1"]),
            ("ünï.日本.🎉", ["ünï", "日本", "🎉"]),
        ]
        for text, expected in cases:
            with self.subTest(text):
                self.assertEqual(steps(text), expected)

    def test_steps_become_a_text_if_a_text_can_spell_them(self) -> None:
        cases: list[tuple[Path, Path]] = [
            (["a", "b", 0, "c"], "a.b[0].c"),
            (["items", "ann.lee@x.org"], ["items", "ann.lee@x.org"]),
            ([0, "a"], [0, "a"]),
            (["a", ""], ["a", ""]),
            (["a", " b"], ["a", " b"]),
            ("a[2].b", "a[2].b"),
        ]
        for path, expected in cases:
            with self.subTest(path):
                self.assertEqual(checked_path(path), expected)

    def test_a_path_that_the_server_would_refuse_or_read_differently_is_refused(self) -> None:
        texts = ["", "a..b", ".a", "[0]", "a[x]", "a[0]b", "__proto__", "a.constructor", "a.\ud800"]
        wrong: list[Any] = [*texts, [], ["a", -1], ["a", 2**32 - 1], ["a", True], ["\ud800"], None, 7]
        for path in wrong:
            with self.subTest(path), self.assertRaises(TidewireError) as caught:
                checked_path(path)
            self.assertEqual(caught.exception.code, "INVALID_ARGUMENT")

    def test_a_value_is_set_and_removed_as_on_the_server(self) -> None:
        cases: list[tuple[Any, Path, Any, Any]] = [
            ({}, "a.b", 1, {"a": {"b": 1}}),
            ({"a": None}, "a.b", 1, {"a": {"b": 1}}),
            ({"a": "scalar"}, "a[1]", 1, {"a": [None, 1]}),
            ({"a": [1, 2, 3]}, "a[5]", 6, {"a": [1, 2, 3, None, None, 6]}),
            ({"a": [1, 2, 3]}, "a[1]", MISSING, {"a": [1, None, 3]}),
            ({"a": [1, 2]}, "a.1", "two", {"a": [1, "two"]}),
            ({"a": [1]}, "a.key", 1, {"a": [1]}),
            ({"a": [1, 2, 3]}, "a.length", 1, {"a": [1]}),
            ({"a": 1, "b": 2}, "a", MISSING, {"b": 2}),
            ([], [2], "x", [None, None, "x"]),
        ]
        for before, path, leaf, expected in cases:
            with self.subTest((before, path)):
                copy = repr(before)
                self.assertEqual(with_value(before, path, leaf), expected)
                self.assertEqual(repr(before), copy, "the value itself stays")

    def test_a_value_is_found_at_its_path(self) -> None:
        value = {"a": [{"b": None}], "c.d": 1}
        self.assertEqual(value_at(value, "a[0]"), {"b": None})
        self.assertIsNone(value_at(value, "a[0].b"))
        self.assertEqual(value_at(value, ["c.d"]), 1)
        for path in ("a[1]", "a.x", "c.d", "a[0].b.c"):
            self.assertIs(value_at(value, path), MISSING)

    def test_equality_is_that_of_json(self) -> None:
        self.assertTrue(is_equal({"a": 1, "b": [1.0]}, {"b": [1], "a": 1}))
        for one, other in ((True, 1), (0, False), ([], {}), ("1", 1), ({"a": 1}, {"a": 1, "b": None}), ([1], [1, 2])):
            self.assertFalse(is_equal(one, other), (one, other))

    def test_an_unchanged_part_stays_the_same_object(self) -> None:
        old: dict[str, Any] = {"a": {"x": 1}, "b": [1, {"y": 2}]}
        new = reuse(old, {"a": {"x": 1}, "b": [2, {"y": 2}]})
        self.assertIs(new["a"], old["a"])
        self.assertIs(new["b"][1], old["b"][1])
        self.assertEqual(new, {"a": {"x": 1}, "b": [2, {"y": 2}]})
        self.assertIs(reuse(old, {"a": {"x": 1}, "b": [1, {"y": 2}]}), old)
        # The order of keys counts.
        self.assertEqual(list(reuse(old, {"b": [1, {"y": 2}], "a": {"x": 1}})), ["b", "a"])
        self.assertIs(reuse([1], [True])[0], True)


if __name__ == "__main__":
    unittest.main()
