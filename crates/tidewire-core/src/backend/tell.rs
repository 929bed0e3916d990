//! Messages between backends: each of the others that serve the namespace gets them, on all nodes. They are asks of backends (decision 0116).

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;

use super::Backends;
use super::ask::{AskId, Asked, number_of};
use crate::address::SessionId;
use crate::context::TurnContext;
use crate::effect::Effects;
use crate::entry::{BackendEntry, Entry, OwnedBackend};
use crate::message::{Backend, BackendKind};
use crate::session::LocalSessionId;
use crate::text::Name;

impl Backends {
    /// Handles a message of a backend to the others.
    pub(super) fn begin_tell<E: Effects>(
        &mut self,
        turn: &mut TurnContext<'_, E>,
        id: SessionId,
        message: &Backend<'_>,
    ) -> Result<(), &'static str> {
        self.check_served(id, message.name.unwrap_or_default())?;
        let told = Backend {
            name: message.name,
            data: message.data,
            attachments: message.attachments.clone(),
            ..Backend::new(BackendKind::Tell)
        };
        self.begin_ask(turn, id, message, Arc::new(OwnedBackend::of(&told)))
    }

    /// Sends the other backends of this shard a message. One that has not confirmed too much does not get it, and the sender gets to know.
    pub(super) fn tell<E: Effects>(
        &mut self,
        turn: &mut TurnContext<'_, E>,
        id: AskId,
        timeout_ms: u32,
        message: &OwnedBackend,
    ) {
        let (backend, ask) = id;
        let namespace = message.name.as_ref().map_or("", Name::as_str);
        let number = (timeout_ms > 0).then(|| self.asks.next_number());
        let told = OwnedBackend {
            kind: BackendKind::Told,
            correlation: number.map(|number| number.to_string().into()),
            ..message.clone()
        };
        let mut awaited = BTreeSet::new();
        let mut is_refused = false;
        for (to, own) in &mut self.own {
            if *to == backend || !own.serves(namespace) {
                continue;
            }
            if !own.asks.can_keep(&turn.shard.settings.limits, told.bytes()) {
                is_refused = true;
                continue;
            }
            own.asks.keep(told.clone(), 0);
            own.send_notices(turn, *to);
            awaited.insert(LocalSessionId::of(*to));
        }
        let handled = BackendEntry::Asked {
            backend,
            ask,
            count: u32::try_from(awaited.len()).unwrap_or(u32::MAX),
            is_refused,
        };
        turn.post(backend.address, Entry::Backend(handled));
        if let Some(number) = number.filter(|_| !awaited.is_empty()) {
            let until = turn.now.monotonic + Duration::from_millis(timeout_ms.into());
            self.asks
                .await_answers(number, Asked { id, until, awaited });
        }
    }

    /// Handles the answer of a backend to another one. A late one has no effect.
    pub(super) fn reply<E: Effects>(
        &mut self,
        turn: &mut TurnContext<'_, E>,
        id: SessionId,
        message: &Backend<'_>,
    ) {
        if let Some(number) = number_of(message) {
            self.asks.answer(turn, id, number, message);
        }
    }
}
