//! The thread for requests to the registry, which may block.

use std::io;
use std::sync::mpsc;
use std::thread::Builder;

use tidewire_core::store::{Proposal, Registry, StoreError, View};
use tidewire_membership::Input;

/// A request to the registry. Each gets one answer.
#[derive(Debug)]
pub(super) enum Request {
    Heartbeat,
    ReadView,
    Propose { expected: View, proposal: Proposal },
}

/// Starts the thread. It ends when the sender of requests is dropped.
pub(super) fn start(
    mut registry: Box<dyn Registry>,
    answer: impl Fn(Input) + Send + 'static,
) -> io::Result<mpsc::Sender<Request>> {
    let (sender, requests) = mpsc::channel();
    let mut has_failed = false;
    Builder::new().name("registry".to_owned()).spawn(move || {
        for request in requests {
            let answered = ask(&mut *registry, request);
            let is_first = answered.is_err() && !has_failed;
            if is_first || (has_failed && answered.is_ok()) {
                note(answered.as_ref().err());
            }
            has_failed = answered.is_err();
            answer(answered.unwrap_or(Input::RegistryFailed));
        }
    })?;
    Ok(sender)
}

fn ask(registry: &mut dyn Registry, request: Request) -> Result<Input, StoreError> {
    match request {
        Request::Heartbeat => registry.heartbeat().map(Input::Heartbeat),
        Request::ReadView => registry.view().map(Input::View),
        Request::Propose { expected, proposal } => {
            registry.propose(expected, &proposal).map(Input::View)
        }
    }
}

fn note(error: Option<&StoreError>) {
    match error {
        Some(error) => {
            tracing::error!(%error, "the registry of the cluster does not answer; its members can't change until it does");
        }
        None => tracing::info!("the registry of the cluster answers again"),
    }
}
