//! Every kind of message there is, made of the texts and numbers of one pool. The round-trip property and the seeds
//! of the fuzzer use it.

use tidewire_core::attachments::{ATTACHMENTS_MAX, Attachments};
use tidewire_core::binary::Binary;
use tidewire_core::message::{
    Auth, Call, Change, Connection, Event, EventAction, EventBulk, Listen, Message, Only, Position,
    Presence, PresenceAction, Publication, Reason, Record, RecordAction, RecordBulk, Refusal, Rpc,
    RpcAction, Scope, ScopeAction, ScopeReason, Tag, Topic, Write, WriteKey,
};
use tidewire_core::time::Instant;
use tidewire_core::trace::Trace;

/// What messages are filled with.
#[derive(Clone, Debug)]
pub struct Pool {
    pub name: String,
    pub subscription: String,
    pub data: Option<String>,
    pub json: String,
    pub correlation: Option<String>,
    pub names: Vec<String>,
    pub versions: Vec<(String, i32)>,
    pub version: i32,
    pub write_ack: bool,
}

/// The reasons of all primitives.
const REFUSED: [Reason; 3] = [Reason::Denied, Reason::RuleFailed, Reason::InvalidData];

const RECORD_BULKS: [RecordBulk; 6] = [
    RecordBulk::Subscribe,
    RecordBulk::Unsubscribe,
    RecordBulk::SubscribeCreateAndRead,
    RecordBulk::SubscribeAndRead,
    RecordBulk::SubscribeAndHead,
    RecordBulk::Notify,
];

const SCOPE_REASONS: [ScopeReason; 8] = [
    ScopeReason::Denied,
    ScopeReason::RuleFailed,
    ScopeReason::Invalid,
    ScopeReason::TooLarge,
    ScopeReason::TooMany,
    ScopeReason::Full,
    ScopeReason::NotMember,
    ScopeReason::Unavailable,
];
const PRESENCE_ACTIONS: [PresenceAction; 6] = [
    PresenceAction::QueryAll,
    PresenceAction::Query,
    PresenceAction::Subscribe,
    PresenceAction::Unsubscribe,
    PresenceAction::SubscribeAll,
    PresenceAction::UnsubscribeAll,
];

impl Pool {
    /// One message or more of each kind, in their decoded form, without the fields of an error answer that an encoder
    /// does not write.
    pub fn messages(&self) -> Vec<Message<'_>> {
        let mut messages = vec![
            Message::UnknownTopic,
            Message::UnknownAction {
                topic: Topic::Record,
                action: 99,
            },
        ];
        messages.extend(self.connections().into_iter().map(Message::Connection));
        messages.extend(self.auths().into_iter().map(Message::Auth));
        messages.extend(self.events().into_iter().map(Message::Event));
        messages.extend(
            self.listens()
                .into_iter()
                .map(|listen| Message::Event(Event::Listen(listen))),
        );
        messages.extend(self.records().into_iter().map(Message::Record));
        messages.extend(
            self.listens()
                .into_iter()
                .map(|listen| Message::Record(Record::Listen(listen))),
        );
        messages.extend(self.writes().into_iter().map(Message::Record));
        messages.extend(
            self.record_errors()
                .into_iter()
                .map(|error| Message::Record(Record::Error(error))),
        );
        messages.extend(self.rpcs().into_iter().map(Message::Rpc));
        messages.extend(self.presences().into_iter().map(Message::Presence));
        messages.extend(self.scopes().into_iter().map(Message::Scope));
        messages
    }

    fn data(&self) -> Option<&str> {
        self.data.as_deref()
    }

    fn correlation(&self) -> Option<&str> {
        self.correlation.as_deref()
    }

    fn names(&self) -> Vec<&str> {
        self.names.iter().map(String::as_str).collect()
    }

    fn position(&self) -> Position {
        Position {
            epoch: 1 << 40 | u64::from(self.version.unsigned_abs()),
            offset: self.version.unsigned_abs().into(),
        }
    }

    fn binary(&self) -> Binary {
        let bytes = [self.json.as_bytes(), &self.version.to_be_bytes()].concat();
        Binary::new(self.correlation(), bytes)
    }

    fn attachments(&self) -> Option<Attachments> {
        let names = self.names.iter().map(String::as_bytes);
        Attachments::new(names.chain([self.json.as_bytes()]).take(ATTACHMENTS_MAX))
    }

    fn trace(&self) -> Trace {
        Trace {
            id: [
                self.write_ack.into(),
                2,
                3,
                4,
                5,
                6,
                7,
                8,
                9,
                10,
                11,
                12,
                13,
                14,
                15,
                16,
            ],
            span: (1 << 40 | u64::from(self.version.unsigned_abs())).to_be_bytes(),
            is_sampled: self.write_ack,
            since: Instant::default(),
        }
    }

    fn refusal<A>(&self, reason: Reason, action: A) -> Refusal<'_, A> {
        Refusal {
            correlation: self.correlation(),
            ..self.named_refusal(reason, action)
        }
    }

    fn named_refusal<A>(&self, reason: Reason, action: A) -> Refusal<'_, A> {
        Refusal {
            name: Some(&self.name),
            ..Refusal::new(reason, action)
        }
    }

    fn record_refusal(&self, reason: Reason, action: RecordAction) -> Refusal<'_, RecordAction> {
        Refusal {
            write_ack: self.write_ack,
            ..self.refusal(reason, action)
        }
    }

    /// A refusal whose correlation id is written for acknowledged writes only.
    fn load_refusal(&self, reason: Reason, action: RecordAction) -> Refusal<'_, RecordAction> {
        let correlation = self.correlation().filter(|_| self.write_ack);
        Refusal {
            correlation,
            ..self.record_refusal(reason, action)
        }
    }

    fn connections(&self) -> Vec<Connection<'_>> {
        vec![
            Connection::Ping,
            Connection::Pong,
            Connection::Accept,
            self.data()
                .map_or(Connection::Accept, |limits| Connection::AcceptWithin {
                    limits,
                }),
            Connection::Challenge {
                url: Some(&self.name),
                protocol_version: self.correlation(),
                sdk_version: Some(&self.subscription),
                sdk_type: self.data(),
                batches: self.write_ack,
                coalesces: self.write_ack,
            },
            Connection::Reject,
            Connection::Redirect { url: &self.name },
            Connection::AuthenticationTimeout,
            Connection::InvalidMessage,
        ]
    }

    fn auths(&self) -> Vec<Auth<'_>> {
        vec![
            Auth::Request { data: self.data() },
            Auth::Successful { data: self.data() },
            Auth::Unsuccessful { data: self.data() },
            Auth::TooManyAttempts,
            Auth::InvalidMessage,
            Auth::InvalidMessageData,
        ]
    }

    fn events(&self) -> Vec<Event<'_>> {
        let correlation = self.correlation();
        let mut events = vec![
            Event::publication(&self.name, self.data()),
            Event::Subscribe {
                names: self.names(),
                correlation,
                positions: Vec::new(),
            },
            Event::Subscribe {
                names: self.names(),
                correlation,
                positions: vec![
                    (&self.name, None),
                    (&self.subscription, Some(self.position())),
                ],
            },
            Event::Publication(Publication::new(
                &self.name,
                self.data(),
                Some(self.position().offset),
                None,
            )),
            Event::Publication(Publication::new(
                &self.name,
                self.data(),
                self.write_ack.then(|| self.position().offset),
                Some(self.trace()),
            )),
            Event::Publication(
                Publication::new(&self.name, None, None, None).with_binary(Some(self.binary())),
            ),
            Event::Publication(
                Publication::new(&self.name, None, Some(self.position().offset), None)
                    .with_binary(Some(self.binary())),
            ),
            Event::Publication(
                Publication::new(&self.name, self.data(), None, None)
                    .with_attachments(self.attachments()),
            ),
            Event::Publication(
                Publication::new(&self.name, self.data(), None, Some(self.trace()))
                    .with_attachments(self.attachments()),
            ),
            Event::Position {
                name: &self.name,
                position: self.position(),
            },
            Event::HistoryGap {
                name: &self.name,
                missed: Some(self.version.unsigned_abs()),
                first: Some(self.position()),
            },
            Event::HistoryGap {
                name: &self.name,
                missed: None,
                first: None,
            },
            Event::Unsubscribe {
                names: self.names(),
                correlation,
            },
            Event::Ack {
                action: EventBulk::Subscribe,
                correlation,
            },
            Event::Ack {
                action: EventBulk::Unsubscribe,
                correlation,
            },
            Event::Gap {
                name: &self.name,
                missed: self.version.unsigned_abs(),
            },
            Event::SubscribePatterns {
                patterns: self.names(),
                correlation,
            },
            Event::UnsubscribePatterns {
                patterns: self.names(),
                correlation,
            },
            Event::Ack {
                action: EventBulk::SubscribePatterns,
                correlation,
            },
            Event::Ack {
                action: EventBulk::UnsubscribePatterns,
                correlation,
            },
            Event::PatternGap {
                pattern: &self.name,
                missed: self.version.unsigned_abs(),
            },
            Event::Error(self.named_refusal(
                Reason::MultipleSubscriptions,
                EventAction::SubscribePatterns,
            )),
            Event::Error(self.refusal(Reason::InvalidPattern, EventAction::SubscribePatterns)),
            Event::Error(self.named_refusal(Reason::MultipleSubscriptions, EventAction::Subscribe)),
        ];
        for action in [
            EventAction::Emit,
            EventAction::Subscribe,
            EventAction::Listen,
            EventAction::SubscribePatterns,
        ] {
            let refusals = REFUSED.map(|reason| Event::Error(self.refusal(reason, action)));
            events.extend(refusals);
        }
        events
    }

    fn listens(&self) -> Vec<Listen<'_>> {
        let (pattern, subscription) = (self.name.as_str(), self.subscription.as_str());
        vec![
            Listen::Listen { pattern },
            Listen::Unlisten { pattern },
            Listen::ListenAck { pattern },
            Listen::UnlistenAck { pattern },
            Listen::Accept {
                pattern,
                subscription,
            },
            Listen::Reject {
                pattern,
                subscription,
            },
            Listen::Found {
                pattern,
                subscription,
            },
            Listen::Removed {
                pattern,
                subscription,
            },
            Listen::ResponseTimeout { subscription },
            Listen::InvalidPattern { pattern },
            Listen::AlreadyListening { pattern },
        ]
    }

    fn records(&self) -> Vec<Record<'_>> {
        let (name, version, correlation) = (self.name.as_str(), self.version, self.correlation());
        let versions = self
            .versions
            .iter()
            .map(|(name, version)| (name.as_str(), *version))
            .collect();
        let tag = Tag {
            incarnation: u64::MAX,
            version,
        };
        let mut records = vec![
            Record::Read { name },
            Record::Head { name },
            Record::Delete { name },
            Record::ReadResponse {
                name,
                version,
                data: &self.json,
                incarnation: None,
            },
            Record::ReadResponse {
                name,
                version,
                data: &self.json,
                incarnation: Some(tag.incarnation),
            },
            Record::HeadResponse { name, version },
            Record::HeadResponseBulk { versions },
            Record::DeleteSuccess { name },
            Record::Deleted { name },
            Record::WriteAck { name, correlation },
            Record::Fetch {
                name,
                correlation: name,
            },
            Record::Fetched {
                name,
                correlation: name,
                state: None,
            },
            Record::Fetched {
                name,
                correlation: name,
                state: Some((tag, &self.json)),
            },
            Record::Put {
                name,
                correlation: name,
                only: Only::Missing,
                data: Some(&self.json),
            },
            Record::Put {
                name,
                correlation: name,
                only: Only::Is(tag),
                data: None,
            },
            Record::Stored {
                name,
                correlation: name,
                existed: true,
                tag: Some(tag),
            },
            Record::PreconditionFailed {
                name,
                correlation: name,
                tag: None,
            },
            Record::Commit {
                names: self.names(),
                correlation: name,
                data: Some(&self.json),
            },
            Record::Committed {
                correlation: name,
                data: &self.json,
            },
            Record::HasProvider {
                name,
                provided: true,
            },
            Record::HasProvider {
                name,
                provided: false,
            },
        ];
        for action in RECORD_BULKS {
            records.push(Record::Bulk {
                action,
                names: self.names(),
                correlation,
            });
            records.push(Record::Ack {
                action,
                names: self.names(),
                correlation,
            });
        }
        records
    }

    fn writes(&self) -> Vec<Record<'_>> {
        let write = Write {
            name: &self.name,
            version: self.version,
            correlation: self.correlation(),
            write_ack: self.write_ack,
            key: None,
        };
        let (path, data) = (self.subscription.as_str(), self.data());
        [
            Change::Update { data },
            Change::Patch { path, data },
            Change::Erase { path: Some(path) },
            Change::Erase { path: None },
            Change::PatchMulti { data, full: None },
            Change::CreateAndUpdate { data },
            Change::CreateAndPatch {
                path: Some(path),
                data,
            },
            Change::CreateAndPatch { path: None, data },
        ]
        .into_iter()
        .flat_map(|change| {
            let text = self.subscription.as_str();
            let seen = Some(Tag {
                incarnation: u64::MAX,
                version: self.version,
            });
            let first = Some(WriteKey::new(text));
            let again = Some(WriteKey { text, seen });
            [None, first, again].map(|key| Record::Write(Write { key, ..write }, change))
        })
        .collect()
    }

    fn record_errors(&self) -> Vec<Refusal<'_, RecordAction>> {
        let mut errors = vec![
            self.named_refusal(
                Reason::MultipleSubscriptions,
                RecordAction::Bulk(RecordBulk::Subscribe),
            ),
            self.record_refusal(Reason::UpdateFailed, RecordAction::Update),
            self.named_refusal(Reason::DeleteFailed, RecordAction::Delete),
            Refusal {
                data: Some(&self.json),
                correlation: self.correlation(),
                ..Refusal::new(Reason::NotifyFailed, RecordAction::Bulk(RecordBulk::Notify))
            },
        ];
        let actions = [
            RecordAction::Read,
            RecordAction::Head,
            RecordAction::Delete,
            RecordAction::Update,
            RecordAction::Patch,
            RecordAction::Erase,
            RecordAction::PatchMulti,
            RecordAction::CreateAndUpdate,
            RecordAction::CreateAndPatch,
            RecordAction::Listen,
        ];
        for action in actions
            .into_iter()
            .chain(RECORD_BULKS.map(RecordAction::Bulk))
        {
            errors.extend(REFUSED.map(|reason| self.record_refusal(reason, action)));
            let load = [
                Reason::LoadTimeout,
                Reason::LoadFailed,
                Reason::CreateFailed,
            ];
            errors.extend(load.map(|reason| self.load_refusal(reason, action)));
            let conflict = Refusal {
                version: Some(self.version),
                ..self.record_refusal(Reason::VersionExists, action)
            };
            let with_value = Refusal {
                data: Some(&self.json),
                ..conflict
            };
            errors.extend([
                self.record_refusal(Reason::PatchOnHotPath, action),
                self.record_refusal(Reason::WriteUnknown, action),
                Refusal {
                    data: Some(&self.json),
                    ..self.record_refusal(Reason::TransactionRefused, action)
                },
                self.named_refusal(Reason::NotFound, action),
                conflict.because(Reason::InvalidVersion),
                with_value,
                conflict,
            ]);
        }
        errors
    }

    fn rpcs(&self) -> Vec<Rpc<'_>> {
        let correlation = self.correlation();
        let call = Call {
            name: &self.name,
            correlation: &self.subscription,
        };
        let mut rpcs = vec![
            Rpc::Provide {
                names: self.names(),
                correlation,
            },
            Rpc::Unprovide {
                names: self.names(),
                correlation,
            },
            Rpc::Ack {
                provide: true,
                correlation,
            },
            Rpc::Ack {
                provide: false,
                correlation,
            },
            Rpc::Request {
                call,
                data: self.data(),
                requestor_name: self.correlation(),
                requestor_data: Some(&self.json),
            },
            Rpc::Request {
                call,
                data: self.data(),
                requestor_name: None,
                requestor_data: None,
            },
            Rpc::Accept(call),
            Rpc::Reject(call),
            Rpc::Response {
                call,
                data: self.data(),
            },
            Rpc::RequestError {
                call,
                data: self.data(),
            },
            Rpc::Error(self.named_refusal(Reason::MultipleProviders, RpcAction::Provide)),
            Rpc::Error(call.refusal(Reason::NoProvider, RpcAction::Request)),
            Rpc::Error(call.refusal(Reason::AcceptTimeout, RpcAction::Request)),
            Rpc::Error(call.refusal(Reason::ResponseTimeout, RpcAction::Request)),
            Rpc::Error(call.refusal(Reason::MultipleAccept, RpcAction::Accept)),
        ];
        for action in [
            RpcAction::Provide,
            RpcAction::Request,
            RpcAction::Accept,
            RpcAction::Response,
            RpcAction::RequestError,
            RpcAction::Reject,
        ] {
            rpcs.extend(REFUSED.map(|reason| Rpc::Error(self.refusal(reason, action))));
            rpcs.push(Rpc::Error(call.refusal(Reason::InvalidCorrelation, action)));
        }
        rpcs
    }

    fn scopes(&self) -> Vec<Scope<'_>> {
        let name = self.name.as_str();
        let data = self.json.as_str();
        let mut scopes = vec![
            Scope::Join { name, state: data },
            Scope::Joined { name, data },
            Scope::Update { name, state: data },
            Scope::Leave { name },
            Scope::Subscribe { name },
            Scope::Unsubscribe { name },
            Scope::Snapshot { name, data },
            Scope::Changed { name, data },
        ];
        for action in [
            ScopeAction::Join,
            ScopeAction::Update,
            ScopeAction::Subscribe,
        ] {
            scopes.extend(SCOPE_REASONS.map(|reason| Scope::Error {
                reason,
                action,
                name,
            }));
        }
        scopes
    }

    fn presences(&self) -> Vec<Presence<'_>> {
        let correlation = self.correlation();
        let mut presences = vec![
            Presence::QueryAll,
            Presence::QueryAllResponse {
                names: self.names(),
            },
            Presence::Query {
                names: self.names(),
                correlation,
            },
            Presence::QueryResponse {
                correlation,
                data: &self.json,
            },
            Presence::Subscribe {
                names: self.names(),
                correlation,
            },
            Presence::Unsubscribe {
                names: self.names(),
                correlation,
            },
            Presence::SubscribeAll,
            Presence::UnsubscribeAll,
        ];
        for (online, all) in [(true, true), (true, false), (false, true), (false, false)] {
            presences.push(Presence::Changed {
                name: &self.name,
                online,
                all,
            });
        }
        for action in PRESENCE_ACTIONS {
            let nameless = Refusal {
                name: None,
                ..self.refusal(Reason::Denied, action)
            };
            presences.extend([
                Presence::Ack {
                    action,
                    correlation,
                },
                Presence::Error(nameless),
                Presence::Error(self.named_refusal(Reason::MultipleSubscriptions, action)),
            ]);
            presences.extend(REFUSED.map(|reason| Presence::Error(self.refusal(reason, action))));
        }
        presences
    }
}
