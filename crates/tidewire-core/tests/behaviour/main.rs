//! Behaviour of the engine that one or two shards without randomness can show: the effect of each limit, and the answers in cases
//! where the original server is wrong.

mod asks;
mod backend_nodes;
mod backends;
mod binary;
mod bulk_authorization;
mod calls;
mod delay;
mod denials;
mod detaching;
mod driver;
mod everyone;
mod expiry;
mod hand_overs;
mod history;
mod index_reads;
mod lag;
mod limits;
mod listening;
mod live_queries;
#[path = "../sim/live_rows.rs"]
mod live_rows;
mod memory;
mod patterns;
mod permission;
mod queries;
#[path = "../sim/random.rs"]
mod random;
mod rates;
mod readers;
mod redelivery;
mod refusals;
mod renewal;
mod repeats;
mod repeats_after_restart;
mod revocation;
mod rights;
mod routes;
mod rules;
mod scopes;
mod store_loss;
mod superseded;
mod tells;
mod transactions;
mod underflows;
mod work;
