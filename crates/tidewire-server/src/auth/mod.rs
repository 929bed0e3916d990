//! Who is it? The chain of ways to authenticate.
//!
//! To add one, write a file with its name and add it to [`AuthChain::new`].

pub mod file;
pub mod hashing;
pub mod jwt;
pub mod keys;
pub mod ledger;
pub mod open;
pub mod operator;
pub mod outbound;
pub mod password;
pub mod store;
pub mod tls;
pub mod users;
pub mod webhook;

use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::time::Duration;

use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use prometheus_client::metrics::counter::Counter;
use serde_json::{Map, Value};
use tidewire_core::effect::{AuthOutcome, Principal};
use tidewire_core::text::Payload;
use tidewire_core::time::WallTime;
use tokio::runtime::Handle;

use crate::config::Problem;
use crate::config::plan::Plan;
use crate::config::section::AuthKind;
use crate::metrics::Metrics;
use crate::shard::handle::Peer;
use hashing::Hashing;
use operator::Operators;
use users::Users;

/// A login as the chain sees it.
#[derive(Clone, Debug)]
pub struct Attempt {
    /// The fields of the object given to `login()`; none if it was an array.
    pub data: Map<String, Value>,
    /// The connection it came over.
    pub peer: Arc<Peer>,
}

/// What one member of the chain says.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Verdict {
    /// It is this user.
    Accepted(Principal),
    /// Kept out, with a reason for the client.
    Refused {
        /// JSON.
        client_data: Option<Payload>,
    },
    /// Kept out for good: the credentials were revoked. A client that hears this does not come back with them.
    Barred {
        /// JSON.
        client_data: Option<Payload>,
    },
    /// Not to be decided now, because a server that has to be asked is down: the client tries again later.
    Unavailable,
    /// Not a user of this member; the next one is asked.
    Unknown,
    /// The same, with the reason that the client hears if none of the others decides.
    Declined {
        /// JSON.
        client_data: Option<Payload>,
    },
}

/// What keeps a member from deciding as it should.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Trouble {
    /// A constant word for programs.
    pub code: &'static str,
    /// A sentence for people.
    pub text: String,
    /// Whether logins that this member would decide fail, so that they are better made elsewhere.
    pub is_blocking: bool,
}

/// What a client is told, as deepstream's handlers do: an object with `error`.
fn reason(code: &'static str) -> Option<Payload> {
    Some(Payload::from(
        serde_json::json!({ "error": code }).to_string(),
    ))
}

/// 128 random bits as text.
///
/// # Errors
/// The system has no randomness.
pub fn random_id() -> Result<String, String> {
    let mut bytes = [0; 16];
    getrandom::fill(&mut bytes)
        .map_err(|error| format!("the system has no random numbers: {error}"))?;
    Ok(URL_SAFE_NO_PAD.encode(bytes))
}

/// What a member does as long as the server runs.
pub type Running<'a> = Pin<Box<dyn Future<Output = ()> + Send + 'a>>;

/// The pending answer of a member.
pub type Judging<'a> = Pin<Box<dyn Future<Output = Verdict> + Send + 'a>>;

/// A way to authenticate. Asked concurrently; must never block the thread that polls it.
pub trait Authenticator: Send + Sync {
    /// Judges an attempt.
    fn judge<'a>(&'a self, attempt: &'a Attempt) -> Judging<'a>;

    /// Reads its files again; without an answer everything stays as it was.
    ///
    /// # Errors
    /// What is wrong with them.
    fn reload(&self) -> Result<(), Problem> {
        Ok(())
    }

    /// What it does beside judging, if anything; it never ends by itself.
    fn run(&self) -> Option<Running<'_>> {
        None
    }

    /// The field of a login that it takes tokens from, if it does.
    fn token_field(&self) -> Option<&str> {
        None
    }

    /// What is wrong with it now, for `/ready`.
    fn trouble(&self) -> Option<Trouble> {
        None
    }
}

/// Members that are asked one after the other until one decides.
pub struct AuthChain {
    members: Vec<Box<dyn Authenticator>>,
    /// Those of the record store, if they are among the members.
    users: Option<Arc<Users>>,
    user_bytes_max: usize,
    session_lifetime: Option<Duration>,
    /// Those who come through the admin page, if it is on.
    operators: Option<Arc<Operators>>,
    counts: Counts,
}

/// What was counted, of all members together.
#[derive(Clone, Debug, Default)]
pub struct Counts {
    /// Logins that were let in.
    pub accepted: Counter,
    /// Logins that were not.
    pub refused: Counter,
    /// Logins that could not be decided.
    pub unavailable: Counter,
    /// The reading of an issuer's keys.
    pub keys: jwt::remote::Counts,
    /// Requests to the webhook.
    pub webhook: webhook::Counts,
    /// Users that the server keeps.
    pub users: users::Counts,
}

impl Counts {
    /// Shows them among the metrics.
    pub fn register(&self, metrics: &Metrics) {
        let add = |name, help, counter: &Counter| metrics.register_counter(name, help, counter);
        add("logins_accepted", "Logins that were let in", &self.accepted);
        add("logins_refused", "Logins that were refused", &self.refused);
        let help = "Logins that could not be decided because a server that must be asked is down";
        add("logins_unavailable", help, &self.unavailable);
        let keys = &self.keys;
        add(
            "jwt_key_fetches",
            "Readings of an issuer's keys",
            &keys.fetches,
        );
        let help = "Readings of an issuer's keys that failed";
        add("jwt_key_fetch_failures", help, &keys.failures);
        let webhook = &self.webhook;
        let help = "Requests to the webhook of authentication";
        add("auth_webhook_requests", help, &webhook.requests);
        let help = "Requests to the webhook of authentication that failed";
        add("auth_webhook_failures", help, &webhook.failures);
        let users = &self.users;
        add("sign_ups", "Users that signed up", &users.sign_ups);
        let help = "Requests to sign up that were refused because they came too fast (auth.store.sign_up_rate)";
        add("sign_ups_too_fast", help, &users.too_fast);
    }
}

impl AuthChain {
    /// The chain of the configuration. Hashing takes at most `hashing_max` threads at a time.
    ///
    /// # Errors
    /// The files of a member are wrong.
    pub fn new(plan: &Plan, hashing_max: usize) -> Result<Self, Problem> {
        let is_alone = plan.auth_chain.len() == 1;
        let options = &plan.config.auth;
        let ca = options.ca.0.as_deref();
        let counts = Counts::default();
        let hashing = Hashing::new(hashing_max);
        let users = Users::new(&options.store, hashing.clone(), counts.users.clone());
        let member = |kind: &AuthKind| -> Result<Box<dyn Authenticator>, Problem> {
            Ok(match kind {
                AuthKind::Open => Box::new(open::Open),
                AuthKind::File => {
                    let options = options.file.clone();
                    Box::new(file::File::open(options, is_alone, hashing.clone())?)
                }
                AuthKind::Jwt => {
                    let options = options.jwt.clone();
                    Box::new(jwt::Jwt::open(options, is_alone, ca, counts.keys.clone())?)
                }
                AuthKind::Webhook => {
                    let (options, counts) = (options.webhook.clone(), counts.webhook.clone());
                    Box::new(webhook::Webhook::open(options, is_alone, ca, counts)?)
                }
                AuthKind::Store => Box::new(store::Store::new(Arc::clone(&users), is_alone)),
                AuthKind::Tls => Box::new(tls::Tls::new(&options.tls, is_alone)),
                AuthKind::Keys => Box::new(keys::Keys::open(options.keys.clone(), is_alone)?),
            })
        };
        let members = plan
            .auth_chain
            .iter()
            .map(member)
            .collect::<Result<_, _>>()?;
        Ok(Self {
            members,
            users: plan.auth_chain.contains(&AuthKind::Store).then_some(users),
            user_bytes_max: plan.config.limits.name_bytes_max.as_usize(),
            session_lifetime: options.session_lifetime.time(),
            operators: plan.admin_page.is_on().then(Arc::default),
            counts,
        })
    }

    /// Whose a token is, if it is accepted now.
    pub async fn principal_of_token(&self, token: &str) -> Option<Principal> {
        let address = (std::net::Ipv4Addr::LOCALHOST, 0).into();
        for member in &self.members {
            if let Some(field) = member.token_field() {
                let peer = Peer {
                    address,
                    headers: Vec::new(),
                    certificate: None,
                };
                let data = Map::from_iter([(field.to_owned(), token.into())]);
                let attempt = Attempt {
                    data,
                    peer: Arc::new(peer),
                };
                if let Verdict::Accepted(principal) = member.judge(&attempt).await {
                    return Some(principal);
                }
            }
        }
        None
    }

    /// The users that the server keeps, if they may log in.
    #[must_use]
    pub fn users(&self) -> Option<&Arc<Users>> {
        self.users.as_ref()
    }

    /// Those who come through the admin page, if it is on.
    #[must_use]
    pub fn operators(&self) -> Option<&Arc<Operators>> {
        self.operators.as_ref()
    }

    /// What was counted.
    #[must_use]
    pub fn counts(&self) -> &Counts {
        &self.counts
    }

    /// Starts what members do beside judging. It ends with the runtime.
    pub fn run(self: &Arc<Self>, runtime: &Handle) {
        for index in 0..self.members.len() {
            let chain = Arc::clone(self);
            runtime.spawn(async move {
                if let Some(running) = chain.members[index].run() {
                    running.await;
                }
            });
        }
    }

    /// What is wrong with members now.
    #[must_use]
    pub fn troubles(&self) -> Vec<Trouble> {
        let members = self.members.iter();
        members.filter_map(|member| member.trouble()).collect()
    }

    /// Judges the object or array given to `login()`.
    pub async fn authenticate(&self, data: &Payload, peer: Arc<Peer>) -> AuthOutcome {
        let outcome = match serde_json::from_str(data.as_str()) {
            Ok(Value::Object(data)) => self.judge(Attempt { data, peer }).await,
            Ok(_) => {
                let data = Map::new();
                self.judge(Attempt { data, peer }).await
            }
            // Well formed, but with a number that nothing can hold.
            Err(_) => AuthOutcome::Refused { client_data: None },
        };
        match &outcome {
            AuthOutcome::Accepted(_) => self.counts.accepted.inc(),
            AuthOutcome::Unavailable => self.counts.unavailable.inc(),
            AuthOutcome::Refused { .. } | AuthOutcome::Barred { .. } => self.counts.refused.inc(),
        };
        outcome
    }

    async fn judge(&self, attempt: Attempt) -> AuthOutcome {
        if let Some(operators) = &self.operators
            && let Some(outcome) = operators.judge(&attempt)
        {
            return outcome;
        }
        let mut declined = None;
        let mut is_undecided = false;
        for member in &self.members {
            match member.judge(&attempt).await {
                Verdict::Accepted(principal) if principal.user_id.len() > self.user_bytes_max => {
                    return AuthOutcome::Refused { client_data: None };
                }
                Verdict::Accepted(principal) => {
                    let principal = self.bounded(principal);
                    return AuthOutcome::Accepted(Arc::new(principal));
                }
                Verdict::Refused { client_data } => return AuthOutcome::Refused { client_data },
                Verdict::Barred { client_data } => return AuthOutcome::Barred { client_data },
                // Another one may know the user without asking anybody.
                Verdict::Unavailable => is_undecided = true,
                Verdict::Unknown => {}
                Verdict::Declined { client_data } => declined = declined.or(client_data),
            }
        }
        match is_undecided {
            true => AuthOutcome::Unavailable,
            false => AuthOutcome::Refused {
                client_data: declined,
            },
        }
    }

    /// Ends it after `auth.session_lifetime`, if it does not end before.
    fn bounded(&self, principal: Principal) -> Principal {
        let Some(lifetime) = self.session_lifetime else {
            return principal;
        };
        let lifetime = u64::try_from(lifetime.as_millis()).unwrap_or(u64::MAX);
        let end = WallTime(jwt::now().0.saturating_add(lifetime));
        match principal.expires_at() {
            Some(own) if own <= end => principal,
            _ => principal.with_expiry(end),
        }
    }

    /// Lets every member read its files again and says what went wrong.
    pub fn reload(&self) -> Vec<Problem> {
        self.members
            .iter()
            .filter_map(|member| member.reload().err())
            .collect()
    }
}
