//! The parsers of the API for the fuzz targets: the same functions that serve requests, without a server around them.

use hyper::header::HeaderMap;
use tidewire_core::message::{Only, Tag};

pub use super::batch::BatchError;
pub use tidewire_shard::request::OwnedRequest;

use super::batch;
use super::command::Command;
use super::condition::{ConditionResult, Conditions};
use super::login::{body_credentials, credentials_of};
use super::{Route, name, record, stream};

/// A valid batch.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Batch {
    /// The credentials for the auth chain, as JSON.
    pub credentials: String,
    /// Each command, as the request for a shard.
    pub commands: Vec<OwnedRequest>,
}

/// Parses the body of a batch. The correlation id of each command is its index.
///
/// # Errors
/// The server would not run the batch.
pub fn batch(
    text: &str,
    allow_auth_data: bool,
    name_bytes_max: usize,
    commands_max: usize,
) -> Result<Batch, BatchError> {
    let (credentials, commands) = batch::parse(
        text,
        |token, data| body_credentials(token, data, allow_auth_data),
        |text| Command::parse(text, name_bytes_max),
        commands_max,
    )?;
    let request =
        |(index, command): (usize, &Command<'_>)| command.request(&index.to_string(), None);
    Ok(Batch {
        credentials: credentials.as_json().to_owned(),
        commands: commands.iter().enumerate().map(request).collect(),
    })
}

/// The operation of a path, as text.
#[must_use]
pub fn route(path: &str) -> Option<String> {
    Route::of(path).map(|route| format!("{route:?}"))
}

/// The record in a path.
#[must_use]
pub fn record_name(path: &str, name_bytes_max: usize) -> Option<String> {
    record::name_of(path, name_bytes_max).ok()
}

/// Escapes a name for use in a path.
#[must_use]
pub fn escape(name: &str) -> String {
    name::escape(name)
}

/// The parameters of a query string.
#[must_use]
pub fn parameters(query: &str) -> Option<Vec<(String, String)>> {
    name::parameters(query)
}

/// The events, records and ticket in a query string.
#[must_use]
pub fn wanted(
    query: &str,
    name_bytes_max: usize,
) -> Option<(Vec<String>, Vec<String>, Option<String>)> {
    let wanted = stream::wanted(query, name_bytes_max).ok()?;
    Some((wanted.events, wanted.records, wanted.ticket))
}

/// The credentials in the headers of a request, as JSON.
#[must_use]
pub fn credentials(headers: &HeaderMap) -> Option<String> {
    credentials_of(headers)
        .ok()
        .map(|credentials| credentials.as_json().to_owned())
}

/// Whether the conditions of a request hold for a state, and the form that the record's owner can evaluate in one step, if it
/// exists.
#[must_use]
pub fn condition(
    headers: &HeaderMap,
    epoch: u64,
    state: Option<Tag>,
) -> Option<(bool, Option<Only>)> {
    let conditions = Conditions::of(headers, epoch).ok()?;
    Some((
        conditions.check(state) == ConditionResult::Yes,
        conditions.only(),
    ))
}

/// Parses the id of the last piece of a stream with `count` records, and formats it again.
#[must_use]
pub fn stream_id(id: &str, epoch: u64, count: usize) -> Option<String> {
    stream::parse_id(id, epoch, count).map(|records| stream::id(epoch, &records))
}
