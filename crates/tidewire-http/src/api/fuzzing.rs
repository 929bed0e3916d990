//! What the API reads of a request, for the fuzz targets: the same functions that serve requests, without a server around them.

use hyper::header::HeaderMap;
use tidewire_core::message::{Only, Tag};

pub use super::batch::BatchError;

use super::batch;
use super::command::Command;
use super::condition::{Conditions, Met};
use super::login::{body_credentials, credentials_of};
use super::{Route, name, record, stream};

/// A batch that would be run.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Batch {
    /// JSON for the auth chain.
    pub credentials: String,
    /// Each command as it goes to a shard.
    pub commands: Vec<Vec<u8>>,
}

/// Reads the body of a batch. The correlation of each command is its index.
///
/// # Errors
/// Nothing of it would be run.
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
    let encode = |(index, command): (usize, &Command<'_>)| {
        let mut out = Vec::new();
        command.encode(&index.to_string(), None, &mut out);
        out
    };
    Ok(Batch {
        credentials: credentials.as_json().to_owned(),
        commands: commands.iter().enumerate().map(encode).collect(),
    })
}

/// The operation that a path asks for, as text.
#[must_use]
pub fn route(path: &str) -> Option<String> {
    Route::of(path).map(|route| format!("{route:?}"))
}

/// The record that a path names.
#[must_use]
pub fn record_name(path: &str, name_bytes_max: usize) -> Option<String> {
    record::name_of(path, name_bytes_max).ok()
}

/// A name as it stands in a path.
#[must_use]
pub fn escape(name: &str) -> String {
    name::escape(name)
}

/// The parameters of a query string.
#[must_use]
pub fn parameters(query: &str) -> Option<Vec<(String, String)>> {
    name::parameters(query)
}

/// Events, records and ticket that a query string asks for.
#[must_use]
pub fn wanted(
    query: &str,
    name_bytes_max: usize,
) -> Option<(Vec<String>, Vec<String>, Option<String>)> {
    let wanted = stream::wanted(query, name_bytes_max).ok()?;
    Some((wanted.events, wanted.records, wanted.ticket))
}

/// What the header of a request logs in with, as JSON.
#[must_use]
pub fn credentials(headers: &HeaderMap) -> Option<String> {
    credentials_of(headers)
        .ok()
        .map(|credentials| credentials.as_json().to_owned())
}

/// What the conditions of a request say about a state, and what its owner is asked in one step, if that is enough.
#[must_use]
pub fn condition(
    headers: &HeaderMap,
    epoch: u64,
    state: Option<Tag>,
) -> Option<(bool, Option<Only>)> {
    let conditions = Conditions::of(headers, epoch).ok()?;
    Some((conditions.judge(state) == Met::Yes, conditions.only()))
}

/// The id of the last piece of a stream of so many records, read and written again.
#[must_use]
pub fn stream_id(id: &str, epoch: u64, count: usize) -> Option<String> {
    stream::parse_id(id, epoch, count).map(|records| stream::id(epoch, &records))
}
