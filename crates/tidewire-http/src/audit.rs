//! The audit log: everything that an operator with the admin key reads or changes through the admin page. Documented in
//! `docs/admin-page.md`.
//!
//! Its lines have the target `audit` and the message `audit`, and are written at every log level. They never contain values.

use std::net::SocketAddr;

/// The target of the log lines.
pub const TARGET: &str = "audit";

/// Logs that an operator used the engine: read, wrote, published, called, or asked for presence. `action` is the action of a
/// rule.
pub fn engine(session: &str, action: &str, name: &str) {
    tracing::info!(target: TARGET, session, action, name, "audit");
}

/// Logs any other action of an operator; `about` names its object.
pub fn page(session: &str, address: SocketAddr, action: &str, about: &str) {
    tracing::info!(target: TARGET, session, %address, action, about, "audit");
}
