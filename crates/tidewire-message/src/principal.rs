//! The identified peer: the user of a session, and the credential of its login.

use crate::text::{Name, Payload};
use crate::time::WallTime;

/// The credential of a login, by the id under which it can be revoked.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Credential {
    /// A token, by its own id (`jti`).
    Token(Name),
    /// A key of a back end, by its id.
    Key(Name),
    /// A client certificate, by its serial number.
    Certificate(Name),
    /// A password of a stored user, by the id that each password gets.
    Password(Name),
    /// The key of the admin page, by the id of the page session that its holder has opened. See [`Principal::is_operator`].
    Operator(Name),
    /// The key of backends, which this server has one of. See [`Principal::is_backend`].
    Backend(Name),
}

/// The identified peer, as permission sees it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Principal {
    /// The user id. Presence never shows the id `OPEN`.
    pub user_id: Name,
    /// [`NEVER`] for most principals.
    expires_at: WallTime,
    /// Boxed, because many have none and each session pays for its own principal.
    data: Option<Box<PrincipalData>>,
}

/// The expiry of a login that does not expire.
const NEVER: WallTime = WallTime(u64::MAX);

#[derive(Clone, Debug, Default, PartialEq, Eq)]
struct PrincipalData {
    server: Option<Payload>,
    client: Option<Payload>,
    credential: Option<Credential>,
}

impl Principal {
    /// A user with an id and no other data.
    #[must_use]
    pub fn new(user_id: Name) -> Self {
        Self {
            user_id,
            expires_at: NEVER,
            data: None,
        }
    }

    /// Adds the auth handler's data about the user: for rules (`server`) and for the client, as JSON.
    #[must_use]
    pub fn with_data(mut self, server: Option<Payload>, client: Option<Payload>) -> Self {
        let data = self.data.get_or_insert_default();
        (data.server, data.client) = (server, client);
        self
    }

    /// Adds the time at which the login expires. The session ends at that time, unless its login was renewed.
    #[must_use]
    pub fn with_expiry(mut self, expires_at: WallTime) -> Self {
        self.expires_at = expires_at;
        self
    }

    /// Adds the credential of the login.
    #[must_use]
    pub fn with_credential(mut self, credential: Credential) -> Self {
        self.data.get_or_insert_default().credential = Some(credential);
        self
    }

    /// When the login expires; never if absent.
    #[must_use]
    pub fn expires_at(&self) -> Option<WallTime> {
        Some(self.expires_at).filter(|expires_at| *expires_at != NEVER)
    }

    /// Whether the login has expired.
    #[must_use]
    pub fn is_expired(&self, now: WallTime) -> bool {
        self.expires_at()
            .is_some_and(|expires_at| expires_at <= now)
    }

    /// Whether rules can't distinguish the two.
    pub fn is_alike(&self, other: &Self) -> bool {
        self.user_id == other.user_id
            && self.server_data() == other.server_data()
            && self.client_data() == other.client_data()
    }

    /// The credential of the login, if it can be revoked by its own id.
    #[must_use]
    pub fn credential(&self) -> Option<&Credential> {
        self.data.as_ref()?.credential.as_ref()
    }

    /// Whether it is the operator of the server, who has logged in with the key of the admin page. Presence does not count the operator,
    /// and the rules do not decide the operator's rights.
    #[must_use]
    pub fn is_operator(&self) -> bool {
        matches!(self.credential(), Some(Credential::Operator(_)))
    }

    /// Whether it may serve namespaces with its application logic.
    #[must_use]
    pub fn is_backend(&self) -> bool {
        matches!(self.credential(), Some(Credential::Backend(_)))
    }

    /// The auth handler's data about the user for rules, as JSON.
    #[must_use]
    pub fn server_data(&self) -> Option<&Payload> {
        self.data.as_ref()?.server.as_ref()
    }

    /// The auth handler's data for the client, as JSON; absent is not the same as `null`.
    #[must_use]
    pub fn client_data(&self) -> Option<&Payload> {
        self.data.as_ref()?.client.as_ref()
    }
}
