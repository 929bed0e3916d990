//! `/records/NAME`: one record as a resource, with the semantics of HTTP.
//!
//! The record's owner evaluates a condition in one step with the change. A patch and some conditions need the current value
//! first. Such a change is written only if the record is still in the state that was read; otherwise the server repeats it with
//! the newer value.

use hyper::header::{ETAG, HeaderValue, LOCATION};
use hyper::{Method, StatusCode};
use serde_json::Value;
use tidewire_auth::credentials::Credentials;
use tidewire_core::message::{Only, Tag};
use tidewire_core::text::RESERVED;
use tidewire_shard::reply::OwnedReply;
use tidewire_shard::request::OwnedRequest;
use tokio::time::sleep;

use super::answer::{Body, HttpResponse};
use super::answer_room::{Pieces, RETRY_INTERVAL, Reserved};
use super::caller::{CallError, Caller};
use super::command::is_container;
use super::condition::{ConditionResult, Conditions, entity_tag};
use super::login::credentials_of_request;
use super::name::{escape, name_behind};
use super::patch;
use super::problem::Problem;
use super::{Api, ApiRequest, answer, is_of_type};

/// The path prefix of records.
pub(super) const PREFIX: &str = "/records/";
/// The methods of a record.
pub(super) const METHODS: &str = "GET, HEAD, PUT, PATCH, DELETE, OPTIONS";

const JSON: &str = "application/json";
const MERGE_PATCH: &str = "application/merge-patch+json";
const JSON_PATCH: &str = "application/json-patch+json";
/// How often the server tries a change while other clients change the record.
const ATTEMPTS_MAX: u32 = 20;

/// A patch needs its text as a tree of values. The tree takes up to this many times the bytes of the text: two bytes such as
/// `0,` become a value of 32 bytes, in a list that may have grown to twice its length. The memory is reserved before the tree
/// is built.
const TREE_FACTOR: usize = 32;

/// An answer of the engine.
enum RecordReply {
    /// The record's state and value, if the record exists.
    Fetched(Option<(Tag, String)>),
    /// The change is durable.
    Stored { existed: bool, tag: Option<Tag> },
    /// The record is not in the state that the condition requires.
    PreconditionFailed,
}

/// A tree of values and the memory reserved for it.
struct Tree {
    value: Value,
    #[expect(dead_code, reason = "it is held, not read")]
    memory: Reserved,
}

/// A change of a record.
enum Change {
    Put(String),
    Delete,
    Merge(Tree),
    Patch(Tree),
}

impl Api {
    /// Answers a request for one record.
    pub(super) async fn record(&self, request: ApiRequest) -> HttpResponse {
        match self.try_record(request).await {
            Ok(answer) => answer,
            Err(problem) => self.refuse(problem),
        }
    }

    async fn try_record(&self, mut request: ApiRequest) -> Result<HttpResponse, Problem> {
        let method = request.parts.method.clone();
        if method == Method::OPTIONS {
            return Ok(answer::options(Some(METHODS)));
        }
        let is_read = matches!(method, Method::GET | Method::HEAD);
        if !is_read && !matches!(method, Method::PUT | Method::PATCH | Method::DELETE) {
            return Ok(answer::with_allow(Problem::METHOD.answer(), Some(METHODS)));
        }
        let name = name_of(request.parts.uri.path(), self.limits.name_bytes_max)?;
        let credentials = credentials_of_request(&request.parts)?;
        let conditions = Conditions::of(&request.parts.headers, self.epochs.of(&name))?;
        if is_read {
            return self
                .read_record(&request, &credentials, &name, &conditions)
                .await;
        }
        let change = self.change(&mut request).await?;
        self.change_record(&request, &credentials, &name, &conditions, &change)
            .await
    }

    /// The value of a record as the user with this login may read it; `None` if it does not exist or can't be read.
    pub(crate) async fn value_as(
        &self,
        request: &ApiRequest,
        login: &serde_json::Value,
        name: &str,
    ) -> Option<String> {
        let credentials = Credentials::object(login);
        let _memory = self
            .memory(request, self.limits.record_bytes_max)
            .await
            .ok()?;
        let mut caller = self.call(request, &credentials, vec![fetch(name)]).ok()?;
        match reply(&mut caller).await {
            Ok(RecordReply::Fetched(state)) => state.map(|(_, data)| data),
            _ => None,
        }
    }

    async fn read_record(
        &self,
        request: &ApiRequest,
        credentials: &Credentials,
        name: &str,
        conditions: &Conditions,
    ) -> Result<HttpResponse, Problem> {
        let memory = self.memory(request, self.limits.record_bytes_max).await?;
        let mut caller = self.call(request, credentials, vec![fetch(name)])?;
        let RecordReply::Fetched(state) = reply(&mut caller).await? else {
            return Err(CallError::Ended.into());
        };
        let met = conditions.check(state.as_ref().map(|(tag, _)| *tag));
        let Some((tag, data)) = state else {
            return Err(if met == ConditionResult::No {
                Problem::PRECONDITION_FAILED
            } else {
                Problem::NOT_FOUND
            });
        };
        let mut answer = match met {
            ConditionResult::No => return Err(Problem::PRECONDITION_FAILED),
            ConditionResult::Known => {
                let mut answer = HttpResponse::default();
                *answer.status_mut() = StatusCode::NOT_MODIFIED;
                answer::revalidated(answer)
            }
            ConditionResult::Yes => {
                // A proxy may cache the answer if it revalidates it on each use.
                let mut pieces = Pieces::default();
                pieces.push_reserved(data, memory);
                answer::revalidated(answer::typed_pieces(JSON, pieces))
            }
        };
        Self::tag(&mut answer, conditions.epoch, Some(tag));
        Ok(answer)
    }

    /// Parses the change that a request contains. Faults that do not depend on the record are reported before the conditions
    /// are evaluated (RFC 9110, section 13.2.1).
    async fn change(&self, request: &mut ApiRequest) -> Result<Change, Problem> {
        if request.parts.method == Method::DELETE {
            return Ok(Change::Delete);
        }
        let is_put = request.parts.method == Method::PUT;
        let is_merge = !is_put && is_of_type(&request.parts, MERGE_PATCH);
        let is_patch = !is_put && is_of_type(&request.parts, JSON_PATCH);
        if !(is_merge || is_patch || is_put && is_of_type(&request.parts, JSON)) {
            return Err(if is_put {
                Problem::WRONG_TYPE
            } else {
                Problem::WRONG_PATCH_TYPE
            });
        }
        let body = self.read(request).await?;
        let text = std::str::from_utf8(&body.bytes).map_err(|_| Problem::NOT_JSON)?;
        if is_put {
            let value: &serde_json::value::RawValue =
                serde_json::from_str(text).map_err(|_| Problem::NOT_JSON)?;
            if !is_container(value) {
                return Err(Problem::NOT_A_VALUE);
            }
            return Ok(Change::Put(value.get().to_owned()));
        }
        let memory = self
            .memory(request, text.len().saturating_mul(TREE_FACTOR))
            .await?;
        let value: Value = serde_json::from_str(text).map_err(|_| Problem::NOT_JSON)?;
        if !is_merge {
            patch::check(&value)?;
            return Ok(Change::Patch(Tree { value, memory }));
        }
        // A merge patch that is not an object replaces the whole record.
        if !value.is_object() && !value.is_array() {
            return Err(Problem::NOT_A_VALUE);
        }
        Ok(Change::Merge(Tree { value, memory }))
    }

    async fn change_record(
        &self,
        request: &ApiRequest,
        credentials: &Credentials,
        name: &str,
        conditions: &Conditions,
        change: &Change,
    ) -> Result<HttpResponse, Problem> {
        // If the change does not depend on the current value, the owner evaluates condition and change in one step.
        let whole = match change {
            Change::Put(data) => Some(Some(data.as_str())),
            Change::Delete => Some(None),
            Change::Merge(..) | Change::Patch(..) => None,
        };
        if let (Some(data), Some(only)) = (whole, conditions.only()) {
            let mut caller = self.call(request, credentials, vec![put(name, only, data)])?;
            return match reply(&mut caller).await? {
                RecordReply::Stored { existed, tag } => {
                    Self::stored(name, existed, conditions, tag)
                }
                _ => Err(Problem::PRECONDITION_FAILED),
            };
        }
        let mut memory = self.memory(request, self.limits.record_bytes_max).await?;
        let mut caller = self.call(request, credentials, vec![fetch(name)])?;
        for _ in 0..ATTEMPTS_MAX {
            let RecordReply::Fetched(state) = reply(&mut caller).await? else {
                return Err(CallError::Ended.into());
            };
            let tag = state.as_ref().map(|(tag, _)| *tag);
            if conditions.check(tag) != ConditionResult::Yes {
                return Err(Problem::PRECONDITION_FAILED);
            }
            if let Some((_, data)) = &state {
                let bytes = data.len().saturating_mul(TREE_FACTOR);
                let bytes = bytes.max(self.limits.record_bytes_max);
                while !memory.try_resize(bytes) {
                    if caller.is_late() {
                        return Err(CallError::NoMemory.into());
                    }
                    sleep(RETRY_INTERVAL).await;
                }
            }
            let data = self.changed(change, state.as_ref().map(|(_, data)| data.as_str()))?;
            let only = tag.map_or(Only::Missing, Only::Is);
            caller.send(vec![put(name, only, data.as_deref())]);
            if let RecordReply::Stored { existed, tag } = reply(&mut caller).await? {
                return Self::stored(name, existed, conditions, tag);
            }
            // The record has changed since it was fetched: fetch the newer value and try again.
            caller.send(vec![fetch(name)]);
        }
        Err(Problem::CONTENDED)
    }

    /// The new value; `None` if the change deletes the record.
    fn changed(&self, change: &Change, old: Option<&str>) -> Result<Option<String>, Problem> {
        let old = || -> Result<Value, Problem> {
            let old = old.ok_or(Problem::NOT_FOUND)?;
            // Every stored value has passed the checks, but it may contain numbers that `Value` can't represent.
            serde_json::from_str(old).map_err(|_| Problem::PATCH_FAILED)
        };
        let new = match change {
            Change::Put(data) => return Ok(Some(data.clone())),
            Change::Delete => return Ok(None),
            Change::Merge(tree) => patch::merge(old()?, tree.value.clone()),
            Change::Patch(tree) => patch::apply(old()?, &tree.value, self.limits.patch)?,
        };
        Ok(Some(new.to_string()))
    }

    fn stored(
        name: &str,
        existed: bool,
        conditions: &Conditions,
        tag: Option<Tag>,
    ) -> Result<HttpResponse, Problem> {
        let status = match (tag, existed) {
            (Some(_), false) => StatusCode::CREATED,
            (None, false) => return Err(Problem::NOT_FOUND),
            _ => StatusCode::NO_CONTENT,
        };
        let mut answer = HttpResponse::new(Body::default());
        *answer.status_mut() = status;
        if status == StatusCode::CREATED
            && let Ok(location) = HeaderValue::from_str(&format!("{PREFIX}{}", escape(name)))
        {
            answer.headers_mut().insert(LOCATION, location);
        }
        Self::tag(&mut answer, conditions.epoch, tag);
        Ok(answer)
    }

    fn tag(answer: &mut HttpResponse, epoch: u64, tag: Option<Tag>) {
        if let Some(tag) = tag {
            let tag = entity_tag(epoch, tag);
            answer.headers_mut().insert(ETAG, tag);
        }
    }
}

/// The name of the record in a path.
pub(super) fn name_of(path: &str, name_bytes_max: usize) -> Result<String, Problem> {
    let name = name_behind(PREFIX, path, name_bytes_max);
    name.filter(|name| !name.starts_with(RESERVED))
        .ok_or(Problem::INVALID_NAME)
}

fn fetch(name: &str) -> OwnedRequest {
    OwnedRequest::Fetch { name: name.into() }
}

fn put(name: &str, only: Only, data: Option<&str>) -> OwnedRequest {
    OwnedRequest::Put {
        name: name.into(),
        only,
        data: data.map(Box::from),
    }
}

/// Waits for the engine's answer to the operation in flight. A session of this module has only one.
async fn reply(caller: &mut Caller) -> Result<RecordReply, Problem> {
    loop {
        let replies = caller.receive().await?;
        for reply in replies.iter() {
            caller.check_login(reply)?;
            match reply {
                OwnedReply::Fetched { state, .. } => {
                    let state = state.as_ref().map(|(tag, data)| (*tag, data.to_string()));
                    return Ok(RecordReply::Fetched(state));
                }
                OwnedReply::Stored { existed, tag } => {
                    let (existed, tag) = (*existed, *tag);
                    return Ok(RecordReply::Stored { existed, tag });
                }
                OwnedReply::PreconditionFailed { .. } => {
                    return Ok(RecordReply::PreconditionFailed);
                }
                OwnedReply::RecordRefused(refused) => {
                    return Err(Problem::from(&refused.refusal()));
                }
                _ => {}
            }
        }
    }
}
