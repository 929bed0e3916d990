//! The Tidewire server: joins the engine, the wire formats and the event loops, and adds what a program needs.

pub mod cli;
pub mod command;
pub mod exit;
pub mod first_screen;
pub mod health;
pub mod log;
pub mod migration;
pub mod node;
pub mod rules;
pub mod rules_file;
pub mod service_manager;
pub mod store_command;
mod terminal;
pub mod torture;
pub mod traces;
pub mod user;
