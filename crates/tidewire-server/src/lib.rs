//! The Tidewire server: joins the engine, the wire formats and the event loops, and adds what a program needs.

pub mod admin;
pub mod api;
pub mod auth;
pub mod backoff;
pub mod cli;
pub mod command;
pub mod config;
pub mod exit;
pub mod first_screen;
pub mod front;
pub mod health;
mod hex;
pub mod interest;
pub mod log;
pub mod metrics;
pub mod migration;
pub mod node;
pub mod permission;
pub mod permission_demo;
#[cfg(feature = "test-rules")]
pub mod permission_test_rule;
pub mod rights;
pub mod rules;
pub mod rules_file;
pub mod service_manager;
pub mod shard;
pub mod status;
pub mod store;
pub mod store_command;
pub mod torture;
pub mod traces;
pub mod user;
