//! Rpc: calls, their providers and their timers.
//!
//! The owner of an rpc name runs its calls. A call is identified by (requestor, correlation id). An answer counts only if it comes from
//! the provider that has the call.
//!
//! | What | Where it is kept |
//! |---|---|
//! | the names that a session provides | the session's shard: `SessionState::provided`. It knows a withdrawal before the owner does |
//! | the number and bytes of a requestor's calls | the session's shard: `Session::calls` and `Session::kept_bytes` |
//! | the providers of a name, its running calls and their timers | the shard that owns the name: `RpcOwner` |
//!
//! # The life of one call at its owner
//!
//! ```text
//!             1 request               2 accept
//!  +--------+ ---------> +----------+ ---------> +----------+
//!  | absent |            | assigned |            | accepted |
//!  +--------+ <--------- +----------+ <--------- +----------+
//!      ^      4 finish      |    ^     3 reroute       |
//!      |                    +----+                     |
//!      |                   3 reroute                   |
//!      +-----------------------------------------------+
//!                          4 finish
//! ```
//!
//! | State | In the code |
//! |---|---|
//! | absent | no entry in `RpcOwner::calls` |
//! | assigned | a `Running` that is not `accepted`: the provider got the call; both timers run |
//! | accepted | a `Running` that is `accepted`; only the timer of the response counts |
//!
//! 1. `request`, then `assign`: a random provider gets the call, in a cluster one on the requestor's node first. Without a provider, or if
//!    the requestor has a call of that correlation id already, the call fails at once.
//! 2. `accept`: the requestor gets a notice. A second acceptance is refused.
//! 3. `reroute`, then `assign`: the provider rejects the call, has withdrawn the name before it got the call, has lost its right to the name
//!    (`revoke_step`), or its session has ended (`end_session_step`). A random provider that was not tried yet gets the call under a new
//!    number. If none is left, the call fails and is absent.
//! 4. `finish`: the provider responds or reports an error, or one of its timers ends (`deadline_reached`). The requestor gets the result.
//!
//! If the session of the requestor ends, its calls become absent without a notice (`end_session_step`). A late answer finds no call, and its
//! provider gets an error.
//!
//! # Files
//!
//! At the session's shard:
//! - [`session`]: checks requests and answers, posts them to the owners, and sends sessions the messages of their calls.
//! - [`registration`]: a session provides a name, withdraws it, or loses its right to it.
//!
//! Owner:
//! - [`owner`]: the state of an owner, and the entries and deadlines that drive it.
//! - `owner/participant.rs`: the registrations and calls of each session, and the providers of each name.
//! - `owner/call.rs`: assigns calls, handles their answers, and ends them.
//! - `owner/ending.rs`: the ends of sessions and registrations, in steps: a turn makes a limited number of them.
//!
//! Both: `entry/rpc.rs` has the bytes that a call takes.

mod owner;
mod registration;
mod session;

pub(crate) use owner::RpcOwner;
pub(crate) use registration::{announce, lose};
pub(crate) use session::{deliver, message};
