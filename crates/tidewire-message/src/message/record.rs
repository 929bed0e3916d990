//! Messages of records, and the meaning of their fields.

use super::{Correlation, Listen, Names, Refusal};

/// The version of a record: -1 means "does not exist" in reads and "whatever is next" in writes.
pub type WireVersion = i32;

/// A state of a record: which creation of its name, and how often it was written since.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Tag {
    /// Which creation.
    pub incarnation: u64,
    /// Its version.
    pub version: WireVersion,
}

impl Tag {
    /// Reads the form that [`Tag`] is displayed in.
    #[must_use]
    pub fn parse(text: &str) -> Option<Self> {
        let (incarnation, version) = text.split_once('-')?;
        let is_plain = |part: &str| part.bytes().all(|byte| byte.is_ascii_alphanumeric());
        if !is_plain(incarnation) || !is_plain(version) {
            return None;
        }
        Some(Self {
            incarnation: u64::from_str_radix(incarnation, 16).ok()?,
            version: version.parse().ok()?,
        })
    }
}

impl std::fmt::Display for Tag {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{:x}-{}", self.incarnation, self.version)
    }
}

/// The state in which a record must be for a change to be made.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Only {
    /// Any, or none.
    Always,
    /// It does not exist.
    Missing,
    /// It exists.
    Present,
    /// It is in this state.
    Is(Tag),
}

/// What every write of a record has.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Write<'a> {
    /// The record.
    pub name: &'a str,
    /// The version that the write expects to make, or -1.
    pub version: WireVersion,
    /// As in the request; identifies the write acknowledgement.
    pub correlation: Correlation<'a>,
    /// Whether the client requests a write acknowledgement.
    pub write_ack: bool,
    /// An acknowledged write with a key is made once, however often it comes with this key: the peer may repeat it where it does not
    /// know whether it was made.
    pub key: Option<WriteKey<'a>>,
}

/// The key of a write that may be repeated.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct WriteKey<'a> {
    /// The peer's own text.
    pub text: &'a str,
    /// For a repetition: the state of the record that the peer had last seen when it first sent the write. If the write may have been
    /// made although its key is not kept, the owner refuses a repetition with this state, and makes one without it again.
    pub seen: Option<Tag>,
}

impl<'a> WriteKey<'a> {
    /// The key of a write that is sent for the first time.
    #[must_use]
    pub fn new(text: &'a str) -> Self {
        Self { text, seen: None }
    }
}

/// Effect of a write.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Change<'a> {
    /// Replaces the whole record.
    Update {
        /// An object or array.
        data: Option<&'a str>,
    },
    /// Sets one path; absent data deletes it.
    Patch {
        /// The path: keys and indexes such as `a.b[0]`.
        path: &'a str,
        /// Any JSON value.
        data: Option<&'a str>,
    },
    /// Deletes one path.
    Erase {
        /// The path; its absence is an error that the engine reports.
        path: Option<&'a str>,
    },
    /// An ordered list of patches, one version step.
    PatchMulti {
        /// A JSON array of `{"path":…,"data":…}`.
        data: Option<&'a str>,
        /// The whole new value, only in messages of the server: for peers that do not know this change.
        full: Option<&'a str>,
    },
    /// As `Update`, and creates the record if it is missing.
    CreateAndUpdate {
        /// An object or array.
        data: Option<&'a str>,
    },
    /// As `Patch`, and creates the record if it is missing.
    CreateAndPatch {
        /// The path; its absence is an error that the engine reports.
        path: Option<&'a str>,
        /// Any JSON value.
        data: Option<&'a str>,
    },
}

/// Messages of records.
#[derive(Clone, Debug, PartialEq)]
pub enum Record<'a> {
    /// Subscribe and its relatives, for many names at once.
    Bulk {
        /// What to do with the names.
        action: RecordBulk,
        /// The records.
        names: Names<'a>,
        /// For the ack.
        correlation: Correlation<'a>,
    },
    /// Acknowledges a bulk message.
    Ack {
        /// Which of the bulk actions.
        action: RecordBulk,
        /// Echoed for `SubscribeCreateAndRead`, `SubscribeAndRead` and `Notify`, else empty.
        names: Names<'a>,
        /// As in the request.
        correlation: Correlation<'a>,
    },
    /// Reads a snapshot.
    Read {
        /// The record.
        name: &'a str,
    },
    /// Asks for a version.
    Head {
        /// The record.
        name: &'a str,
    },
    /// Deletes the record.
    Delete {
        /// The record.
        name: &'a str,
    },
    /// A write. From a client: its own; from the server: of another writer.
    Write(Write<'a>, Change<'a>),
    /// Asks for the value with its state.
    Fetch {
        /// The record.
        name: &'a str,
        /// For the answer.
        correlation: &'a str,
    },
    /// The answer to `Fetch`.
    Fetched {
        /// The record.
        name: &'a str,
        /// As in the request.
        correlation: &'a str,
        /// State and value, absent if it does not exist.
        state: Option<(Tag, &'a str)>,
    },
    /// Replaces or removes a record if it is in a certain state; answered when that is durable.
    Put {
        /// The record.
        name: &'a str,
        /// For the answer.
        correlation: &'a str,
        /// In which state.
        only: Only,
        /// An object or array; absent to remove the record.
        data: Option<&'a str>,
    },
    /// The answer to `Put`: done, and durable.
    Stored {
        /// The record.
        name: &'a str,
        /// As in the request.
        correlation: &'a str,
        /// Whether there was such a record before.
        existed: bool,
        /// The state that was made, absent if the record is gone.
        tag: Option<Tag>,
    },
    /// Checks, replaces and removes several records in one step; answered when that is durable.
    Commit {
        /// The records.
        names: Names<'a>,
        /// For the answer.
        correlation: &'a str,
        /// A JSON array with an operation for each name: an object with `data` to replace the record, with `data: null` to remove it, or
        /// without `data` to leave it as it is. `if` is the state in which the record must be: `missing`, `present`, or the text of a
        /// [`Tag`].
        data: Option<&'a str>,
    },
    /// The answer to `Commit`: done, and durable.
    Committed {
        /// As in the request.
        correlation: &'a str,
        /// A JSON array with the state of each record afterwards, in the order of the request: the text of a [`Tag`], or null if it does
        /// not exist.
        data: &'a str,
    },
    /// The answer to `Put` or `Commit`: nothing was done, because the record is in another state.
    PreconditionFailed {
        /// The record.
        name: &'a str,
        /// As in the request.
        correlation: &'a str,
        /// The state, absent if there is no such record.
        tag: Option<Tag>,
    },
    /// The answer to a read.
    ReadResponse {
        /// The record.
        name: &'a str,
        /// Its version.
        version: WireVersion,
        /// Its value.
        data: &'a str,
        /// Its incarnation; absent if it does not exist.
        incarnation: Option<u64>,
    },
    /// The answer to `Head`.
    HeadResponse {
        /// The record.
        name: &'a str,
        /// Its version, -1 if it does not exist.
        version: WireVersion,
    },
    /// The answer to `SubscribeAndHead`.
    HeadResponseBulk {
        /// Names and versions.
        versions: Vec<(&'a str, WireVersion)>,
    },
    /// The record is deleted; to the client that requested the deletion.
    DeleteSuccess {
        /// The record.
        name: &'a str,
    },
    /// The record is gone; to its other subscribers, whose subscriptions end.
    Deleted {
        /// The record.
        name: &'a str,
    },
    /// The write is on disk.
    WriteAck {
        /// The record.
        name: &'a str,
        /// As in the request.
        correlation: Correlation<'a>,
    },
    /// Tells a subscriber whether the record has a provider.
    HasProvider {
        /// The record.
        name: &'a str,
        /// Whether the record has a provider.
        provided: bool,
    },
    /// Listening; the vocabulary is shared with events.
    Listen(Listen<'a>),
    /// A refused request.
    Error(Refusal<'a, RecordAction>),
}

/// The bulk actions of records.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum RecordBulk {
    /// Subscribe only.
    Subscribe,
    /// Unsubscribe.
    Unsubscribe,
    /// Subscribe, create a missing record, read.
    SubscribeCreateAndRead,
    /// Subscribe and read.
    SubscribeAndRead,
    /// Subscribe and ask for versions.
    SubscribeAndHead,
    /// The data changed behind the server's back: load again, tell the subscribers.
    Notify,
}

impl RecordBulk {
    /// Whether the answer has the values of the records.
    #[must_use]
    pub fn reads(self) -> bool {
        matches!(self, Self::SubscribeCreateAndRead | Self::SubscribeAndRead)
    }
}

/// The actions of a record message that an error answer can refer to.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum RecordAction {
    /// A bulk action.
    Bulk(RecordBulk),
    /// Read.
    Read,
    /// Head.
    Head,
    /// Delete.
    Delete,
    /// Update.
    Update,
    /// Patch.
    Patch,
    /// Erase.
    Erase,
    /// Patch multi.
    PatchMulti,
    /// Create and update.
    CreateAndUpdate,
    /// Create and patch.
    CreateAndPatch,
    /// Listen.
    Listen,
}

impl Change<'_> {
    /// The action that an error answer to this change refers to.
    #[must_use]
    pub fn action(&self) -> RecordAction {
        match self {
            Self::Update { .. } => RecordAction::Update,
            Self::Patch { .. } => RecordAction::Patch,
            Self::Erase { .. } => RecordAction::Erase,
            Self::PatchMulti { .. } => RecordAction::PatchMulti,
            Self::CreateAndUpdate { .. } => RecordAction::CreateAndUpdate,
            Self::CreateAndPatch { .. } => RecordAction::CreateAndPatch,
        }
    }
}
