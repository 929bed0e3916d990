//! Everybody is let in, under the name given.

use serde_json::Value;
use tidewire_core::effect::Principal;
use tidewire_core::text::Name;

use super::{Attempt, Authenticator, Judging, Verdict};

/// The user id of those who give no name.
const NAMELESS: &str = "open";

/// Lets everybody in.
#[derive(Clone, Copy, Debug)]
pub struct Open;

impl Authenticator for Open {
    fn judge<'a>(&'a self, attempt: &'a Attempt) -> Judging<'a> {
        let user_id = match attempt.data.get("username") {
            Some(Value::String(name)) if !name.is_empty() => Name::from(name.as_str()),
            Some(Value::Number(number)) if number.as_f64() != Some(0.0) => {
                Name::from(number.to_string().as_str())
            }
            Some(Value::Bool(true)) => Name::from("true"),
            _ => Name::from(NAMELESS),
        };
        let principal = Principal::new(user_id);
        Box::pin(std::future::ready(Verdict::Accepted(principal)))
    }
}
