//! deepstream's protocol from the client's side, through the server's own codec.

use tidewire_wire::frame::websocket::PayloadKind;
use tidewire_wire::message::{
    Auth, Call, Change, Connection, Event, Message, Publication, Query, Record, RecordBulk, Rpc,
    Scope, Write,
};
use tidewire_wire::protocol::Protocol;
use tidewire_wire::protocol::deepstream::Deepstream as Codec;

use super::{Incoming, MASK, PASSWORD, Unintelligible, user_name};

/// The path that patches set.
const PATCHED_PATH: &str = "count";
/// Separates the caller and the number of its call.
const CALL_SEPARATOR: char = '-';
/// For acks of bulk messages: a connection waits for one at a time.
const BULK: Option<&str> = Some("0");

/// The client's end. Its only state is the user's name and the announced features.
#[derive(Debug)]
pub struct Deepstream {
    /// The connection's number, which makes the user's name.
    user: usize,
    /// The server may put several messages into one WebSocket message.
    reads_batches: bool,
}

impl Deepstream {
    /// Its name on the command line and in results.
    pub const NAME: &str = Protocol::Deepstream.name();
    /// The path of servers of this protocol.
    pub const PATH: &str = "/deepstream";

    pub(super) fn new(connection: usize, reads_batches: bool) -> Self {
        Self {
            user: connection,
            reads_batches,
        }
    }

    pub(super) fn hello(&mut self, out: &mut Vec<u8>) {
        let challenge = Connection::Challenge {
            url: None,
            protocol_version: Some("0.1a"),
            sdk_version: Some("7.0.5"),
            sdk_type: Some("javascript"),
            batches: self.reads_batches,
            coalesces: false,
        };
        push(&Message::Connection(challenge), out);
    }

    pub(super) fn take<E: From<Unintelligible>>(
        &mut self,
        _kind: PayloadKind,
        payload: &[u8],
        out: &mut Vec<u8>,
        mut handle: impl FnMut(Incoming<'_>) -> Result<(), E>,
    ) -> Result<(), E> {
        if !self.reads_batches {
            return self.take_message(payload, out, &mut handle);
        }
        let mut rest = payload;
        while !rest.is_empty() {
            let bytes = Codec::message_bytes(rest)
                .ok_or_else(|| Unintelligible("received half a message of a batch".to_owned()))?;
            let (message, others) = rest.split_at(bytes);
            self.take_message(message, out, &mut handle)?;
            rest = others;
        }
        Ok(())
    }

    fn take_message<E: From<Unintelligible>>(
        &mut self,
        payload: &[u8],
        out: &mut Vec<u8>,
        mut handle: impl FnMut(Incoming<'_>) -> Result<(), E>,
    ) -> Result<(), E> {
        let message = Codec::decode(payload).map_err(|error| Unintelligible(error.to_string()))?;
        match &message {
            Message::Event(Event::Publication(Publication { name, data, .. })) => {
                handle(Incoming::Delivery {
                    name: Some(name),
                    payload: data.unwrap_or_default(),
                })
            }
            Message::Connection(Connection::Ping) => {
                push(&Message::Connection(Connection::Pong), out);
                Ok(())
            }
            // The answer to a heartbeat.
            Message::Connection(Connection::Pong) => Ok(()),
            Message::Connection(Connection::Accept) => {
                let name = user_name(self.user);
                let data = format!("{{\"username\":\"{name}\",\"password\":\"{PASSWORD}\"}}");
                push(&Message::Auth(Auth::Request { data: Some(&data) }), out);
                Ok(())
            }
            Message::Auth(Auth::Successful { .. }) => handle(Incoming::Ready),
            Message::Event(Event::Ack { .. })
            | Message::Record(Record::Ack { .. })
            | Message::Rpc(Rpc::Ack { .. }) => handle(Incoming::Subscribed),
            // The answer to the subscription of a record, which comes before or after its ack.
            Message::Record(Record::ReadResponse { .. }) => Ok(()),
            Message::Record(Record::Write(write, change)) => take_change(write, change, handle),
            Message::Record(Record::WriteAck { name, correlation }) => handle(Incoming::Written {
                name,
                number: number(*correlation, &message)?,
            }),
            Message::Record(Record::HeadResponse { name, version }) => handle(Incoming::Version {
                name,
                version: *version,
            }),
            Message::Query(Query::Changed { key: name, data })
            | Message::Scope(Scope::Changed { name, data }) => handle(Incoming::Delivery {
                name: Some(name),
                payload: data,
            }),
            Message::Query(Query::Snapshot {
                correlation, key, ..
            }) => handle(Incoming::Snapshot {
                number: Some(number(*correlation, &message)?),
                name: key,
            }),
            Message::Scope(Scope::Snapshot { name, .. }) => {
                handle(Incoming::Snapshot { number: None, name })
            }
            Message::Scope(Scope::Joined { data, .. }) => handle(Incoming::Joined { id: data }),
            Message::Rpc(Rpc::Request { call, data, .. }) => {
                let response = Rpc::Response {
                    call: *call,
                    data: *data,
                };
                push(&Message::Rpc(response), out);
                handle(Incoming::Served)
            }
            // A provider of deepstream's own server may first report that it works on the call.
            Message::Rpc(Rpc::Accept(_)) => Ok(()),
            Message::Rpc(Rpc::Response { call, .. }) => handle(Incoming::Response {
                number: number(call.correlation.split(CALL_SEPARATOR).next_back(), &message)?,
            }),
            other => Err(unexpected(other).into()),
        }
    }

    pub(super) fn heartbeat(out: &mut Vec<u8>) {
        push(&Message::Connection(Connection::Ping), out);
    }

    pub(super) fn subscribe(&mut self, names: &[&str], out: &mut Vec<u8>) {
        let names = names.to_vec();
        let correlation = BULK;
        push(
            &Message::Event(Event::Subscribe {
                names,
                correlation,
                positions: Vec::new(),
            }),
            out,
        );
    }

    pub(super) fn subscribe_pattern(&mut self, pattern: &str, out: &mut Vec<u8>) {
        let message = Event::SubscribePatterns {
            patterns: vec![pattern],
            correlation: BULK,
        };
        push(&Message::Event(message), out);
    }

    pub(super) fn publish(&mut self, name: &str, payload: &str, out: &mut Vec<u8>) {
        let data = Some(payload);
        push(&Message::Event(Event::publication(name, data)), out);
    }

    pub(super) fn open_record(&mut self, name: &str, out: &mut Vec<u8>) {
        let bulk = Record::Bulk {
            action: RecordBulk::SubscribeCreateAndRead,
            names: vec![name],
            correlation: BULK,
        };
        push(&Message::Record(bulk), out);
    }

    pub(super) fn patch(&mut self, name: &str, payload: &str, out: &mut Vec<u8>) {
        let change = Change::CreateAndPatch {
            path: Some(PATCHED_PATH),
            data: Some(payload),
        };
        push_change(name, None, change, out);
    }

    pub(super) fn write(
        &mut self,
        name: &str,
        value: &str,
        number: Option<u64>,
        out: &mut Vec<u8>,
    ) {
        // Each acknowledged write has one, so it must not allocate.
        let mut digits = itoa::Buffer::new();
        let number = number.map(|number| digits.format(number));
        let change = Change::CreateAndUpdate { data: Some(value) };
        push_change(name, number, change, out);
    }

    pub(super) fn head(&mut self, name: &str, out: &mut Vec<u8>) {
        push(&Message::Record(Record::Head { name }), out);
    }

    pub(super) fn subscribe_query(
        &mut self,
        collection: &str,
        query: &str,
        number: u64,
        out: &mut Vec<u8>,
    ) {
        let mut digits = itoa::Buffer::new();
        let subscribe = Query::Subscribe {
            collection,
            query,
            correlation: Some(digits.format(number)),
        };
        push(&Message::Query(subscribe), out);
    }

    pub(super) fn join_scope(&mut self, name: &str, state: &str, out: &mut Vec<u8>) {
        push(&Message::Scope(Scope::Join { name, state }), out);
    }

    pub(super) fn update_scope(&mut self, name: &str, state: &str, out: &mut Vec<u8>) {
        push(&Message::Scope(Scope::Update { name, state }), out);
    }

    pub(super) fn subscribe_scope(&mut self, name: &str, out: &mut Vec<u8>) {
        push(&Message::Scope(Scope::Subscribe { name }), out);
    }

    pub(super) fn provide(&mut self, name: &str, out: &mut Vec<u8>) {
        let provide = Rpc::Provide {
            names: vec![name],
            correlation: BULK,
        };
        push(&Message::Rpc(provide), out);
    }

    pub(super) fn call(&mut self, name: &str, number: u64, out: &mut Vec<u8>) {
        // deepstream's own server distinguishes calls by this alone, for all callers.
        let correlation = format!("{}{CALL_SEPARATOR}{number}", self.user);
        let data = number.to_string();
        let request = Rpc::Request {
            call: Call {
                name,
                correlation: &correlation,
            },
            data: Some(&data),
            requestor_name: None,
            requestor_data: None,
        };
        push(&Message::Rpc(request), out);
    }
}

fn push(message: &Message<'_>, out: &mut Vec<u8>) {
    Codec::encode_masked_frame(message, MASK, out);
}

fn push_change(name: &str, correlation: Option<&str>, change: Change<'_>, out: &mut Vec<u8>) {
    let write = Write {
        name,
        version: -1,
        correlation,
        write_ack: correlation.is_some(),
        key: None,
    };
    push(&Message::Record(Record::Write(write, change)), out);
}

/// A change of another connection. A scenario never subscribes for whole values.
fn take_change<E: From<Unintelligible>>(
    write: &Write<'_>,
    change: &Change<'_>,
    mut handle: impl FnMut(Incoming<'_>) -> Result<(), E>,
) -> Result<(), E> {
    match change {
        Change::Patch { data, .. } => handle(Incoming::Patched {
            name: write.name,
            version: Some(write.version),
            payload: data.unwrap_or_default(),
        }),
        _ => Ok(()),
    }
}

/// The number in a request's correlation id.
fn number(correlation: Option<&str>, message: &Message<'_>) -> Result<u64, Unintelligible> {
    correlation
        .and_then(|number| number.parse().ok())
        .ok_or_else(|| unexpected(message))
}

fn unexpected(message: &Message<'_>) -> Unintelligible {
    Unintelligible(format!("received {message:?}"))
}

#[cfg(test)]
mod tests {
    use tidewire_wire::frame::websocket::{self, Decoder, Role};
    use tidewire_wire::protocol::deepstream::Dialect;

    use super::*;
    use tidewire_wire::message::EventBulk;

    /// The driver's events for a message of the server, and its answers.
    fn take(message: &Message<'_>) -> (Result<Option<String>, Unintelligible>, Vec<String>) {
        let mut payload = Vec::new();
        Codec::encode(Dialect::Client, message, &mut payload);
        let mut out = Vec::new();
        let mut seen = None;
        let result =
            Deepstream::new(7, false).take(PayloadKind::Binary, &payload, &mut out, |incoming| {
                seen = Some(format!("{incoming:?}"));
                Ok::<_, Unintelligible>(())
            });
        (result.map(|()| seen), sent(&mut out))
    }

    /// The messages in frames of a client.
    fn sent(mut frames: &mut [u8]) -> Vec<String> {
        let mut decoder = Decoder::new(Role::Server);
        let mut messages = Vec::new();
        while !frames.is_empty() {
            let decoded = decoder.decode(frames, 1 << 20).unwrap();
            let consumed = decoded.consumed;
            let websocket::Event::Message { payload, .. } = decoded.event else {
                panic!("half a frame");
            };
            messages.push(format!("{:?}", Codec::decode(&payload).unwrap()));
            frames = &mut frames[consumed..];
        }
        messages
    }

    #[test]
    fn required_answers_of_a_client_are_sent() {
        let (seen, answer) = take(&Message::Connection(Connection::Ping));
        assert_eq!(seen, Ok(None));
        assert_eq!(answer, ["Connection(Pong)"]);
        let (seen, answer) = take(&Message::Connection(Connection::Pong));
        assert_eq!((seen, answer.len()), (Ok(None), 0));
        let (_, answer) = take(&Message::Connection(Connection::Accept));
        assert!(answer[0].contains("user-7"), "{answer:?}");
        let call = Call {
            name: "add",
            correlation: "5",
        };
        let request = Message::Rpc(Rpc::Request {
            call,
            data: Some("[1]"),
            requestor_name: None,
            requestor_data: None,
        });
        let (seen, answer) = take(&request);
        assert_eq!(seen, Ok(Some("Served".to_owned())));
        assert!(
            answer[0].contains("Response") && answer[0].contains("[1]"),
            "{answer:?}"
        );
    }

    #[test]
    fn messages_for_the_scenario_reach_it() {
        let check = |message: &Message<'_>, expected: &str| {
            let (seen, answer) = take(message);
            let seen = seen.unwrap().unwrap_or_default();
            assert!(seen.contains(expected), "{seen} for {message:?}");
            assert!(answer.is_empty(), "{answer:?}");
        };
        let emit = Event::publication("news", Some("12"));
        check(&Message::Event(emit), "payload: \"12\"");
        let action = EventBulk::Subscribe;
        let correlation = BULK;
        let ack = Event::Ack {
            action,
            correlation,
        };
        check(&Message::Event(ack), "Subscribed");
        check(&Message::Auth(Auth::Successful { data: None }), "Ready");
        let ack = Record::WriteAck {
            name: "r",
            correlation: Some("9"),
        };
        check(&Message::Record(ack), "number: 9");
        let response = Rpc::Response {
            call: Call {
                name: "add",
                correlation: "7-8",
            },
            data: None,
        };
        check(&Message::Rpc(response), "Response { number: 8 }");
    }

    #[test]
    fn foreign_input_is_refused() {
        let refused = |message: &Message<'_>| take(message).0.is_err();
        assert!(refused(&Message::Connection(Connection::Reject)));
        assert!(refused(&Message::Auth(Auth::TooManyAttempts)));
        let ack = Record::WriteAck {
            name: "r",
            correlation: Some("not a number"),
        };
        assert!(refused(&Message::Record(ack)));
        let mut driver = Deepstream::new(0, false);
        let handle = |_: Incoming<'_>| Ok::<_, Unintelligible>(());
        let result = driver.take(PayloadKind::Binary, &[0xff], &mut Vec::new(), handle);
        assert!(result.is_err());
    }

    #[test]
    fn a_batch_is_taken_message_by_message() {
        let mut batch = Vec::new();
        for data in ["1", "2"] {
            let (name, data) = ("news", Some(data));
            let emit = Message::Event(Event::publication(name, data));
            Codec::encode(Dialect::Client, &emit, &mut batch);
        }
        let seen = |reads_batches: bool, payload: &[u8]| {
            let mut seen = Vec::new();
            let mut driver = Deepstream::new(0, reads_batches);
            let result = driver.take(PayloadKind::Binary, payload, &mut Vec::new(), |incoming| {
                if let Incoming::Delivery { payload, .. } = incoming {
                    seen.push(payload.to_owned());
                }
                Ok::<_, Unintelligible>(())
            });
            (result.is_ok(), seen)
        };
        assert_eq!(seen(true, &batch), (true, vec!["1".into(), "2".into()]));
        // Without the announcement the driver ignores the bytes after the first message.
        assert_eq!(seen(false, &batch), (true, vec!["1".into()]));
        let half = &batch[..batch.len() - 1];
        assert_eq!(seen(true, half), (false, vec!["1".into()]));
    }

    #[test]
    fn batches_are_announced_where_they_are_read() {
        let announced = |reads_batches| {
            let mut out = Vec::new();
            Deepstream::new(0, reads_batches).hello(&mut out);
            sent(&mut out)[0].contains("batches: true")
        };
        assert_eq!((announced(true), announced(false)), (true, false));
    }
}
