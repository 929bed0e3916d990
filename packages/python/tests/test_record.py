from __future__ import annotations

import asyncio
import json
import unittest
from collections.abc import Callable
from typing import Any, TypedDict

from scripted_server import DEADLINE_S, ClientTest, ScriptedServer, reaching
from tidewire import MISSING, Client, Conflict, Edit, Record, TidewireError
from tidewire._protocol import Message, RecordAction, Topic


class Todo(TypedDict, total=False):
    title: str
    count: int
    tags: list[str]


class RecordTest(ClientTest):
    async def asyncSetUp(self) -> None:
        await super().asyncSetUp()
        self.server: ScriptedServer = await self.enter(ScriptedServer())
        self.client: Client = await self.enter(self.server.client())
        self.errors: asyncio.Queue[TidewireError] = asyncio.Queue()
        self.client.on_error(self.errors.put_nowait)

    async def enter(self, manager: Any) -> Any:
        # Python 3.10 has no `enterAsyncContext`.
        value = await manager.__aenter__()
        self.addAsyncCleanup(manager.__aexit__, None, None, None)
        return value

    async def opened(self, value: str = "{}", version: int = 0, **options: Any) -> Record[Todo]:
        """An open record; the server has sent its value."""
        record = self.client.record("todo", Todo, **options)
        await self.answer_subscription(value, version)
        await asyncio.wait_for(record.ready, DEADLINE_S)
        return record

    async def answer_subscription(self, value: str, version: int) -> None:
        request = await self.server.next()
        await self.server.acknowledge(request)
        await self.send_value(value, version)

    async def send_value(self, value: str, version: int) -> None:
        await self.server.send(Message(Topic.RECORD, RecordAction.READ_RESPONSE, value, name="todo", version=version, incarnation=2**60))

    async def write(self, action: RecordAction, data: str | None, version: int, path: str | None = None) -> Message:
        """The next message, which must be this write."""
        message = await self.server.expect(Topic.RECORD, action)
        self.assertEqual((message.data, message.version, message.path), (data, version, path))
        return message

    async def acknowledge_write(self, message: Message) -> None:
        answer = Message(Topic.RECORD, RecordAction.WRITE_ACKNOWLEDGEMENT, name="todo", correlation_id=message.correlation_id, is_write_ack=True)
        await self.server.send(answer)

    async def refuse_write(self, message: Message, action: int, data: str | None = None, version: int | None = None) -> None:
        answer = Message(Topic.RECORD, action, data, name="todo", version=version, correlation_id=message.correlation_id)
        answer.is_write_ack, answer.original_action = True, message.action
        await self.server.send(answer)

    async def test_an_edit_shows_at_once_and_is_awaited_until_it_is_durable(self) -> None:
        record = await self.opened('{"title":"milk"}', 3)
        edit = record.set("count", 1)
        self.assertEqual((record.value, record.is_saved), ({"title": "milk", "count": 1}, False))
        message = await self.write(RecordAction.PATCH, "1", 4, "count")
        self.assertEqual(message.key, message.correlation_id)
        await self.acknowledge_write(message)
        await edit
        self.assertEqual((record.version, record.is_saved, record.get("count"), record.get("none", 5)), (4, True, 1, 5))

    async def test_edits_before_an_answer_are_sent_together(self) -> None:
        record = await self.opened()
        first = record.set("title", "a")
        rest = [record.erase("title"), record.patch({"count": 2, "tags[1]": "x"})]
        await self.acknowledge_write(await self.write(RecordAction.PATCH, '"a"', 1, "title"))
        await first
        data = '[{"path":"title"},{"path":"count","data":2},{"path":"tags[1]","data":"x"}]'
        await self.acknowledge_write(await self.write(RecordAction.PATCH_MULTI, data, 2))
        await asyncio.gather(*rest)
        self.assertEqual(record.value, {"count": 2, "tags": [None, "x"]})

    async def test_a_merge_changes_only_what_it_names(self) -> None:
        record = await self.opened('{"title":"milk","tags":["a"]}', 1)
        record.merge({"title": MISSING, "nested": {"x": 1, "empty": {}}, "a.b": 2})
        data = json.dumps([
            {"path": "title"},
            {"path": "nested.x", "data": 1},
            {"path": "nested.empty", "data": {}},
            {"path": ["a.b"], "data": 2},
        ], separators=(",", ":"))  # fmt: skip
        await self.write(RecordAction.PATCH_MULTI, data, 2)
        self.assertEqual(record.value, {"tags": ["a"], "nested": {"x": 1, "empty": {}}, "a.b": 2})

    async def test_changes_of_other_clients_arrive_at_callbacks_and_loops(self) -> None:
        record = await self.opened('{"title":"milk"}', 1)
        titles: list[Any] = []
        record.subscribe(titles.append, "title")
        changes = record.changes()
        self.assertEqual(await changes.__anext__(), {"title": "milk"})
        await self.server.send(
            Message(Topic.RECORD, RecordAction.PATCH, "1", name="todo", version=2, path="count"),
            Message(Topic.RECORD, RecordAction.PATCH, None, name="todo", version=3, path="title"),
            Message(Topic.RECORD, RecordAction.UPDATE, '{"title":"bread"}', name="todo", version=4),
        )
        # A loop skips values that were already replaced.
        self.assertEqual(await asyncio.wait_for(changes.__anext__(), DEADLINE_S), {"title": "bread"})
        self.assertEqual(titles, ["milk", MISSING, "bread"])
        record.close()
        self.assertEqual([value async for value in changes], [])

    async def test_a_missing_version_makes_the_client_read_again(self) -> None:
        record = await self.opened("{}", 1)
        await self.server.send(Message(Topic.RECORD, RecordAction.PATCH, "1", name="todo", version=3, path="count"))
        await self.server.expect(Topic.RECORD, RecordAction.READ)
        await self.send_value('{"count":1}', 3)
        async for count in record.changes("count"):
            if count == 1:
                break
        self.assertEqual((record.value, record.version), ({"count": 1}, 3))

    async def test_a_refused_edit_is_rolled_back_and_the_others_are_made(self) -> None:
        record = await self.opened()
        first = record.set("count", 0)
        await self.acknowledge_write(await self.write(RecordAction.PATCH, "0", 1, "count"))
        await first
        wrong, right = record.set("title", "forbidden"), record.set("count", 1)
        denied = 115
        await self.refuse_write(await self.write(RecordAction.PATCH, '"forbidden"', 2, "title"), denied)
        self.assertEqual(await self.code_of(wrong), "MESSAGE_DENIED")
        await self.acknowledge_write(await self.write(RecordAction.PATCH, "1", 2, "count"))
        await right
        self.assertEqual((record.value, self.errors.qsize()), ({"count": 1}, 0))

    async def test_of_several_edits_in_a_refused_write_each_is_sent_alone(self) -> None:
        record = self.client.record("todo", Todo)
        edits = [record.set("title", "forbidden"), record.set("count", 1)]
        await self.answer_subscription("{}", 0)
        together = await self.server.expect(Topic.RECORD, RecordAction.PATCH_MULTI)
        await self.refuse_write(together, 115)
        await self.refuse_write(await self.write(RecordAction.PATCH, '"forbidden"', 1, "title"), 115)
        await self.acknowledge_write(await self.write(RecordAction.PATCH, "1", 1, "count"))
        self.assertEqual(await self.code_of(edits[0]), "MESSAGE_DENIED")
        await edits[1]
        self.assertEqual(record.value, {"count": 1})

    async def test_a_task_that_is_cancelled_while_it_awaits_an_edit_does_not_cancel_the_edit(self) -> None:
        record = await self.opened()
        edit = record.set("title", "kept")
        with self.assertRaises(asyncio.TimeoutError):
            await asyncio.wait_for(edit, 0.01)
        self.assertFalse(record.is_saved)
        await self.acknowledge_write(await self.server.next())
        await edit
        self.assertEqual((record.value, record.is_saved), ({"title": "kept"}, True))

    async def test_a_loop_over_changes_raises_the_error_with_which_the_record_ends(self) -> None:
        record = await self.opened()
        changes = record.changes()
        self.assertEqual(await changes.__anext__(), {})
        await self.server.send(Message(Topic.RECORD, RecordAction.DELETED, name="todo"))
        self.assertIs(await changes.__anext__(), MISSING)
        self.assertEqual(await self.code_of(changes.__anext__()), "RECORD_DELETED")
        self.assertEqual(await self.code_of(record.changes().__anext__()), "RECORD_DELETED")

    async def test_an_edit_that_no_task_awaits_reports_its_refusal(self) -> None:
        record = await self.opened()
        record.set("title", "forbidden")
        await self.refuse_write(await self.server.next(), 115)
        error = await asyncio.wait_for(self.errors.get(), DEADLINE_S)
        self.assertEqual((error.code, error.subject), ("MESSAGE_DENIED", "todo"))
        self.assertEqual(record.value, {})

    async def test_edits_are_made_again_on_the_value_of_another_client(self) -> None:
        record = await self.opened('{"count":1}', 1)
        increment = record.update(lambda todo: {**todo, "count": todo["count"] + 1})
        first = await self.write(RecordAction.UPDATE, '{"count":2}', 2)
        await self.refuse_write(first, RecordAction.VERSION_EXISTS, '{"count":10,"title":"theirs"}', 2)
        again = await self.write(RecordAction.UPDATE, '{"count":11,"title":"theirs"}', 3)
        self.assertNotEqual(again.key, first.key)
        await self.acknowledge_write(again)
        await increment
        self.assertEqual(record.value, {"count": 11, "title": "theirs"})

    async def test_a_merge_strategy_discards_edits_or_calls_a_function(self) -> None:
        record = await self.opened('{"title":"a"}', 1, merge="remote")
        edit = record.set("title", "mine")
        await self.refuse_write(await self.server.next(), RecordAction.VERSION_EXISTS, '{"title":"theirs"}', 2)
        self.assertEqual(await self.code_of(edit), "CONFLICT")
        self.assertEqual(record.value, {"title": "theirs"})
        conflicts: list[Conflict] = []

        def merge(conflict: Conflict) -> Any:
            conflicts.append(conflict)
            return {"title": f"{conflict.remote['title']} and {conflict.local['title']}"}

        self.client.record("todo", merge=merge)
        edit = record.set("title", "mine")
        await self.refuse_write(await self.server.next(), RecordAction.VERSION_EXISTS, '{"title":"new"}', 3)
        await self.acknowledge_write(await self.write(RecordAction.UPDATE, '{"title":"new and mine"}', 4))
        await edit
        self.assertEqual(conflicts, [Conflict("todo", {"title": "new"}, {"title": "mine"}, {"title": "theirs"})])

    async def test_a_write_without_an_answer_is_repeated_with_its_key_and_what_it_had_seen(self) -> None:
        record = await self.opened('{"count":1}', 5)
        edit = record.set("count", 2)
        first = await self.write(RecordAction.PATCH, "2", 6, "count")
        self.assertEqual((first.incarnation, first.seen_version), (None, None), "a first attempt names no state")
        await self.server.cut()
        await self.answer_subscription('{"count":2}', 6)
        again = await self.write(RecordAction.PATCH, "2", 6, "count")
        self.assertEqual((again.key, again.incarnation, again.seen_version), (first.key, 2**60, 5))
        await self.acknowledge_write(again)
        await edit
        self.assertEqual((record.value, record.version), ({"count": 2}, 6))

    async def test_an_update_that_the_server_may_have_made_fails_with_write_unknown(self) -> None:
        record = await self.opened('{"count":1}', 5)
        update = record.update(lambda todo: {"count": todo["count"] + 1})
        patch = record.set("title", "kept")
        await self.write(RecordAction.UPDATE, '{"count":2}', 6)
        await self.server.cut()
        await self.answer_subscription('{"count":9}', 20)
        await self.refuse_write(await self.server.expect(Topic.RECORD, RecordAction.UPDATE), RecordAction.WRITE_UNKNOWN)
        await self.server.expect(Topic.RECORD, RecordAction.READ)
        await self.send_value('{"count":9}', 20)
        self.assertEqual(await self.code_of(update), "WRITE_UNKNOWN")
        await self.acknowledge_write(await self.write(RecordAction.PATCH, '"kept"', 21, "title"))
        await patch
        self.assertEqual(record.value, {"count": 9, "title": "kept"})

    async def test_a_record_that_must_not_be_created_is_missing_until_another_client_writes_it(self) -> None:
        record = self.client.record("todo", Todo, create=False)
        request = await self.server.expect(Topic.RECORD, RecordAction.SUBSCRIBE_AND_READ)
        await self.server.acknowledge(request)
        await self.server.send(Message(Topic.RECORD, RecordAction.READ_RESPONSE, "{}", name="todo", version=-1))
        self.assertEqual(await self.code_of(record.ready), "RECORD_NOT_FOUND")
        self.assertEqual((record.value, record.version), (None, -1))
        with self.assertRaises(TidewireError):
            record.set("title", "x")
        await self.server.send(Message(Topic.RECORD, RecordAction.UPDATE, '{"title":"new"}', name="todo", version=1))
        self.assertEqual(await record.changes("title").__anext__(), "new")
        self.assertIsNone(record.not_found)

    async def test_a_deleted_record_ends(self) -> None:
        ends: list[str] = []
        record = await self.opened('{"title":"a"}', 1, on_end=lambda error: ends.append(error.code))
        deletion = asyncio.ensure_future(self.client.record.delete("todo"))
        await self.server.expect(Topic.RECORD, RecordAction.DELETE)
        await self.server.send(Message(Topic.RECORD, RecordAction.DELETE_SUCCESS, name="todo"))
        await deletion
        self.assertEqual((ends, record.value), (["RECORD_DELETED"], None))
        with self.assertRaises(TidewireError) as caught:
            record.set("title", "late")
        self.assertEqual(caught.exception.code, "RECORD_DELETED")

    async def test_a_closed_record_leaves_after_its_last_edit(self) -> None:
        record = await self.opened()
        record.set("title", "last words")
        record.close()
        await self.acknowledge_write(await self.write(RecordAction.PATCH, '"last words"', 1, "title"))
        await self.server.expect(Topic.RECORD, RecordAction.UNSUBSCRIBE)

    async def test_edits_without_a_connection_are_sent_when_it_is_back(self) -> None:
        record = await self.opened()
        lost = reaching(self.client, "waiting")
        await self.server.cut()
        await lost
        edit = record.set("title", "meanwhile")
        self.assertEqual(record.value, {"title": "meanwhile"})
        await self.answer_subscription("{}", 0)
        await self.acknowledge_write(await self.write(RecordAction.PATCH, '"meanwhile"', 1, "title"))
        await edit

    async def test_records_are_read_and_written_without_being_opened(self) -> None:
        reading = asyncio.ensure_future(self.client.record.read("todo"))
        request = await self.server.expect(Topic.RECORD, RecordAction.FETCH)
        await self.server.send(Message(Topic.RECORD, RecordAction.FETCHED, name="todo", correlation_id=request.correlation_id))
        self.assertIs(await reading, MISSING)
        writing = asyncio.ensure_future(self.client.record.write("todo", {"title": "a"}))
        write = await self.write(RecordAction.CREATE_AND_UPDATE, '{"title":"a"}', -1)
        self.assertTrue(write.key and write.is_write_ack)
        await self.acknowledge_write(write)
        await writing

    async def test_a_wrong_edit_raises_and_changes_nothing(self) -> None:
        record = await self.opened('{"title":"a"}', 1)
        wrong: list[Callable[[], Edit]] = [
            lambda: record.set("a[x]", 1),
            lambda: record.set("a", object()),
            lambda: record.set("a", float("nan")),
            lambda: record.replace("scalar"),  # type: ignore[arg-type]
            lambda: record.update(lambda todo: None),  # type: ignore[arg-type, return-value]
            lambda: record.patch({}),
        ]
        for edit in wrong:
            with self.assertRaises(TidewireError) as caught:
                edit()
            self.assertEqual(caught.exception.code, "INVALID_ARGUMENT")
        with self.assertRaises(ZeroDivisionError):
            record.update(lambda todo: {"count": 1 // 0})
        self.assertEqual((record.value, record.is_saved), ({"title": "a"}, True))


if __name__ == "__main__":
    unittest.main()
