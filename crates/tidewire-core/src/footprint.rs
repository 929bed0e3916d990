//! Bytes of memory that the engine keeps for its sessions: one figure for each kind of item, so that owners, sessions and tests use the
//! same numbers.
//!
//! The figures apply to a 64-bit machine. They include the allocator's header of each block and the reserve of tables that double.
//! `crates/tidewire/tests/memory_attacks.rs` compares their sum with the memory of a running server.

/// The counters of a shared text and the header of its block.
const TEXT_BYTES: usize = 32;

/// A subscribed name: its entry among the channels of the shard, with its members.
pub(crate) const CHANNEL_BYTES: usize = 160;

/// A name whose members on the shard have several wire formats: the entry with their numbers.
pub(crate) const FORMAT_COUNTS_BYTES: usize = 96;

/// An event or a user with subscribers: its entry in the interest map that all shards share.
pub(crate) const INTEREST_BYTES: usize = 144;

/// One subscription: the member's entry in the channel and the channel's in the session.
pub(crate) const MEMBERSHIP_BYTES: usize = 32;

/// A record that a session is subscribed to or has requested: its entry in the session.
pub(crate) const SUBSCRIPTION_BYTES: usize = 96;

/// An rpc that a session provides: its entry in the session.
pub(crate) const PROVIDED_BYTES: usize = 40;

/// An rpc with providers: its entry at its owner, with the first four providers.
pub(crate) const PROVIDERS_BYTES: usize = 160;

/// One provider of an rpc at its owner: its entry in the name's list, and the name in the provider's list, with two calls.
pub(crate) const PROVIDER_BYTES: usize = 112;

/// A pattern on one shard, without the expression.
pub(crate) const PATTERN_ENTRY_BYTES: usize = 96;

/// A name that may be offered to listeners: its entries at its owner, in a queue and among the names of a pattern. The text is shared
/// with the record or event.
pub(crate) const WANTED_BYTES: usize = 224;

/// One segment of an event pattern: its node in the trie of the shard and in the interest that all shards share.
pub(crate) const PATTERN_SEGMENT_BYTES: usize = 320;

/// An event that waits for one session because a rule needs a record, without the event itself, which other sessions may share.
pub(crate) const WAITING_EVENT_BYTES: usize = 96;

/// A call without its texts: the call, its two timers and its entries by requestor and provider.
pub(crate) const CALL_BYTES: usize = 720;

/// A record at its owner, without its name and value: its entries in the tables and its share of their spare room.
pub(crate) const RECORD_BYTES: usize = 256;

/// A request that waits for a record, without the data that it writes.
pub(crate) const JOB_BYTES: usize = 384;

/// The timer of a request that waits for a load. It may hold the only reference to the text of the name.
pub(crate) const LOAD_TIMER_BYTES: usize = 128;

/// A record that its store does not have yet, without its value: its entries in the queue and in the batch, and the first session that
/// waits for it.
pub(crate) const DIRTY_BYTES: usize = 512;

/// A remembered key of a write, with a name and a key of usual length.
pub(crate) const WRITE_KEY_BYTES: usize = 384;

/// Bytes of a text with its header. A shared text counts for each of its users.
pub(crate) fn text_bytes(text: &str) -> usize {
    text.len() + TEXT_BYTES
}
