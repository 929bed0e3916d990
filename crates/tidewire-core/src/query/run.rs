//! The state of one query that is evaluated once.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use tidewire_query::{EntryKind, Query, Refill, Tape};

use super::collection::{id_of, is_under};
use super::indexed::{IndexedRead, Judged};
use super::rights::decide;
use super::rows::{Rows, TooLarge, refusal};
use crate::address::{Address, SessionId};
use crate::context::ShardContext;
use crate::entry::QueryEntry;
use crate::json;
use crate::message::QueryReason;
use crate::permission::{Access, Decision, Question, RequestedAction, Unknown};
use crate::principal::Principal;
use crate::route::StoreId;
use crate::settings::Settings;
use crate::store::{IndexEnd, IndexEntry, IndexPart, IndexRead, Loaded, ScanPage, Version};
use crate::text::{Name, Payload};
use crate::time::{Instant, Now};

/// Bytes of a page of the store: about the work that one session may cause in a turn.
const PAGE_BYTES: usize = 128 << 10;
/// Records in the first page, when their size is not known.
const PAGE_RECORDS_FIRST: usize = 64;
/// Records in any page.
const PAGE_RECORDS_MAX: usize = 512;
/// Values that rules have read and that are kept for the next records.
const VALUES_MAX: usize = 1_024;

/// Work of an entry of an index, in bytes.
const ENTRY_WORK: usize = 32;

/// Approximate bytes of the name of an unsaved record, whose text its owner has as well.
const UNSAVED_BYTES: usize = 48;

/// Why a query ends without a result.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Failure {
    /// It reads more records than allowed.
    Reads,
    /// Its result is larger than allowed.
    Result,
    /// A store or a node did not answer.
    Unavailable,
}

impl From<TooLarge> for Failure {
    fn from(_: TooLarge) -> Self {
        Self::Result
    }
}

impl Failure {
    /// The refusal of a session's query, which is counted.
    pub(super) fn refusal(self, context: &ShardContext) -> (QueryReason, String) {
        let limits = &context.settings.limits;
        context.count(|refused| match self {
            Self::Reads => refused.query_reads += 1,
            Self::Result => refused.query_results += 1,
            Self::Unavailable => {}
        });
        let (reason, message) = match self {
            Self::Reads => (
                QueryReason::TooLarge,
                format!(
                    "query reads more than {} records (limits.query_reads_max); declare an index of the fields that it uses (collections.NAME.indexes), ask for a smaller collection, or raise the limit",
                    limits.query_reads_max
                ),
            ),
            Self::Result => (
                QueryReason::TooLarge,
                format!(
                    "result has more than {} bytes (limits.query_result_bytes_max); use limit, select or a smaller offset",
                    limits.query_result_bytes_max
                ),
            ),
            Self::Unavailable => (
                QueryReason::Unavailable,
                "a store or a node of the cluster can't be read now; try again".to_owned(),
            ),
        };
        (reason, refusal(&message, None))
    }
}

/// For which purpose records are read.
#[derive(Clone, Debug)]
pub(super) enum Purpose {
    /// A session's query.
    Session {
        session: SessionId,
        correlation: Option<Box<str>>,
        counts: bool,
        explains: bool,
    },
    /// Rows of the live query with this number.
    Live(u64),
}

/// The document of an entry, which entries with the same key share.
struct KnownDocument {
    key: Arc<[u8]>,
    fields: Box<[Box<str>]>,
    /// `None` if the key does not have all fields.
    document: Option<String>,
}

/// The next request to a store.
#[derive(Debug)]
pub(super) enum StoreRead {
    /// A page of the collection.
    Page {
        after: Option<Name>,
        count_max: usize,
    },
    /// Entries of an index.
    Entries(IndexRead),
    /// The records of entries.
    Records(Vec<Name>),
}

/// A record that the query selects and whose read rule needs another record.
#[derive(Debug)]
struct Held {
    name: Name,
    version: Version,
    data: Payload,
    /// The records that its rule has read.
    values: Vec<(Name, Option<Payload>)>,
    /// The record that it needs.
    needs: Name,
}

/// Whether the principal may read a record.
enum Verdict {
    Allowed,
    Denied,
    /// The rule first needs this record.
    Needs(Name),
}

/// The working state of a step: the shard, the time, memory for documents, and the records that rules need, which the caller requests
/// afterwards.
pub(super) struct Step<'s> {
    context: &'s ShardContext,
    now: Now,
    tape: &'s mut Tape,
    pub(super) reads: Vec<Name>,
}

impl<'s> Step<'s> {
    pub(super) fn new(context: &'s ShardContext, now: Now, tape: &'s mut Tape) -> Self {
        Self {
            context,
            now,
            tape,
            reads: Vec::new(),
        }
    }
}

/// Records that are read for a query.
#[derive(Debug)]
pub(super) struct Run {
    pub(super) purpose: Purpose,
    pub(super) principal: Arc<Principal>,
    pub(super) prefix: Name,
    pub(super) text: Payload,
    pub(super) query: Query,
    pub(super) rows: Rows,
    /// The shards that have not sent all of their unsaved records.
    pub(super) unanswered: BTreeSet<Address>,
    /// The records that shards have sent. The stores have older values of them.
    unsaved: BTreeSet<Name>,
    /// The stores that are still to be read, the next one last.
    stores: Vec<StoreId>,
    /// The last record of the page before.
    after: Option<Name>,
    /// How the query reads an index, if it does.
    index: Option<IndexedRead>,
    /// The declared index that helps the query but lacks entries yet.
    unusable: Option<String>,
    /// Whether a page is requested, or the query waits for its turn to request one.
    pub(super) awaits_page: bool,
    read_count: usize,
    page_records: usize,
    /// Records whose rules wait, by the record that they need.
    held: Vec<Held>,
    /// What rules have read. A query evaluates all its records with the same values.
    values: BTreeMap<Name, Result<Option<Payload>, ()>>,
    pub(super) progress: Instant,
    /// The bytes with which the shard counts it.
    pub(super) counted_bytes: usize,
}

impl Run {
    /// Reads for a purpose. `refill` are the rows that a window requests.
    pub(super) fn new(
        purpose: Purpose,
        principal: Arc<Principal>,
        prefix: Name,
        text: &str,
        query: Query,
        refill: Option<Refill>,
        context: &ShardContext,
    ) -> Self {
        let settings = &context.settings;
        let bytes_max = settings.limits.query_result_bytes_max;
        let rows = match refill {
            Some(refill) => Rows::of_window(refill, bytes_max),
            None => Rows::new(&query, bytes_max),
        };
        let counts = matches!(purpose, Purpose::Session { counts: true, .. });
        // Any id: records of a collection usually have one rule.
        let any = format!("{prefix}0");
        let fields = context.permission.read_fields(&principal, &any);
        let index = IndexedRead::of(
            settings,
            &prefix,
            &query,
            rows.rows_max(),
            counts,
            fields.unwrap_or_default(),
        );
        Self {
            purpose,
            principal,
            stores: stores_of(settings, &prefix),
            prefix,
            text: Payload::from_checked(text),
            query,
            rows,
            unanswered: BTreeSet::new(),
            unsaved: BTreeSet::new(),
            after: None,
            index,
            unusable: None,
            awaits_page: false,
            read_count: 0,
            page_records: PAGE_RECORDS_FIRST,
            held: Vec::new(),
            values: BTreeMap::new(),
            progress: Instant(0),
            counted_bytes: 0,
        }
    }

    /// The session whose query it is.
    pub(super) fn session(&self) -> Option<SessionId> {
        match self.purpose {
            Purpose::Session { session, .. } => Some(session),
            Purpose::Live(_) => None,
        }
    }

    /// The request for the unsaved records of a shard.
    pub(super) fn collect(&self, number: u64, reader: Address) -> QueryEntry {
        QueryEntry::Collect {
            run: number,
            reader,
            prefix: self.prefix.clone(),
            query: self.text.clone(),
        }
    }

    /// Bytes that it keeps.
    pub(super) fn bytes(&self) -> usize {
        let unsaved = self.unsaved.len() * UNSAVED_BYTES;
        let entries = self.index.as_ref().map_or(0, |index| index.bytes);
        size_of::<Self>() + self.text.len() + self.rows.bytes() + unsaved + entries
    }

    /// Whether it waits for neither a shard nor a rule's read, so that the next page can be requested or the result is complete.
    pub(super) fn is_ready(&self) -> bool {
        self.unanswered.is_empty() && self.held.is_empty() && !self.awaits_page
    }

    /// The store that is read next; `None` if all are read.
    pub(super) fn store(&self) -> Option<StoreId> {
        self.stores.last().copied()
    }

    /// The next request to the store.
    pub(super) fn store_read(&mut self, context: &ShardContext) -> StoreRead {
        let reads_left = context
            .settings
            .limits
            .query_reads_max
            .saturating_sub(self.read_count);
        if let Some(index) = &mut self.index {
            if let Some(read) = index.entries_request(reads_left) {
                return StoreRead::Entries(read);
            }
            return StoreRead::Records(index.records_request(self.page_records));
        }
        StoreRead::Page {
            after: self.after.clone(),
            count_max: self.page_records,
        }
    }

    /// Takes a record that a shard has sent.
    pub(super) fn unsaved(
        &mut self,
        step: &mut Step<'_>,
        name: Name,
        value: Option<(Version, Payload)>,
    ) -> Result<(), Failure> {
        self.count_read(step.context)?;
        self.unsaved.insert(name.clone());
        match value {
            Some((version, data)) => self.take(step, name, version, data),
            None => Ok(()),
        }
    }

    /// Whether the store that is read serves the record. A record of another prefix is not served from it.
    fn is_served(&self, settings: &Settings, name: &str) -> bool {
        Some(settings.routes.find(name)) == self.store()
            && !is_under(&settings.memory_only_prefixes, name)
    }

    /// Takes a record of the store that is read.
    fn stored(
        &mut self,
        step: &mut Step<'_>,
        name: Name,
        value: Option<(Version, Payload)>,
    ) -> Result<(), Failure> {
        self.count_read(step.context)?;
        let is_served = self.is_served(&step.context.settings, &name);
        self.after = Some(name.clone());
        match value {
            Some((version, data)) if is_served && !self.unsaved.contains(&name) => {
                self.take(step, name, version, data)
            }
            _ => Ok(()),
        }
    }

    /// Takes a page of the store: a page of the collection, or the records of entries.
    pub(super) fn page(&mut self, step: &mut Step<'_>, page: ScanPage) -> Result<(), Failure> {
        let (mut bytes, records) = (0, page.records.len());
        let mut requested = match &mut self.index {
            Some(index) => index.take_requested().into_iter(),
            None => Vec::new().into_iter(),
        };
        for (name, loaded) in page.records {
            let value = match loaded {
                Loaded::Found(record) => Some((record.version, record.data)),
                // A corrupt record is never served.
                Loaded::Missing | Loaded::Corrupt => None,
            };
            bytes += name.len() + value.as_ref().map_or(0, |(_, data)| data.len());
            let count = self.rows.count();
            let is_counted = requested.next().is_some_and(|it| it.is_counted);
            self.stored(step, name, value)?;
            if is_counted {
                self.rows.restore_count(count);
            }
        }
        self.awaits_page = false;
        let record_bytes = bytes / records.max(1) + 1;
        self.page_records = (PAGE_BYTES / record_bytes).clamp(1, PAGE_RECORDS_MAX);
        if self.index.is_none() && !page.more {
            self.store_ended();
        }
        if self.values.len() > VALUES_MAX && self.held.is_empty() {
            self.values.clear();
        }
        Ok(())
    }

    fn store_ended(&mut self) {
        self.stores.pop();
        self.after = None;
        if let Some(index) = &mut self.index {
            index.next_store();
        }
    }

    /// Takes a part of the entries of an index.
    pub(super) fn entries(&mut self, step: &mut Step<'_>, part: IndexPart) -> Result<(), Failure> {
        step.context.count_work(part.entries.len() * ENTRY_WORK);
        let mut known = None;
        for entry in part.entries {
            let is_served = self.is_served(&step.context.settings, &entry.name)
                && !self.unsaved.contains(&entry.name);
            let Some(index) = &mut self.index else {
                continue;
            };
            index.entry_count += 1;
            if !is_served || index.has_read(&entry.name) {
                continue;
            }
            let mut judged = Judged::Open;
            if index.counts_entries && EntryKind::of(&entry.key) == EntryKind::Whole {
                judged = self.judge_entry(step.context, step.now, &entry, &mut known);
            }
            let Some(index) = &mut self.index else {
                continue;
            };
            match judged {
                Judged::Open => index.keep(entry, false),
                Judged::Denied => {}
                Judged::Counts => {
                    self.rows.count_entry();
                    index.keep(entry, true);
                }
            }
        }
        let Some(end) = part.end else {
            return Ok(());
        };
        self.awaits_page = false;
        if end == IndexEnd::Unusable {
            // The collection is read instead.
            if let Some(index) = self.index.take() {
                if index.has_begun() {
                    return Err(Failure::Unavailable);
                }
                let paths: Vec<&str> = index.paths().collect();
                self.unusable = Some(paths.join(", "));
            }
        } else if let Some(index) = &mut self.index {
            if index.counts_entries && end == IndexEnd::More {
                return Err(Failure::Reads);
            }
            index.entries_ended(end);
        }
        Ok(())
    }

    /// Decides about an entry whose record the query selects, as far as the right depends on values only that the entry has. `known` is the
    /// document of the entry before.
    fn judge_entry(
        &self,
        context: &ShardContext,
        now: Now,
        entry: &IndexEntry,
        known: &mut Option<KnownDocument>,
    ) -> Judged {
        let permission = &context.permission;
        let question = Question {
            principal: &self.principal,
            access: Access::RecordRead,
            by: RequestedAction::Query,
            name: Some(&entry.name),
            data: None,
            old_data: None,
            now: now.wall,
            values: &[],
        };
        let unknown = Unknown {
            data: false,
            old_data: true,
        };
        let mut decision = permission.decide_without(&question, unknown);
        if decision.is_none()
            && let Some(fields) = permission.read_fields(&self.principal, &entry.name)
            && let Some(index) = &self.index
        {
            // Entries with equal keys share the key, and nearly always the rule.
            let is_known = known.as_ref().is_some_and(|known| {
                Arc::ptr_eq(&known.key, &entry.key) && *known.fields == *fields
            });
            if !is_known {
                *known = Some(KnownDocument {
                    key: Arc::clone(&entry.key),
                    fields: fields.into(),
                    document: index.document(entry, fields),
                });
            }
            let document = known.as_ref().and_then(|known| known.document.as_deref());
            decision = document.map(|document| {
                permission.decide(&Question {
                    old_data: Some(document),
                    ..question
                })
            });
        }
        match decision {
            Some(Decision::Allow) => Judged::Counts,
            Some(Decision::Deny | Decision::Failed) => Judged::Denied,
            Some(Decision::Need(_)) | None => Judged::Open,
        }
    }

    /// Continues when nothing is awaited: ends stores whose records are all here.
    pub(super) fn advance(&mut self) -> Result<(), Failure> {
        while !self.stores.is_empty()
            && let Some(index) = &mut self.index
        {
            index.stop_behind(&self.prefix, self.rows.last_of_full());
            if index.has_waiting() || index.wants_entries() {
                return Ok(());
            }
            if index.lacks_entries() {
                return Err(Failure::Reads);
            }
            if index.continue_with_all() {
                return Ok(());
            }
            self.store_ended();
        }
        Ok(())
    }

    /// How the records were found, as JSON.
    pub(super) fn explanation(&self) -> String {
        let mut out = String::from("{\"index\":");
        match &self.index {
            Some(index) => {
                out.push('[');
                for (at, path) in index.paths().enumerate() {
                    if at > 0 {
                        out.push(',');
                    }
                    json::string(path, &mut out);
                }
                out.push_str(&format!("],\"entries\":{}", index.entry_count));
            }
            None => out.push_str("null"),
        }
        out.push_str(&format!(",\"records\":{}", self.read_count));
        if self.index.is_none() {
            let collection = self.prefix.trim_end_matches('/');
            let warning = match &self.unusable {
                Some(paths) => format!(
                    "the index [{paths}] of {collection} is being built, so the whole collection was read"
                ),
                None => format!(
                    "no index helps, so the whole collection was read; declare one in collections.{collection}.indexes"
                ),
            };
            out.push_str(",\"warning\":");
            json::string(&warning, &mut out);
        }
        out.push('}');
        out
    }

    /// Takes a value that a rule has requested.
    pub(super) fn value(
        &mut self,
        step: &mut Step<'_>,
        name: Name,
        value: Result<Option<Payload>, ()>,
    ) -> Result<(), Failure> {
        self.values.insert(name.clone(), value);
        let (ready, held) = std::mem::take(&mut self.held)
            .into_iter()
            .partition(|held| held.needs == name);
        self.held = held;
        for mut held in ready {
            let record = (&held.name, &held.data);
            match self.judge(step.context, step.now, record, &mut held.values) {
                Verdict::Allowed => self.add(step, &held)?,
                Verdict::Denied => {}
                Verdict::Needs(needs) => self.hold(step, Held { needs, ..held }),
            }
        }
        Ok(())
    }

    fn count_read(&mut self, context: &ShardContext) -> Result<(), Failure> {
        self.read_count += 1;
        match self.read_count > context.settings.limits.query_reads_max {
            true => Err(Failure::Reads),
            false => Ok(()),
        }
    }

    /// Adds a record to the result if the query selects it and the principal may read it.
    fn take(
        &mut self,
        step: &mut Step<'_>,
        name: Name,
        version: Version,
        data: Payload,
    ) -> Result<(), Failure> {
        step.context.count_work(data.len());
        let Some(id) = id_of(&self.prefix, &name) else {
            return Ok(());
        };
        let mut values = Vec::new();
        let document = step.tape.read(id, u64::from(version.0), data.as_str());
        let Some(document) = document.filter(|it| self.query.selector.matches(it)) else {
            return Ok(());
        };
        match self.judge(step.context, step.now, (&name, &data), &mut values) {
            Verdict::Allowed => {
                let data = data.as_str();
                self.rows.add(&self.query, id, version, &document, data)?;
            }
            Verdict::Denied => {}
            Verdict::Needs(needs) => {
                let held = Held {
                    name,
                    version,
                    data,
                    values,
                    needs,
                };
                self.hold(step, held);
            }
        }
        Ok(())
    }

    fn judge(
        &self,
        context: &ShardContext,
        now: Now,
        record: (&Name, &Payload),
        values: &mut Vec<(Name, Option<Payload>)>,
    ) -> Verdict {
        let reads_max = context.settings.limits.rule_reads_max;
        loop {
            let needs = match decide(context, now, &self.principal, record, values, reads_max) {
                Decision::Allow => return Verdict::Allowed,
                Decision::Deny | Decision::Failed => return Verdict::Denied,
                Decision::Need(needs) => needs,
            };
            match self.values.get(&needs) {
                Some(Ok(value)) => values.push((needs, value.clone())),
                // The rule can't be evaluated, so it does not allow the record.
                Some(Err(())) => return Verdict::Denied,
                None => return Verdict::Needs(needs),
            }
        }
    }

    /// Keeps a record until its rule has the record that it needs.
    fn hold(&mut self, step: &mut Step<'_>, held: Held) {
        if !self.held.iter().any(|other| other.needs == held.needs) {
            step.reads.push(held.needs.clone());
        }
        self.held.push(held);
    }

    /// Adds a record that was held.
    fn add(&mut self, step: &mut Step<'_>, held: &Held) -> Result<(), Failure> {
        let Some(id) = id_of(&self.prefix, &held.name) else {
            return Ok(());
        };
        let (version, data) = (held.version, held.data.as_str());
        if let Some(document) = step.tape.read(id, u64::from(version.0), data) {
            self.rows.add(&self.query, id, version, &document, data)?;
        }
        Ok(())
    }
}

/// The stores that may have records with this prefix, the first one last.
fn stores_of(settings: &Settings, prefix: &str) -> Vec<StoreId> {
    if is_under(&settings.memory_only_prefixes, prefix) {
        return Vec::new();
    }
    let routes = &settings.routes;
    let below = routes
        .prefixes()
        .filter(|(route, _)| route.starts_with(prefix));
    let mut stores: Vec<StoreId> = below.map(|(_, store)| store).collect();
    stores.push(routes.find(prefix));
    stores.sort_unstable();
    stores.dedup();
    stores.reverse();
    stores
}
