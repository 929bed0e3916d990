//! `POST /api/auth/sign-up`: creates a user in the record store (`auth.store.sign_up`).

use std::collections::HashMap;
use std::net::IpAddr;
use std::sync::Arc;

use hyper::StatusCode;
use parking_lot::Mutex;
use serde::Deserialize;
use serde_json::json;
use tidewire_auth::users::{UserError, Users};
use tidewire_config::section::AuthStore;
use tidewire_core::rate::{Bucket, Rate};
use tidewire_core::time::Instant;
use tidewire_shard::connection_limiter::Subject;

use super::answer::{self, HttpResponse};
use super::problem::Problem;
use super::{Api, ApiRequest, is_of_type};

/// The path.
pub(super) const PATH: &str = "/api/auth/sign-up";
/// The methods of the path.
pub(super) const METHODS: &str = "POST, OPTIONS";

/// Addresses whose rates the server remembers. When all entries are in use, requests from other addresses are refused: an
/// attacker with that many addresses must not make the server forget their rates.
const ADDRESSES_MAX: usize = 10_000;

const TOO_FAST: Problem = Problem::new(
    StatusCode::TOO_MANY_REQUESTS,
    "TOO_MANY_SIGN_UPS",
    "too many sign-up requests from this address (auth.store.sign_up_rate); try again later",
);
const NOT_A_USER: Problem = Problem::new(
    StatusCode::BAD_REQUEST,
    "INVALID_SIGN_UP",
    "the body must be an object with a username and a password, both strings, and no other field",
);
const INVALID_NAME: Problem = Problem::new(
    StatusCode::UNPROCESSABLE_ENTITY,
    "INVALID_USERNAME",
    "a username must have 1 to 256 bytes, no control characters, no white space at its ends, and must not be OPEN",
);
const INVALID_PASSWORD: Problem = Problem::new(
    StatusCode::UNPROCESSABLE_ENTITY,
    "INVALID_PASSWORD",
    "a password must have at least 8 characters and at most 1,024 bytes",
);
const TAKEN: Problem = Problem::new(
    StatusCode::CONFLICT,
    "USERNAME_TAKEN",
    "a user with this name exists",
);
const UNAVAILABLE: Problem = Problem::new(
    StatusCode::SERVICE_UNAVAILABLE,
    "STORE_UNAVAILABLE",
    "the store of users is unavailable; the user may or may not exist: try to log in, or retry",
);

/// The body of a request.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct SignUpBody {
    username: String,
    password: String,
}

/// Creates users, and limits how often each address may do so.
#[derive(Debug)]
pub(super) struct SignUps {
    users: Arc<Users>,
    rate: Option<Rate>,
    began: std::time::Instant,
    buckets: Mutex<HashMap<Subject, Bucket>>,
}

impl SignUps {
    /// Returns `None` if the configuration does not allow users to sign up.
    pub(super) fn new(options: &AuthStore, users: Option<&Arc<Users>>) -> Option<Self> {
        let users = users.filter(|_| options.sign_up)?;
        Some(Self {
            users: Arc::clone(users),
            rate: options.sign_up_rate.0,
            began: std::time::Instant::now(),
            buckets: Mutex::default(),
        })
    }

    /// Takes a permit of the address; returns false if none is available.
    fn admits(&self, address: IpAddr) -> bool {
        let Some(rate) = self.rate else { return true };
        let since = self.began.elapsed().as_nanos();
        let now = Instant(u64::try_from(since).unwrap_or(u64::MAX));
        take(&mut self.buckets.lock(), Subject::new(address), rate, now)
    }
}

fn take(
    buckets: &mut HashMap<Subject, Bucket>,
    subject: Subject,
    rate: Rate,
    now: Instant,
) -> bool {
    if buckets.len() >= ADDRESSES_MAX && !buckets.contains_key(&subject) {
        buckets.retain(|_, bucket| !bucket.is_full(now));
        if buckets.len() >= ADDRESSES_MAX {
            return false;
        }
    }
    let bucket = buckets.entry(subject).or_default();
    let has_one = bucket.ready_at(rate, 1) <= now;
    if has_one {
        bucket.take(now, rate, 1);
    }
    has_one
}

impl Api {
    /// `POST /api/auth/sign-up`.
    pub(super) async fn sign_up(&self, mut request: ApiRequest) -> HttpResponse {
        match self.try_sign_up(&mut request).await {
            Ok(user) => {
                let body = json!({ "user": user });
                let content_type = "application/json";
                answer::typed(StatusCode::CREATED, content_type, format!("{body}\n"))
            }
            Err(problem) => problem.answer(),
        }
    }

    async fn try_sign_up(&self, request: &mut ApiRequest) -> Result<String, Problem> {
        // Without `sign_ups` the path is not served.
        let sign_ups = self.sign_ups.as_ref().ok_or(Problem::METHOD)?;
        let users = &sign_ups.users;
        if !sign_ups.admits(request.address.ip()) {
            users.counts.too_fast.inc();
            return Err(TOO_FAST);
        }
        if !is_of_type(&request.parts, "application/json") {
            return Err(Problem::WRONG_TYPE);
        }
        let body = self.read(request).await?;
        let wanted: SignUpBody = serde_json::from_slice(&body.bytes).map_err(|_| NOT_A_USER)?;
        let created = users.create(&wanted.username, &wanted.password).await;
        created.map_err(|error| match error {
            UserError::Taken => TAKEN,
            UserError::InvalidName => INVALID_NAME,
            UserError::InvalidPassword => INVALID_PASSWORD,
            // A broken user record occupies its name too.
            UserError::Broken => TAKEN,
            UserError::Missing | UserError::HeldOff | UserError::Unavailable(_) => UNAVAILABLE,
        })?;
        users.counts.sign_ups.inc();
        let user = users.user_id(&wanted.username);
        tracing::info!(user = user.as_str(), "signed up");
        Ok(user)
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    const RATE: Rate = Rate {
        interval: Duration::from_secs(10),
        burst: 2,
    };

    fn address(number: u32) -> Subject {
        Subject::new(std::net::Ipv4Addr::from_bits(number).into())
    }

    #[test]
    fn an_address_gets_its_burst_and_then_its_rate() {
        let mut buckets = HashMap::new();
        let at = |seconds: u64| Instant(seconds * 1_000_000_000);
        let mut ask = |number, seconds| take(&mut buckets, address(number), RATE, at(seconds));
        assert!(ask(1, 100) && ask(1, 100));
        assert!(!ask(1, 100) && !ask(1, 109));
        assert!(ask(2, 109), "another address is not touched");
        assert!(ask(1, 110));
        assert!(
            !ask(1, 110),
            "what was refused has cost nothing and given nothing"
        );
    }

    #[test]
    fn the_number_of_addresses_is_bounded_and_none_is_forgotten_early() {
        let mut buckets = HashMap::new();
        let now = Instant(1_000_000_000_000);
        let many = u32::try_from(ADDRESSES_MAX).expect("it fits");
        for number in 0..many {
            assert!(take(&mut buckets, address(number), RATE, now));
        }
        assert!(!take(&mut buckets, address(many), RATE, now));
        assert!(
            take(&mut buckets, address(0), RATE, now),
            "a known address may continue"
        );
        let later = now + Duration::from_secs(10);
        assert!(
            take(&mut buckets, address(many), RATE, later),
            "the others have waited long enough"
        );
        assert_eq!(buckets.len(), 2);
    }
}
