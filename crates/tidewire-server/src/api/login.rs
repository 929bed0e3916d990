//! Who asks: the credentials of a request, and `POST /api/auth`.

use hyper::StatusCode;
use serde_json::value::RawValue;
use serde_json::{Value, json};
use tidewire_core::message::{Auth, Message};

use super::answer::{self, Answer};
use super::caller::{CallError, messages};
use super::command::{is_container, is_object, text_of};
use super::{Api, ApiRequest, is_of_type};

/// What is given to the auth chain: the same object that a client gives to `login()`.
#[derive(Clone, PartialEq, Eq)]
pub(super) struct Credentials(String);

impl Credentials {
    /// None: enough where everybody may log in.
    pub(super) fn none() -> Self {
        Self("{}".into())
    }

    /// A token.
    pub(super) fn token(token: &str) -> Self {
        Self(json!({ "token": token }).to_string())
    }

    /// The JSON text.
    pub(super) fn as_json(&self) -> &str {
        &self.0
    }
}

/// Without their value: it must not end in a log.
impl std::fmt::Debug for Credentials {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Credentials(..)")
    }
}

impl Api {
    /// The credentials in the body of a batch.
    pub(super) fn credentials(
        &self,
        token: Option<&RawValue>,
        auth_data: Option<&RawValue>,
    ) -> Result<Credentials, &'static str> {
        if let Some(data) = auth_data {
            if !self.limits.allow_auth_data {
                return Err(
                    "Authentication using authData is disabled. Try using a token instead.",
                );
            }
            if !is_object(data) {
                return Err("Invalid message: the \"authData\" parameter must be an object");
            }
            return Ok(Credentials(data.get().to_owned()));
        }
        let Some(token) = token else {
            return Ok(Credentials::none());
        };
        match text_of(token) {
            Some(token) if !token.is_empty() => Ok(Credentials::token(&token)),
            _ => Err("Invalid message: the \"token\" parameter must be a non-empty string"),
        }
    }

    /// `POST /api/auth`.
    pub(super) async fn log_in(&self, mut request: ApiRequest) -> Answer {
        if !is_of_type(&request.parts, "application/json") {
            return unsupported_type();
        }
        let body = match self.read(&mut request.body).await {
            Ok(body) => body,
            Err(error) => return error.answer(),
        };
        let text = std::str::from_utf8(&body.bytes).unwrap_or("");
        let Ok(data) = serde_json::from_str::<&RawValue>(text) else {
            return unparsable();
        };
        if !is_container(data) {
            return answer::text(
                StatusCode::BAD_REQUEST,
                "Invalid message: the body must be the object of a login.",
            );
        }
        match self.ask(&request, Credentials(data.get().to_owned())).await {
            Ok(client_data) => answer::json(&logged_in(client_data.as_deref())),
            Err(CallError::Refused) => {
                answer::text(StatusCode::UNAUTHORIZED, "Invalid authentication data.")
            }
            Err(error) => error.answer(),
        }
    }

    /// Logs in and out again, and gives the data for the client.
    async fn ask(
        &self,
        request: &ApiRequest,
        credentials: Credentials,
    ) -> Result<Option<String>, CallError> {
        let mut caller = self.call(request, &credentials, &[])?;
        loop {
            let chunk = caller.receive().await?;
            for message in messages(&chunk) {
                match message {
                    Message::Auth(Auth::Successful { data }) => {
                        return Ok(data.map(str::to_owned));
                    }
                    Message::Auth(Auth::Unsuccessful { .. } | Auth::InvalidMessageData) => {
                        return Err(CallError::Refused);
                    }
                    _ => {}
                }
            }
        }
    }
}

/// What a login is answered with. A key that the auth handler did not give is left out.
fn logged_in(client_data: Option<&str>) -> String {
    let mut answer = serde_json::Map::new();
    if let Some(Ok(data)) = client_data.map(serde_json::from_str::<Value>) {
        answer.insert("clientData".into(), data);
    }
    Value::Object(answer).to_string()
}

/// Answers a body that is not said to be JSON.
pub(super) fn unsupported_type() -> Answer {
    answer::text(
        StatusCode::UNSUPPORTED_MEDIA_TYPE,
        "Invalid \"Content-Type\" header. Supported media types: \"application/json\"",
    )
}

/// Answers a body that is not JSON.
pub(super) fn unparsable() -> Answer {
    answer::text(
        StatusCode::BAD_REQUEST,
        "Failed to parse body of request: it is not JSON",
    )
}
