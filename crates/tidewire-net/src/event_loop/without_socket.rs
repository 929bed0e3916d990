//! Connections without a socket: their owner takes their output and gives them input, until they get a socket.
//!
//! Everything else is the same as with a socket: their bytes wait in an outbox with the same marks and limits, and input that
//! can't be handled yet counts as received.

use std::io;
use std::net::TcpStream;
use std::os::fd::AsRawFd;

use mio::unix::SourceFd;
use mio::{Interest, Token};

use super::EventLoop;
use crate::connection::{Connection, Key};
use crate::outbox::Outbox;
use crate::read_buffer::Remainder;
use crate::tls::TlsState;
use crate::turn_log::TurnLogs;

impl<C> EventLoop<C> {
    /// Adds a connection without a socket.
    pub fn add_without_socket(&mut self, state: C) -> Key {
        self.connections.insert(Connection::new(state, None))
    }

    /// The connections without a socket that got output since the last call. Each is listed again only after its output was taken.
    pub fn take_filled(&mut self) -> Vec<Key> {
        std::mem::take(&mut self.filled)
    }

    /// Takes all output of a connection without a socket. `logs` are the logs of its ranges.
    pub fn take_output(&mut self, key: Key, logs: &TurnLogs) -> Vec<u8> {
        let connection = self.connections.get_mut(key);
        let Some(connection) = connection.filter(|it| it.socket.is_none()) else {
            return Vec::new();
        };
        connection.flags.queued_to_send = false;
        let outbox = connection.outbox.take();
        let slices = outbox
            .as_deref()
            .into_iter()
            .flat_map(|outbox| outbox.slices(logs));
        let output: Vec<u8> = slices.flatten().copied().collect();
        let own_bytes = outbox.as_deref().map_or(0, Outbox::own_bytes);
        self.outbox_bytes = self.outbox_bytes.saturating_sub(own_bytes);
        connection.traffic.bytes_out += output.len() as u64;
        output
    }

    /// Gives input to a connection without a socket. The owner gives no more until that is handled
    /// ([`Connection::is_input_handled`]), so the input of one call is what a turn may have to read of it.
    pub fn push_input(&mut self, key: Key, input: &[u8]) {
        let connection = self.connections.get_mut(key);
        let Some(connection) = connection.filter(|it| it.socket.is_none()) else {
            return;
        };
        debug_assert!(
            connection.is_input_handled(),
            "the earlier input was handled"
        );
        connection.remainder = Remainder::from_unread(input);
        connection.flags.reload = connection.remainder.has_bytes();
        connection.traffic.bytes_in += input.len() as u64;
        self.counts.bytes_in += input.len() as u64;
        self.queue_to_read(key);
    }

    /// Gives a connection its socket, as for [`EventLoop::add_with_tls`]. Its output is sent there. All its input was handled.
    ///
    /// # Errors
    /// The kernel refuses to watch the socket. The connection is then without one, and its owner must remove it.
    pub fn give_socket(
        &mut self,
        key: Key,
        socket: TcpStream,
        unread: &[u8],
        tls: Option<Box<TlsState>>,
    ) -> io::Result<()> {
        let connection = self.connections.get_mut(key);
        let Some(connection) = connection.filter(|it| it.socket.is_none()) else {
            return Ok(());
        };
        debug_assert!(
            connection.is_input_handled(),
            "the earlier input was handled"
        );
        let fd = socket.as_raw_fd();
        let interest = Interest::READABLE | Interest::WRITABLE;
        let registry = self.poll.registry();
        registry.register(&mut SourceFd(&fd), Token(key.index as usize), interest)?;
        connection.remainder = Remainder::from_unread(unread);
        let flags = &mut connection.flags;
        flags.reload = !unread.is_empty();
        // A TLS close message that was already read causes no event.
        flags.readable = tls.as_ref().is_some_and(|tls| tls.is_peer_closed());
        // An entry of the list of filled connections is dropped, because its owner takes no output of a connection with a socket.
        flags.queued_to_send = false;
        connection.socket = Some(socket);
        connection.tls = tls;
        let has_output = connection.outbox.is_some();
        self.take_outgoing(key);
        if has_output {
            self.list_and_queue(key);
        }
        self.recount(key, 0);
        self.queue_to_read(key);
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use std::io::{Read, Write};
    use std::net::TcpListener;
    use std::time::Duration;

    use super::*;
    use crate::event_loop::{OutboxMarks, Settled};
    use crate::memory_budget::MemoryBudget;
    use crate::outbox::LogRange;
    use crate::read_buffer::ReadBuffer;
    use crate::send_batch::Sender;

    fn a_loop() -> EventLoop<()> {
        let budget = MemoryBudget::new(1 << 30);
        EventLoop::new(&budget, Sender::plain()).expect("a loop").0
    }

    fn settle(event_loop: &mut EventLoop<()>, logs: &mut TurnLogs) -> Settled {
        logs.begin_turn();
        let mut settled = Settled::default();
        event_loop.settle(logs, &OutboxMarks::limit(8), &mut settled);
        settled
    }

    fn push(event_loop: &mut EventLoop<()>, logs: &mut TurnLogs, key: Key, text: &str) {
        let range = logs
            .log_mut(0)
            .append(|out| out.extend_from_slice(text.as_bytes()));
        event_loop.push_ranges(key, std::iter::once(LogRange { format: 0, range }));
    }

    #[test]
    fn output_waits_in_order_until_it_is_taken() {
        let (mut event_loop, mut logs) = (a_loop(), TurnLogs::new(1));
        let key = event_loop.add_without_socket(());
        push(&mut event_loop, &mut logs, key, "log1");
        event_loop.push_bytes(key, b"own");
        assert!(!event_loop.has_sends());
        assert_eq!(event_loop.take_filled(), [key]);
        settle(&mut event_loop, &mut logs);
        push(&mut event_loop, &mut logs, key, "log2");
        assert!(event_loop.take_filled().is_empty(), "it is listed once");
        assert_eq!(event_loop.take_output(key, &logs), b"log1ownlog2");
        assert!(event_loop.take_output(key, &logs).is_empty());
        push(&mut event_loop, &mut logs, key, "log3");
        assert_eq!(event_loop.take_filled(), [key]);
        assert_eq!(event_loop.take_output(key, &logs), b"log3");
    }

    #[test]
    fn output_has_the_limit_of_an_outbox() {
        let (mut event_loop, mut logs) = (a_loop(), TurnLogs::new(1));
        let key = event_loop.add_without_socket(());
        event_loop.push_bytes(key, b"12345678");
        assert!(settle(&mut event_loop, &mut logs).cut.is_empty());
        event_loop.push_bytes(key, b"9");
        assert_eq!(settle(&mut event_loop, &mut logs).cut, [key]);
        assert_eq!(event_loop.outbox_bytes(), 9);
        event_loop.take_output(key, &logs);
        assert_eq!(event_loop.outbox_bytes(), 0);
        assert!(settle(&mut event_loop, &mut logs).cut.is_empty());
    }

    #[test]
    fn a_socket_takes_over_output_and_input_in_order() {
        let (mut event_loop, mut logs) = (a_loop(), TurnLogs::new(1));
        let mut buffer = ReadBuffer::default();
        let key = event_loop.add_without_socket(());
        event_loop.push_input(key, b"first");
        let read = event_loop.read_next(&mut buffer).expect("input");
        assert_eq!((read.0, &*buffer.unread()), (key, &b"first"[..]));
        buffer.consume(5);
        event_loop.store_rest(key, &mut buffer, 0);
        assert!(event_loop.read_next(&mut buffer).is_none());
        event_loop.push_bytes(key, b"out1");
        let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
        let address = listener.local_addr().expect("an address");
        let mut client = TcpStream::connect(address).expect("a client");
        let socket = listener.accept().expect("a socket").0;
        socket.set_nonblocking(true).expect("nonblocking");
        client.write_all(b"third").expect("room");
        event_loop
            .give_socket(key, socket, b"second", None)
            .expect("a watch");
        event_loop.push_bytes(key, b"out2");
        event_loop.submit_slice(&logs, &mut Vec::new());
        settle(&mut event_loop, &mut logs);
        let mut output = [0; 8];
        client.read_exact(&mut output).expect("the output");
        assert_eq!(&output, b"out1out2");
        let mut input = Vec::new();
        while input.len() < 11 {
            let timeout = Some(Duration::from_millis(100));
            event_loop.poll(timeout).expect("a poll");
            while event_loop.read_next(&mut buffer).is_some() {
                let count = buffer.unread().len();
                input.extend_from_slice(buffer.unread());
                buffer.consume(count);
                event_loop.store_rest(key, &mut buffer, 0);
            }
        }
        assert_eq!(input, b"secondthird");
        assert!(event_loop.take_output(key, &logs).is_empty());
    }
}
