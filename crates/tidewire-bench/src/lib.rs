//! Load generator and null server.
//!
//! A scenario opens connections to a server, drives it and reports figures; the null server is the reference for
//! every figure. Both use `tidewire-wire`, so the bench and the server share one codec.

mod arguments;
pub mod bare;
pub mod cli;
pub mod cluster;
pub mod connection;
pub mod cores;
pub mod delivery_log;
pub mod driver;
pub mod failure;
pub mod histogram;
pub mod link;
pub mod meter;
pub mod null_server;
pub mod payload;
pub mod process;
mod random;
pub mod report;
pub mod result;
pub mod rival;
pub mod run_results;
pub mod runner;
pub mod scenario;
pub mod server;
pub mod source;
pub mod statistics;
pub mod swarm;
pub mod target;
pub mod template;
