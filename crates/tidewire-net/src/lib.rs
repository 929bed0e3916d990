//! Moves bytes: one loop per core with its sockets, TLS, mailbox, turn logs and the sends of a turn.
//!
//! This crate knows neither messages nor protocols. It is the only crate with `unsafe`, for system calls and the
//! mailbox; each block says why it is sound.

pub mod allocator;
pub mod any_certificate;
pub mod connection;
mod deadline_timer;
pub mod descriptors;
pub mod event_loop;
pub mod flush_policy;
pub mod listener;
pub mod mailbox;
pub mod memory_budget;
pub mod outbox;
pub mod power;
pub mod read_buffer;
mod read_queue;
pub mod scheduling;
pub mod send_batch;
pub mod tls;
mod tls_send;
pub mod turn_log;
