//! Open authentication: accepts every login, under the user name that the client gives.

use tidewire_core::identity;
use tidewire_core::principal::Principal;
use tidewire_core::text::Name;

use super::login_attempt::Field;
use super::{AuthDecision, AuthFuture, Authenticator, LoginAttempt};

/// Accepts every login.
#[derive(Clone, Copy, Debug)]
pub struct Open;

impl Authenticator for Open {
    fn authenticate<'a>(&'a self, attempt: &'a LoginAttempt) -> AuthFuture<'a> {
        let user_id = match attempt.field("username") {
            Some(Field::Text(name)) if !name.is_empty() => Name::from(name.as_str()),
            Some(Field::Number(number)) if number.as_f64() != Some(0.0) => {
                Name::from(number.to_string().as_str())
            }
            Some(Field::Bool(true)) => Name::from("true"),
            _ => Name::from(identity::OPEN),
        };
        let principal = Principal::new(user_id);
        Box::pin(std::future::ready(AuthDecision::Accepted(principal)))
    }
}
