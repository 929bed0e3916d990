//! Deliberate faults, which prove that the fuzz targets find them.
//!
//! They exist only with the feature `fuzzing`, which no release has. Even then a fault is inactive until a test or a fuzz target plants
//! it for its own thread. So one build can prove all of them, and a server with all features has no active fault.

#[cfg(feature = "fuzzing")]
use std::cell::Cell;

#[cfg(feature = "fuzzing")]
thread_local! {
    static PLANTED: Cell<Option<&'static str>> = const { Cell::new(None) };
}

/// Plants a fault in this thread and replaces the previous one; `None` removes it.
#[cfg(feature = "fuzzing")]
pub fn plant(fault: Option<&'static str>) {
    PLANTED.set(fault);
}

/// Whether this fault is planted in this thread.
#[cfg(feature = "fuzzing")]
#[must_use]
pub fn is_planted(fault: &str) -> bool {
    PLANTED.get() == Some(fault)
}

/// Always false without the feature.
#[cfg(not(feature = "fuzzing"))]
#[must_use]
pub const fn is_planted(_fault: &str) -> bool {
    false
}
