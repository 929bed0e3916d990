//! Listening: providers register patterns, and the server offers them matching names that have subscribers.
//!
//! Every shard knows all patterns. The owner of a name runs its search: it asks the candidates one at a time, and at most one of them
//! provides the name. The server accepts a pattern if the `listen` rules may allow a name that begins with the literal prefix of the
//! pattern. Each name is authorized again before it is offered.
//!
//! | What | Where it is kept |
//! |---|---|
//! | the patterns of a session | the session's shard: `SessionState::patterns`. A notice about another pattern is dropped there |
//! | all patterns, compiled, and the sessions that registered them (listeners) | each shard: `ListenOwner` |
//! | names with subscribers, and their searches | the shard that owns the name: `ListenOwner` |
//! | subscribers of a record | the same shard: `RecordOwner` reports the first and the last |
//! | subscribers of an event | each shard: its hub. While the owner knows patterns of events, the shard reports which names have any |
//!
//! # The life of one search at its owner
//!
//! ```text
//!   +--------+ 1 add_name  +------+ 2 walk_step  +--------+                    11 queue_search
//!   | absent | ----------> | idle | -----------> | queued | <---------------------------------------+
//!   +--------+             +------+              +--------+ <----------------+                      |
//!                              ^                    |                        |                      |
//!                              |                    | 3 search_step          | 6 postponed_step     |
//!                              |                    v                        |                      |
//!                              |      4         +---------+     5      +-----------+                |
//!                              +--------------- | running | ---------> | postponed |                |
//!                                               +---------+            +-----------+                |
//!                                                  |    ^                                           |
//!                                  7 try_candidate |    | 10 continue_later                         |
//!                                                  v    |                                           |
//!                                              +-------------+ 8 ask    +--------+                  |
//!                                              | authorizing | -------> | asking | -----------------+
//!                                              +-------------+          +--------+                  |
//!                                                                            |                      |
//!                                                              9 answered    |                      |
//!                                                                            v                      |
//!                                                                       +----------+                |
//!                                                                       | provided | ---------------+
//!                                                                       +----------+
//! ```
//!
//! | State | In the code |
//! |---|---|
//! | absent | no entry in `TopicState::wanted`: the name has no subscribers, or is an event while there are no patterns of events |
//! | idle | `Search::Idle`: no listener provides the name or has its question; the next try is a walk |
//! | queued | `Search::Queued`, in `TopicState::queue`: a search among all listeners, or only among the new patterns |
//! | running | `Search::Running`, also in `queue`: `Progress` has the position of the search |
//! | postponed | `Search::Postponed`, in `TopicState::postponed`: a listener that matches has too many unanswered questions |
//! | authorizing | `Search::Authorizing`: the candidate's rule needs a record |
//! | asking | `Search::Asking`: the candidate got the question, and its time runs |
//! | provided | `Search::Provided`: the candidate has accepted |
//!
//! 1. `add_name`, at the first subscriber. If the topic has patterns, the name is queued at once.
//! 2. `walk_step`, after a pattern was added, or after `listen_rematch_interval` for names that patterns have matched.
//! 3. `search_step` tries one pattern after another. If the turn has no steps left, the search stays running until the next turn.
//! 4. `advance_search`: all listeners were tried.
//! 5. `advance_search`: all were tried, but at least one that matches was skipped because it has too many unanswered questions.
//! 6. `postponed_step`, when a question has ended, or no question is open.
//! 7. `try_candidate`, for a pattern that matches. If the rule needs no record, `ask` follows at once.
//! 8. `ask`: the rule allows the name, which it decides again after each record (`value`).
//! 9. `answered`: the candidate accepts. For a record, its subscribers get a notice (`ProviderChange`).
//! 10. `continue_later`, from authorizing or asking: the rule refuses the name, or its record can't be read; the candidate declines
//!     (`answered`) or does not answer in time (`timed_out`). The search continues with the next listener.
//! 11. `queue_search`: the pattern or its session has ended (`withdrawn_step`), or the listener has lost its right to the name
//!     (`reauthorization_step`). The search begins again, among all listeners.
//!
//! From every state the name becomes absent when its last subscriber leaves (`remove_name`); the listener that has its question or provides the
//! name gets a notice. When the last pattern of events is withdrawn, all names of events become absent (`withdraw_pattern`).
//!
//! # Files
//!
//! Provider, at the session's shard:
//! - [`provider`]: registers and withdraws patterns, posts answers to the owners, and sends the owners' notices.
//! - `listen_pattern.rs` of `tidewire-message`: compiles a pattern, with bounded size, and matches names.
//! - `listen_prefix.rs` there: the literal text with which every match of a pattern begins.
//!
//! Owner:
//! - [`owner`]: the state of an owner, and the entries and deadlines that drive it.
//! - `owner/listener.rs`: listeners and their patterns; what happens when these begin and end.
//! - `owner/topic.rs`: the names, patterns and queues of one topic, which is records or events.
//! - `owner/state.rs`: the states of a search, with its progress.
//! - `owner/wanted.rs`: names that get or lose subscribers, and the queue of their searches.
//! - `owner/work.rs`: the queued work, in steps: a turn makes a limited number of them.
//! - `owner/order.rs`: the order in which a search visits the listeners.
//! - `owner/search.rs`: which pattern a search tries next.
//! - `owner/question.rs`: authorizes a candidate, asks it, and handles its answer.

mod owner;
mod provider;

pub(crate) use owner::ListenOwner;
pub(crate) use provider::{lose, message, notify, wrap};
pub(crate) use tidewire_message::listen_prefix::literal_prefix;
