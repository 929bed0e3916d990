//! `GET /records?collection=NAME` with `Accept: text/event-stream`: a live query as server-sent events.
//!
//! The answer begins when the engine has the first result, so a refused query is answered like one that is evaluated once. A client that
//! does not read misses changes and gets the whole result later. The engine may end the query; then the stream ends with `refused`,
//! and the client's next request gets a result or the reason for which there can be no result.

use hyper::header::ACCEPT;
use hyper::http::request::Parts;
use tidewire_core::message::QueryReason;
use tidewire_shard::carried_session::CarriedSession;
use tidewire_shard::reply::{OwnedReply, Replies};
use tidewire_shard::request::{OwnedRequest, Text};

use super::answer::HttpResponse;
use super::problem::Problem;
use super::query::{Asked, refused, refused_body};
use super::stream_output::{Next, StreamOutput, push_line};
use super::{Api, ApiRequest};
use crate::refusal::RequestRefusal;

/// The type of streams in `Accept`.
const STREAM: &str = "text/event-stream";

/// Whether the request wants a stream. `EventSource` always sends this type.
pub(super) fn wants_stream(parts: &Parts) -> bool {
    let types = parts.headers.get_all(ACCEPT).iter();
    types
        .filter_map(|types| types.to_str().ok())
        .flat_map(|types| types.split(','))
        .any(|part| {
            let media = part.split(';').next().unwrap_or_default();
            media.trim().eq_ignore_ascii_case(STREAM)
        })
}

impl Api {
    /// Answers a request for a live query.
    pub(super) async fn follow_query(
        &self,
        mut request: ApiRequest,
        asked: Asked,
    ) -> Result<HttpResponse, Problem> {
        let mut opened = self
            .open_stream(&mut request, asked.ticket.as_deref())
            .await?;
        opened.caller.send(vec![OwnedRequest::FollowQuery {
            collection: asked.collection.into(),
            query: asked.query.into(),
        }]);
        let mut replies = opened.first.clone();
        let mut progress = Progress::default();
        loop {
            progress.take(&replies);
            if let Some((reason, data)) = &progress.refused {
                if *reason == QueryReason::Invalid {
                    self.refused.count(RequestRefusal::Malformed);
                }
                return Ok(refused(*reason, data));
            }
            if !progress.text.is_empty() {
                break;
            }
            replies = opened.caller.receive().await?;
        }
        let bytes_max = self.limits.query_result_bytes_max;
        let (session, output, answer) = self.begin_stream(&request, opened, bytes_max);
        tokio::spawn(run(session, output, progress));
        Ok(answer)
    }
}

async fn run(mut session: CarriedSession, mut output: StreamOutput, mut progress: Progress) {
    progress.text.insert_str(0, StreamOutput::CONNECTED);
    loop {
        if let Some((reason, data)) = &progress.refused {
            let body = refused_body(*reason, data);
            let end = format!("{}event: refused\ndata: {body}\n\n", progress.text);
            return output.end(end).await;
        }
        if !progress.text.is_empty() {
            let text = std::mem::take(&mut progress.text);
            let Some(memory) = output.wait_for_memory(text.len()).await else {
                return output.end(StreamOutput::END.to_owned()).await;
            };
            if !output.send(text, vec![memory]).await {
                return;
            }
        }
        match output.next(&mut session, None).await {
            Next::Take(replies) => progress.take(&replies),
            Next::Retry => {}
            Next::KeepAlive => {
                progress.text.push_str(StreamOutput::KEEP_ALIVE);
                session.send(vec![OwnedRequest::Ping]);
            }
            Next::Ended => return output.end(StreamOutput::END.to_owned()).await,
            Next::Gone => return,
        }
    }
}

/// The state of a live query of a stream.
#[derive(Debug, Default)]
struct Progress {
    /// The key of the result that the client has.
    key: Option<Text>,
    /// Text that is ready to be sent.
    text: String,
    /// Why the query has ended, and the details as JSON.
    refused: Option<(QueryReason, Text)>,
}

impl Progress {
    fn take(&mut self, replies: &Replies) {
        for reply in replies.iter() {
            match reply {
                OwnedReply::QuerySnapshot { key, data } => {
                    self.key = Some(key.clone());
                    self.push("rows", data);
                }
                // Changes of another key belong to a result that a later one has replaced.
                OwnedReply::QueryChanged { key, data } if self.key.as_ref() == Some(key) => {
                    self.push("changes", data);
                }
                OwnedReply::QueryRefused { reason, data } => {
                    self.refused = Some((*reason, data.clone()));
                }
                _ => {}
            }
        }
    }

    fn push(&mut self, event: &str, data: &str) {
        self.text.push_str(&format!("event: {event}\ndata: "));
        push_line(data, &mut self.text);
        self.text.push_str("\n\n");
    }
}

#[cfg(test)]
mod tests {
    use hyper::Request;
    use hyper::header::HeaderValue;

    use super::*;

    fn parts(accept: &[&'static str]) -> Parts {
        let (mut parts, ()) = Request::new(()).into_parts();
        for value in accept {
            let value = HeaderValue::from_static(value);
            parts.headers.append(ACCEPT, value);
        }
        parts
    }

    #[test]
    fn the_type_of_streams_is_found_among_others() {
        for accept in [
            &["text/event-stream"][..],
            &["Text/Event-Stream;q=0.5"],
            &["application/json, text/event-stream"],
            &["application/json", "text/event-stream"],
        ] {
            assert!(wants_stream(&parts(accept)), "{accept:?}");
        }
        for accept in [
            &[][..],
            &["*/*"],
            &["text/*"],
            &["text/event-streams"],
            &["application/json"],
        ] {
            assert!(!wants_stream(&parts(accept)), "{accept:?}");
        }
    }
}
