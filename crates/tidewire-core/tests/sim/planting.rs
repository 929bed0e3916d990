//! Faults in the engine, where it was built to have them.

/// Plants a fault in the engine for this thread, or takes it out.
#[cfg(feature = "fuzzing")]
pub fn plant(fault: Option<&'static str>) {
    tidewire_core::planted_fault::plant(fault);
}

/// There is no place for it.
#[cfg(not(feature = "fuzzing"))]
pub fn plant(_fault: Option<&'static str>) {}
