//! One connection of the null server: its upgrade, and its messages before the publications.

use tidewire_net::connection::Key;
use tidewire_net::turn_log::TurnLog;
use tidewire_wire::frame::websocket::{self, Decoder, Opcode, Role};
use tidewire_wire::message::{
    Auth, Change, Connection, Event, EventBulk, Message, Publication, Record, RecordBulk, Rpc,
    Write,
};
use tidewire_wire::protocol::deepstream::{Deepstream, Dialect};

use super::room::{ROOM_OF_ALL, Rooms};

/// The largest answer, so that a wrong number does not exhaust the memory.
const ANSWER_BYTES_MAX: usize = 16 << 20;

/// The connection must be closed, for any reason.
#[derive(Debug)]
pub(super) struct Closed;

/// The server's state of a connection.
#[derive(Debug)]
pub(super) struct NullConnection {
    pub(super) decoder: Decoder,
    is_upgraded: bool,
    /// It gets publications, and its messages are publications.
    pub(super) is_subscribed: bool,
    /// Its ranges of this turn, see [`Rooms::publish`].
    pub(super) due: u32,
    /// It has everything before this offset of the log.
    pub(super) sent: u64,
    /// Whether it waits for the bytes after that.
    pub(super) is_queued: bool,
}

impl Default for NullConnection {
    fn default() -> Self {
        Self {
            decoder: Decoder::new(Role::Server),
            is_upgraded: false,
            is_subscribed: false,
            due: 0,
            sent: 0,
            is_queued: false,
        }
    }
}

impl NullConnection {
    /// Whether the request for the upgrade is still missing.
    pub(super) fn is_upgrading(&self) -> bool {
        !self.is_upgraded
    }

    /// The answer to the request for the upgrade once its head is complete. A client sends nothing more before the
    /// answer.
    pub(super) fn upgrade(&mut self, input: &[u8]) -> Result<Option<String>, Closed> {
        if !input.ends_with(b"\r\n\r\n") {
            return Ok(None);
        }
        let head = std::str::from_utf8(input).map_err(|_| Closed)?;
        let key = head
            .split("\r\n")
            .filter_map(|line| line.split_once(':'))
            .find(|(name, _)| name.eq_ignore_ascii_case("sec-websocket-key"))
            .map(|(_, value)| value.trim())
            .ok_or(Closed)?;
        self.is_upgraded = true;
        Ok(Some(format!(
            "HTTP/1.1 101 Switching Protocols\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n\
             Sec-WebSocket-Accept: {}\r\n\r\n",
            websocket::accept_key(key)
        )))
    }
}

/// The context of a message besides its connection.
pub(super) struct MessageHandler<'a> {
    rooms: &'a mut Rooms,
    log: &'a mut TurnLog,
    has_rooms: bool,
    /// The output for its connection alone.
    pub(super) answer: Vec<u8>,
}

impl<'a> MessageHandler<'a> {
    pub(super) fn new(rooms: &'a mut Rooms, log: &'a mut TurnLog, has_rooms: bool) -> Self {
        Self {
            rooms,
            log,
            has_rooms,
            answer: Vec::new(),
        }
    }

    /// Handles a message that is not simply forwarded.
    pub(super) fn take(
        &mut self,
        key: Key,
        peer: &mut NullConnection,
        payload: &[u8],
    ) -> Result<(), Closed> {
        match Deepstream::decode(payload).map_err(|_| Closed)? {
            Message::Event(Event::Publication(Publication { name, .. })) => {
                let room = match self.has_rooms {
                    true => self.rooms.event(name),
                    false => ROOM_OF_ALL,
                };
                let span = self
                    .log
                    .append(|out| websocket::encode(Opcode::Binary, payload, out));
                self.rooms.publish(room, key, &mut peer.due, span);
            }
            Message::Record(Record::Write(write, change)) if self.has_rooms => {
                self.write(key, peer, write, &change)?;
            }
            Message::Connection(Connection::Challenge { .. }) => {
                self.say(&Message::Connection(Connection::Accept));
            }
            Message::Connection(Connection::Ping) => {
                self.say(&Message::Connection(Connection::Pong))
            }
            Message::Rpc(Rpc::Request { call, data, .. }) => {
                // As many bytes as the request specifies: a server that answers with large records has to send them,
                // too.
                let bytes = data.and_then(|data| data.parse::<usize>().ok());
                let text = "x".repeat(bytes.ok_or(Closed)?.min(ANSWER_BYTES_MAX));
                self.say(&Message::Rpc(Rpc::Response {
                    call,
                    data: Some(&format!("\"{text}\"")),
                }));
            }
            Message::Auth(Auth::Request { .. }) => {
                self.say(&Message::Auth(Auth::Successful { data: None }));
            }
            Message::Event(Event::Subscribe {
                names, correlation, ..
            }) => {
                match self.has_rooms {
                    true => names.into_iter().for_each(|name| {
                        let room = self.rooms.event(name);
                        self.rooms.join(room, key);
                    }),
                    false => self.rooms.join(ROOM_OF_ALL, key),
                }
                peer.is_subscribed = true;
                let action = EventBulk::Subscribe;
                self.say(&Message::Event(Event::Ack {
                    action,
                    correlation,
                }));
            }
            Message::Record(Record::Bulk {
                action: action @ RecordBulk::SubscribeCreateAndRead,
                names,
                correlation,
            }) if self.has_rooms => {
                for name in &names {
                    let room = self.rooms.record(name);
                    self.rooms.join(room, key);
                    let version = self.rooms.version(room);
                    let data = "{}";
                    self.say(&Message::Record(Record::ReadResponse {
                        name,
                        version,
                        data,
                        incarnation: None,
                    }));
                }
                self.say(&Message::Record(Record::Ack {
                    action,
                    names,
                    correlation,
                }));
            }
            _ => return Err(Closed),
        }
        Ok(())
    }

    /// Counts the version and forwards a patch; there is no value. An ack does not involve a disk.
    fn write(
        &mut self,
        key: Key,
        peer: &mut NullConnection,
        write: Write<'_>,
        change: &Change<'_>,
    ) -> Result<(), Closed> {
        let room = self.rooms.record(write.name);
        let change = match *change {
            Change::CreateAndPatch {
                path: Some(path),
                data,
            } => Change::Patch { path, data },
            Change::CreateAndUpdate { data } => Change::Update { data },
            _ => return Err(Closed),
        };
        let patched = Write {
            version: self.rooms.next_version(room),
            correlation: None,
            write_ack: false,
            ..write
        };
        let message = Message::Record(Record::Write(patched, change));
        let span = self
            .log
            .append(|out| Deepstream::encode_frame(Dialect::Client, &message, out));
        self.rooms.publish(room, key, &mut peer.due, span);
        if write.write_ack {
            self.say(&Message::Record(Record::WriteAck {
                name: write.name,
                correlation: write.correlation,
            }));
        }
        Ok(())
    }

    fn say(&mut self, message: &Message<'_>) {
        Deepstream::encode_frame(Dialect::Client, message, &mut self.answer);
    }
}
