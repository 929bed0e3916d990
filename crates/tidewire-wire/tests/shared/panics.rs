//! Checks that may panic, for tests and fuzz targets.

use std::panic::{UnwindSafe, catch_unwind};

/// Why a check fails, or the text of its panic. `None` if it passes.
pub fn failure(check: impl FnOnce() -> Result<(), String> + UnwindSafe) -> Option<String> {
    match catch_unwind(check) {
        Ok(checked) => checked.err(),
        Err(panic) => {
            let text = panic.downcast_ref::<&str>().map(|text| (*text).to_owned());
            let text = text.or_else(|| panic.downcast_ref::<String>().cloned());
            Some(format!("panic: {}", text.unwrap_or_default()))
        }
    }
}
