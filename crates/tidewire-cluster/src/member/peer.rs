//! The link to one other member: posts that leave, and entries that arrive.

use std::collections::BTreeSet;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use tidewire_core::permission::{Decision, Permission, Question};
use tidewire_core::store::MemberId;
use tidewire_link::link::{Config, Output, Stats};
use tidewire_wire::entry::{DecodeLimits, Decoder};
use tokio::sync::mpsc;

use super::route::Target;
use super::task::{Event, LinkEvent};
use super::{LinkedMember, Shards};
use crate::driver::{self, Command, DrivenLink, drive};

/// Takes the posts for a member.
#[derive(Clone, Debug)]
pub struct PeerLink {
    birth: u64,
    driven: Arc<DrivenLink>,
    commands: mpsc::UnboundedSender<Command>,
    is_congested: Arc<AtomicBool>,
}

impl PeerLink {
    /// Takes a batch of posts. Never blocks.
    pub fn post(&self, entries: Vec<u8>) {
        if !self.driven.post(self.birth, entries) {
            // A link that has ended is lost already.
            let _ = self.commands.send(Command::Run);
        }
    }

    /// Whether sessions that post to the member must wait.
    #[must_use]
    pub fn is_congested(&self) -> bool {
        self.is_congested.load(Ordering::Relaxed)
    }
}

/// The peer of a link, and where its entries go.
pub(super) struct Peer {
    pub(super) id: MemberId,
    pub(super) shard_count: u16,
    pub(super) entries: DecodeLimits,
    pub(super) shards: Arc<dyn Shards>,
    pub(super) events: mpsc::UnboundedSender<Event>,
}

/// Links a peer until the view loses it. Returns the sender of commands for the link.
pub(super) fn link(peer: Peer, config: Config, target: Target) -> mpsc::UnboundedSender<Command> {
    let (commands, taken) = mpsc::unbounded_channel();
    let back = commands.downgrade();
    tokio::spawn(async move {
        let carrier = match target.carrier(peer.id).await {
            Ok(carrier) => carrier,
            Err(error) => return tracing::error!(%error, "no link to a member is possible"),
        };
        let mut receiver = Receiver::new(peer, back);
        let (driven, handled) = (Arc::clone(&receiver.driven), Arc::clone(&receiver.handled));
        let handled = move || handled.last();
        drive(
            driven,
            config,
            carrier,
            taken,
            handled,
            move |output, stats| {
                receiver.take(output, stats);
            },
        )
        .await;
    });
    commands
}

/// Takes the outputs of a link.
struct Receiver {
    peer: Peer,
    back: mpsc::WeakUnboundedSender<Command>,
    driven: Arc<DrivenLink>,
    decoder: Decoder,
    handled: Arc<Handled>,
    is_congested: Arc<AtomicBool>,
    /// Whether a peer of this link has sent something that is not an entry.
    is_unreadable: bool,
}

impl Receiver {
    fn new(peer: Peer, back: mpsc::WeakUnboundedSender<Command>) -> Self {
        Self {
            decoder: Decoder::new(peer.entries),
            handled: Arc::new(Handled::new(peer.id.birth)),
            driven: Arc::default(),
            is_congested: Arc::default(),
            is_unreadable: false,
            peer,
            back,
        }
    }

    fn take(&mut self, output: Output, stats: Stats) {
        let event = match output {
            Output::Deliver {
                number, entries, ..
            } => return self.deliver(number, &entries),
            Output::Linked { birth, level } if birth == self.peer.id.birth => {
                let Some(commands) = self.back.upgrade() else {
                    return;
                };
                self.peer.shards.joined(&LinkedMember {
                    id: self.peer.id,
                    shard_count: self.peer.shard_count,
                    version: level,
                    link: PeerLink {
                        birth,
                        driven: Arc::clone(&self.driven),
                        commands,
                        is_congested: Arc::clone(&self.is_congested),
                    },
                });
                LinkEvent::Linked
            }
            // A later birth is another member, with its own link.
            Output::Linked { birth, .. } => return self.command(Command::PeerLeft(birth)),
            Output::NodeLost { birth } if birth == self.peer.id.birth => {
                self.peer.shards.lost(self.peer.id);
                LinkEvent::Lost
            }
            Output::Suspect(suspicion) => {
                let MemberId { node, birth } = self.peer.id;
                tracing::warn!(node, birth, ?suspicion, "a member is suspect");
                LinkEvent::Suspect
            }
            Output::Trusted => {
                let MemberId { node, birth } = self.peer.id;
                tracing::info!(node, birth, "a member is trusted again");
                LinkEvent::Trusted
            }
            Output::Answered(after) => LinkEvent::Answered(after),
            Output::Congested(is_congested) => {
                self.is_congested.store(is_congested, Ordering::Relaxed);
                return self.peer.shards.wake();
            }
            Output::Refused(refusal) => {
                let node = self.peer.id.node;
                return tracing::error!(node, %refusal, "a member can't be linked");
            }
            Output::NodeLost { .. } | Output::Send(_) | Output::Reset => return,
        };
        let id = self.peer.id;
        let _ = self.peer.events.send(Event::Link { id, event, stats });
    }

    fn deliver(&mut self, number: u64, entries: &[u8]) {
        let token = Arc::new(Token {
            number,
            handled: Arc::clone(&self.handled),
        });
        self.decoder.push(entries);
        let mut posts = Vec::new();
        loop {
            match self.decoder.decode(&|_| Some(Arc::new(RulesOfMarker) as _)) {
                Ok(Some(post)) => posts.push(post),
                Ok(None) => break,
                Err(error) => {
                    if !std::mem::replace(&mut self.is_unreadable, true) {
                        let node = self.peer.id.node;
                        tracing::error!(node, %error, "the entries of a member can't be read; its link ends");
                        self.command(Command::PeerLeft(self.peer.id.birth));
                    }
                    break;
                }
            }
        }
        self.peer.shards.deliver(self.peer.id, posts, token);
    }

    fn command(&self, command: Command) {
        if let Some(commands) = self.back.upgrade() {
            let _ = commands.send(command);
        }
    }
}

/// In place of the rules that a marker names. [`Shards::deliver`] passes the change itself to the shards, before the marker, so no shard uses
/// it. If one did, it would deny everything.
#[derive(Debug)]
struct RulesOfMarker;

impl Permission for RulesOfMarker {
    fn decide(&self, _question: &Question<'_>) -> Decision {
        Decision::Failed
    }
}

/// The deliveries that the shards have handled. They may end in another order than they came.
struct Handled {
    birth: u64,
    progress: Mutex<Progress>,
}

#[derive(Default)]
struct Progress {
    /// All deliveries up to this one are handled.
    up_to: u64,
    /// Later ones that are handled.
    later: BTreeSet<u64>,
}

/// Kept by the shards while they have entries of a delivery.
struct Token {
    number: u64,
    handled: Arc<Handled>,
}

impl Handled {
    fn new(birth: u64) -> Self {
        Self {
            birth,
            progress: Mutex::default(),
        }
    }

    fn end(&self, number: u64) {
        let mut progress = self.progress();
        if number != progress.up_to + 1 {
            progress.later.insert(number);
            return;
        }
        progress.up_to = number;
        while progress.later.first() == Some(&(progress.up_to + 1)) {
            progress.later.pop_first();
            progress.up_to += 1;
        }
    }

    fn last(&self) -> driver::Handled {
        driver::Handled {
            birth: self.birth,
            number: self.progress().up_to,
        }
    }

    fn progress(&self) -> MutexGuard<'_, Progress> {
        let progress = self.progress.lock();
        progress.unwrap_or_else(PoisonError::into_inner)
    }
}

impl Drop for Token {
    fn drop(&mut self) {
        self.handled.end(self.number);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn deliveries_are_confirmed_in_their_order() {
        let handled = Arc::new(Handled::new(7));
        let token = |number| Token {
            number,
            handled: Arc::clone(&handled),
        };
        let confirmed = |number| driver::Handled { birth: 7, number };
        let [one, two, three] = [1, 2, 3].map(token);
        drop(two);
        assert_eq!(handled.last(), confirmed(0), "the first one is not handled");
        drop(one);
        assert_eq!(handled.last(), confirmed(2));
        drop(three);
        assert_eq!(handled.last(), confirmed(3));
    }
}
