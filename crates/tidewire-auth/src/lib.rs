//! The authentication chain: decides which user a login belongs to.
//!
//! To add an authenticator, write a file with its name and add it to [`AuthChain::new`].

mod backend;
pub mod credentials;
pub mod file;
pub mod fingerprint;
pub mod guess_limiter;
pub mod hashing;
pub mod jwt;
pub mod keys;
pub mod login_attempt;
pub mod open;
pub mod operator;
pub mod outbound;
pub mod password;
pub mod revocation_store;
pub mod shared_ticket;
pub mod store;
pub mod ticket;
pub mod tls;
pub mod turns;
pub mod users;
pub mod waiting;
pub mod webhook;

use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::time::Duration;

use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::gauge::Gauge;
use prometheus_client::registry::Registry;
use tidewire_config::Problem;
use tidewire_config::plan::Plan;
use tidewire_config::section::AuthKind;
use tidewire_core::effect::AuthOutcome;
use tidewire_core::principal::Principal;
use tidewire_core::text::Payload;
use tidewire_core::time::WallTime;
use tokio::runtime::Handle;
use tokio::time::{Instant, sleep_until};

use backend::BackendKeys;
use fingerprint::Fingerprint;
use guess_limiter::{Admission, GuessLimiter, Subject};
use hashing::Hashing;
pub use login_attempt::LoginAttempt;
use operator::Operators;
use shared_ticket::SharedTickets;
use tidewire_shard::backoff::BackoffSettings;
use tidewire_shard::peer::PeerDetails;
use users::Users;

/// The decision of one member of the chain on a login.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum AuthDecision {
    /// The login belongs to this user.
    Accepted(Principal),
    /// Rejects the login; the client receives the reason.
    Refused {
        /// JSON.
        client_data: Option<Payload>,
    },
    /// Rejects the login permanently because its credentials are revoked. The client does not retry with them.
    Barred {
        /// JSON.
        client_data: Option<Payload>,
    },
    /// Not evaluated, because too many earlier attempts failed.
    HeldOff,
    /// Undecided because a server that the member depends on is down; the client retries later.
    Unavailable,
    /// The member does not know the user; the chain asks the next member.
    Unknown,
    /// Like `Unknown`, but with a reason that the client receives if no other member decides.
    Declined {
        /// JSON.
        client_data: Option<Payload>,
    },
}

/// A problem that prevents a member from deciding logins normally.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Trouble {
    /// A fixed code for programs.
    pub code: &'static str,
    /// A description for the operator.
    pub text: String,
    /// Whether logins that depend on this member fail, so that traffic should go to another node.
    pub is_blocking: bool,
}

/// The data of a refusal: an object with `error`.
fn reason(code: &'static str) -> Option<Payload> {
    Some(Payload::from(
        serde_json::json!({ "error": code }).to_string(),
    ))
}

/// The data of a refusal with the field `explanation`. Data that is not an object, such as a webhook's text, stays as it is.
fn explained(client_data: Option<Payload>, explanation: String) -> Option<Payload> {
    let given = client_data.as_ref().map_or("{}", Payload::as_str);
    let Ok(serde_json::Value::Object(mut fields)) = serde_json::from_str(given) else {
        return client_data;
    };
    fields.insert("explanation".to_owned(), explanation.into());
    Some(Payload::from(serde_json::Value::Object(fields).to_string()))
}

/// 128 random bits as text.
///
/// # Errors
/// The system has no random numbers.
pub fn random_id() -> Result<String, String> {
    let mut bytes = [0; 16];
    getrandom::fill(&mut bytes)
        .map_err(|error| format!("the system has no random numbers: {error}"))?;
    Ok(URL_SAFE_NO_PAD.encode(bytes))
}

/// The background work of a member. It runs as long as the server.
pub type Running<'a> = Pin<Box<dyn Future<Output = ()> + Send + 'a>>;

/// The pending answer of a member.
pub type AuthFuture<'a> = Pin<Box<dyn Future<Output = AuthDecision> + Send + 'a>>;

/// A way to authenticate. The chain calls it concurrently, so it must never block the thread that polls it.
pub trait Authenticator: Send + Sync {
    /// Evaluates a login attempt.
    fn authenticate<'a>(&'a self, attempt: &'a LoginAttempt) -> AuthFuture<'a>;

    /// Reads its files again. On an error, the previous content stays in effect.
    ///
    /// # Errors
    /// A file is missing or invalid.
    fn reload(&self) -> Result<(), Problem> {
        Ok(())
    }

    /// Its background work, if it has any. The future never completes.
    fn run(&self) -> Option<Running<'_>> {
        None
    }

    /// The login field that it reads tokens from, if it accepts tokens.
    fn token_field(&self) -> Option<&str> {
        None
    }

    /// The fingerprint of the keys, secrets or users of its options and files, if it has some.
    fn fingerprint(&self) -> Option<Fingerprint> {
        None
    }

    /// Its current problem, for `/ready`.
    fn trouble(&self) -> Option<Trouble> {
        None
    }
}

/// Asks its members in order until one decides.
pub struct AuthChain {
    members: Vec<Box<dyn Authenticator>>,
    /// The users in the record store, if the `store` member is in the chain.
    users: Option<Arc<Users>>,
    /// The tickets of all nodes, in a cluster.
    shared_tickets: Option<Arc<SharedTickets>>,
    user_bytes_max: usize,
    session_lifetime: Option<Duration>,
    /// Logins of operators through the admin page, if it is enabled.
    operators: Option<Arc<Operators>>,
    /// The keys of backends, if there are some.
    backends: Option<BackendKeys>,
    /// Counts refused logins and delays further attempts. Present if the chain has a member whose passwords can be guessed.
    guess_limiter: Option<Arc<GuessLimiter>>,
    /// Whether the webhook is a member. Only the webhook knows which fields it treats as a password, so every refused login counts.
    has_webhook: bool,
    /// Development mode: refusals name the mistake, even if that helps to guess.
    is_development: bool,
    counts: Counts,
}

/// The decision of the chain on a login.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LoginResult {
    /// The outcome for the engine.
    pub outcome: AuthOutcome,
    /// The token from the webhook for clients that log in over HTTP, as JSON.
    pub token: Option<String>,
    /// Whether the chain did not evaluate the login, because too many earlier attempts failed.
    pub is_held_off: bool,
}

impl From<AuthOutcome> for LoginResult {
    fn from(outcome: AuthOutcome) -> Self {
        Self {
            outcome,
            token: None,
            is_held_off: false,
        }
    }
}

impl LoginResult {
    /// The answer to a login that was not evaluated. The client retries without user action.
    fn held_off() -> Self {
        Self {
            is_held_off: true,
            ..AuthOutcome::Unavailable.into()
        }
    }
}

/// Counters of the chain and its members.
#[derive(Clone, Debug, Default)]
pub struct Counts {
    /// Logins that were accepted.
    pub accepted: Counter,
    /// Logins that were refused.
    pub refused: Counter,
    /// Logins that no member could decide, because a server that a member depends on was down.
    pub unavailable: Counter,
    /// Fetches of an issuer's keys.
    pub keys: jwt::remote::Counts,
    /// Requests to the webhook.
    pub webhook: webhook::Counts,
    /// Sign-ups of users in the record store.
    pub users: users::Counts,
    /// Refused logins and their delays.
    pub guess_limiter: guess_limiter::Counts,
    /// Logins that wait for a decision.
    pub waiting: waiting::Counts,
    /// Login tickets that were issued and not used.
    pub tickets: ticket::Counts,
}

impl Counts {
    /// Registers them as metrics.
    pub fn register(&self, registry: &mut Registry) {
        let mut add = |name: &str, help: &str, counter: &Counter| {
            registry.register(name, help, counter.clone());
        };
        add(
            "logins_accepted",
            "Logins that were accepted",
            &self.accepted,
        );
        add("logins_refused", "Logins that were refused", &self.refused);
        let help = "Logins that could not be decided because a server that authentication depends on is down";
        add("logins_unavailable", help, &self.unavailable);
        let keys = &self.keys;
        add(
            "jwt_key_fetches",
            "Fetches of an issuer's keys",
            &keys.fetches,
        );
        let help = "Fetches of an issuer's keys that failed";
        add("jwt_key_fetch_failures", help, &keys.failures);
        let webhook = &self.webhook;
        let help = "Requests to the authentication webhook";
        add("auth_webhook_requests", help, &webhook.requests);
        let help = "Requests to the authentication webhook that failed";
        add("auth_webhook_failures", help, &webhook.failures);
        let users = &self.users;
        add("sign_ups", "Users that signed up", &users.sign_ups);
        let help = "Sign-up requests that exceeded the rate limit (auth.store.sign_up_rate)";
        add("sign_ups_too_fast", help, &users.too_fast);
        let guess_limiter = &self.guess_limiter;
        let help = "Logins that were delayed because of earlier refused logins";
        add("logins_delayed", help, &guess_limiter.delayed);
        let help =
            "Logins that were turned away without evaluation because of earlier refused logins";
        add("logins_held_off", help, &guess_limiter.held_off);
        let help = "Logins that were put off because too many were waiting (auth.waiting_* limits)";
        add("logins_put_off", help, &self.waiting.put_off);
        let help = "Login tickets that were discarded for newer ones (http.tickets_max, http.tickets_bytes_max)";
        add("login_tickets_displaced", help, &self.tickets.displaced);
        let mut show = |name: &str, help: &str, gauge: &Gauge| {
            registry.register(name, help, gauge.clone());
        };
        let help = "Addresses, users, and pairs of both that are tracked for refused logins";
        show("login_refusal_subjects", help, &guess_limiter.subjects);
        let waiting = &self.waiting;
        show(
            "logins_waiting",
            "Logins that wait for a decision",
            &waiting.logins,
        );
        let help = "Bytes of the logins that wait for a decision";
        show("logins_waiting_bytes", help, &waiting.bytes);
        let help = "Login tickets that were issued and not used";
        show("login_tickets", help, &self.tickets.tickets);
        let help = "Bytes of the logins that tickets represent";
        show("login_tickets_bytes", help, &self.tickets.bytes);
    }
}

impl AuthChain {
    /// Builds the chain of the configuration. Password hashing uses at most `hashing_max` threads at a time.
    ///
    /// # Errors
    /// The options or files of a member are invalid.
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
        let has = |kind| plan.auth_chain.contains(&kind);
        let has_webhook = has(AuthKind::Webhook);
        let is_guessable = has_webhook || has(AuthKind::File) || has(AuthKind::Store);
        let guess_limiter =
            || GuessLimiter::new(BackoffSettings::of(plan), counts.guess_limiter.clone());
        Ok(Self {
            guess_limiter: is_guessable.then(guess_limiter),
            has_webhook,
            is_development: plan.is_development,
            members,
            users: plan.auth_chain.contains(&AuthKind::Store).then_some(users),
            shared_tickets: plan.config.cluster.enabled.then(Arc::default),
            user_bytes_max: plan.config.limits.name_bytes_max.as_usize(),
            session_lifetime: options.session_lifetime.time(),
            operators: plan.admin_page.is_on().then(Arc::default),
            backends: BackendKeys::open(&plan.config.backend)?,
            counts,
        })
    }

    /// The user of a token, if a member accepts the token now.
    pub async fn principal_of_token(&self, token: &str) -> Option<Principal> {
        let address = (std::net::Ipv4Addr::LOCALHOST, 0).into();
        for member in &self.members {
            if let Some(field) = member.token_field() {
                let peer = PeerDetails::at(address);
                let data = serde_json::json!({ field: token }).to_string();
                let attempt = LoginAttempt::new(&Payload::from(data), Arc::new(peer));
                if let AuthDecision::Accepted(principal) = member.authenticate(&attempt).await {
                    return Some(principal);
                }
            }
        }
        None
    }

    /// The users in the record store, if the `store` member is in the chain.
    #[must_use]
    pub fn users(&self) -> Option<&Arc<Users>> {
        self.users.as_ref()
    }

    /// The tickets of all nodes, if the node belongs to a cluster.
    #[must_use]
    pub fn shared_tickets(&self) -> Option<&Arc<SharedTickets>> {
        self.shared_tickets.as_ref()
    }

    /// The fingerprints of the keys, secrets and files of users that are in use.
    #[must_use]
    pub fn fingerprints(&self) -> Vec<Fingerprint> {
        let members = self.members.iter();
        let of_members = members.filter_map(|member| member.fingerprint());
        let backends = self.backends.iter().map(BackendKeys::fingerprint);
        of_members.chain(backends).collect()
    }

    /// Logins of operators through the admin page, if it is enabled.
    #[must_use]
    pub fn operators(&self) -> Option<&Arc<Operators>> {
        self.operators.as_ref()
    }

    /// The counters of the chain and its members.
    #[must_use]
    pub fn counts(&self) -> &Counts {
        &self.counts
    }

    /// Starts the background work of all members. It ends with the runtime.
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

    /// The current problems of all members.
    #[must_use]
    pub fn troubles(&self) -> Vec<Trouble> {
        let members = self.members.iter();
        members.filter_map(|member| member.trouble()).collect()
    }

    /// Evaluates the object or array given to `login()`.
    pub async fn authenticate(&self, data: &Payload, peer: Arc<PeerDetails>) -> AuthOutcome {
        self.log_in(data, peer).await.outcome
    }

    /// Like [`Self::authenticate`], with the additional result for logins over HTTP.
    pub async fn log_in(&self, data: &Payload, peer: Arc<PeerDetails>) -> LoginResult {
        let answer = self.answer(LoginAttempt::new(data, peer)).await;
        // Logins that were not evaluated have a separate counter.
        if !answer.is_held_off {
            let counts = &self.counts;
            match &answer.outcome {
                AuthOutcome::Accepted(_) => counts.accepted.inc(),
                AuthOutcome::Unavailable => counts.unavailable.inc(),
                AuthOutcome::Refused { .. } | AuthOutcome::Barred { .. } => counts.refused.inc(),
            };
        }
        answer
    }

    async fn answer(&self, mut attempt: LoginAttempt) -> LoginResult {
        if let Some(backends) = &self.backends
            && let Some(outcome) = backends.authenticate(&attempt)
        {
            return outcome.into();
        }
        if let Some(operators) = &self.operators
            && let Some(outcome) = operators.authenticate(&attempt)
        {
            return outcome.into();
        }
        let Some((guess_limiter, subject)) = self.guessing(&attempt) else {
            let outcome = self.ask_members(&attempt).await;
            return self.result(outcome, attempt);
        };
        match guess_limiter.admit(&subject, Instant::now()) {
            Admission::Free => attempt.watched = Some(guess_limiter.watch(subject.clone())),
            Admission::At(time) => sleep_until(time).await,
            Admission::HeldOff => return LoginResult::held_off(),
        }
        let outcome = self.ask_members(&attempt).await;
        match &outcome {
            Some(AuthOutcome::Accepted(_)) => guess_limiter.accepted(&subject),
            Some(AuthOutcome::Refused { .. }) => guess_limiter.refused(&subject, Instant::now()),
            Some(AuthOutcome::Barred { .. } | AuthOutcome::Unavailable) | None => {}
        }
        self.result(outcome, attempt)
    }

    /// Builds the answer to an attempt; `None` means that the attempt was turned away.
    fn result(&self, outcome: Option<AuthOutcome>, attempt: LoginAttempt) -> LoginResult {
        match outcome {
            Some(outcome @ AuthOutcome::Accepted(_)) => LoginResult {
                token: attempt.into_token(),
                ..outcome.into()
            },
            Some(AuthOutcome::Refused { client_data }) if self.is_development => {
                let client_data = explained(client_data, attempt.explanation());
                AuthOutcome::Refused { client_data }.into()
            }
            Some(outcome) => outcome.into(),
            None => LoginResult::held_off(),
        }
    }

    /// The subject that refusals count for, if the attempt may be a guess.
    fn guessing(&self, attempt: &LoginAttempt) -> Option<(&Arc<GuessLimiter>, Subject)> {
        let guess_limiter = self.guess_limiter.as_ref()?;
        let is_guess = self.has_webhook || attempt.given("username").is_some();
        is_guess.then(|| (guess_limiter, attempt.subject(guess_limiter)))
    }

    /// Asks the members in order; `None` if the attempt was turned away.
    async fn ask_members(&self, attempt: &LoginAttempt) -> Option<AuthOutcome> {
        let mut declined = None;
        let mut is_undecided = false;
        for member in &self.members {
            match member.authenticate(attempt).await {
                AuthDecision::Accepted(principal)
                    if principal.user_id.len() > self.user_bytes_max =>
                {
                    attempt.explain("the user id is longer than limits.name_bytes_max");
                    return Some(AuthOutcome::Refused { client_data: None });
                }
                AuthDecision::Accepted(principal) => {
                    let principal = self.bounded(principal);
                    return Some(AuthOutcome::Accepted(Arc::new(principal)));
                }
                AuthDecision::Refused { client_data } => {
                    return Some(AuthOutcome::Refused { client_data });
                }
                AuthDecision::Barred { client_data } => {
                    return Some(AuthOutcome::Barred { client_data });
                }
                AuthDecision::HeldOff => return None,
                // A later member may know the user without an external server.
                AuthDecision::Unavailable => is_undecided = true,
                AuthDecision::Unknown => {}
                AuthDecision::Declined { client_data } => declined = declined.or(client_data),
            }
        }
        Some(match is_undecided {
            true => AuthOutcome::Unavailable,
            false => AuthOutcome::Refused {
                client_data: declined,
            },
        })
    }

    /// Limits the session to `auth.session_lifetime` unless it already ends earlier.
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

    /// Makes every member read its files again and returns the errors.
    pub fn reload(&self) -> Vec<Problem> {
        let members = self.members.iter().map(|member| member.reload());
        let backends = self.backends.iter().map(BackendKeys::reload);
        members.chain(backends).filter_map(Result::err).collect()
    }
}
