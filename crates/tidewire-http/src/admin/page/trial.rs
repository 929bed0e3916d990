//! Runs commands of the HTTP API for a trial: as an operator, or as a user whose rights the rules decide.

use hyper::StatusCode;
use serde_json::Value;
use tidewire_core::principal::Principal;
use tidewire_core::text::{Name, Payload};

use super::{BODY_BYTES_MAX, Outcome, Page, PageRequest, parameter, read};
use crate::admin::api::{Refusal, invalid};
use crate::audit;

/// The fields of a command that may contain its name.
const NAMES: [&str; 3] = ["eventName", "recordName", "rpcName"];

impl Page {
    pub(super) async fn try_out(&self, mut asked: PageRequest) -> Outcome {
        let body = read(&mut asked.request.body, BODY_BYTES_MAX).await?;
        let text = std::str::from_utf8(&body).map_err(|_| invalid("the body is not UTF-8"))?;
        let parameters = asked.parameters()?;
        let principal = match parameter(&parameters, "user") {
            None => asked.principal(),
            Some(user) => {
                self.note(&asked, user, text);
                let data = parameter(&parameters, "userData");
                as_user(user, data)?.with_expiry(asked.signed_in.ends)
            }
        };
        let login = self.login(principal)?;
        let api = &self.parts.api;
        let answer = api.commands_as(&asked.request, &login, text).await;
        answer.map_err(|reason| Refusal::new(StatusCode::SERVICE_UNAVAILABLE, "BUSY", reason))
    }

    /// Writes to the audit log what the operator does as another user, because the engine attributes it to that user.
    fn note(&self, asked: &PageRequest, user: &str, text: &str) {
        asked.audit("act as", user);
        let body: Value = serde_json::from_str(text).unwrap_or_default();
        for command in body["body"].as_array().into_iter().flatten() {
            let word = |key: &str| command[key].as_str().unwrap_or_default();
            let action = format!("{}.{}", word("topic"), word("action"));
            let name = NAMES.iter().find_map(|key| command[*key].as_str());
            audit::engine(&asked.signed_in.id, &action, name.unwrap_or_default());
        }
    }
}

/// The principal of a user for a trial, with the data that an auth handler would provide.
fn as_user(user: &str, data: Option<&str>) -> Result<Principal, Refusal> {
    let data = match data {
        None => None,
        Some(text) => {
            let checked: Value = serde_json::from_str(text)
                .map_err(|error| invalid(format!("`userData` is not valid JSON: {error}")))?;
            Some(Payload::from(checked.to_string()))
        }
    };
    Ok(Principal::new(Name::from(user)).with_data(data, None))
}
