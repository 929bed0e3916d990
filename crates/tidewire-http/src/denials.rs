//! The last requests that the rules have denied, each with the rule that decided: for the admin page, and for `/denials`, which only
//! development mode has. Documented in `docs/permissions.md`.

use std::collections::VecDeque;

use parking_lot::Mutex;
use serde::Serialize;

/// The denials that are kept; the oldest one is removed first.
const DENIALS_MAX: usize = 100;

/// One denied request.
#[derive(Clone, Debug, Serialize)]
pub struct Denial {
    /// Milliseconds since 1970.
    pub at: u64,
    /// The id of the user.
    pub user: String,
    /// The kind of the rule, such as `record.write`.
    pub kind: String,
    /// The name that the request is about; empty for a request about all users.
    pub name: String,
    /// `denied`, or `the rule failed`.
    pub outcome: &'static str,
    /// The rule that decided, with its file, line and column, or the text that no rule applies.
    pub by: String,
    /// The next rule that applies to the name and would have allowed the request, or the text that there is none.
    pub allowing: String,
}

/// The last denials.
#[derive(Debug, Default)]
pub struct Denials(Mutex<VecDeque<Denial>>);

impl Denials {
    /// Keeps a denial.
    pub(crate) fn add(&self, denial: Denial) {
        let mut kept = self.0.lock();
        if kept.len() == DENIALS_MAX {
            kept.pop_back();
        }
        kept.push_front(denial);
    }

    /// A JSON array of the last denials, the newest one first.
    pub(crate) fn json(&self) -> String {
        serde_json::to_string(&*self.0.lock()).unwrap_or_else(|_| "[]".to_owned())
    }

    /// The last denials, the newest one first.
    pub(crate) fn list(&self) -> Vec<Denial> {
        self.0.lock().iter().cloned().collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_newest_denials_come_first_and_the_oldest_ones_are_removed() {
        let denials = Denials::default();
        let count = DENIALS_MAX as u64 + 5;
        for at in 0..count {
            denials.add(Denial {
                at,
                user: "ann".to_owned(),
                kind: "record.write".to_owned(),
                name: "a \"name\"".to_owned(),
                outcome: "denied",
                by: String::new(),
                allowing: String::new(),
            });
        }
        let shown: Vec<serde_json::Value> =
            serde_json::from_str(&denials.json()).expect("a JSON array");
        assert_eq!(shown.len(), DENIALS_MAX);
        assert_eq!(shown[0]["at"], count - 1);
        assert_eq!(shown[DENIALS_MAX - 1]["at"], 5);
        assert_eq!(shown[0]["name"], "a \"name\"");
    }
}
