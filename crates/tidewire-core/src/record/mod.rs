//! Records: versioned documents. The shard that the hash of a name selects owns the record and decides about it; the shard of a session
//! checks the session's requests and keeps its subscriptions.
//!
//! # The life of one record at its owner
//!
//! ```text
//!               1 ensure               3 load
//!  +--------+ -----------> +---------+ -----------> +---------+
//!  | absent |              | unknown |              | loading |
//!  +--------+ <----------- +---------+ <----------- +---------+
//!    ^    ^   2 settle_with            5 forget      |       ^
//!    |    |                                          |       |
//!    |    |                                 4 loaded |       | 6 notify
//!    |    |                                          v       |
//!    |    |   7 remove_idle    +-------------------------------+   14 loaded
//!    |    +------------------- |      present or missing       | <--------------+
//!    |                         +-------------------------------+                |
//!    |                             |                       ^                    |
//!    |                       8 put |                       | 11 committed       |
//!    |                             v     9 next_batch      |                    |
//!    |                         +-------+ ---------> +------------+       +------------+
//!    |                         | dirty |            | committing | ----> | superseded |
//!    |                         +-------+ <--------- +------------+       +------------+
//!    |                                     10 put        12 superseded          |
//!    +--------------------------------------------------------------------------+
//!                                     13 remove
//! ```
//!
//! | State | In the code |
//! |---|---|
//! | absent | the table has no entry: the record was never requested, or was evicted |
//! | unknown | `Value::Unknown` and no load: a rule is deciding without the record, or the last load failed |
//! | loading | `Value::Unknown` and `Waiting::loading`; requests for the record wait |
//! | present or missing | `Value::Present` or `Value::Missing`, not `is_dirty`; without subscribers and waiting requests it is idle |
//! | dirty | `is_dirty`: memory has a newer value than the store, and `Commits` has queued the record |
//! | committing | also `is_dirty`: the record is in the batch in flight; `Commits` may have queued it again |
//! | superseded | `Value::Unknown`, and `Waiting::superseded` has the value that the subscribers have; the store's value is to be loaded |
//!
//! If the store has lost acknowledged writes, `write_again` makes a superseded record dirty with the value that it had (`store_loss`).
//!
//! 1. `owner::ensure`, on the first request or read. A record that is kept in memory only starts as missing and is never dirty.
//! 2. `eviction::settle_with`: rules refused the request without the record, so it is not loaded.
//! 3. `load::load`, by `run_unloaded` or `read_value`. `end_turn` sends the names to the stores.
//! 4. `load::loaded`: the waiting reads get the value, then `run_waiting` runs the waiting requests. If they time out first, `fail_waiting`
//!    refuses them and the load continues.
//! 5. `load::forget`, after `fail_waiting`: the store could not read the record. Without subscribers the record leaves the table. If its
//!    first request waits for a rule, the record stays unknown, and `run_unloaded` loads it again.
//! 6. `load::notify`: a backend has changed the store, so the value is loaded again. A record that is dirty, or kept in memory only, keeps
//!    its value.
//! 7. `eviction::remove_idle`, by `evict` or `evict_asked`: only an idle record leaves memory.
//! 8. `apply::put`, by `apply`, `delete`, `put_if` or `subscribe`: publishes the change, replaces the value and calls `Commits::add`.
//! 9. `Commits::next_batch`, by `end_turn`. If the store fails, `Commits::failed` keeps the batch, and `next_batch` sends it again.
//! 10. `apply::put`: a newer write queues the record again; it stays in the batch in flight as well.
//! 11. `outcome::committed`: `Commits::stored` answers the waiters that the batch covers. The record is clean unless it is queued again.
//! 12. `outcome::superseded`: the store refused the write, because another owner has written the record, or it accepts no more writes
//!     of this owner. The unstored changes are dropped.
//! 13. `eviction::remove`: at once if the store accepts no more writes, and the record has no subscribers and no waiting requests, or after
//!     a failed load if the subscribers have left. Otherwise a failed load is repeated by `deadline_reached`.
//! 14. `load::loaded`: `tell_reloaded` publishes the difference to the value that the subscribers have.
//!
//! A request (`Job`) has a smaller life. `take` runs it, queues it behind the earlier ones of its record, or defers it if its session has
//! caused too much work in this turn. `run` ends it, or returns it with the reason why it waits (`Blocked`: a load, a rule's read, the
//! next turn, the other records of its transaction). When the reason ends, `run_waiting` runs it again, and then the later ones.
//!
//! # Files
//!
//! State:
//! - [`state`]: an entry of the owner's table: a record's value, the shards with its subscribers, its waiting requests.
//! - [`interest`]: subscriptions at the owner: which shards have subscribers, and how many.
//! - [`readers`]: subscribers whose read right depends on data, grouped by what a rule can distinguish.
//! - [`repeat`]: the keys of recent writes, so that a repeated write is not made twice.
//!
//! Queue:
//! - [`write_queue`]: for each store, the writes and loads that wait for it.
//! - [`commit`]: the dirty records of a store, each with its newest unstored change.
//! - `commit/batch.rs`: the batch in flight: its size, its answer, its repetition after a failure.
//! - `commit/tests.rs`: compares `commit` with a model.
//! - [`fair_queue`]: the order in which dirty records leave, fair between users.
//! - [`share`]: the user or session that a write is charged to.
//! - [`waiter`]: sessions that wait until a change is durable.
//!
//! Apply:
//! - [`apply`]: decides a write, a delete or a conditional put, and applies it.
//! - [`change`]: checks a client's change and computes the value after it.
//! - [`announce`]: authorizes the readers again before a change is published.
//!
//! Request:
//! - [`request`]: a request for one record, the question to its rules, and its answers.
//! - [`authorize`]: the rights that a request needs, and how much its answer may reveal.
//! - [`run`]: runs a request, or lets it wait behind the earlier ones of its record.
//! - [`deferred`]: requests of sessions that have caused too much work in a turn.
//! - [`transaction`]: decides a transaction as soon as it is first in the queues of all its records.
//!
//! Subscriber, at the session's shard:
//! - [`subscriber`]: checks a session's requests and posts them to the owners.
//! - `subscriber/bulk.rs`: messages about several records.
//! - `subscriber/subscription.rs`: the subscriptions in the session's state.
//! - `subscriber/answer.rs`: turns the owner's answers and changes into messages.
//!
//! Owner:
//! - [`owner`]: the records of a shard, and the inputs and deadlines that drive them.
//! - [`load`]: requests, results and timeouts of loads.
//! - [`outcome`]: results of commits.
//! - [`store_loss`]: compares the records in memory with a store that may have lost commits, and writes lost ones again.
//! - [`eviction`]: which records leave memory.
//! - [`idle`]: queues of records that may leave memory.
//! - [`watched`]: the live queries that watch records.
//! - [`unsaved`]: the records that queries can't find in the stores.

mod announce;
mod apply;
mod authorize;
pub(crate) mod change;
pub(crate) mod commit;
mod deferred;
mod eviction;
mod idle;
mod interest;
mod job;
mod leaving;
mod load;
mod outcome;
pub(crate) mod owner;
mod repeat;
mod request;
mod run;
mod state;
mod store_loss;
pub(crate) mod subscriber;
mod transaction;
mod unsaved;
mod waiter;
mod watched;
pub(crate) mod write_queue;
