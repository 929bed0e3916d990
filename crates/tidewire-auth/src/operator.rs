//! Logins through the admin page, with a ticket that the page has requested. The operator logs in as an operator, or as a user to
//! try rules.

use std::sync::Arc;

use serde_json::{Value, json};
use tidewire_core::effect::AuthOutcome;
use tidewire_core::principal::{Credential, Principal};
use tidewire_core::text::Name;
use tidewire_core::time::WallTime;
use tokio::time::Instant;

use super::LoginAttempt;
use super::login_attempt::Field;
use super::ticket::Tickets;

/// The user id of the operator. An operator's rights follow from the credential, never from this name.
const USER: &str = "operator";
/// The login field that contains the ticket.
const FIELD: &str = "adminTicket";

/// Code for a ticket that is invalid, used or expired.
const TICKET_INVALID: &str = "TICKET_INVALID";

/// The tickets that were issued and not used.
#[derive(Debug, Default)]
pub struct Operators(Tickets<Arc<Principal>>);

impl Operators {
    /// The login object that authenticates its holder as this principal, once and within half a minute; `None` if the system has
    /// no random numbers.
    #[must_use]
    pub fn login(&self, principal: Principal) -> Option<Value> {
        let ticket = self.0.give(Arc::new(principal), Instant::now())?;
        Some(json!({ FIELD: ticket }))
    }

    /// The outcome of a login with a ticket; `None` if the login has no ticket.
    pub(super) fn authenticate(&self, attempt: &LoginAttempt) -> Option<AuthOutcome> {
        let ticket = match attempt.field(FIELD)? {
            Field::Text(ticket) => ticket,
            _ => String::new(),
        };
        let principal = self.0.take(&ticket, Instant::now());
        Some(match principal {
            Some(principal) => AuthOutcome::Accepted(principal),
            None => AuthOutcome::Refused {
                client_data: super::reason(TICKET_INVALID),
            },
        })
    }
}

/// The principal of an operator in the session `id` of the admin page, valid until the end of that session.
#[must_use]
pub fn operator(id: &str, ends: WallTime) -> Principal {
    Principal::new(Name::from(USER))
        .with_credential(Credential::Operator(Name::from(id)))
        .with_expiry(ends)
}

#[cfg(test)]
mod tests {
    use std::net::Ipv4Addr;

    use tidewire_core::text::Payload;
    use tidewire_shard::peer::PeerDetails;

    use super::*;

    fn attempt(data: Value) -> LoginAttempt {
        let peer = PeerDetails::at((Ipv4Addr::LOCALHOST, 0).into());
        LoginAttempt::new(&Payload::from(data.to_string()), Arc::new(peer))
    }

    #[test]
    fn a_ticket_is_accepted_once_and_other_logins_are_not_evaluated() {
        let operators = Operators::default();
        let principal = operator("7", WallTime(1));
        assert!(principal.is_operator());
        let login = attempt(operators.login(principal.clone()).expect("random numbers"));
        let accepted = AuthOutcome::Accepted(Arc::new(principal));
        assert_eq!(operators.authenticate(&login), Some(accepted));
        for used in [
            login,
            attempt(json!({ FIELD: "x" })),
            attempt(json!({ FIELD: 7 })),
        ] {
            let outcome = operators.authenticate(&used);
            assert!(matches!(outcome, Some(AuthOutcome::Refused { .. })));
        }
        assert_eq!(operators.authenticate(&attempt(json!({}))), None);
    }
}
