from __future__ import annotations

import asyncio
import unittest
from typing import Any

from scripted_server import DEADLINE_S, ClientTest, ScriptedServer, reach, reaching
from tidewire import AuthContext, State, TidewireError, connect
from tidewire._codec import encode
from tidewire._protocol import AuthAction, ConnectionAction, EventAction, Message, RecordAction, RpcAction, Topic
from tidewire._socket import socket_url


class AddressTest(unittest.TestCase):
    def test_an_address_leads_to_the_native_protocol(self) -> None:
        cases = [
            ("localhost:6020", "ws://localhost:6020/deepstream"),
            ("http://example.org", "ws://example.org/deepstream"),
            ("https://example.org/", "wss://example.org/deepstream"),
            ("wss://example.org/own?x=1", "wss://example.org/own?x=1"),
            ("example.org/own?x=http://y", "ws://example.org/own?x=http://y"),
        ]
        for address, expected in cases:
            self.assertEqual(socket_url(address), expected)
        for address in ("", "ftp://example.org", "http://", "://example.org", "localhost:port"):
            with self.assertRaises(TidewireError) as caught:
                socket_url(address)
            self.assertEqual(caught.exception.code, "INVALID_URL")


class ConnectionTest(ClientTest):
    async def test_a_login_sends_the_credentials_and_keeps_what_the_server_answers(self) -> None:
        async with ScriptedServer() as server, server.client(auth={"username": "ann"}) as client:
            self.assertEqual((client.state, client.login_data), ("open", {"team": "blue"}))
            self.assertEqual(server.credentials, [{"username": "ann"}])

    async def test_a_refused_login_raises_and_the_client_stays_closed(self) -> None:
        async with ScriptedServer(refuses=lambda credentials: {"why": "unknown user"}) as server:
            with self.assertRaises(TidewireError) as caught:
                await server.client(auth={"username": "eve"})
            self.assertEqual((caught.exception.code, caught.exception.data), ("AUTH_REFUSED", {"why": "unknown user"}))

    async def test_the_error_of_a_refused_login_has_the_explanation_of_a_server_in_development_mode(self) -> None:
        async with ScriptedServer(refuses=lambda credentials: {"explanation": "the file has no user eve"}) as server:
            with self.assertRaisesRegex(TidewireError, "AUTH_REFUSED: .*: the file has no user eve"):
                await server.client(auth={"username": "eve"})

    async def test_a_failure_of_the_function_for_credentials_is_reported_and_the_client_tries_again(self) -> None:
        failures: list[BaseException] = [asyncio.CancelledError(), OSError("no network")]

        def auth(context: AuthContext) -> dict[str, str]:
            if failures:
                raise failures.pop()
            return {"token": "right"}

        async with ScriptedServer() as server:
            with self.assertLogs("tidewire") as logs:
                async with server.client(auth=auth):
                    self.assertEqual(server.credentials, [{"token": "right"}])
            self.assertEqual([record.getMessage().split(":")[0] for record in logs.records], ["AUTH_CALLBACK_FAILED"] * 2)

    async def test_a_renewal_with_other_credentials_follows_the_one_in_progress(self) -> None:
        calls = 0
        release = asyncio.Event()

        async def auth(context: AuthContext) -> dict[str, str]:
            nonlocal calls
            calls += 1
            if calls == 2:
                await release.wait()
            return {"token": f"token {calls}"}

        async with ScriptedServer() as server, server.client(auth=auth) as client:
            first = asyncio.ensure_future(client.renew())
            while calls < 2:
                await asyncio.sleep(0)
            other = asyncio.ensure_future(client.renew({"token": "own"}))
            await asyncio.sleep(0)
            release.set()
            await asyncio.gather(first, other)
            self.assertEqual(server.credentials, [{"token": "token 1"}, {"token": "token 2"}, {"token": "own"}])

    async def test_a_client_that_closes_during_a_renewal_reports_no_error(self) -> None:
        asked: asyncio.Queue[AuthContext] = asyncio.Queue()

        async def auth(context: AuthContext) -> dict[str, str]:
            asked.put_nowait(context)
            if asked.qsize() > 1:
                await asyncio.Event().wait()
            context.renew_in(0.0)
            return {}

        async with ScriptedServer() as server, server.client(auth=auth) as client:
            errors: list[TidewireError] = []
            client.on_error(errors.append)
            while asked.qsize() < 2:
                await asyncio.sleep(0)
            await client.close()
            self.assertEqual((errors, client.state), ([], "closed"))

    async def test_a_function_gives_credentials_and_is_called_again_after_a_refusal_and_for_a_renewal(self) -> None:
        contexts: list[Any] = []

        async def auth(context: AuthContext) -> dict[str, str]:
            contexts.append(context.refusal)
            if len(contexts) == 2:
                context.renew_in(0.01)
            return {"token": f"token {len(contexts)}"}

        def refuses(credentials: Any) -> Any:
            return {"error": "EXPIRED"} if credentials == {"token": "token 1"} else None

        async with ScriptedServer(refuses=refuses) as server, server.client(auth=auth) as client:
            await client.renew({"token": "own"})
            self.assertEqual(contexts[:2], [None, {"error": "EXPIRED"}])
            self.assertIn({"token": "own"}, server.credentials)
            self.assertEqual(client.state, "open")

    async def test_a_lost_connection_is_made_again_and_requests_without_a_connection_wait(self) -> None:
        async with ScriptedServer() as server, server.client() as client:
            states: list[State] = []
            client.on_state(lambda state, reason: states.append(state))
            lost = reaching(client, "waiting")
            await server.cut()
            await lost
            call = asyncio.ensure_future(client.rpc.call("add", 1))
            request = await server.expect(Topic.RPC, RpcAction.REQUEST)
            await server.send(Message(Topic.RPC, RpcAction.RESPONSE, "2", correlation_id=request.correlation_id, name="add"))
            self.assertEqual(await call, 2)
            self.assertEqual(states, ["waiting", "connecting", "authenticating", "open"])

    async def test_silence_makes_the_connection_stale_and_then_replaces_it(self) -> None:
        async with ScriptedServer() as server, server.client(heartbeat_interval_s=0.02, stale_after_s=0.05) as client:
            states: list[State] = []
            client.on_state(lambda state, reason: states.append(state))
            server.is_silent = True
            await reach(client, "waiting")
            # On a busy machine an earlier answer may have been late, too.
            self.assertEqual(states[states.index("waiting") - 1], "stale")
            server.is_silent = False
            await reach(client, "open")

    async def test_a_check_takes_one_round_trip(self) -> None:
        async with ScriptedServer() as server, server.client() as client:
            states: list[State] = []
            client.on_state(lambda state, reason: states.append(state))
            client.check()
            client.event.emit("news", "while it is checked")
            await reach(client, "open")
            self.assertEqual(states, ["checking", "open"])
            self.assertEqual((await server.expect(Topic.EVENT, EventAction.EMIT)).data, '"while it is checked"')

    async def test_messages_beyond_the_limit_of_the_server_are_refused_locally(self) -> None:
        async with ScriptedServer(limits={"messageBytesMax": 1_000}) as server, server.client() as client:
            with self.assertRaises(TidewireError) as caught:
                client.event.emit("news", "x" * 1_000)
            self.assertEqual((caught.exception.code, caught.exception.subject), ("TOO_LARGE", "news"))
            with self.assertRaises(TidewireError) as caught:
                await client.rpc.call("add", "x" * 1_000)
            self.assertEqual(caught.exception.code, "TOO_LARGE")
            client.event.emit("news", "fits")
            self.assertEqual((await server.next()).data, '"fits"', "the connection stays, and nothing else was sent")

    async def test_of_a_server_that_announces_no_limit_the_largest_unanswered_message_fails(self) -> None:
        async with ScriptedServer() as server, server.client() as client:
            errors: list[TidewireError] = []
            client.on_error(errors.append)
            client.event.emit("news", "x" * 1_000)
            await server.next()
            lost = reaching(client, "waiting")
            await server.cut(1009)
            await lost
            self.assertEqual([(error.code, error.subject) for error in errors], [("TOO_LARGE", "news")])

    async def test_a_closed_client_refuses_further_use_and_its_last_messages_leave(self) -> None:
        async with ScriptedServer() as server:
            client = await server.client()
            client.event.emit("news", "last words")
            await client.close()
            self.assertEqual((await server.next()).data, '"last words"')
            with self.assertRaises(TidewireError) as caught:
                client.event.emit("news")
            self.assertEqual((caught.exception.code, client.state), ("CLOSED", "closed"))
            await client.connect()
            self.assertEqual(client.state, "open")
            await client.close()

    async def test_bytes_that_are_not_a_message_replace_the_connection(self) -> None:
        def message(action: RecordAction, data: str) -> bytes:
            return encode(Message(Topic.RECORD, action, data, name="todo", version=1, incarnation=1))

        cases: list[bytes | str] = [
            b"\xff",
            "text",
            message(RecordAction.READ_RESPONSE, "{"),
            message(RecordAction.PATCH_MULTI, '[{"data":1}]'),
            encode(Message(Topic.CONNECTION, ConnectionAction.ACCEPT, "[")),
            encode(Message(Topic.AUTH, AuthAction.SUCCESSFUL, "{")),
        ]
        async with ScriptedServer() as server, server.client() as client:
            errors: list[TidewireError] = []
            client.on_error(errors.append)
            client.record("todo")
            for number, data in enumerate(cases):
                await server.expect(Topic.RECORD, RecordAction.SUBSCRIBE_CREATE_AND_READ)
                lost = reaching(client, "waiting")
                await server.send(Message(Topic.RECORD, RecordAction.READ_RESPONSE, "{}", name="todo", version=0, incarnation=1))
                await server.send_raw(data)
                await lost
                self.assertEqual([error.code for error in errors], ["INVALID_MESSAGE"] * (number + 1))
                await reach(client, "open")

    async def test_an_unknown_message_is_ignored(self) -> None:
        async with ScriptedServer() as server, server.client() as client:
            await server.send(*(Message(topic, 99, "null", name="x", correlation_id="x") for topic in Topic))
            client.check()
            await reach(client, "open")

    async def test_a_cancelled_login_leaves_no_task(self) -> None:
        before = asyncio.all_tasks()
        with self.assertRaises(asyncio.TimeoutError):
            # The port of the discard service: no server listens there.
            await asyncio.wait_for(connect("127.0.0.1:9"), 0.2)
        self.assertEqual(asyncio.all_tasks(), before)

    async def test_a_client_whose_connect_is_cancelled_is_closed(self) -> None:
        async with ScriptedServer() as server:
            client = await server.client()
            await client.close()
            first = asyncio.ensure_future(client.connect())
            await asyncio.sleep(0)
            other = asyncio.ensure_future(client.connect())
            await asyncio.sleep(0)
            first.cancel()
            self.assertEqual(await self.code_of(other), "CLOSED")
            self.assertEqual(client.state, "closed")
            first = asyncio.ensure_future(client.connect())
            await asyncio.sleep(0)
            other = asyncio.ensure_future(client.connect())
            await asyncio.sleep(0)
            other.cancel()
            await first
            self.assertEqual(client.state, "open")
            await client.close()

    async def test_a_cancelled_request_leaves_nothing_and_its_late_answer_is_ignored(self) -> None:
        async with ScriptedServer() as server, server.client(pending_max=1) as client:
            call = asyncio.ensure_future(client.rpc.call("add", 1))
            request = await server.expect(Topic.RPC, RpcAction.REQUEST)
            self.assertEqual(await self.code_of(client.rpc.call("add", 2)), "TOO_MANY_PENDING")
            call.cancel()
            with self.assertRaises(asyncio.CancelledError):
                await call
            other = asyncio.ensure_future(client.rpc.call("add", 3))
            answer = Message(Topic.RPC, RpcAction.RESPONSE, "1", correlation_id=request.correlation_id, name="add")
            request = await server.expect(Topic.RPC, RpcAction.REQUEST)
            await server.send(answer, Message(Topic.RPC, RpcAction.RESPONSE, "3", correlation_id=request.correlation_id, name="add"))
            self.assertEqual(await other, 3)

    async def test_a_cancelled_task_does_not_cancel_another_task_that_waits_for_the_same_answer(self) -> None:
        async with ScriptedServer() as server, server.client() as client:
            first, other = (asyncio.ensure_future(client.record.delete("todo")) for _ in range(2))
            await server.expect(Topic.RECORD, RecordAction.DELETE)
            first.cancel()
            await asyncio.wait({first})
            await server.send(Message(Topic.RECORD, RecordAction.DELETE_SUCCESS, name="todo"))
            await asyncio.wait_for(other, DEADLINE_S)
            self.assertTrue(server.received.empty(), "both waited for one request")

    async def test_a_server_that_rejects_the_client_is_not_asked_again(self) -> None:
        async with ScriptedServer() as server, server.client() as client:
            await server.send(Message(Topic.CONNECTION, ConnectionAction.REJECT))
            await reach(client, "closed")
            assert client.close_reason is not None
            self.assertEqual(client.close_reason.code, "CONNECTION_REJECTED")

    async def test_an_error_of_a_callback_is_reported_and_other_callbacks_run(self) -> None:
        async with ScriptedServer() as server, server.client() as client:
            errors: list[TidewireError] = []
            heard: list[Any] = []
            client.on_error(errors.append)
            client.event.subscribe("news", lambda event: 1 / 0)
            client.event.subscribe("news", lambda event: heard.append(event.payload))
            client.event.emit("news", 1)
            self.assertEqual((heard, [error.code for error in errors]), ([1], ["CALLBACK_FAILED"]))
            self.assertIsInstance(errors[0].__cause__, ZeroDivisionError)


if __name__ == "__main__":
    unittest.main()
