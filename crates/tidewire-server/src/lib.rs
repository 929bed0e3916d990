//! A node: joins the engine, the wire formats, the event loops, the stores and HTTP, and starts and stops all of them.

pub mod exit;
pub mod node;
mod port_holder;
pub mod rules_file;
pub mod traces;
