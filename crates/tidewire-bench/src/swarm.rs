//! Many connections on one thread: one epoll, one read buffer, no runtime. The generator's cost is mainly decoding,
//! and a report shows whether it was the bottleneck.

use std::collections::VecDeque;
use std::io::{self, IoSlice};
use std::time::{Duration, Instant};

use mio::unix::SourceFd;
use mio::{Events, Interest, Poll, Token};
use rustix::fd::{AsRawFd, OwnedFd};
use rustix::time::{
    Itimerspec, TimerfdClockId, TimerfdFlags, TimerfdTimerFlags, Timespec, timerfd_create,
    timerfd_settime,
};
use tidewire_net::send_batch::{Completion, Sender};

use crate::connection::{self, Connection, Reading, Subscription};
use crate::driver::{Driver, Incoming, Protocol};
use crate::failure::Failure;
use crate::target::Target;

/// Connections that are being opened at the same time; fewer than any listener's backlog.
const OPENING_MAX: usize = 256;
/// Never the number of a connection, because the descriptor limit is far below.
const TIMER: Token = Token(usize::MAX);
/// Readiness events taken from the kernel at once.
const EVENTS_MAX: usize = 4096;
/// Bytes read from one socket at once.
const READ_BYTES: usize = 256 << 10;
/// The interval of heartbeats. deepstream's client sends one every 30 s, and a server may close a connection that is
/// silent for twice as long; the first heartbeat of a connection may come twice this time after its login.
const HEARTBEAT_INTERVAL: Duration = Duration::from_secs(20);
/// Heartbeats leave in this many portions per interval, so that they are not a burst.
const HEARTBEAT_PORTIONS: u32 = 100;
/// A server that does not answer a login in this time has lost it.
const LOGIN_TIMEOUT: Duration = Duration::from_secs(30);

/// Connections to one target.
#[derive(Debug)]
pub struct Swarm {
    target: Target,
    /// The first bytes of each connection.
    request: Vec<u8>,
    poll: Poll,
    events: Events,
    connections: Vec<Connection>,
    /// The connections of a burst that is being prepared, each once.
    burst: Vec<usize>,
    sender: Sender,
    completions: Vec<Completion>,
    reading: Reading,
    /// Wakes the poll to the microsecond; its own timeout is rounded to milliseconds.
    timer: OwnedFd,
    /// The current setting of the timer.
    due: Option<Instant>,
    heartbeats: Option<Heartbeats>,
}

/// The next portion of heartbeats, and its time.
#[derive(Debug)]
struct Heartbeats {
    next: Instant,
    portion: u32,
}

impl Heartbeats {
    /// The heartbeats of the protocol, if its client must send any.
    fn new(protocol: Protocol) -> Option<Self> {
        protocol.has_client_heartbeats().then(|| Self {
            next: Instant::now() + HEARTBEAT_INTERVAL,
            portion: 0,
        })
    }

    /// The portion that is due, if there is one. After a long pause a portion is due once, whatever the length of the
    /// pause.
    fn take(&mut self, now: Instant) -> Option<usize> {
        let late = now.checked_duration_since(self.next)?;
        let step = HEARTBEAT_INTERVAL / HEARTBEAT_PORTIONS;
        let forgotten = late.saturating_sub(HEARTBEAT_INTERVAL - step);
        self.next += step + forgotten;
        let portion = self.portion as usize;
        self.portion = (self.portion + 1) % HEARTBEAT_PORTIONS;
        Some(portion)
    }
}

impl Swarm {
    /// A swarm without connections.
    ///
    /// # Errors
    /// The kernel has no epoll descriptor.
    pub fn new(target: &Target) -> Result<Self, Failure> {
        Self::with_events(target, EVENTS_MAX)
    }

    /// The same with room for this many events.
    fn with_events(target: &Target, events_max: usize) -> Result<Self, Failure> {
        let poll = Poll::new().map_err(Failure::system("epoll"))?;
        let flags = TimerfdFlags::NONBLOCK | TimerfdFlags::CLOEXEC;
        let timer = timerfd_create(TimerfdClockId::Monotonic, flags)
            .map_err(|error| Failure::system("timer")(error.into()))?;
        poll.registry()
            .register(&mut SourceFd(&timer.as_raw_fd()), TIMER, Interest::READABLE)
            .map_err(Failure::system("epoll"))?;
        Ok(Self {
            target: target.clone(),
            request: connection::request(target),
            poll,
            events: Events::with_capacity(events_max),
            connections: Vec::new(),
            burst: Vec::new(),
            sender: Sender::detect(),
            completions: Vec::new(),
            reading: Reading::new(READ_BYTES, target),
            timer,
            due: None,
            heartbeats: Heartbeats::new(target.protocol),
        })
    }

    /// Opens `count` more connections and waits until all are logged in and subscribed; `plan` returns the
    /// subscription for each number.
    ///
    /// # Errors
    /// One of them is refused or broken, or the deadline passes.
    pub fn open(
        &mut self,
        count: usize,
        plan: impl Fn(usize) -> Subscription,
    ) -> Result<(), Failure> {
        let goal = self.connections.len() + count;
        let mut opening: VecDeque<usize> = VecDeque::new();
        loop {
            while opening
                .front()
                .is_some_and(|&number| self.connections[number].is_open())
            {
                opening.pop_front();
            }
            while self.connections.len() < goal && opening.len() < OPENING_MAX {
                opening.push_back(self.connect()?);
            }
            if opening.is_empty() {
                return Ok(());
            }
            // The time limit applies to the next answer, not to all of them together.
            let deadline = Instant::now() + LOGIN_TIMEOUT;
            self.poll_once(deadline, "logins", &plan, |_, _| Ok(()))?;
        }
    }

    /// Opens `count` connections in sequence in each of at most `width` slots, and closes each as soon as it is
    /// logged in and subscribed, until `end` at the latest. The swarm must be empty, and is empty afterwards. Returns
    /// their number.
    ///
    /// # Errors
    /// One of them is refused or broken, or the deadline passes.
    pub fn churn(
        &mut self,
        count: usize,
        width: usize,
        end: Instant,
        plan: impl Fn(usize) -> Subscription,
    ) -> Result<usize, Failure> {
        let mut begun = 0;
        while begun < count.min(width) {
            self.connect()?;
            begun += 1;
        }
        let mut done = 0;
        let mut replaced = Vec::new();
        while done < count && Instant::now() < end {
            let deadline = Instant::now() + LOGIN_TIMEOUT;
            self.poll_once(deadline, "logins", &plan, |_, _| Ok(()))?;
            for event in &self.events {
                let index = event.token().0;
                let Some(connection) = self.connections.get_mut(index) else {
                    continue;
                };
                // A slot that is not used again stays open, and must not be counted twice.
                if !connection.is_open() || connection.is_counted {
                    continue;
                }
                connection.is_counted = true;
                done += 1;
                if begun < count {
                    let next = start(begun, index, &self.target, &self.poll)?;
                    replaced.push(std::mem::replace(connection, next));
                    begun += 1;
                }
            }
            // Closed together, for the same reason as they are served together.
            replaced.clear();
        }
        self.connections.clear();
        Ok(done)
    }

    fn connect(&mut self) -> Result<usize, Failure> {
        let number = self.connections.len();
        let connection = start(number, number, &self.target, &self.poll)?;
        self.connections.push(connection);
        Ok(number)
    }

    /// The number of connections.
    #[must_use]
    pub fn len(&self) -> usize {
        self.connections.len()
    }

    /// Bytes received so far, decrypted and still compressed.
    #[must_use]
    pub fn bytes_received(&self) -> u64 {
        self.reading.bytes()
    }

    /// Whether it is empty.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.connections.is_empty()
    }

    /// Sends the driver's output of `write`, at once if the socket accepts it.
    ///
    /// # Errors
    /// The connection is broken.
    pub fn send(
        &mut self,
        connection: usize,
        write: impl FnOnce(&mut Driver, &mut Vec<u8>),
    ) -> Result<(), Failure> {
        let connection = &mut self.connections[connection];
        connection.push(write);
        connection.flush()
    }

    /// Stores the driver's output of `write` for the next [`Swarm::send_burst`].
    pub fn prepare(&mut self, connection: usize, write: impl FnOnce(&mut Driver, &mut Vec<u8>)) {
        let number = connection;
        let connection = &mut self.connections[number];
        // A connection with waiting bytes continues by itself.
        if connection.outbox_bytes() == 0 {
            self.burst.push(number);
        }
        connection.push(write);
    }

    /// Sends all prepared messages, as fast as the kernel accepts them: in one submission, unless there are TLS
    /// records to seal.
    ///
    /// # Errors
    /// A connection is broken.
    pub fn send_burst(&mut self) -> Result<(), Failure> {
        let mut batch = self.sender.batch();
        for &number in &self.burst {
            let connection = &self.connections[number];
            if let Some((socket, bytes)) = connection.unsealed() {
                batch.push(number as u32, socket, [IoSlice::new(bytes)]);
            }
        }
        self.sender.submit(batch, &mut self.completions);
        for Completion { token, result } in self.completions.drain(..) {
            self.connections[token as usize].complete(result)?;
        }
        for number in self.burst.drain(..) {
            self.connections[number].flush()?;
        }
        Ok(())
    }

    /// A connection, to push several messages and flush them together.
    pub fn connection_mut(&mut self, connection: usize) -> &mut Connection {
        &mut self.connections[connection]
    }

    /// Waits for input and passes it to `handle`, with the number of its connection.
    ///
    /// # Errors
    /// The error of `handle`; a connection is broken; the deadline passes, which names `awaited`.
    pub fn receive(
        &mut self,
        deadline: Instant,
        awaited: &str,
        handle: impl FnMut(usize, Incoming<'_>) -> Result<(), Failure>,
    ) -> Result<(), Failure> {
        self.poll_once(deadline, awaited, &|_| Subscription::Nothing, handle)
    }

    /// Waits for input, which `handle` gets, or until `due`, whichever is first.
    ///
    /// # Errors
    /// The error of `handle`; a connection is broken.
    pub fn receive_until(
        &mut self,
        due: Instant,
        handle: impl FnMut(usize, Incoming<'_>) -> Result<(), Failure>,
    ) -> Result<(), Failure> {
        let left = due.saturating_duration_since(Instant::now());
        if !left.is_zero() && self.due != Some(due) {
            self.set_timer(left)?;
            self.due = Some(due);
        }
        let wait = if left.is_zero() { Some(left) } else { None };
        self.poll_for(wait, &|_| Subscription::Nothing, handle)
    }

    /// Passes all input that has already arrived, from any number of connections, to `handle`.
    ///
    /// # Errors
    /// The error of `handle`; a connection is broken.
    pub fn receive_waiting(
        &mut self,
        mut handle: impl FnMut(usize, Incoming<'_>) -> Result<(), Failure>,
    ) -> Result<(), Failure> {
        loop {
            let wait = Some(Duration::ZERO);
            self.poll_for(wait, &|_| Subscription::Nothing, &mut handle)?;
            // One poll returns as many events as there is room for.
            if self.events.iter().count() < self.events.capacity() {
                return Ok(());
            }
        }
    }

    fn set_timer(&self, left: Duration) -> Result<(), Failure> {
        let once = Itimerspec {
            it_interval: Timespec {
                tv_sec: 0,
                tv_nsec: 0,
            },
            it_value: Timespec {
                tv_sec: left.as_secs() as i64,
                tv_nsec: i64::from(left.subsec_nanos()),
            },
        };
        timerfd_settime(&self.timer, TimerfdTimerFlags::empty(), &once)
            .map(|_| ())
            .map_err(|error| Failure::system("timer")(error.into()))
    }

    fn poll_once(
        &mut self,
        deadline: Instant,
        awaited: &str,
        plan: &impl Fn(usize) -> Subscription,
        handle: impl FnMut(usize, Incoming<'_>) -> Result<(), Failure>,
    ) -> Result<(), Failure> {
        let left = deadline.saturating_duration_since(Instant::now());
        if left.is_zero() {
            return Err(Failure::Deadline(awaited.to_owned()));
        }
        self.poll_for(Some(left), plan, handle)?;
        // Otherwise a caller that asks again with a new deadline would never learn that nothing arrives.
        match self.events.is_empty() && Instant::now() >= deadline {
            true => Err(Failure::Deadline(awaited.to_owned())),
            false => Ok(()),
        }
    }

    fn poll_for(
        &mut self,
        wait: Option<Duration>,
        plan: &impl Fn(usize) -> Subscription,
        mut handle: impl FnMut(usize, Incoming<'_>) -> Result<(), Failure>,
    ) -> Result<(), Failure> {
        let wait = self.beat(wait)?;
        match self.poll.poll(&mut self.events, wait) {
            Err(error) if error.kind() == io::ErrorKind::Interrupted => return Ok(()),
            result => result.map_err(Failure::system("epoll"))?,
        }
        for event in &self.events {
            let Some(connection) = self.connections.get_mut(event.token().0) else {
                // The timer, which only wakes the poll.
                self.due = None;
                continue;
            };
            if event.is_writable() {
                connection.handle_writable(&self.request, event.is_error())?;
            }
            let is_ended = event.is_read_closed() || event.is_error();
            if event.is_readable() || is_ended {
                let reading = &mut self.reading;
                connection.handle_readable(reading, is_ended, plan, &mut handle)?;
            }
            if !connection.is_open() {
                self.burst.push(event.token().0);
            }
        }
        // One submission for the next steps of all opening connections, so that a sleeping server is woken once.
        if !self.burst.is_empty() {
            self.send_burst()?;
        }
        Ok(())
    }
}

impl Swarm {
    /// Sends the heartbeats that are due, and returns the permitted time of a poll that would wait for `wait`.
    fn beat(&mut self, wait: Option<Duration>) -> Result<Option<Duration>, Failure> {
        let Some(heartbeats) = &mut self.heartbeats else {
            return Ok(wait);
        };
        let now = Instant::now();
        while let Some(first) = heartbeats.take(now) {
            let all = self.connections.iter_mut().skip(first);
            for connection in all.step_by(HEARTBEAT_PORTIONS as usize) {
                if connection.is_open() {
                    connection.push(Driver::heartbeat);
                    connection.flush()?;
                }
            }
        }
        let until_next = heartbeats.next.saturating_duration_since(now);
        Ok(Some(wait.map_or(until_next, |wait| wait.min(until_next))))
    }
}

/// Starts to connect, for a slot in a swarm.
fn start(number: usize, index: usize, target: &Target, poll: &Poll) -> Result<Connection, Failure> {
    let mut connection = Connection::connect(number, target)?;
    let interest = Interest::READABLE | Interest::WRITABLE;
    poll.registry()
        .register(&mut connection.socket, Token(index), interest)
        .map_err(Failure::system("epoll"))?;
    Ok(connection)
}

#[cfg(test)]
mod tests {
    use std::io::{Read, Write};
    use std::net::{Ipv4Addr, SocketAddr, TcpListener};

    use super::*;
    use crate::null_server::{NullServer, Options};
    use crate::target::Target;

    const EVENT: &str = "event";
    /// Two bytes of head, a length of one, the topic's and the action's two each.
    const PONG_FRAME_BYTES: u64 = 7;

    fn names(_: usize) -> Subscription {
        Subscription::Names(vec![EVENT.to_owned()])
    }

    fn target(address: SocketAddr) -> Target {
        Target::local(address, std::process::id(), true)
    }

    /// A server that reads a request and gives the same answer to every connection, once.
    fn open_at_fake(answer: &'static str) -> String {
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
        let target = target(listener.local_addr().unwrap());
        let server = std::thread::spawn(move || {
            let (mut socket, _) = listener.accept().unwrap();
            let mut request = Vec::new();
            let mut byte = [0];
            while !request.ends_with(b"\r\n\r\n") && socket.read(&mut byte).unwrap() == 1 {
                request.extend_from_slice(&byte);
            }
            socket.write_all(answer.as_bytes()).unwrap();
            // It closes its end of the stream and reads the generator's remaining bytes to the end.
            // Neither counts when the generator has reset the connection already.
            let _ = socket.shutdown(std::net::Shutdown::Write);
            let _ = socket.read_to_end(&mut request);
        });
        let mut swarm = Swarm::new(&target).unwrap();
        let failure = swarm.open(1, |_| Subscription::Nothing).unwrap_err();
        drop(swarm);
        server.join().unwrap();
        failure.to_string()
    }

    #[test]
    fn answers_that_open_no_connection_are_failures() {
        let check = |answer, expected: &str| {
            let failure = open_at_fake(answer);
            assert!(failure.contains(expected), "{failure} for {answer:?}");
        };
        check("HTTP/1.1 403 Forbidden\r\n\r\n", "HTTP/1.1 403 Forbidden");
        check(
            "HTTP/1.1 101 Switching Protocols\r\nSec-WebSocket-Accept: x\r\n\r\n",
            "upgrade refused",
        );
        check("HTTP/1.1 101 Switching", "was closed by the server");
        // The right key for the nonce, then no frame.
        check(
            "HTTP/1.1 101 Switching Protocols\r\nsec-websocket-accept: s3pPLMBiTxaQ9kYGzzhZRbK+xOo=\r\n\r\n\
             pp",
            "reserved bits",
        );
    }

    /// A null server on a thread, which lives as long as the tests.
    fn null_server() -> Target {
        let options = Options {
            has_echo: true,
            ..Options::default()
        };
        let address = SocketAddr::from((Ipv4Addr::LOCALHOST, 0));
        let server = NullServer::bind(address, options).unwrap();
        let target = target(server.local_address().unwrap());
        std::thread::spawn(move || server.run());
        target
    }

    #[test]
    fn connections_that_pause_reading_get_everything() {
        // More than the sockets' buffers hold, so that both ends keep what the other does not take.
        const MESSAGES: usize = 12_000;
        let text = format!("\"{}\"", "x".repeat(1000));
        let mut swarm = Swarm::new(&null_server()).unwrap();
        swarm.open(2, names).unwrap();
        for _ in 0..MESSAGES {
            swarm
                .send(0, |driver, out| driver.publish(EVENT, &text, out))
                .unwrap();
        }
        let mut counts = [0; 2];
        let deadline = Instant::now() + Duration::from_secs(20);
        while counts != [MESSAGES; 2] {
            swarm
                .receive(deadline, "messages", |connection, incoming| {
                    let (name, payload) = (Some(EVENT), text.as_str());
                    assert_eq!(incoming, Incoming::Delivery { name, payload });
                    counts[connection] += 1;
                    Ok(())
                })
                .unwrap();
        }
        assert!(!swarm.is_empty() && swarm.len() == 2);
    }

    #[test]
    fn churned_connections_are_all_opened_and_all_closed() {
        let mut swarm = Swarm::new(&null_server()).unwrap();
        let end = Instant::now() + Duration::from_secs(20);
        for (count, width) in [(50, 7), (3, 7), (1, 1)] {
            assert_eq!(swarm.churn(count, width, end, names).unwrap(), count);
            assert!(swarm.is_empty());
        }
        assert_eq!(swarm.churn(5, 1, Instant::now(), names).unwrap(), 0);
    }

    #[test]
    fn data_is_taken_from_more_connections_than_one_poll_reports() {
        let target = null_server();
        let mut many = Swarm::with_events(&target, 2).unwrap();
        many.open(7, names).unwrap();
        let mut pair = Swarm::new(&target).unwrap();
        pair.open(2, names).unwrap();
        let deadline = Instant::now() + Duration::from_secs(20);
        // The answer comes after the turn that sent the question to all, and on loopback sent bytes arrive at once.
        for (from, text) in [(0, "\"question\""), (1, "\"answer\"")] {
            pair.send(from, |driver, out| driver.publish(EVENT, text, out))
                .unwrap();
            let mut has_arrived = false;
            while !has_arrived {
                let taken = pair.receive(deadline, "the other's message", |receiver, incoming| {
                    let Incoming::Delivery { payload, .. } = incoming else {
                        panic!("{incoming:?}");
                    };
                    has_arrived |= receiver != from && payload == text;
                    Ok(())
                });
                taken.unwrap();
            }
        }
        let mut asked = [0; 7];
        let taken = many.receive_waiting(|receiver, incoming| {
            if let Incoming::Delivery { payload, .. } = incoming {
                asked[receiver] += usize::from(payload == "\"question\"");
            }
            Ok(())
        });
        taken.unwrap();
        assert_eq!(asked, [1; 7]);
    }

    #[test]
    fn each_portion_of_heartbeats_has_its_turn() {
        let mut heartbeats = Heartbeats::new(Protocol::Deepstream).unwrap();
        assert_eq!(heartbeats.take(Instant::now()), None);
        let step = HEARTBEAT_INTERVAL / HEARTBEAT_PORTIONS;
        let mut now = heartbeats.next;
        for round in 0..2 * HEARTBEAT_PORTIONS {
            let portion = (round % HEARTBEAT_PORTIONS) as usize;
            assert_eq!(heartbeats.take(now), Some(portion));
            assert_eq!(heartbeats.take(now), None);
            now += step;
        }
        // After a delay the missed heartbeats are sent, one for each connection.
        for (late, expected) in [(step, 2), (HEARTBEAT_INTERVAL * 3, HEARTBEAT_PORTIONS)] {
            now += late;
            let due = std::iter::from_fn(|| heartbeats.take(now)).count();
            assert_eq!(due, expected as usize, "{late:?}");
            assert!(heartbeats.next > now && heartbeats.next <= now + step);
            now += step;
        }
        for protocol in [Protocol::SocketIo, Protocol::Nats, Protocol::Plain] {
            assert!(Heartbeats::new(protocol).is_none());
        }
    }

    #[test]
    fn open_and_answered_connections_send_heartbeats() {
        let mut swarm = Swarm::new(&null_server()).unwrap();
        swarm.open(3, names).unwrap();
        let before = swarm.bytes_received();
        for _ in 0..3 {
            // As if the time had passed.
            swarm.heartbeats.as_mut().unwrap().next = Instant::now();
            swarm.beat(None).unwrap();
        }
        // A scenario does not see the answers to heartbeats.
        let deadline = Instant::now() + Duration::from_secs(20);
        while swarm.bytes_received() < before + 3 * PONG_FRAME_BYTES {
            let taken = swarm.receive(deadline, "answers", |_, incoming| panic!("{incoming:?}"));
            taken.unwrap();
        }
    }

    #[test]
    fn due_work_and_arriving_data_end_a_wait() {
        let mut swarm = Swarm::new(&null_server()).unwrap();
        swarm.open(1, names).unwrap();
        let start = Instant::now();
        let due = start + Duration::from_micros(300);
        while Instant::now() < due {
            swarm.receive_until(due, |_, _| Ok(())).unwrap();
        }
        swarm
            .send(0, |driver, out| driver.publish(EVENT, "1", out))
            .unwrap();
        let (mut count, due) = (0, start + Duration::from_secs(20));
        while count == 0 {
            let result = swarm.receive_until(due, |_, _| {
                count += 1;
                Ok(())
            });
            result.unwrap();
            assert!(Instant::now() < due);
        }
    }

    #[test]
    fn a_passed_deadline_names_what_was_awaited() {
        let mut swarm = Swarm::new(&null_server()).unwrap();
        swarm.open(1, names).unwrap();
        let failure = swarm.receive(Instant::now(), "an answer", |_, _| Ok(()));
        assert!(failure.unwrap_err().to_string().contains("an answer"));
    }

    #[test]
    fn a_refusal_by_the_scenario_ends_the_wait() {
        let mut swarm = Swarm::new(&null_server()).unwrap();
        swarm.open(1, names).unwrap();
        swarm
            .send(0, |driver, out| driver.publish("other", "1", out))
            .unwrap();
        let deadline = Instant::now() + Duration::from_secs(20);
        let failure = loop {
            let handle = |connection, incoming: Incoming<'_>| match incoming {
                Incoming::Delivery { name, .. } => Err(Failure::Peer {
                    connection,
                    what: name.unwrap_or_default().to_owned(),
                }),
                _ => Ok(()),
            };
            if let Err(failure) = swarm.receive(deadline, "an event", handle) {
                break failure;
            }
        };
        assert_eq!(failure.to_string(), "connection 0: other");
    }

    #[test]
    fn the_null_server_ends_connections_that_break_the_protocol() {
        let target = null_server();
        let ends = |mut socket: &std::net::TcpStream, bytes: &str| {
            socket.write_all(bytes.as_bytes()).unwrap();
            let mut rest = Vec::new();
            // Closed, or reset with bytes unread: the deadline would be another kind of error.
            if let Err(error) = socket.read_to_end(&mut rest) {
                assert_eq!(error.kind(), io::ErrorKind::ConnectionReset, "{bytes:?}");
            }
        };
        let connect = || {
            let socket = std::net::TcpStream::connect(target.address).unwrap();
            let timeout = Some(Duration::from_secs(20));
            socket.set_read_timeout(timeout).unwrap();
            socket
        };
        ends(&connect(), "GET / HTTP/1.1\r\n\r\n");
        let mut upgraded = connect();
        upgraded
            .write_all(b"GET / HTTP/1.1\r\nSec-WebSocket-Key: x\r\n\r\n")
            .unwrap();
        assert!(upgraded.read(&mut [0; 1000]).unwrap() > 0);
        ends(&upgraded, "an unmasked frame");
        // Others notice nothing.
        let mut swarm = Swarm::new(&target).unwrap();
        swarm.open(3, names).unwrap();
    }
}
