//! The context of a trace: the trace of a message, and the span that caused it.
//!
//! The engine carries it from a publication to its deliveries and does not use it.

use crate::time::Instant;

/// A position in a trace.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Trace {
    /// The trace; not all zero.
    pub id: [u8; 16],
    /// The span that caused this; not all zero.
    pub span: [u8; 8],
    /// Whether the creator of the trace records it.
    pub is_sampled: bool,
    /// When the span began, if this node knows it. It does not leave the node.
    pub since: Instant,
}
