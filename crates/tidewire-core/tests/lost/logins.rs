//! A login is answered when the owner of its user, on the other node, has counted the session, or is lost.

use std::sync::Arc;

use tidewire_core::address::{Address, SessionId};
use tidewire_core::effect::{AuthCompletion, AuthOutcome, Flow, Format, Input};
use tidewire_core::engine::Shard;
use tidewire_core::entry::{Entry, PendingReplyId, ReplyPart};
use tidewire_core::message::{Auth, Message, Presence};
use tidewire_core::principal::Principal;
use tidewire_core::text::Name;

use crate::heard::Heard;
use crate::nodes::{NODE_SHARDS, NOW, address, first_shard, node_of};
use crate::outside::{Mail, Outside};

const BIRTH: u64 = 1;
const SESSION: SessionId = SessionId {
    address: Address { node: 0, shard: 0 },
    index: 0,
    generation: 1,
};

/// A shard of the first node, joined with the second one, and a session whose login the auth chain has accepted.
struct LoggingIn {
    shard: Shard,
    outside: Outside,
}

impl LoggingIn {
    fn new(user: &str) -> Self {
        let mut this = Self {
            shard: first_shard(),
            outside: Outside::new(None),
        };
        this.shard
            .node_joined(NOW, 1, BIRTH, &mut this.outside)
            .expect("the birth is new");
        this.handle(Input::Opened {
            session: SESSION,
            format: Format(0),
            coalesces: Some(true),
        });
        let login = Message::Auth(Auth::Request { data: Some("{}") });
        assert_eq!(this.say(&login), Flow::Taken);
        assert_eq!(this.outside.logins.len(), 1);
        let principal = Arc::new(Principal::new(Name::from(user)));
        this.handle(Input::Auth(AuthCompletion {
            session: SESSION,
            outcome: AuthOutcome::Accepted(principal),
        }));
        this
    }

    /// The session of a user whose owner is on the other node, and the reply that the owner sends.
    fn of_the_other_node() -> (Self, PendingReplyId) {
        let user = (0..).map(|number| format!("user-{number}"));
        let mut remote = user.map(|user| Self::new(&user)).filter_map(|mut this| {
            let posted = this.outside.wires[1].drain(..).collect::<Vec<_>>();
            posted
                .into_iter()
                .find_map(|(_, mail)| match mail {
                    Mail::Entry {
                        entry: Entry::Online { reply, .. },
                        ..
                    } => reply,
                    _ => None,
                })
                .map(|reply| (this, reply))
        });
        remote.next().expect("half of the users belong to it")
    }

    fn handle(&mut self, input: Input) {
        self.shard.handle(NOW, input, &mut self.outside);
    }

    fn say(&mut self, message: &Message<'_>) -> Flow {
        self.shard.message(NOW, SESSION, message, &mut self.outside)
    }

    /// A message that is only taken from a session that has logged in.
    fn asks(&mut self) -> Flow {
        self.say(&Message::Presence(Presence::QueryAll))
    }

    /// Whether the session hears in this turn that its login is accepted.
    fn hears_acceptance(&mut self) -> bool {
        self.shard.end_turn(NOW, &mut self.outside);
        let log = &self.outside.log;
        let mut is_accepted = false;
        self.shard.flush(|_, _, spans| {
            for span in spans {
                let heard = &log[span.start as usize..span.end as usize];
                is_accepted |= heard.iter().any(|heard| matches!(heard, Heard::LoggedIn));
            }
        });
        self.shard.begin_turn(NOW, &mut self.outside);
        is_accepted
    }

    fn is_resumed(&self) -> bool {
        self.outside.resumed.contains(&SESSION)
    }
}

#[test]
fn the_owner_of_the_user_has_counted_the_session_first() {
    let (mut login, reply) = LoggingIn::of_the_other_node();
    login.outside.resumed.clear();
    assert!(!login.hears_acceptance());
    assert_eq!(login.asks(), Flow::Wait);
    let part = ReplyPart::Done;
    login.handle(Input::Linked {
        from: address(NODE_SHARDS),
        birth: BIRTH,
        entry: Entry::ReplyPart { reply, part },
    });
    assert!(login.is_resumed());
    assert!(login.hears_acceptance());
    assert_eq!(login.asks(), Flow::Taken);
}

#[test]
fn the_loss_of_the_owner_ends_the_wait() {
    let (mut login, _) = LoggingIn::of_the_other_node();
    login.outside.resumed.clear();
    login.outside.lost = Some(1);
    login.outside.knows[0] = true;
    login.handle(Input::NodeLost { node: 1 });
    assert!(login.hears_acceptance());
    assert!(login.is_resumed());
    assert_eq!(login.asks(), Flow::Taken);
}

#[test]
fn a_session_that_ends_while_it_waits_is_counted_off() {
    let (mut login, _) = LoggingIn::of_the_other_node();
    login.handle(Input::Closed { session: SESSION });
    let mut posted = login.outside.wires[1].iter();
    assert!(posted.any(|(_, mail)| matches!(
        mail,
        Mail::Entry { from, entry: Entry::Offline { .. }, .. } if node_of(*from) == 0
    )));
}
