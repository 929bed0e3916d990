//! `/events/NAME`: publishes an event whose payload is the body of the request: JSON, or bytes with their content type.

use hyper::header::CONTENT_TYPE;
use hyper::http::request::Parts;
use hyper::{Method, StatusCode};
use serde_json::value::RawValue;
use tidewire_core::binary::Binary;
use tidewire_shard::reply::OwnedReply;
use tidewire_shard::request::{OwnedRequest, Text};

use super::answer::HttpResponse;
use super::caller::Caller;
use super::login::credentials_of_request;
use super::name::name_behind;
use super::problem::Problem;
use super::{Api, ApiRequest, answer, is_of_type, trace_of};

/// The path prefix of events.
pub(super) const PREFIX: &str = "/events/";
/// The methods of an event.
pub(super) const METHODS: &str = "POST, OPTIONS";

impl Api {
    /// Answers a request for one event.
    pub(super) async fn event(&self, request: ApiRequest) -> HttpResponse {
        match self.try_publish(request).await {
            Ok(answer) => answer,
            Err(problem) => self.refuse(problem),
        }
    }

    async fn try_publish(&self, mut request: ApiRequest) -> Result<HttpResponse, Problem> {
        match request.parts.method {
            Method::POST => {}
            Method::OPTIONS => return Ok(answer::options(Some(METHODS))),
            _ => return Ok(answer::with_allow(Problem::METHOD.answer(), Some(METHODS))),
        }
        let name = name_behind(PREFIX, request.parts.uri.path(), self.limits.name_bytes_max)
            .ok_or(Problem::INVALID_NAME)?;
        let credentials = credentials_of_request(&request.parts)?;
        let body = self.read(&mut request).await?;
        let (data, binary) = payload(&request.parts, &body.bytes)?;
        let publish = OwnedRequest::Publish {
            name: name.into(),
            data,
            binary,
            attachments: None,
            trace: trace_of(&request.parts),
        };
        let requests = vec![publish, OwnedRequest::Ping];
        let mut caller = self.call(&request, &credentials, requests)?;
        published(&mut caller).await?;
        let mut answer = HttpResponse::default();
        *answer.status_mut() = StatusCode::NO_CONTENT;
        Ok(answer)
    }
}

/// The payload that a request contains: JSON if that is its content type, else bytes. Without content type and body it is undefined.
fn payload(parts: &Parts, body: &[u8]) -> Result<(Option<Text>, Option<Binary>), Problem> {
    if is_of_type(parts, "application/json") {
        let json: &RawValue = serde_json::from_slice(body).map_err(|_| Problem::NOT_JSON)?;
        return Ok((Some(json.get().into()), None));
    }
    let content_type = match parts.headers.get(CONTENT_TYPE) {
        None if body.is_empty() => return Ok((None, None)),
        None => None,
        Some(value) => Some(value.to_str().map_err(|_| Problem::INVALID_PAYLOAD)?),
    };
    Ok((None, Some(Binary::new(content_type, body))))
}

/// Waits until the event is published. An event has no answer, so an error before the pong belongs to it.
async fn published(caller: &mut Caller) -> Result<(), Problem> {
    loop {
        let replies = caller.receive().await?;
        for reply in replies.iter() {
            caller.check_login(reply)?;
            match reply {
                OwnedReply::Pong => return Ok(()),
                OwnedReply::EventRefused(refused) => {
                    return Err(Problem::of_event(refused.refusal().reason));
                }
                _ => {}
            }
        }
    }
}
