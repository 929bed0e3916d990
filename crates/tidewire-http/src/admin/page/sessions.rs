//! The sign-in sessions of the admin page. Each has a cookie that scripts can't read, and a token that other sites can't know.

use std::collections::HashMap;
use std::time::Duration;

use parking_lot::Mutex;
use sha2::{Digest as _, Sha256};
use tidewire_auth::password::is_same;
use tidewire_auth::random_id;
use tidewire_core::time::WallTime;
use tokio::time::Instant;

/// The name of the cookie.
pub(super) const COOKIE: &str = "tidewire-admin";
/// After the first look at something, the audit log omits further looks at it for this time. The page repeats its requests by
/// itself.
const VIEW_INTERVAL: Duration = Duration::from_secs(600);
/// Looks that are remembered for each session. Beyond this number the log repeats some of them.
const VIEWS_MAX: usize = 1_000;

/// An operator's sign-in session.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct SignedIn {
    /// Identifies the session in the log and in the connections that it opened. It is not a credential.
    pub(super) id: String,
    /// The token that each change must carry.
    pub(super) token: String,
    /// When the session ends.
    pub(super) ends: WallTime,
}

#[derive(Debug)]
struct Open {
    signed_in: SignedIn,
    views: HashMap<String, Instant>,
}

/// The sessions. See the comment at the top of this file.
#[derive(Debug)]
pub(super) struct Sessions {
    /// By the hash of the cookie's value, so that the server does not store the value itself.
    open: Mutex<HashMap<[u8; 32], Open>>,
    lifetime: Duration,
    count_max: usize,
}

impl Sessions {
    /// No session so far. When a session beyond `count_max` opens, the oldest one ends.
    pub(super) fn new(lifetime: Duration, count_max: usize) -> Self {
        Self {
            open: Mutex::default(),
            lifetime,
            count_max,
        }
    }

    /// How long a session lasts.
    pub(super) fn lifetime(&self) -> Duration {
        self.lifetime
    }

    /// Opens a session. Returns the value of its cookie, the session, and the session that had to end for it.
    ///
    /// # Errors
    /// The operating system provides no random numbers.
    pub(super) fn open(
        &self,
        now: WallTime,
    ) -> Result<(String, SignedIn, Option<SignedIn>), String> {
        let cookie = random_id()? + &random_id()?;
        let lifetime = u64::try_from(self.lifetime.as_millis()).unwrap_or(u64::MAX);
        let signed_in = SignedIn {
            id: random_id()?,
            token: random_id()?,
            ends: WallTime(now.0.saturating_add(lifetime)),
        };
        let mut open = self.open.lock();
        open.retain(|_, other| other.signed_in.ends > now);
        let mut ended = None;
        if open.len() >= self.count_max {
            let oldest = open.iter().min_by_key(|(_, other)| other.signed_in.ends);
            let oldest = oldest.map(|(key, _)| *key);
            ended = oldest.and_then(|key| open.remove(&key));
        }
        open.insert(
            digest(&cookie),
            Open {
                signed_in: signed_in.clone(),
                views: HashMap::new(),
            },
        );
        Ok((cookie, signed_in, ended.map(|open| open.signed_in)))
    }

    /// The session with this cookie, if it has not ended.
    pub(super) fn find(&self, cookie: &str, now: WallTime) -> Option<SignedIn> {
        let open = self.open.lock();
        let found = open.get(&digest(cookie))?;
        (found.signed_in.ends > now).then(|| found.signed_in.clone())
    }

    /// Ends the session with this cookie.
    pub(super) fn close(&self, cookie: &str) {
        self.open.lock().remove(&digest(cookie));
    }

    /// Whether the audit log must report a look at `what`.
    pub(super) fn is_first_view(&self, cookie: &str, what: &str, now: Instant) -> bool {
        let mut open = self.open.lock();
        let Some(found) = open.get_mut(&digest(cookie)) else {
            return true;
        };
        let views = &mut found.views;
        if views
            .get(what)
            .is_some_and(|last| now - *last < VIEW_INTERVAL)
        {
            return false;
        }
        if views.len() >= VIEWS_MAX {
            views.clear();
        }
        views.insert(what.to_owned(), now);
        true
    }
}

impl SignedIn {
    /// Whether `token` is the token of this session.
    pub(super) fn has_token(&self, token: &str) -> bool {
        is_same(token.as_bytes(), self.token.as_bytes())
    }
}

fn digest(cookie: &str) -> [u8; 32] {
    Sha256::digest(cookie.as_bytes()).into()
}

/// The value of the cookie among the values of all `Cookie` headers.
pub(super) fn cookie<'a>(headers: impl Iterator<Item = &'a str>) -> Option<&'a str> {
    let mut pairs = headers.flat_map(|header| header.split(';'));
    pairs.find_map(|pair| {
        let (name, value) = pair.trim().split_once('=')?;
        (name == COOKIE).then_some(value)
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_session_is_found_by_its_cookie_until_it_ends() {
        let sessions = Sessions::new(Duration::from_secs(1), 10);
        let (cookie, signed_in, _) = sessions.open(WallTime(5)).expect("random numbers");
        assert_eq!(signed_in.ends, WallTime(1_005));
        assert_eq!(
            sessions.find(&cookie, WallTime(1_004)),
            Some(signed_in.clone())
        );
        assert_eq!(sessions.find(&cookie, WallTime(1_005)), None);
        assert_eq!(sessions.find("", WallTime(5)), None);
        assert!(signed_in.has_token(&signed_in.token) && !signed_in.has_token(""));
        assert!(!signed_in.has_token(&signed_in.id));
        sessions.close(&cookie);
        assert_eq!(sessions.find(&cookie, WallTime(5)), None);
    }

    #[test]
    fn at_the_limit_the_oldest_ends() {
        let sessions = Sessions::new(Duration::from_secs(1), 2);
        let open = |now| sessions.open(WallTime(now)).expect("random numbers");
        let (first, signed_in, none) = open(0);
        assert_eq!(none, None);
        let (second, ..) = open(1);
        assert_eq!(open(2).2, Some(signed_in));
        assert_eq!(sessions.find(&first, WallTime(2)), None);
        assert!(sessions.find(&second, WallTime(2)).is_some());
        assert_eq!(open(5_000).2, None, "expired sessions use no place");
    }

    #[test]
    fn a_repeated_view_is_logged_once_per_interval() {
        let sessions = Sessions::new(Duration::from_secs(1), 2);
        let (cookie, ..) = sessions.open(WallTime(0)).expect("random numbers");
        let now = Instant::now();
        let is_first = |what: &str, now| sessions.is_first_view(&cookie, what, now);
        assert!(is_first("a", now) && !is_first("a", now) && is_first("b", now));
        assert!(is_first("a", now + VIEW_INTERVAL));
        for number in 0..2 * VIEWS_MAX {
            is_first(&number.to_string(), now);
        }
        let open = sessions.open.lock();
        assert!(open.values().all(|open| open.views.len() <= VIEWS_MAX));
    }

    #[test]
    fn the_cookie_is_found_among_others() {
        let check = |headers: &[&'static str], expected: Option<&str>| {
            assert_eq!(cookie(headers.iter().copied()), expected, "{headers:?}");
        };
        check(&["tidewire-admin=x"], Some("x"));
        check(&["a=b; tidewire-admin=x=y; c"], Some("x=y"));
        check(&["a=b", "tidewire-admin=x"], Some("x"));
        check(&["tidewire-administrator=x", "admin=x"], None);
        check(&[], None);
    }
}
