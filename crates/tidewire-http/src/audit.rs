//! The audit log: what somebody with the admin key reads and changes through the admin page. Documented in `docs/admin-page.md`.
//!
//! Its lines have the target `audit` and the message `audit`, and are written whatever the level of the log is. Values are never in
//! them.

use std::net::SocketAddr;

/// The target of its lines.
pub const TARGET: &str = "audit";

/// Somebody did something with the engine: read, wrote, published, called, asked for presence. `action` is that of a rule.
pub fn engine(session: &str, action: &str, name: &str) {
    tracing::info!(target: TARGET, session, action, name, "audit");
}

/// Somebody did something else; `about` says with what.
pub fn page(session: &str, address: SocketAddr, action: &str, about: &str) {
    tracing::info!(target: TARGET, session, %address, action, about, "audit");
}
