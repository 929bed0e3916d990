//! Who is it? The chain of ways to authenticate.
//!
//! To add one, write a file with its name and add it to [`AuthChain::new`].

pub mod file;
pub mod open;
pub mod password;

use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;

use serde_json::{Map, Value};
use tidewire_core::effect::{AuthOutcome, Principal};
use tidewire_core::text::Payload;

use crate::config::Problem;
use crate::config::plan::Plan;
use crate::config::section::AuthKind;
use crate::shard::handle::Peer;

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
}

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
}

/// Members that are asked one after the other until one decides.
pub struct AuthChain {
    members: Vec<Box<dyn Authenticator>>,
    user_bytes_max: usize,
}

impl AuthChain {
    /// The chain of the configuration. Hashing takes at most `hashing_max` threads at a time.
    ///
    /// # Errors
    /// The files of a member are wrong.
    pub fn new(plan: &Plan, hashing_max: usize) -> Result<Self, Problem> {
        let is_alone = plan.auth_chain.len() == 1;
        let member = |kind: &AuthKind| -> Result<Box<dyn Authenticator>, Problem> {
            Ok(match kind {
                AuthKind::Open => Box::new(open::Open),
                AuthKind::File => {
                    let options = plan.config.auth.file.clone();
                    Box::new(file::File::open(options, is_alone, hashing_max)?)
                }
            })
        };
        Ok(Self {
            members: plan
                .auth_chain
                .iter()
                .map(member)
                .collect::<Result<_, _>>()?,
            user_bytes_max: plan.config.limits.name_bytes_max.as_usize(),
        })
    }

    /// Judges the object or array given to `login()`.
    pub async fn authenticate(&self, data: &Payload, peer: Arc<Peer>) -> AuthOutcome {
        let refused = AuthOutcome::Refused { client_data: None };
        let data = match serde_json::from_str(data.as_str()) {
            Ok(Value::Object(data)) => data,
            Ok(_) => Map::new(),
            // Well formed, but with a number that nothing can hold.
            Err(_) => return refused,
        };
        let attempt = Attempt { data, peer };
        for member in &self.members {
            match member.judge(&attempt).await {
                Verdict::Accepted(principal) if principal.user_id.len() > self.user_bytes_max => {
                    return refused;
                }
                Verdict::Accepted(principal) => return AuthOutcome::Accepted(Arc::new(principal)),
                Verdict::Refused { client_data } => return AuthOutcome::Refused { client_data },
                Verdict::Barred { client_data } => return AuthOutcome::Barred { client_data },
                Verdict::Unavailable => return AuthOutcome::Unavailable,
                Verdict::Unknown => {}
            }
        }
        refused
    }

    /// Lets every member read its files again and says what went wrong.
    pub fn reload(&self) -> Vec<Problem> {
        self.members
            .iter()
            .filter_map(|member| member.reload().err())
            .collect()
    }
}
