"""Events, rpc and presence."""

from __future__ import annotations

import asyncio
import unittest
from collections.abc import Callable
from typing import Any

from scripted_server import DEADLINE_S, ClientTest, ScriptedServer, reaching
from tidewire import MISSING, Call, Event, Gap, Position, PresenceChange, RpcError, RpcReject, State, TidewireError
from tidewire._protocol import EventAction, Message, NamedPosition, PresenceAction, RpcAction, Topic


def _event(name: str, data: str | None, offset: int | None = None) -> Message:
    return Message(Topic.EVENT, EventAction.EMIT, data, name=name, offset=offset)


class EventTest(ClientTest):
    async def test_a_loop_gets_each_event_in_order_and_ends_with_its_subscription(self) -> None:
        async with ScriptedServer() as server, server.client() as client:
            subscription = client.event.subscribe("news")
            request = await server.expect(Topic.EVENT, EventAction.SUBSCRIBE)
            self.assertEqual(request.names, ["news"])
            await server.acknowledge(request)
            async with subscription:
                await server.send(_event("news", "1"), _event("news", None), _event("news", "null"))
                client.event.emit("news", "own")
                seen = [(await subscription.__anext__()).payload for _ in range(4)]
            self.assertCountEqual([repr(one) for one in seen], ["'own'", "1", "MISSING", "None"])
            self.assertEqual([event async for event in subscription], [])
            await server.expect(Topic.EVENT, EventAction.EMIT)
            await server.expect(Topic.EVENT, EventAction.UNSUBSCRIBE)

    async def test_names_of_one_turn_are_subscribed_in_one_message(self) -> None:
        async with ScriptedServer() as server, server.client() as client:
            for name in ("a", "b", "c"):
                client.event.subscribe(name, lambda event: None)
            request = await server.expect(Topic.EVENT, EventAction.SUBSCRIBE)
            self.assertEqual(request.names, ["a", "b", "c"])
            self.assertEqual(request.positions, [NamedPosition(name, None) for name in ("a", "b", "c")])

    async def test_after_a_loss_the_client_names_its_position_and_reports_gaps(self) -> None:
        async with ScriptedServer() as server, server.client() as client:
            heard: asyncio.Queue[Event] = asyncio.Queue()
            gaps: list[Gap] = []
            client.event.subscribe("kept", heard.put_nowait, on_gap=gaps.append)
            client.event.subscribe("live", lambda event: None, on_gap=gaps.append)
            await server.acknowledge(await server.expect(Topic.EVENT, EventAction.SUBSCRIBE))
            await server.send(Message(Topic.EVENT, EventAction.POSITION, name="kept", epoch=7, offset=0), _event("kept", "1", 1), _event("kept", "2", 2))
            seen = [await asyncio.wait_for(heard.get(), DEADLINE_S) for _ in range(2)]
            await server.cut()
            request = await server.expect(Topic.EVENT, EventAction.SUBSCRIBE)
            self.assertEqual(request.positions, [NamedPosition("kept", Position(7, 2)), NamedPosition("live", None)])
            self.assertEqual(gaps, [Gap("live")], "the server keeps no history of this name")
            await server.send(Message(Topic.EVENT, EventAction.GAP, name="kept", missed=3, epoch=8, offset=6), _event("kept", "6", 6))
            seen.append(await asyncio.wait_for(heard.get(), DEADLINE_S))
            self.assertEqual(gaps[1:], [Gap("kept", 3)])
            self.assertEqual([(event.payload, event.position) for event in seen], [(1, Position(7, 1)), (2, Position(7, 2)), (6, Position(8, 6))])

    async def test_a_subscription_may_start_at_an_earlier_position(self) -> None:
        async with ScriptedServer() as server, server.client() as client:
            client.event.subscribe("kept", lambda event: None, start=Position(7, 2))
            request = await server.expect(Topic.EVENT, EventAction.SUBSCRIBE)
            self.assertEqual(request.positions, [NamedPosition("kept", Position(7, 2))])
            with self.assertRaises(TidewireError):
                client.event.subscribe("kept", lambda event: None, start=Position(7, 1))

    async def test_an_event_of_a_former_subscription_does_not_come_twice(self) -> None:
        async with ScriptedServer() as server, server.client() as client:
            heard: asyncio.Queue[Event] = asyncio.Queue()
            client.event.subscribe("kept", heard.put_nowait, start=Position(7, 1))
            await server.expect(Topic.EVENT, EventAction.SUBSCRIBE)
            # The server publishes the first event before it reads that the client has subscribed again, and again after the position.
            begin = Message(Topic.EVENT, EventAction.POSITION, name="kept", epoch=7, offset=1)
            await server.send(_event("kept", "2", 2), begin, _event("kept", "2", 2), _event("kept", "3", 3))
            seen = [await asyncio.wait_for(heard.get(), DEADLINE_S) for _ in range(2)]
            self.assertEqual([event.payload for event in seen], [2, 3])

    async def test_a_refused_subscription_ends_its_loop_with_the_error(self) -> None:
        async with ScriptedServer() as server, server.client() as client:
            subscription = client.event.subscribe("secret")
            request = await server.expect(Topic.EVENT, EventAction.SUBSCRIBE)
            refusal = Message(Topic.EVENT, 104, name="secret", correlation_id=request.correlation_id, is_error=True)
            refusal.original_action = EventAction.SUBSCRIBE
            await server.send(refusal)
            with self.assertRaises(TidewireError) as caught:
                await asyncio.wait_for(subscription.__anext__(), DEADLINE_S)
            self.assertEqual((caught.exception.code, caught.exception.subject), ("MESSAGE_DENIED", "secret"))
            with self.assertRaises(TidewireError):
                await subscription.ready

    async def test_a_loop_that_is_too_slow_loses_the_oldest_events_and_knows_it(self) -> None:
        async with ScriptedServer() as server, server.client(pending_max=3) as client:
            gaps: list[Gap] = []
            subscription = client.event.subscribe("news", on_gap=gaps.append)
            for number in range(5):
                client.event.emit("news", number)
            self.assertEqual(gaps, [Gap("news", 1), Gap("news", 1)])
            self.assertEqual([(await subscription.__anext__()).payload for _ in range(3)], [2, 3, 4])

    async def test_a_pattern_gets_the_events_that_it_matches(self) -> None:
        async with ScriptedServer() as server, server.client() as client:
            heard: list[str] = []

            def noting(pattern: str) -> Callable[[Event], None]:
                return lambda event: heard.append(f"{pattern} {event.name}")

            for pattern in ("a/*", "a/**", "*/b", "**"):
                client.event.subscribe_pattern(pattern, noting(pattern))
            request = await server.expect(Topic.EVENT, EventAction.SUBSCRIBE_PATTERNS)
            self.assertEqual(request.names, ["a/*", "a/**", "*/b", "**"])
            for name in ("a/b", "a/b/c", "a", "a/"):
                client.event.emit(name)
            expected = ["a/* a/b", "a/** a/b", "*/b a/b", "** a/b", "a/** a/b/c", "** a/b/c", "** a", "a/* a/", "a/** a/", "** a/"]
            self.assertEqual(heard, expected)

    async def test_an_event_without_a_connection_waits_behind_earlier_ones_until_its_deadline(self) -> None:
        async with ScriptedServer() as server, server.client(request_timeout_s=0.0) as client:
            errors: list[TidewireError] = []
            client.on_error(errors.append)

            def emit(state: State, reason: TidewireError | None) -> None:
                if state == "waiting":
                    client.event.emit("news", "late")

            client.on_state(emit)
            back = reaching(client, "open")
            await server.cut()
            await back
            self.assertEqual([(error.code, error.subject) for error in errors], [("TIMEOUT", "news")])

    async def test_a_coroutine_function_is_refused_as_a_callback(self) -> None:
        async def callback(event: Event) -> None: ...

        async with ScriptedServer() as server, server.client() as client:
            with self.assertRaises(TidewireError) as caught:
                client.event.subscribe("news", callback)
            self.assertEqual(caught.exception.code, "INVALID_ARGUMENT")


class RpcTest(ClientTest):
    async def _ask(self, server: ScriptedServer, data: str | None, key: str = "c") -> Message:
        """Calls the client's provider, and returns its answer."""
        await server.send(Message(Topic.RPC, RpcAction.REQUEST, data, correlation_id=key, name="add", requestor_name="ann"))
        await server.expect(Topic.RPC, RpcAction.ACCEPT)
        return await server.next()

    async def test_a_provider_answers_refuses_rejects_or_fails(self) -> None:
        def answer(call: Call) -> Any:
            if call.argument == "refuse":
                raise RpcError({"why": "empty"})
            if call.argument == "reject":
                raise RpcReject
            if call.argument == "fail":
                raise ValueError("a secret")
            return [call.argument, call.requestor]

        async with ScriptedServer() as server, server.client() as client:
            errors: list[TidewireError] = []
            client.on_error(errors.append)
            client.rpc.provide("add", answer)
            await server.acknowledge(await server.expect(Topic.RPC, RpcAction.PROVIDE))
            outcomes = []
            for argument in ('"send"', '"refuse"', '"reject"', '"fail"'):
                reply = await self._ask(server, argument)
                outcomes.append((reply.action, reply.data))
            self.assertEqual(
                outcomes,
                [
                    (RpcAction.RESPONSE, '["send","ann"]'),
                    (RpcAction.REQUEST_ERROR, '{"why":"empty"}'),
                    (RpcAction.REJECT, None),
                    (RpcAction.REQUEST_ERROR, '"PROVIDER_FAILED"'),
                ],
            )
            self.assertEqual([error.code for error in errors], ["PROVIDER_FAILED"])

    async def test_a_coroutine_function_may_provide_and_is_cancelled_with_its_connection(self) -> None:
        cancelled = asyncio.Event()

        async def answer(call: Call) -> Any:
            if call.argument is not MISSING:
                return call.argument
            try:
                await asyncio.Event().wait()
            finally:
                cancelled.set()

        async with ScriptedServer() as server, server.client() as client:
            client.rpc.provide("add", answer)
            await server.expect(Topic.RPC, RpcAction.PROVIDE)
            self.assertEqual((await self._ask(server, "7")).data, "7")
            await server.send(Message(Topic.RPC, RpcAction.REQUEST, None, correlation_id="d", name="add"))
            await server.expect(Topic.RPC, RpcAction.ACCEPT)
            await server.cut()
            await asyncio.wait_for(cancelled.wait(), DEADLINE_S)
            await server.expect(Topic.RPC, RpcAction.PROVIDE)

    async def test_a_call_fails_if_the_provider_cancels_itself(self) -> None:
        async def answer(call: Call) -> None:
            raise asyncio.CancelledError

        async with ScriptedServer() as server, server.client() as client:
            client.rpc.provide("add", answer)
            await server.expect(Topic.RPC, RpcAction.PROVIDE)
            reply = await self._ask(server, None)
            self.assertEqual((reply.action, reply.data), (RpcAction.REQUEST_ERROR, '"PROVIDER_FAILED"'))

    async def test_a_call_fails_with_the_reason_of_its_failure(self) -> None:
        async with ScriptedServer() as server, server.client() as client:
            with self.assertRaises(TidewireError) as caught:
                await client.rpc.call("add", timeout_s=0.01)
            self.assertEqual(caught.exception.code, "TIMEOUT")
            await server.next()
            call = asyncio.ensure_future(client.rpc.call("add"))
            request = await server.next()
            await server.send(Message(Topic.RPC, 100, correlation_id=request.correlation_id, name="add"))
            with self.assertRaises(TidewireError) as caught:
                await call
            self.assertEqual(caught.exception.code, "NO_RPC_PROVIDER")
            call = asyncio.ensure_future(client.rpc.call("add"))
            await server.next()
            await server.cut()
            with self.assertRaises(TidewireError) as caught:
                await call
            self.assertEqual(caught.exception.code, "CONNECTION_LOST")

    async def test_a_name_is_provided_once(self) -> None:
        async with ScriptedServer() as server, server.client() as client:
            provided = client.rpc.provide("add", lambda call: 1)
            with self.assertRaises(TidewireError):
                client.rpc.provide("add", lambda call: 2)
            provided.close()
            client.rpc.provide("add", lambda call: 3)
            self.assertEqual((await self._ask_after_provide(server)).data, "3")

    async def _ask_after_provide(self, server: ScriptedServer) -> Message:
        await server.expect(Topic.RPC, RpcAction.PROVIDE)
        return await self._ask(server, None)


class PresenceTest(ClientTest):
    async def _known(self, server: ScriptedServer, states: str) -> None:
        """Confirms a subscription, and answers the query that follows it."""
        await server.acknowledge(await server.expect(Topic.PRESENCE, PresenceAction.SUBSCRIBE))
        query = await server.expect(Topic.PRESENCE, PresenceAction.QUERY)
        await server.send(Message(Topic.PRESENCE, PresenceAction.QUERY_RESPONSE, states, correlation_id=query.correlation_id))

    async def test_a_subscriber_gets_the_known_state_and_each_change_also_after_a_loss(self) -> None:
        async with ScriptedServer() as server, server.client() as client:
            watching = client.presence.subscribe("bob")
            await self._known(server, '{"bob":true}')
            await asyncio.wait_for(watching.ready, DEADLINE_S)
            self.assertEqual(await watching.__anext__(), PresenceChange("bob", True))
            await server.send(Message(Topic.PRESENCE, PresenceAction.LEAVE, name="bob"))
            self.assertEqual(await watching.__anext__(), PresenceChange("bob", False))
            await server.cut()
            await self._known(server, '{"bob":true}')
            self.assertEqual(await watching.__anext__(), PresenceChange("bob", True))

    async def test_a_slow_loop_sees_only_the_newest_state_of_each_user(self) -> None:
        async with ScriptedServer() as server, server.client() as client:
            watching = client.presence.subscribe_all()
            request = await server.expect(Topic.PRESENCE, PresenceAction.SUBSCRIBE_ALL)
            await server.send(Message(Topic.PRESENCE, request.action, is_ack=True))
            await server.expect(Topic.PRESENCE, PresenceAction.QUERY_ALL)
            await server.send(Message(Topic.PRESENCE, PresenceAction.QUERY_ALL_RESPONSE, names=["ann", "bob"]))
            await asyncio.wait_for(watching.ready, DEADLINE_S)
            await server.send(
                Message(Topic.PRESENCE, PresenceAction.LEAVE_ALL, name="ann"),
                Message(Topic.PRESENCE, PresenceAction.JOIN_ALL, name="carl"),
                Message(Topic.PRESENCE, PresenceAction.LEAVE_ALL, name="carl"),
            )
            # The answer to a later request arrives after these changes.
            query = asyncio.ensure_future(client.presence.query(["dora"]))
            request = await server.expect(Topic.PRESENCE, PresenceAction.QUERY)
            await server.send(Message(Topic.PRESENCE, PresenceAction.QUERY_RESPONSE, '{"dora":false}', correlation_id=request.correlation_id))
            self.assertEqual(await query, {"dora": False})
            expected = [PresenceChange("bob", True), PresenceChange("ann", False), PresenceChange("carl", False)]
            self.assertEqual([await watching.__anext__() for _ in range(3)], expected)

    async def test_an_answer_that_can_not_be_used_is_reported(self) -> None:
        async with ScriptedServer() as server, server.client() as client:
            errors: list[TidewireError] = []
            client.on_error(errors.append)
            watching = client.presence.subscribe("bob")
            await self._known(server, "[]")
            await asyncio.wait_for(watching.ready, DEADLINE_S)
            self.assertEqual([error.code for error in errors], ["INVALID_MESSAGE"])

    async def test_queries_for_all_users_wait_for_each_other(self) -> None:
        async with ScriptedServer() as server, server.client() as client:
            queries = [asyncio.ensure_future(client.presence.all()) for _ in range(2)]
            for names in (["ann"], ["bob"]):
                await server.expect(Topic.PRESENCE, PresenceAction.QUERY_ALL)
                await server.send(Message(Topic.PRESENCE, PresenceAction.QUERY_ALL_RESPONSE, names=names))
            self.assertEqual(await asyncio.gather(*queries), [["ann"], ["bob"]])


if __name__ == "__main__":
    unittest.main()
