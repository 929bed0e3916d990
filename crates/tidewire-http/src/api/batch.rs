//! `POST /api`: a batch of commands, answered with one result for each command.
//!
//! Up to [`WINDOW`] commands run concurrently. An answer belongs to the command with its correlation id, where the protocol has
//! one; otherwise to the oldest waiting command with its name. An event has no answer, so the batch sends a ping after it: an
//! error before the pong belongs to the event.

use std::collections::{HashMap, VecDeque};

use hyper::StatusCode;
use serde_json::Value;
use serde_json::value::RawValue;
use tidewire_core::message::{EventAction, PresenceAction, Reason, RecordAction, Refusal};

use tidewire_auth::credentials::Credentials;
use tidewire_core::trace::Trace;
use tidewire_shard::reply::{OwnedReply, Replies};
use tidewire_shard::request::OwnedRequest;
use tidewire_shard::share::Caller;
use tokio::time::timeout;

use super::answer::{self, HttpResponse};
use super::answer_room::{AnswerMemory, Pieces, RETRY_INTERVAL, Reserved};
use super::caller::CallError;
use super::command::{AnswerSize, Command, Properties};
use super::login::{body_credentials, unparsable};
use super::outcome::{Outcome, user_list};
use super::{Api, ApiRequest, WORKING, trace_of};
use crate::refusal::RequestRefusal;

/// Commands that may wait for their answers at the same time. The limit bounds the messages that a session receives at once,
/// and keeps the linear search for the command of an answer cheap.
const WINDOW: usize = 256;
/// Bytes that are reserved for the answer of a command whose answer size is unknown in advance. Such answers are usually small
/// and may take seconds. A reservation of the largest possible answer would keep out all other requests for that time.
const UNKNOWN_BYTES: usize = 64 << 10;

impl Api {
    pub(super) async fn batch(&self, mut request: ApiRequest) -> HttpResponse {
        let body = match self.read_json(&mut request).await {
            Ok(body) => body,
            Err(answer) => return answer,
        };
        let text = std::str::from_utf8(&body.bytes).unwrap_or("");
        self.batch_of(&request, text, None).await
    }

    /// Runs a batch as if its caller had logged in with this object.
    ///
    /// # Errors
    /// The server is working on as many requests as it may; no command was run.
    pub(crate) async fn commands_as(
        &self,
        request: &ApiRequest,
        login: &Value,
        text: &str,
    ) -> Result<HttpResponse, &'static str> {
        let _seat = self.take_seat(request).map_err(|_| WORKING)?;
        let credentials = Credentials::object(login);
        Ok(self.batch_of(request, text, Some(credentials)).await)
    }

    /// Runs a batch with the credentials `given`; without them, the batch must contain its credentials.
    async fn batch_of(
        &self,
        request: &ApiRequest,
        text: &str,
        given: Option<Credentials>,
    ) -> HttpResponse {
        let parsed = parse(
            text,
            |token, data| match given {
                Some(given) => Ok(given),
                None => body_credentials(token, data, self.limits.allow_auth_data),
            },
            |text| Command::parse(text, self.limits.name_bytes_max),
            self.limits.commands_max,
        );
        let (credentials, commands) = match parsed {
            Ok(parsed) => parsed,
            Err(BatchError::NotJson) => {
                self.refused.count(RequestRefusal::Malformed);
                return unparsable();
            }
            Err(BatchError::Invalid(reason)) => {
                self.refused.count(RequestRefusal::Malformed);
                return answer::text(StatusCode::BAD_REQUEST, &reason);
            }
            Err(BatchError::TooMany(max)) => {
                self.refused.count(RequestRefusal::Commands);
                let reason = format!(
                    "Invalid message: the \"body\" parameter has more than {max} commands (http.batch_commands_max)."
                );
                return answer::text(StatusCode::BAD_REQUEST, &reason);
            }
        };
        match self.run(request, &credentials, &commands).await {
            Ok(outcomes) => answer::json_pieces(result(outcomes)),
            Err(error) => error.answer(),
        }
    }

    /// Runs all commands; returns an error only if none of them was run.
    async fn run(
        &self,
        request: &ApiRequest,
        credentials: &Credentials,
        commands: &[Command<'_>],
    ) -> Result<Vec<Outcome>, CallError> {
        let trace = trace_of(&request.parts);
        let room = BatchBudget {
            bytes_max: self.limits.answer_bytes_max,
            record_bytes_max: self.limits.record_bytes_max,
            memory: self.memory.clone(),
            caller: request.caller(),
        };
        let mut batch = Batch::new(commands, trace, room);
        let mut caller = self.call(request, credentials, batch.next_requests())?;
        loop {
            if batch.is_starved() && batch.holds_memory() {
                // If such a batch waited, batches that hold memory and need more could deadlock.
                return Ok(batch.give_up(Outcome::no_memory));
            }
            let received = if batch.is_starved() {
                // No command of this batch is in flight, so no answer will release memory here. Other requests hold it; try
                // again soon.
                match timeout(RETRY_INTERVAL, caller.receive()).await {
                    Ok(received) => received,
                    Err(_) if caller.is_late() => Err(CallError::Timeout),
                    Err(_) => Ok(Replies::default()),
                }
            } else {
                caller.receive().await
            };
            // Before the login is accepted, an error is the answer to the whole batch. Afterwards commands may have run, so
            // each command without a result gets its own outcome.
            let replies = match received {
                Ok(replies) => replies,
                Err(error) if !batch.is_open => return Err(error),
                Err(CallError::Timeout) if batch.is_starved() && batch.next == 0 => {
                    return Err(CallError::NoMemory);
                }
                Err(CallError::Timeout) if batch.is_starved() => {
                    return Ok(batch.give_up(Outcome::no_memory));
                }
                Err(CallError::Timeout) => return Ok(batch.give_up(Outcome::timeout)),
                Err(_) => {
                    return Ok(batch.give_up(|| {
                        Outcome::ended("The session was ended before a response was received.")
                    }));
                }
            };
            for reply in replies.iter() {
                if !batch.is_open {
                    caller.check_login(reply)?;
                }
                batch.take(reply);
            }
            if batch.is_open {
                // After the login, reservations count for the user instead of the address.
                batch.room.caller = request.caller();
            }
            let requests = batch.next_requests();
            if batch.is_done() {
                return Ok(batch.outcomes.into_iter().flatten().collect());
            }
            if !requests.is_empty() {
                caller.send(requests);
            }
        }
    }
}

/// Why the server does not run a batch at all.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum BatchError {
    /// The body is not JSON.
    NotJson,
    /// The fault in the body.
    Invalid(String),
    /// The batch has more commands than `http.batch_commands_max`, which is this number.
    TooMany(usize),
}

/// Parses the body of a batch: the credentials, then the commands.
///
/// # Errors
/// No command of it may be run.
pub fn parse<'a, C>(
    text: &'a str,
    credentials: impl FnOnce(Option<&'a RawValue>, Option<&'a RawValue>) -> Result<C, &'static str>,
    command: impl Fn(&'a RawValue) -> Result<Command<'a>, String>,
    commands_max: usize,
) -> Result<(C, Vec<Command<'a>>), BatchError> {
    let invalid = |reason: &str| BatchError::Invalid(reason.to_owned());
    let raw: &RawValue = serde_json::from_str(text).map_err(|_| BatchError::NotJson)?;
    let missing = "Invalid message: the \"body\" parameter must exist.";
    let properties: Properties<'a> =
        serde_json::from_str(raw.get()).map_err(|_| invalid(missing))?;
    let property = |key: &str| properties.get(key).copied();
    let body = property("body").ok_or_else(|| invalid(missing))?;
    let commands: Vec<&RawValue> = serde_json::from_str(body.get()).unwrap_or_default();
    if commands.is_empty() {
        return Err(invalid(
            "Invalid message: the \"body\" parameter must be a non-empty array of Objects.",
        ));
    }
    if commands.len() > commands_max {
        return Err(BatchError::TooMany(commands_max));
    }
    let credentials = credentials(property("token"), property("authData")).map_err(invalid)?;
    let mut parsed = Vec::with_capacity(commands.len());
    for (index, text) in commands.into_iter().enumerate() {
        parsed.push(command(text).map_err(|reason| {
            BatchError::Invalid(format!(
                "Failed to parse JIF object at index {index}. Reason: {reason}"
            ))
        })?);
    }
    Ok((credentials, parsed))
}

/// Writes the results as one JSON object.
fn result(outcomes: Vec<Outcome>) -> Pieces {
    let success_count = outcomes.iter().filter(|outcome| outcome.is_success).count();
    let word = match success_count {
        0 => "FAILURE",
        count if count == outcomes.len() => "SUCCESS",
        _ => "PARTIAL_SUCCESS",
    };
    let mut pieces = Pieces::default();
    pieces.push("{\"result\":\"");
    pieces.push(word);
    pieces.push("\",\"body\":[");
    for (index, Outcome { text, memory, .. }) in outcomes.into_iter().enumerate() {
        if index > 0 {
            pieces.push(",");
        }
        match memory {
            Some(memory) => pieces.push_reserved(text, memory),
            None => pieces.push(&text),
        }
    }
    pieces.push("]}");
    pieces
}

/// The limits and the memory of a batch's answer.
struct BatchBudget {
    bytes_max: usize,
    record_bytes_max: usize,
    memory: AnswerMemory,
    caller: Caller,
}

/// A running batch.
struct Batch<'a> {
    commands: &'a [Command<'a>],
    /// The trace of the request.
    trace: Option<Trace>,
    outcomes: Vec<Option<Outcome>>,
    /// The next command to be sent.
    next: usize,
    /// Commands that wait for an answer, oldest first.
    waiting: Vec<usize>,
    /// Events whose pong has not arrived yet, oldest first.
    emits: VecDeque<usize>,
    /// Whether the login was accepted.
    is_open: bool,
    room: BatchBudget,
    /// Bytes of the results so far.
    bytes: usize,
    /// Memory for results that have not arrived yet, by command. For a record it is the size limit of a record.
    reserved: HashMap<usize, Reserved>,
    /// Results of records that have not arrived yet.
    records_waiting: usize,
}

impl<'a> Batch<'a> {
    fn new(commands: &'a [Command<'a>], trace: Option<Trace>, room: BatchBudget) -> Self {
        Self {
            commands,
            trace,
            outcomes: commands.iter().map(|_| None).collect(),
            next: 0,
            waiting: Vec::new(),
            emits: VecDeque::new(),
            is_open: false,
            room,
            bytes: 0,
            reserved: HashMap::new(),
            records_waiting: 0,
        }
    }

    /// The commands that may be sent now. If there might be no room for the result of a command, it waits for the
    /// results of earlier ones. Once the answer is full, the remaining commands are not run at all.
    fn next_requests(&mut self) -> Vec<OwnedRequest> {
        let mut requests = Vec::new();
        while let Some(command) = self.commands.get(self.next)
            && self.waiting.len() + self.emits.len() < WINDOW
        {
            let size = command.answer_size();
            if self.bytes >= self.room.bytes_max {
                self.outcomes[self.next] = Some(Outcome::no_room());
                self.next += 1;
                continue;
            }
            if !self.reserve(size) {
                break;
            }
            requests.push(command.request(&self.next.to_string(), self.trace));
            if let Command::Emit { .. } = command {
                requests.push(OwnedRequest::Ping);
                self.emits.push_back(self.next);
            } else {
                self.waiting.push(self.next);
            }
            self.next += 1;
        }
        requests
    }

    /// Reserves memory for the result of the next command; returns false if the command has to wait.
    fn reserve(&mut self, size: AnswerSize) -> bool {
        let bytes = match size {
            AnswerSize::Small => return true,
            AnswerSize::Record => self.room.record_bytes_max,
            AnswerSize::Unknown => UNKNOWN_BYTES,
        };
        if size == AnswerSize::Record && self.records_waiting > 0 {
            let promised = self.records_waiting.saturating_mul(bytes);
            let expected = self.bytes.saturating_add(promised).saturating_add(bytes);
            if expected > self.room.bytes_max {
                return false;
            }
        }
        let BatchBudget { memory, caller, .. } = &self.room;
        let Some(memory) = memory.reserve(caller, bytes) else {
            return false;
        };
        self.reserved.insert(self.next, memory);
        self.records_waiting += usize::from(size == AnswerSize::Record);
        true
    }

    /// Whether commands are left and, for lack of memory, none of them is in flight.
    fn is_starved(&self) -> bool {
        let is_waiting = !self.waiting.is_empty() || !self.emits.is_empty();
        self.is_open && self.next < self.commands.len() && !is_waiting
    }

    /// Whether a result that has arrived holds memory.
    fn holds_memory(&self) -> bool {
        let mut known = self.outcomes.iter().flatten();
        known.any(|outcome| outcome.memory.is_some())
    }

    /// Stores the result of a command, or an error in its place if there is no room for it.
    fn know(&mut self, index: usize, mut outcome: Outcome) {
        if self.commands[index].answer_size() == AnswerSize::Record {
            self.records_waiting -= 1;
        }
        let mut memory = self.reserved.remove(&index);
        let is_large = outcome.text.len() > UNKNOWN_BYTES;
        let bytes = self.bytes.saturating_add(outcome.text.len());
        let has_memory = memory
            .as_mut()
            .is_none_or(|memory| memory.try_resize(outcome.text.len()));
        if is_large && (bytes > self.room.bytes_max || !has_memory) {
            // A read has changed nothing, so the answer can report it as not run.
            outcome = match self.commands[index] {
                Command::Read { .. } => Outcome::no_room(),
                _ => Outcome::dropped(),
            };
            memory = None;
        }
        self.bytes = self.bytes.saturating_add(outcome.text.len());
        outcome.memory = memory;
        self.outcomes[index] = Some(outcome);
    }

    fn is_done(&self) -> bool {
        self.next == self.commands.len() && self.waiting.is_empty() && self.emits.is_empty()
    }

    /// The outcomes so far, with `outcome` for every command that has none.
    fn give_up(self, outcome: impl Fn() -> Outcome) -> Vec<Outcome> {
        let outcomes = self.outcomes.into_iter();
        outcomes
            .map(|known| known.unwrap_or_else(&outcome))
            .collect()
    }

    /// Processes one reply of the session.
    fn take(&mut self, reply: &OwnedReply) {
        match reply {
            OwnedReply::Pong => {
                if let Some(index) = self.emits.pop_front() {
                    self.outcomes[index].get_or_insert_with(Outcome::done);
                }
            }
            OwnedReply::LoggedIn { .. } => self.is_open = true,
            OwnedReply::EventRefused(refused) => self.take_event_error(&refused.refusal()),
            OwnedReply::Read {
                name,
                version,
                data,
            } => self.settle(is_read(name), || Outcome::read(*version, data)),
            OwnedReply::Head { name, version } => {
                self.settle(is_head(name), || Outcome::head(*version));
            }
            OwnedReply::DeleteDone { name } => self.settle(is_delete(name), Outcome::done),
            OwnedReply::RequestDone { correlation } => {
                self.settle_by(correlation.as_deref(), Outcome::done);
            }
            OwnedReply::RecordRefused(refused) => self.take_record_error(&refused.refusal()),
            OwnedReply::CallDone { correlation, data } => {
                self.settle_by(Some(correlation), || Outcome::response(data.as_deref()));
            }
            OwnedReply::CallFailed { correlation, data } => {
                let outcome = || Outcome::provider_error(data.as_deref());
                self.settle_by(Some(correlation), outcome);
            }
            OwnedReply::CallRefused(refused) => {
                let refusal = refused.refusal();
                self.settle_by(refusal.correlation, || Outcome::rpc(&refusal));
            }
            OwnedReply::AllUsers { names } => {
                self.settle(is_query_all, || Outcome::users(&user_list(names)));
            }
            OwnedReply::Users { correlation, data } => {
                self.settle_by(correlation.as_deref(), || Outcome::users(data));
            }
            OwnedReply::PresenceRefused(refused) => self.take_presence_error(&refused.refusal()),
            _ => {}
        }
    }

    fn take_event_error(&mut self, refusal: &Refusal<'_, EventAction>) {
        if refusal.action == EventAction::Emit
            && let Some(index) = self.emits.front()
        {
            self.outcomes[*index] = Some(Outcome::emit(refusal));
        }
    }

    fn take_record_error(&mut self, refusal: &Refusal<'_, RecordAction>) {
        let name = refusal.name.unwrap_or_default();
        let outcome = || Outcome::record(refusal);
        match (refusal.reason, refusal.action) {
            (Reason::MultipleSubscriptions, _) => {}
            (Reason::VersionExists | Reason::InvalidVersion, _) => {
                self.settle_by(refusal.correlation, outcome);
            }
            (Reason::NotFound, _) | (_, RecordAction::Read) => self.settle(is_read(name), outcome),
            (_, RecordAction::Head) => self.settle(is_head(name), outcome),
            (_, RecordAction::Delete) => self.settle(is_delete(name), outcome),
            _ => self.settle_by(refusal.correlation, outcome),
        }
    }

    fn take_presence_error(&mut self, refusal: &Refusal<'_, PresenceAction>) {
        let outcome = || Outcome::presence(refusal);
        match refusal.action {
            PresenceAction::QueryAll => self.settle(is_query_all, outcome),
            _ => self.settle_by(refusal.correlation, outcome),
        }
    }

    /// Stores the outcome of the oldest waiting command that matches.
    fn settle(&mut self, fits: impl Fn(&Command<'_>) -> bool, outcome: impl FnOnce() -> Outcome) {
        let commands = self.commands;
        let position = self
            .waiting
            .iter()
            .position(|index| fits(&commands[*index]));
        if let Some(position) = position {
            let index = self.waiting.remove(position);
            self.know(index, outcome());
        }
    }

    /// Stores the outcome of the waiting command with this correlation id.
    fn settle_by(&mut self, correlation: Option<&str>, outcome: impl FnOnce() -> Outcome) {
        let index = correlation.and_then(|id| id.parse::<usize>().ok());
        let position = self
            .waiting
            .iter()
            .position(|waiting| Some(*waiting) == index);
        if let Some(position) = position {
            let index = self.waiting.remove(position);
            self.know(index, outcome());
        }
    }
}

fn is_query_all(command: &Command<'_>) -> bool {
    matches!(command, Command::Query { names: None })
}

fn is_read(record: &str) -> impl Fn(&Command<'_>) -> bool {
    move |command| matches!(command, Command::Read { name } if name == record)
}

fn is_head(record: &str) -> impl Fn(&Command<'_>) -> bool {
    move |command| matches!(command, Command::Head { name } if name == record)
}

fn is_delete(record: &str) -> impl Fn(&Command<'_>) -> bool {
    move |command| matches!(command, Command::Delete { name } if name == record)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn parse_all(text: &str) -> Result<usize, BatchError> {
        let command = |raw| Command::parse(raw, 100);
        parse(text, |_, _| Ok(()), command, 10).map(|((), commands)| commands.len())
    }

    proptest! {
        #[test]
        fn every_input_is_a_batch_or_refused(text in ".{0,200}") {
            let _ = parse_all(&text);
        }

        #[test]
        fn broken_batches_are_refused_whole(cut in 0_usize..200, noise in "[\\[\\]{},:\"a0 ]{0,3}") {
            let whole = r#"{"token":"t","body":[{"topic":"event","action":"emit","eventName":"e","data":[1,{"a":"\u00e4"}]},
                {"topic":"record","action":"write","recordName":"r","path":"a.b","data":null,"version":3}]}"#;
            prop_assert_eq!(parse_all(whole), Ok(2));
            let at = (0..=cut.min(whole.len())).rev().find(|at| whole.is_char_boundary(*at)).unwrap_or(0);
            let mut text = whole[..at].to_owned();
            text.push_str(&noise);
            text.push_str(&whole[at..]);
            if let Ok(count) = parse_all(&text) {
                prop_assert!(serde_json::from_str::<serde_json::Value>(&text).is_ok() && count > 0);
            }
            if at < whole.len() {
                prop_assert_eq!(parse_all(&whole[..at]), Err(BatchError::NotJson));
            }
        }
    }
}
