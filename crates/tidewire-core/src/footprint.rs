//! Bytes of memory that the engine keeps for its sessions: one figure for each kind of thing, so that owners, sessions and tests
//! count alike.
//!
//! The figures are those of a 64-bit machine, with the allocator's own header of each block and the room that doubling tables hold in
//! reserve. `crates/tidewire/tests/memory_attacks.rs` holds their sum against the memory of a running server.

/// The counters of a shared text and the header of its block.
const TEXT_BYTES: usize = 32;

/// A subscribed name: its entry among the channels of the shard, with its members.
pub(crate) const CHANNEL_BYTES: usize = 160;

/// An event or a user that is subscribed to: its entry in the interest map that all shards share.
pub(crate) const INTEREST_BYTES: usize = 144;

/// One subscription: the member's entry in the channel and the channel's in the session.
pub(crate) const MEMBERSHIP_BYTES: usize = 32;

/// A record that a session is subscribed to or has asked for: its entry among the session's own.
pub(crate) const SUBSCRIPTION_BYTES: usize = 96;

/// An rpc that a session provides: its entry among the session's own.
pub(crate) const PROVIDED_BYTES: usize = 40;

/// An rpc with providers: its entry at its owner, with the first four providers.
pub(crate) const PROVIDERS_BYTES: usize = 160;

/// One provider of an rpc at its owner: its entry among the providers, and the name among those of the provider, with two calls.
pub(crate) const PROVIDER_BYTES: usize = 112;

/// A pattern with its regular expression, which all shards share. Compiled, `a/.*` takes 5 KB; what matching keeps comes to as much
/// again on each shard that has used it.
pub(crate) const PATTERN_BYTES: usize = 16 << 10;

/// A pattern on one shard, beside the expression.
pub(crate) const PATTERN_ENTRY_BYTES: usize = 96;

/// A name that listeners may be asked for: its entries at its owner, in a queue and among the names of a pattern. The text is the
/// record's or the event's own.
pub(crate) const WANTED_BYTES: usize = 224;

/// A call beside its texts: the call, its two timers and its entries by requestor and provider.
pub(crate) const CALL_BYTES: usize = 720;

/// A request that waits for a record, beside what it writes.
pub(crate) const JOB_BYTES: usize = 384;

/// The timer of a request that waits for a load, which may have the text of the name for itself.
pub(crate) const LOAD_TIMER_BYTES: usize = 128;

/// A record that its store has not got yet, beside its value: its entries in the queue and in the batch, and the first session that
/// waits for it.
pub(crate) const DIRTY_BYTES: usize = 512;

/// A remembered key of a write, with a name and a key of usual length.
pub(crate) const WRITE_KEY_BYTES: usize = 384;

/// A text: one of its own, or one that is shared by all who keep it.
pub(crate) fn text_bytes(text: &str) -> usize {
    text.len() + TEXT_BYTES
}
