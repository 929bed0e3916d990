//! Authentication of users in the record store (`users.rs`), with passwords that they chose.

use std::sync::Arc;

use serde_json::Value;
use tidewire_core::principal::{Credential, Principal};
use tidewire_core::text::{Name, Payload};

use super::file::MISSING_PARAMETER;
use super::users::{StoredUser, UserError, Users};
use super::{AuthDecision, AuthFuture, Authenticator, LoginAttempt, reason};

/// Authenticates users in the record store.
#[derive(Debug)]
pub struct Store {
    users: Arc<Users>,
    /// Whether it is the only member of the chain.
    is_alone: bool,
}

impl Store {
    /// `is_alone`: whether it is the only member of the chain.
    #[must_use]
    pub fn new(users: Arc<Users>, is_alone: bool) -> Self {
        Self { users, is_alone }
    }

    async fn verify(&self, attempt: &LoginAttempt) -> AuthDecision {
        let (Some(name), Some(password)) = (attempt.given("username"), attempt.given("password"))
        else {
            return match self.is_alone {
                true => {
                    attempt.explain("the login has no username or no password");
                    AuthDecision::Declined {
                        client_data: reason(MISSING_PARAMETER),
                    }
                }
                false => AuthDecision::Unknown,
            };
        };
        match self.users.verify(&name, &password, attempt).await {
            Ok(user) => AuthDecision::Accepted(principal(&self.users.user_id(&name), &user)),
            Err(UserError::HeldOff) => AuthDecision::HeldOff,
            Err(UserError::Unavailable(reason)) => {
                tracing::warn!(
                    reason,
                    "a login was put off because the store of users is unavailable"
                );
                AuthDecision::Unavailable
            }
            // Outside development mode, the client can't distinguish an unknown user from a wrong password.
            Err(_) => AuthDecision::Unknown,
        }
    }
}

fn principal(user_id: &str, user: &StoredUser) -> Principal {
    let payload = |value: &Value| Some(Payload::from(value.to_string()));
    Principal::new(Name::from(user_id))
        .with_data(payload(&user.server_data), payload(&user.client_data))
        .with_credential(Credential::Password(Name::from(user.password_id.as_str())))
}

impl Authenticator for Store {
    fn authenticate<'a>(&'a self, attempt: &'a LoginAttempt) -> AuthFuture<'a> {
        Box::pin(self.verify(attempt))
    }
}
