//! The lives of one node: a shard handles the entries of the latest one only.

use tidewire_core::address::SessionId;
use tidewire_core::awaited::BirthRepeated;
use tidewire_core::effect::Input;
use tidewire_core::engine::Shard;
use tidewire_core::entry::Entry;
use tidewire_core::settings::Settings;
use tidewire_core::text::Name;
use tidewire_core::time::Now;

use crate::nodes::{NODE_SHARDS, NOW, address, first_shard};
use crate::outside::Outside;

/// A shard of the first node, which the second one joins.
struct Node {
    shard: Shard,
    outside: Outside,
    /// The number of the last user that came online.
    user: u64,
}

impl Node {
    fn new() -> Self {
        Self {
            shard: first_shard(),
            outside: Outside::new(None),
            user: 0,
        }
    }

    fn join(&mut self, birth: u64) -> Result<(), BirthRepeated> {
        self.shard.node_joined(NOW, 1, birth, &mut self.outside)
    }

    fn lose(&mut self) {
        let lost = Input::NodeLost { node: 1 };
        self.shard.handle(NOW, lost, &mut self.outside);
    }

    /// The users of a lost node go offline. Returns the number of online users.
    fn end_grace(&mut self) -> usize {
        let grace = Settings::default().presence_grace;
        let end = Now {
            monotonic: NOW.monotonic + grace,
            ..NOW
        };
        self.shard
            .handle(end, Input::DeadlineReached, &mut self.outside);
        self.shard.counts().users_online
    }

    /// An entry of the second node arrives: a session of another user has opened there. Returns the number of online users.
    fn hear(&mut self, birth: u64) -> usize {
        self.user += 1;
        let from = address(NODE_SHARDS);
        let entry = Entry::Online {
            user: Name::from(self.user.to_string().as_str()),
            session: SessionId {
                address: from,
                index: 0,
                generation: 0,
            },
            reply: None,
        };
        let linked = Input::Linked { from, birth, entry };
        self.shard.handle(NOW, linked, &mut self.outside);
        self.shard.counts().users_online
    }
}

#[test]
fn a_birth_that_repeats_is_refused() {
    let mut node = Node::new();
    assert_eq!(node.join(3), Ok(()));
    let refused = |birth| {
        Err(BirthRepeated {
            node: 1,
            birth,
            known: 3,
        })
    };
    assert_eq!(node.join(3), refused(3));
    assert_eq!(node.join(2), refused(2));
    // The refusals have not ended the life that is linked.
    assert_eq!(node.hear(3), 1);
    node.lose();
    assert_eq!(node.join(3), refused(3));
    assert_eq!(node.join(4), Ok(()));
}

#[test]
fn entries_of_an_earlier_life_are_dropped() {
    let mut node = Node::new();
    assert_eq!(node.hear(1), 0, "the node has not joined");
    node.join(1).expect("the birth is new");
    assert_eq!(node.hear(1), 1);
    assert_eq!(node.hear(2), 1, "nothing is known of this birth");
    // Joining again ends the life before, with its sessions.
    node.join(2).expect("the birth is new");
    assert_eq!(
        node.shard.counts().users_online,
        1,
        "within the grace period"
    );
    assert_eq!(node.end_grace(), 0);
    assert_eq!(node.hear(1), 0);
    assert_eq!(node.hear(2), 1);
    node.lose();
    assert_eq!(
        node.hear(2),
        1,
        "dropped, and the other user is within the grace period"
    );
    assert_eq!(node.end_grace(), 0);
}
