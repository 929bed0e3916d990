//! Plants faults in the engine, if it was built with the feature `fuzzing`.

/// Plants a fault in the engine for this thread; `None` removes it.
#[cfg(feature = "fuzzing")]
pub fn plant(fault: Option<&'static str>) {
    tidewire_core::planted_fault::plant(fault);
}

/// Does nothing: this build of the engine has no faults to plant.
#[cfg(not(feature = "fuzzing"))]
pub fn plant(_fault: Option<&'static str>) {}
