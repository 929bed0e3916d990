//! Behaviour of the engine that can be shown with one or two shards and no randomness: what happens at each limit,
//! and the answers where the original server is wrong.

mod bulk_authorization;
mod calls;
mod delay;
mod denials;
mod driver;
mod everyone;
mod expiry;
mod history;
mod lag;
mod limits;
mod listening;
mod memory;
mod permission;
mod rates;
mod readers;
mod refusals;
mod renewal;
mod repeats;
mod revocation;
mod rights;
mod routes;
mod rules;
mod superseded;
mod work;
