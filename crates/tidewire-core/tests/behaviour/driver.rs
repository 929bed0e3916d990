//! A node of few shards, or several nodes, without sockets. Posts arrive at once, interest is visible at once, logins are accepted, and the store
//! answers when the test lets it.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::sync::Arc;
use std::time::Duration;

use tidewire_core::address::{Address, Epoch, SessionId};
use tidewire_core::effect::{
    AuthCompletion, AuthOutcome, AuthRequest, CloseReason, Effects, Flow, Format, Input,
    InterestChange, Span, StoreCompletion, StoreRequest,
};
use tidewire_core::engine::{Counts, Shard, ShardConfig};
use tidewire_core::entry::Entry;
use tidewire_core::event_pattern;
use tidewire_core::history::old_history;
use tidewire_core::history_rules::HistoryRules;
use tidewire_core::indexes::{Tape, belongs, parse_definition};
use tidewire_core::message::{Auth, Change, Connection, Message, Record, Write};
use tidewire_core::permission::{AllowAll, Permission};
use tidewire_core::principal::Principal;
use tidewire_core::publication::InterestTopic;
use tidewire_core::quota::QuotaChange;
use tidewire_core::rights::RightsChange;
use tidewire_core::route::{StoreId, StoreRoutes};
use tidewire_core::settings::Settings;
use tidewire_core::slot::{ClusterKey, Member, SlotTable};
use tidewire_core::store::{
    Incarnation, IndexEnd, IndexEntry, IndexPart, IndexRead, Loaded, Opened, ScanPage, StoreChange,
    StoreError, StoreWrite, StoredRecord, Version, View, Written,
};
use tidewire_core::text::{Name, Payload};
use tidewire_core::time::{Instant, Now, WallTime};
use tidewire_core::view::{
    ClusterView, Generation, MemberId, Profile, SlotEpochs, StoredView, ViewMember,
};

/// A write of a whole record with any version and with an acknowledgement.
pub fn set<'a>(name: &'a str, data: &'a str) -> Message<'a> {
    let write = Write {
        name,
        version: -1,
        correlation: Some("1"),
        write_ack: true,
        key: None,
    };
    Message::Record(Record::Write(
        write,
        Change::CreateAndUpdate { data: Some(data) },
    ))
}

/// A record that another owner wrote to the store.
pub fn foreign(version: u32) -> StoredRecord {
    StoredRecord {
        incarnation: Incarnation(77),
        version: Version(version),
        data: Payload::from_checked(r#"{"foreign":true}"#),
        write_keys: None,
    }
}

/// The entries that an index of these records has.
fn entries_of(stored: &BTreeMap<Name, StoredRecord>, read: &IndexRead) -> IndexPart {
    let (collection, index) = parse_definition(&read.definition).expect("a definition");
    let prefix = format!("{collection}/");
    let mut tape = Tape::new();
    let of_collection = stored.iter().filter(|(name, _)| belongs(&prefix, name));
    let mut all: Vec<IndexEntry> = of_collection
        .map(|(name, record)| IndexEntry {
            key: index
                .key(tape.read("", 0, record.data.as_str()).as_ref())
                .into(),
            name: name.clone(),
        })
        .collect();
    all.sort_by(|left, right| (&left.key, &left.name).cmp(&(&right.key, &right.name)));
    let mut entries = Vec::new();
    for (low, high) in &read.ranges {
        let within = |entry: &&IndexEntry| **low <= *entry.key && *entry.key < **high;
        let mut found: Vec<IndexEntry> = all.iter().filter(within).cloned().collect();
        if read.descending {
            found.reverse();
        }
        entries.append(&mut found);
    }
    let has_more = entries.len() > read.count_max;
    entries.truncate(read.count_max);
    IndexPart {
        entries,
        end: Some(match has_more {
            true => IndexEnd::More,
            false => IndexEnd::Complete,
        }),
    }
}

/// The messages that a session received, in their debug form, which names every field.
pub type Seen = Vec<String>;

#[derive(Default)]
struct World {
    /// One log for all formats; an offset is the number of a message.
    log: Vec<String>,
    /// Entries with the shards that have posted them and that get them.
    posts: VecDeque<(Address, Address, Entry)>,
    publications: Vec<(Address, Address, Entry)>,
    interest: Option<u64>,
    store: VecDeque<StoreRequest>,
    logins: Vec<AuthRequest>,
    closed: Vec<(SessionId, CloseReason)>,
    /// Close messages of sessions, which arrive after all other messages.
    close_messages: Vec<(SessionId, String)>,
    resumed: Vec<SessionId>,
    awaited: BTreeSet<SessionId>,
    /// Entries that went from one shard to another.
    hops: usize,
    /// Records that the engine loaded from the stores.
    loads: Vec<Name>,
    /// The number of all shards, and the number for each node.
    shards: u16,
    node_shards: u16,
    own_address: Option<Address>,
    /// The patterns of events that shards have subscribers of.
    patterns: BTreeSet<(u16, String)>,
}

impl World {
    /// The address of a shard, from its index among the shards of all nodes.
    fn address(&self, index: u16) -> Address {
        Address {
            node: index / self.node_shards,
            shard: index % self.node_shards,
        }
    }

    fn index(&self, address: Address) -> u16 {
        address.node * self.node_shards + address.shard
    }

    fn own(&self) -> Address {
        self.own_address.expect("a shard posts")
    }
}

impl Effects for World {
    fn append(&mut self, _format: Format, message: &Message<'_>) -> Span {
        self.log.push(format!("{message:?}"));
        let end = self.log.len() as u64;
        Span {
            start: end - 1,
            end,
        }
    }

    fn post(&mut self, to: Address, entry: Entry) {
        self.hops += 1;
        self.posts.push_back((self.own(), to, entry));
    }

    fn publish(&mut self, _topic: InterestTopic, _name: &str, entry: impl Fn() -> Entry) {
        // Every shard has interest here; a shard without subscribers drops the publication.
        for shard in 0..self.shards {
            let to = self.address(shard);
            if Some(to) != self.own_address {
                self.publications.push((self.own(), to, entry()));
            }
        }
    }

    fn visit_pattern_shards(&self, event: &str, mut visit: impl FnMut(Address)) {
        for (shard, pattern) in &self.patterns {
            let address = self.address(*shard);
            if Some(address) != self.own_address && event_pattern::matches(pattern, event) {
                visit(address);
            }
        }
    }

    fn interest(&mut self, number: u64, change: InterestChange) {
        if change.topic == InterestTopic::EventPattern
            && let Some(own) = self.own_address
        {
            let key = (self.index(own), change.name.to_string());
            let is_changed = match change.wanted {
                true => self.patterns.insert(key),
                false => self.patterns.remove(&key),
            };
            assert!(is_changed, "a shard announces each change once");
        }
        self.interest = Some(number);
    }

    fn store(&mut self, request: StoreRequest) {
        if let StoreRequest::Load { names, .. } = &request {
            self.loads.extend(names.iter().cloned());
        }
        self.store.push_back(request);
    }

    fn authenticate(&mut self, request: AuthRequest) {
        self.logins.push(request);
    }

    fn close(&mut self, session: SessionId, reason: CloseReason) {
        self.closed.push((session, reason));
        let close_message = reason.close_messages().iter();
        self.close_messages
            .extend(close_message.map(|message| (session, format!("{message:?}"))));
    }

    fn resume(&mut self, session: SessionId) {
        self.resumed.push(session);
    }

    fn await_drained(&mut self, session: SessionId) {
        self.awaited.insert(session);
    }
}

/// The key of the slot hash.
const KEY: ClusterKey = ClusterKey([11; 16]);
/// The number of stores of the node. Only routes lead to the second store.
pub const STORES: usize = 2;

/// The answer of a store to its opening with this number.
fn opened(opening: u64) -> Opened {
    Opened {
        epoch: Epoch(opening),
        opening,
    }
}

/// A node under test, with its sessions and stores.
pub struct Node {
    shards: Vec<Shard>,
    world: World,
    pub now: Now,
    routes: StoreRoutes,
    /// How often the stores were opened before.
    openings: u64,
    /// The content of each store.
    stored: [BTreeMap<Name, StoredRecord>; STORES],
    /// The stores that are down: their loads and commits fail.
    pub down: BTreeSet<StoreId>,
    seen: BTreeMap<SessionId, Seen>,
    next_session: u32,
    /// The number of the last change of rights.
    changes: u64,
    /// The births of the nodes, 0 for a lost one.
    births: Vec<u64>,
    /// The version of the protocol between nodes.
    level: u16,
    /// Whether the stores leave requests unanswered, until the test lets them answer.
    pub store_hangs: bool,
    unanswered: Vec<(u16, StoreRequest)>,
    /// Whether commits fail.
    pub commits_fail: bool,
    /// Whether another server has opened the store, so that commits fail with a stale view.
    pub is_deposed: bool,
    /// Whether the node holds posts to other shards back.
    holds_posts: bool,
    /// Whether loads fail.
    pub loads_fail: bool,
    /// Whether indexes lack entries, so that queries can't use them.
    pub indexes_lack_entries: bool,
    /// The reads of indexes that the store has answered with entries.
    pub index_reads: usize,
    /// The outcome of logins. If absent, every login is accepted as the user `open`.
    pub login_outcome: Option<AuthOutcome>,
    /// The delay of the answers to logins, and whether the answer is a final refusal.
    pub login_wait: Option<(Duration, bool)>,
}

impl Node {
    /// Creates a node of one shard that allows every operation.
    pub fn new(settings: Settings) -> Self {
        Self::with(1, settings, Arc::new(AllowAll))
    }

    /// Numbers of dirty records of a shard, by store.
    pub fn dirty_by_store(&self, shard: usize) -> Vec<usize> {
        self.shards[shard].dirty_by_store().collect()
    }

    /// The record that a store has under a name, whatever the name's route.
    pub fn stored_in(&self, store: StoreId, name: &str) -> Option<&StoredRecord> {
        self.stored[store.index()].get(name)
    }

    /// Creates a node.
    pub fn with(shards: u16, settings: Settings, permission: Arc<dyn Permission>) -> Self {
        Self::with_openings(shards, settings, permission, 0)
    }

    /// Creates a node whose stores were opened `openings` times before.
    fn with_openings(
        shards: u16,
        settings: Settings,
        permission: Arc<dyn Permission>,
        openings: u64,
    ) -> Self {
        Self::of((1, shards), settings, permission, openings)
    }

    /// Creates nodes that allow every operation, with a view of all in which they have no links yet. Methods with the number of a shard count
    /// the shards of all nodes.
    pub fn cluster(nodes: u16, shards: u16, settings: Settings, level: u16) -> Self {
        let mut cluster = Self::of((nodes, shards), settings, Arc::new(AllowAll), 0);
        cluster.adopt_of_level(1, level);
        cluster
    }

    /// Links all nodes.
    pub fn link(&mut self) {
        let nodes = self.births.len() as u16;
        for shard in 0..self.world.shards {
            let address = self.world.address(shard);
            self.world.own_address = Some(address);
            for node in (0..nodes).filter(|node| *node != address.node) {
                let birth = self.births[usize::from(node)];
                let engine = &mut self.shards[usize::from(shard)];
                let joined = engine.node_joined(self.now, node, birth, &mut self.world);
                joined.expect("the node is new");
            }
        }
        self.settle();
    }

    /// All nodes adopt a view in which they speak this version of the protocol between nodes.
    pub fn adopt_of_level(&mut self, number: u64, level: u16) {
        self.level = level;
        let nodes: Vec<u16> = (0..self.births.len() as u16).collect();
        self.adopt_view(number, &nodes, "");
    }

    fn of(
        (nodes, node_shards): (u16, u16),
        settings: Settings,
        permission: Arc<dyn Permission>,
        openings: u64,
    ) -> Self {
        let members = (0..nodes).map(|node| Member {
            node,
            shard_count: node_shards,
            weight: 1,
        });
        let slots = Arc::new(SlotTable::new(&KEY, members.collect()));
        let shards: Vec<Shard> = (0..nodes * node_shards)
            .map(|index| {
                Shard::new(ShardConfig {
                    address: Address {
                        node: index / node_shards,
                        shard: index % node_shards,
                    },
                    slots: Arc::clone(&slots),
                    settings: settings.clone(),
                    permission: permission.clone(),
                    seed: 7,
                    opened: (1..=STORES as u64)
                        .map(|store| opened(openings + store))
                        .collect(),
                })
            })
            .collect();
        let world = World {
            shards: shards.len() as u16,
            node_shards,
            ..World::default()
        };
        let now = Now {
            monotonic: Instant(1_000_000_000),
            wall: WallTime(1_700_000_000_000),
        };
        Self {
            shards,
            world,
            now,
            routes: settings.routes,
            openings,
            stored: Default::default(),
            down: BTreeSet::new(),
            seen: BTreeMap::new(),
            next_session: 0,
            changes: 0,
            births: vec![1; usize::from(nodes)],
            level: 6,
            store_hangs: false,
            unanswered: Vec::new(),
            commits_fail: false,
            is_deposed: false,
            holds_posts: false,
            loads_fail: false,
            indexes_lack_entries: false,
            index_reads: 0,
            login_outcome: None,
            login_wait: None,
        }
    }

    /// Connects a peer that introduces itself before it logs in.
    pub fn connect(&mut self, shard: u16) -> SessionId {
        self.open(shard, None)
    }

    /// Connects a peer; if `coalesces` is given, it logs in at once.
    pub fn open(&mut self, shard: u16, coalesces: Option<bool>) -> SessionId {
        let session = SessionId {
            address: self.world.address(shard),
            index: self.next_session,
            generation: 0,
        };
        self.next_session += 1;
        self.input(
            shard,
            Input::Opened {
                session,
                format: Format(0),
                coalesces,
            },
        );
        session
    }

    /// Connects and logs in on shard 0.
    pub fn login(&mut self) -> SessionId {
        self.login_on(0)
    }

    /// Connects and logs in.
    pub fn login_on(&mut self, shard: u16) -> SessionId {
        self.login_as(shard, false)
    }

    /// Connects and logs in as a user.
    pub fn login_as_user(&mut self, shard: u16, user: &str) -> SessionId {
        let principal = Arc::new(Principal::new(user.into()));
        let before = self.login_outcome.replace(AuthOutcome::Accepted(principal));
        let session = self.login_on(shard);
        self.login_outcome = before;
        session
    }

    /// Connects as a client that coalesces, and logs in.
    pub fn login_coalescing(&mut self, shard: u16) -> SessionId {
        self.login_as(shard, true)
    }

    fn login_as(&mut self, shard: u16, coalesces: bool) -> SessionId {
        let session = self.connect(shard);
        let challenge = Connection::challenge(coalesces);
        self.send(session, &Message::Connection(challenge));
        self.send(session, &Message::Auth(Auth::Request { data: Some("{}") }));
        let seen = self.take(session);
        assert!(
            seen.last().is_some_and(|last| last.contains("Successful")),
            "{seen:?}"
        );
        session
    }

    /// Sets the origin (address) of a session.
    pub fn set_origin(&mut self, session: SessionId, origin: u16) {
        self.shards[usize::from(self.world.index(session.address))].set_origin(session, origin);
    }

    /// Passes a message of a session to its shard and runs all that follows.
    pub fn send(&mut self, session: SessionId, message: &Message<'_>) {
        let shard = self.world.index(session.address);
        loop {
            self.world.own_address = Some(session.address);
            let flow = self.shards[usize::from(shard)].message(
                self.now,
                session,
                message,
                &mut self.world,
            );
            self.settle();
            if flow == Flow::Taken {
                return;
            }
            // The message may have to wait until the session's earlier work is paid.
            while !self.world.resumed.contains(&session) && self.turn() {}
            assert!(
                self.world.resumed.contains(&session),
                "the message waits for ever"
            );
            self.world.resumed.clear();
        }
    }

    /// Passes a message of a session to its shard once. Returns whether the shard took it. If not, [`Node::is_resumed`] shows
    /// when to try again.
    pub fn offer(&mut self, session: SessionId, message: &Message<'_>) -> bool {
        self.world.resumed.retain(|resumed| *resumed != session);
        self.world.own_address = Some(session.address);
        let shard = &mut self.shards[usize::from(self.world.index(session.address))];
        let flow = shard.message(self.now, session, message, &mut self.world);
        self.settle();
        flow == Flow::Taken
    }

    /// Whether the test may send a message again that had to wait.
    pub fn is_resumed(&self, session: SessionId) -> bool {
        self.world.resumed.contains(&session)
    }

    /// Whether an ended session still holds something.
    pub fn is_leaving(&self, session: SessionId) -> bool {
        self.shards[usize::from(self.world.index(session.address))].is_leaving(session)
    }

    /// Sends a message and returns the session's messages since the last call.
    pub fn ask(&mut self, session: SessionId, message: &Message<'_>) -> Seen {
        self.send(session, message);
        self.take(session)
    }

    /// The messages that a session received since the last call.
    pub fn take(&mut self, session: SessionId) -> Seen {
        self.seen.remove(&session).unwrap_or_default()
    }

    /// Delays the next answer of a session.
    pub fn delay(&mut self, session: SessionId, wait: Duration, refuse: bool) {
        let until = self.now.monotonic + wait;
        let delay = Input::Delay {
            session,
            until,
            refuse,
        };
        self.input(self.world.index(session.address), delay);
    }

    /// Connects a peer that requests to be served by backends.
    pub fn back(&mut self, shard: u16, namespace: &str) -> SessionId {
        let session = self.open(shard, Some(false));
        self.back_again(session, namespace);
        session
    }

    /// The same for a peer that is connected.
    pub fn back_again(&mut self, session: SessionId, namespace: &str) {
        let backed = Input::Backed {
            session,
            namespace: namespace.into(),
            handshake: Payload::from_checked(r#"{"auth":{}}"#),
        };
        self.input(self.world.index(session.address), backed);
    }

    /// The peer ends a session.
    pub fn leave(&mut self, session: SessionId) {
        self.input(self.world.index(session.address), Input::Left { session });
        self.close(session);
    }

    /// Takes the transport of a session away.
    pub fn detach(&mut self, session: SessionId) {
        self.input(
            self.world.index(session.address),
            Input::Detached { session },
        );
    }

    /// Gives a detached session a transport.
    pub fn attach(&mut self, session: SessionId) {
        self.input(
            self.world.index(session.address),
            Input::Attached { session },
        );
    }

    /// Reports that a session lags.
    pub fn lag(&mut self, session: SessionId) {
        self.input(
            self.world.index(session.address),
            Input::Lagging { session },
        );
    }

    /// Reports that a session has read its backlog.
    pub fn drained(&mut self, session: SessionId) {
        self.world.awaited.remove(&session);
        self.input(
            self.world.index(session.address),
            Input::Drained { session },
        );
    }

    /// Begins a turn on every shard, and lets every session read its backlog. Returns whether a shard has more work at once.
    pub fn turn(&mut self) -> bool {
        self.begin_turns();
        for session in std::mem::take(&mut self.world.awaited) {
            self.drained(session);
        }
        let has_work = self.shards.iter().any(Shard::has_work);
        has_work || !self.world.awaited.is_empty()
    }

    /// Begins a turn on every shard; no session reads.
    pub fn begin_turns(&mut self) {
        for shard in 0..self.world.shards {
            self.world.own_address = Some(self.world.address(shard));
            self.shards[usize::from(shard)].begin_turn(self.now, &mut self.world);
            self.settle();
        }
    }

    /// Holds posts back until [`Node::release_posts`].
    pub fn hold_posts(&mut self) {
        self.holds_posts = true;
    }

    /// Delivers the posts that were held back.
    pub fn release_posts(&mut self) {
        self.holds_posts = false;
        self.settle();
    }

    /// Delivers the last one of the posts that were held back, and holds the others.
    pub fn release_last_post(&mut self) {
        let (from, to, entry) = self.world.posts.pop_back().expect("a post");
        self.deliver(from, to, entry);
    }

    /// Whether the engine waits until this session has read its backlog.
    pub fn is_awaited(&self, session: SessionId) -> bool {
        self.world.awaited.contains(&session)
    }

    /// A store reports its quotas to all shards.
    pub fn quota(&mut self, change: &QuotaChange) {
        for shard in 0..self.world.shards {
            let (store, change) = (StoreId::DEFAULT, change.clone());
            self.input(
                shard,
                Input::Store(StoreCompletion::Quota { store, change }),
            );
        }
    }

    /// Ends a connection.
    pub fn close(&mut self, session: SessionId) {
        self.input(self.world.index(session.address), Input::Closed { session });
    }

    /// Lets time pass.
    pub fn pass(&mut self, duration: Duration) {
        self.now.monotonic = self.now.monotonic + duration;
        self.now.wall.0 +=
            u64::try_from(duration.as_millis()).expect("tests wait for days at most");
        for shard in 0..self.world.shards {
            self.input(shard, Input::DeadlineReached);
        }
    }

    /// Changes the rules and waits until every shard has settled them.
    pub fn set_rules(&mut self, permission: Arc<dyn Permission>) {
        self.begin_change(RightsChange::Rules(permission));
        self.finish_changes();
    }

    /// Sends a change to shard 0; the other shards learn of it from its marker.
    pub fn begin_change(&mut self, change: RightsChange) {
        self.changes += 1;
        let number = self.changes;
        self.input(0, Input::Rights { number, change });
    }

    /// Waits until every shard has settled all changes.
    pub fn finish_changes(&mut self) {
        let is_settled = |shard: &Shard, number| shard.settled() == number;
        for _ in 0..10_000 {
            let mut shards = self.shards.iter();
            if shards.all(|shard| is_settled(shard, self.changes)) {
                return;
            }
            self.go_on();
        }
        panic!("the change is never settled");
    }

    /// Runs one slice of queued work, such as reauthorization, on each shard.
    pub fn go_on(&mut self) {
        for shard in 0..self.world.shards {
            let due = self.shards[usize::from(shard)].next_deadline();
            if due.is_some_and(|due| due <= self.now.monotonic) {
                self.input(shard, Input::DeadlineReached);
            }
        }
    }

    /// Whether a shard has queued work that is due at once.
    pub fn has_work(&self) -> bool {
        let due = self.shards.iter().map(Shard::next_deadline);
        due.into_iter()
            .flatten()
            .any(|due| due <= self.now.monotonic)
    }

    /// Runs all queued work, slice by slice. Returns the number of slices.
    pub fn finish_work(&mut self) -> usize {
        let mut slices = 0;
        while self.has_work() {
            self.go_on();
            slices += 1;
            assert!(slices < 100_000, "the work never ends");
        }
        slices
    }

    /// Drains the node: its shards refuse new calls.
    pub fn drain(&mut self) {
        for shard in 0..self.world.shards {
            self.input(shard, Input::Drain);
        }
    }

    /// Why the engine has closed the connection, if it has.
    pub fn close_reason(&self, session: SessionId) -> Option<CloseReason> {
        self.world
            .closed
            .iter()
            .find(|(closed, _)| *closed == session)
            .map(|(_, reason)| *reason)
    }

    /// The patterns of events that shards have announced, each with its shard.
    pub fn announced_patterns(&self) -> &BTreeSet<(u16, String)> {
        &self.world.patterns
    }

    /// The counters of a shard.
    pub fn counts(&self, shard: usize) -> Counts {
        self.shards[shard].counts()
    }

    /// Bytes that the shard keeps for a session.
    pub fn kept_for(&self, session: SessionId) -> usize {
        self.shards[usize::from(self.world.index(session.address))].kept_for(session.index)
    }

    /// Sets the room that the node's memory budget leaves to a shard.
    pub fn set_room(&mut self, shard: usize, bytes: usize) {
        self.shards[shard].set_room(bytes);
    }

    /// Makes a shard evict this number of bytes from its cache. Returns the number that it evicted.
    pub fn shrink_cache(&mut self, shard: usize, bytes: usize) -> usize {
        self.shards[shard].shrink_cache(bytes)
    }

    /// Number of entries that shards have sent to each other since the last call.
    pub fn take_hops(&mut self) -> usize {
        std::mem::take(&mut self.world.hops)
    }

    /// Records that the engine loaded from the stores since the last call.
    pub fn take_loads(&mut self) -> Vec<Name> {
        std::mem::take(&mut self.world.loads)
    }

    /// Puts a record into the store without the engine's knowledge.
    pub fn store_has(&mut self, name: &str, record: StoredRecord) {
        let store = self.routes.find(name).index();
        self.stored[store].insert(name.into(), record);
    }

    /// Removes a record from the store without the engine's knowledge.
    pub fn store_loses(&mut self, name: &str) {
        let store = self.routes.find(name).index();
        self.stored[store].remove(name);
    }

    /// Adopts a view of this node alone, made while its store had this generation.
    pub fn adopt(&mut self, number: u64, generation: &str) {
        self.adopt_view(number, &[0], generation);
        for shard in &self.shards {
            assert_eq!(shard.handed_over(), View(number));
        }
    }

    /// The shards of these nodes adopt a view of them.
    fn adopt_view(&mut self, number: u64, nodes: &[u16], generation: &str) {
        let profile = Profile {
            shard_count: self.world.node_shards,
            ..Profile::default()
        };
        let members = nodes.iter().map(|node| {
            let birth = self.births[usize::from(*node)];
            ViewMember::active(MemberId { node: *node, birth }, profile.clone())
        });
        let view = StoredView {
            number: View(number),
            key: Some(KEY),
            level: self.level,
            members: members.collect(),
            epochs: SlotEpochs::all(Epoch(1)),
            generation: Generation(generation.into()),
        };
        let view = ClusterView::of(&view).expect("the nodes own slots");
        for shard in 0..self.world.shards {
            let address = self.world.address(shard);
            if nodes.contains(&address.node) {
                self.world.own_address = Some(address);
                self.shards[usize::from(shard)].adopt(self.now, &view, &mut self.world);
            }
        }
        self.settle();
    }

    /// A node is lost with the entries of its shards that have not arrived.
    pub fn lose_node(&mut self, node: u16) {
        self.cut(node);
        for shard in 0..self.world.shards {
            if self.is_live(shard) {
                self.give(shard, Input::NodeLost { node });
            }
        }
        self.settle();
    }

    /// The same before the others know it.
    pub fn cut(&mut self, node: u16) {
        self.births[usize::from(node)] = 0;
        let is_of = |address: &Address| address.node == node;
        self.world
            .posts
            .retain(|(from, to, _)| !is_of(from) && !is_of(to));
    }

    fn is_live(&self, shard: u16) -> bool {
        self.births[usize::from(self.world.address(shard).node)] > 0
    }

    /// Takes over the stores and the time of another node, whose shards are gone.
    pub fn take_over_store(&mut self, other: Self) {
        self.stored = other.stored;
        self.now = other.now;
    }

    /// Kills the node and starts another one with its stores, which allows every operation. The stores have not done the requests that
    /// they left unanswered.
    pub fn restart(self, settings: Settings) -> Self {
        let openings = self.openings + STORES as u64;
        let mut next =
            Self::with_openings(self.world.shards, settings, Arc::new(AllowAll), openings);
        next.take_over_store(self);
        next
    }

    /// Number of records in all stores.
    pub fn stored_count(&self) -> usize {
        self.stored.iter().map(BTreeMap::len).sum()
    }

    /// Searches the stores for histories that may be too old, as the sweep does. Returns the number of names found.
    pub fn sweep_histories(&mut self, rules: &HistoryRules) -> usize {
        let wall = self.now.wall;
        let stored = self.stored.iter().flatten();
        let old = stored.filter_map(|(name, record)| old_history(name, record, rules, wall));
        let names: Vec<Name> = old.collect::<BTreeSet<_>>().into_iter().collect();
        let count = names.len();
        self.input(0, Input::Store(StoreCompletion::OldHistories(names)));
        count
    }

    /// Removes all matching names from the stores, as if they were corrupt.
    pub fn lose_stored(&mut self, is_lost: impl Fn(&str) -> bool) {
        for stored in &mut self.stored {
            stored.retain(|name, _| !is_lost(name));
        }
    }

    /// The stored record of a name, in the store of its route.
    pub fn stored(&self, name: &str) -> Option<&StoredRecord> {
        self.stored[self.routes.find(name).index()].get(name)
    }

    /// Delivers an entry of a shard to another one. Lost nodes get none.
    fn deliver(&mut self, from: Address, to: Address, entry: Entry) {
        let index = self.world.index(to);
        if !self.is_live(index) || self.births[usize::from(from.node)] == 0 {
            return;
        }
        let birth = self.births[usize::from(from.node)];
        let input = match from.node == to.node {
            true => Input::Entry(entry),
            false => Input::Linked { from, birth, entry },
        };
        self.give(index, input);
    }

    /// Delivers an entry that no shard has posted.
    pub fn forge(&mut self, to: u16, entry: Entry) {
        self.input(to, Input::Entry(entry));
    }

    fn input(&mut self, shard: u16, input: Input) {
        self.give(shard, input);
        self.settle();
    }

    fn give(&mut self, shard: u16, input: Input) {
        self.world.own_address = Some(self.world.address(shard));
        self.shards[usize::from(shard)].handle(self.now, input, &mut self.world);
        if let Some(up_to) = self.world.interest.take() {
            self.shards[usize::from(shard)].handle(
                self.now,
                Input::InterestVisible { up_to },
                &mut self.world,
            );
        }
    }

    /// The store answers all requests that it received while it hung.
    pub fn answer_store(&mut self) {
        self.store_hangs = false;
        for (shard, request) in std::mem::take(&mut self.unanswered) {
            let completion = self.answer(request);
            self.give(shard, Input::Store(completion));
        }
        self.settle();
    }

    /// Runs until no work is left.
    fn settle(&mut self) {
        for shard in 0..self.world.shards {
            // Interest that the last message has changed.
            if let Some(up_to) = self.world.interest.take() {
                let shard = self
                    .world
                    .own_address
                    .map_or(shard, |address| self.world.index(address));
                self.give(shard, Input::InterestVisible { up_to });
            }
        }
        loop {
            self.world
                .posts
                .extend(std::mem::take(&mut self.world.publications));
            if !self.holds_posts
                && let Some((from, to, entry)) = self.world.posts.pop_front()
            {
                self.deliver(from, to, entry);
                continue;
            }
            if let Some(login) = self.world.logins.pop() {
                let outcome = self.login_outcome.clone().unwrap_or_else(|| {
                    AuthOutcome::Accepted(Arc::new(Principal::new("open".into())))
                });
                let session = login.session;
                if let Some((wait, refuse)) = self.login_wait {
                    let until = self.now.monotonic + wait;
                    let delay = Input::Delay {
                        session,
                        until,
                        refuse,
                    };
                    self.give(self.world.index(session.address), delay);
                }
                self.give(
                    self.world.index(session.address),
                    Input::Auth(AuthCompletion { session, outcome }),
                );
                continue;
            }
            let mut asked = false;
            for shard in 0..self.world.shards {
                self.world.own_address = Some(self.world.address(shard));
                self.shards[usize::from(shard)].end_turn(self.now, &mut self.world);
                let requests: Vec<StoreRequest> = self.world.store.drain(..).collect();
                for request in requests {
                    if self.store_hangs {
                        self.unanswered.push((shard, request));
                    } else {
                        let completion = self.answer(request);
                        self.give(shard, Input::Store(completion));
                        asked = true;
                    }
                }
            }
            // The end of a turn may post changes.
            if !asked && (self.holds_posts || self.world.posts.is_empty()) {
                break;
            }
        }
        for shard in &mut self.shards {
            let (log, seen) = (&self.world.log, &mut self.seen);
            shard.flush(|session, _, spans| {
                for span in spans {
                    let messages = &log[span.start as usize..span.end as usize];
                    seen.entry(session).or_default().extend_from_slice(messages);
                }
            });
        }
        for (session, message) in self.world.close_messages.drain(..) {
            self.seen.entry(session).or_default().push(message);
        }
    }

    fn write(&mut self, store: StoreId, write: &StoreWrite) -> Written {
        let kept = &mut self.stored[store.index()];
        let stored = kept.get(&write.name);
        if write.change.is_done(stored) {
            return Written::Done;
        }
        if !write.expected.is_met(stored) {
            return Written::Refused;
        }
        match &write.change {
            StoreChange::Put(record) => kept.insert(write.name.clone(), record.clone()),
            StoreChange::Delete => kept.remove(&write.name),
        };
        Written::Done
    }

    fn answer(&mut self, request: StoreRequest) -> StoreCompletion {
        let failed = StoreError::unavailable("the test says so");
        match request {
            StoreRequest::Load { store, names } => {
                let fails = self.loads_fail || self.down.contains(&store);
                let records = names
                    .into_iter()
                    .map(|name| {
                        let found = self.stored[store.index()]
                            .get(&name)
                            .cloned()
                            .map_or(Loaded::Missing, Loaded::Found);
                        let failed = fails.then(|| failed.clone());
                        (name, failed.map_or(Ok(found), Err))
                    })
                    .collect();
                StoreCompletion::Loaded { records }
            }
            StoreRequest::Scan {
                store,
                number,
                prefix,
                after,
                count_max,
            } => {
                let fails = self.loads_fail || self.down.contains(&store);
                let stored = self.stored[store.index()].iter();
                let mut found: Vec<(Name, Loaded)> = stored
                    .filter(|(name, _)| name.starts_with(&*prefix))
                    .filter(|(name, _)| after.as_ref().is_none_or(|after| *name > after))
                    .map(|(name, record)| (name.clone(), Loaded::Found(record.clone())))
                    .take(count_max + 1)
                    .collect();
                let more = found.len() > count_max;
                found.truncate(count_max);
                let page = ScanPage {
                    records: found,
                    more,
                };
                StoreCompletion::Scanned {
                    number,
                    page: if fails { Err(failed) } else { Ok(page) },
                }
            }
            StoreRequest::Find {
                store,
                number,
                names,
            } => {
                let fails = self.loads_fail || self.down.contains(&store);
                let stored = &self.stored[store.index()];
                let records = names.into_iter().map(|name| {
                    let found = stored.get(&name).cloned();
                    (name, found.map_or(Loaded::Missing, Loaded::Found))
                });
                let page = ScanPage {
                    records: records.collect(),
                    more: false,
                };
                StoreCompletion::Scanned {
                    number,
                    page: if fails { Err(failed) } else { Ok(page) },
                }
            }
            StoreRequest::Index {
                store,
                number,
                read,
            } => {
                let fails = self.loads_fail || self.down.contains(&store);
                let part = match self.indexes_lack_entries {
                    true => IndexPart {
                        entries: Vec::new(),
                        end: Some(IndexEnd::Unusable),
                    },
                    false => {
                        self.index_reads += 1;
                        entries_of(&self.stored[store.index()], &read)
                    }
                };
                StoreCompletion::Indexed {
                    number,
                    part: if fails { Err(failed) } else { Ok(part) },
                }
            }
            StoreRequest::Commit { store, batch, .. }
                if self.commits_fail || self.down.contains(&store) =>
            {
                StoreCompletion::Committed {
                    store,
                    batch,
                    result: Err(failed),
                }
            }
            StoreRequest::Commit { store, batch, .. } if self.is_deposed => {
                StoreCompletion::Committed {
                    store,
                    batch,
                    result: Err(StoreError::stale_view(View(1), View(2), false)),
                }
            }
            StoreRequest::Commit {
                store,
                batch,
                writes,
            } => {
                let write = |write| self.write(store, write);
                let written = writes.iter().map(write).collect();
                StoreCompletion::Committed {
                    store,
                    batch,
                    result: Ok(written),
                }
            }
        }
    }
}
