//! Faults that are built in on purpose, so that the fuzz targets can be seen to find them.
//!
//! They exist only with the feature `fuzzing`, which no release has, and even then none is there until a test or a fuzz target
//! plants it, for its own thread: one build shows all of them, and a server with all features has none.

#[cfg(feature = "fuzzing")]
use std::cell::Cell;

#[cfg(feature = "fuzzing")]
thread_local! {
    static PLANTED: Cell<Option<&'static str>> = const { Cell::new(None) };
}

/// Plants a fault in this thread in place of the one before; `None` takes it out.
#[cfg(feature = "fuzzing")]
pub fn plant(fault: Option<&'static str>) {
    PLANTED.set(fault);
}

/// Whether this fault is planted here.
#[cfg(feature = "fuzzing")]
#[must_use]
pub fn is_planted(fault: &str) -> bool {
    PLANTED.get() == Some(fault)
}

/// Never without the feature.
#[cfg(not(feature = "fuzzing"))]
#[must_use]
pub const fn is_planted(_fault: &str) -> bool {
    false
}
