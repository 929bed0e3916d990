//! Several members that share one store: the suite of stores with a registry.

use tidewire_core::slot::ClusterKey;
use tidewire_core::slot::SLOT_COUNT;
use tidewire_core::store::{
    Expected, Loaded, MemberId, Opened, Proposal, Registry, Store, StoreChange, StoreError,
    StoreTrouble, StoredView, View, Written,
};
use tidewire_core::view::{MemberState, Profile, SlotEpochs, Versions, ViewMember};

use crate::store_suite::{Open, Subject, load, put, record, write};

/// A place where processes can open one store as members.
pub trait Shared: Subject {
    /// Opens the store as a node that joins the others.
    fn join(&mut self, node: u16) -> Open;
}

pub fn member(node: u16, open: &Open) -> MemberId {
    MemberId {
        node,
        birth: open.opened.opening,
    }
}

pub fn registry(open: &mut Open) -> Box<dyn Registry> {
    let registry = open.registry().expect("the registry opens");
    registry.expect("the store has a registry")
}

/// Proposes a view of active members.
pub fn propose(
    registry: &mut dyn Registry,
    expected: View,
    members: &[MemberId],
    raised: &[u16],
) -> Result<StoredView, StoreError> {
    let active = |id: &MemberId| ViewMember::active(*id, Profile::default());
    let proposal = Proposal {
        key: Some(ClusterKey([7; 16])),
        level: 1,
        members: members.iter().map(active).collect(),
        raised: raised.to_vec(),
    };
    registry.propose(expected, &proposal)
}

fn ids(view: &StoredView) -> Vec<MemberId> {
    view.ids().collect()
}

/// The view of a server that has opened the store alone.
#[track_caller]
fn check_view_of_one(view: &StoredView, opened: Opened) {
    assert_eq!(view.number, opened.view());
    assert_eq!(ids(view), [opened.member()]);
    assert_eq!(view.epochs, SlotEpochs::all(opened.epoch));
}

#[track_caller]
fn check_stale(open: &mut Open, view: View, member: MemberId, current: View, is_member: bool) {
    let batch = [put("stale", record(1, "[]"))];
    for _ in 0..2 {
        let error = Store::commit(&mut **open, view, member, &batch).unwrap_err();
        let expected = StoreTrouble::StaleView { current, is_member };
        assert_eq!(error.trouble, expected, "{error}");
    }
    assert_eq!(load(&mut **open, &["stale"]), [Loaded::Missing]);
}

/// Many writes, so that a store that commits large batches in another way does so.
fn many(prefix: &str) -> Vec<tidewire_core::store::StoreWrite> {
    (0..100)
        .map(|number| put(&format!("{prefix}/{number}"), record(1, "[1]")))
        .collect()
}

/// A member that is alone again compares its writes with the records that the others have left.
pub fn a_member_that_is_alone_again_finds_the_writes_of_others(mut subject: impl Shared) {
    let mut first = subject.open();
    let mut registry = registry(&mut first);
    let names = ["a", "b"];
    let of = |version: u32| record(version, "[]");
    let next = |name: &str, version: u32| {
        let change = StoreChange::Put(of(version + 1));
        write(name, Expected::of(&of(version)), change)
    };
    first.commit(&names.map(|name| put(name, of(0)))).unwrap();
    first.commit(&names.map(|name| next(name, 0))).unwrap();

    let mut second = subject.join(7);
    let (one, two) = (first.opened.member(), member(7, &second));
    let both = propose(&mut *registry, first.opened.view(), &[one, two], &[]).unwrap();
    let batch = names.map(|name| put(name, of(9)));
    Store::commit(&mut *second, both.number, two, &batch).unwrap();

    let alone = propose(&mut *registry, both.number, &[one], &[]).unwrap();
    let mut commit = |write| Store::commit(&mut *first, alone.number, one, &[write]).unwrap();
    for name in names {
        assert_eq!(commit(next(name, 1)), [Written::Refused], "{name}");
    }
    for name in names {
        assert_eq!(commit(next(name, 9)), [Written::Done], "{name}");
    }
    let expected = names.map(|_| Loaded::Found(of(10)));
    assert_eq!(load(&mut *first, &names), expected);
}

/// Two members of one view both commit; a member of an older view and a process outside of the view are refused.
pub fn two_members_of_one_view_both_commit(mut subject: impl Shared) {
    let mut alone = subject.open();
    let mut registry = registry(&mut alone);
    let first_view = registry.view().unwrap();
    check_view_of_one(&first_view, alone.opened);
    alone.commit(&[put("a", record(1, "[1]"))]).unwrap();

    // A process that joins belongs to no view at first, and changes none.
    let mut joining = subject.join(7);
    let (one, two) = (alone.opened.member(), member(7, &joining));
    check_stale(
        &mut joining,
        first_view.number,
        two,
        first_view.number,
        false,
    );
    alone.commit(&[put("a", record(2, "[2]"))]).unwrap();

    let both = propose(&mut *registry, first_view.number, &[one, two], &[3, 5]).unwrap();
    assert!(both.number > first_view.number);
    assert_eq!(ids(&both), [one, two]);
    assert!(both.has(one) && both.has(two));
    assert_eq!(registry.view().unwrap(), both);
    for slot in 0..SLOT_COUNT {
        let is_raised = [3, 5].contains(&slot);
        assert_eq!(
            both.epochs.of(slot) > first_view.epochs.epoch,
            is_raised,
            "{slot}"
        );
    }
    // The members know the earlier view until they adopt this one.
    check_stale(&mut alone, first_view.number, one, both.number, true);
    for _ in 0..2 {
        for (open, owner, prefix) in [(&mut alone, one, "one"), (&mut joining, two, "two")] {
            let writes = many(prefix);
            let written = Store::commit(&mut **open, both.number, owner, &writes).unwrap();
            assert_eq!(written, [Written::Done; 100]);
            let own = [put(prefix, record(1, "[]"))];
            let written = Store::commit(&mut **open, both.number, owner, &own).unwrap();
            assert_eq!(written, [Written::Done]);
        }
    }
    let found = [&mut alone, &mut joining].map(|open| load(&mut **open, &["one/99", "two/99"]));
    let expected = [record(1, "[1]"), record(1, "[1]")].map(Loaded::Found);
    assert_eq!(found, [expected.clone(), expected]);
    // A wrong birth of a member is another process.
    let other = MemberId {
        birth: two.birth + 100,
        ..two
    };
    check_stale(&mut joining, both.number, other, both.number, false);

    // A view without the first process ends its commits, at the earlier view and at this one.
    let last = propose(&mut *registry, both.number, &[two], &[3]).unwrap();
    assert!(last.number > both.number);
    assert!(last.epochs.of(3) > both.epochs.of(3) && last.epochs.of(5) == both.epochs.of(5));
    check_stale(&mut alone, both.number, one, last.number, false);
    check_stale(&mut alone, last.number, one, last.number, false);
    check_stale(&mut joining, both.number, two, last.number, true);
    Store::commit(&mut *joining, last.number, two, &many("three")).unwrap();
    // A clean stop of the process outside of the view marks nothing.
    alone.close().unwrap();

    // A server that opens the store alone ends all views, and its epoch is later than that of each slot.
    let mut next = subject.open();
    assert!(next.opened.epoch > last.epochs.of(3));
    check_stale(&mut joining, last.number, two, next.opened.view(), false);
    next.commit(&many("four")).unwrap();
    let view = self::registry(&mut next).view().unwrap();
    check_view_of_one(&view, next.opened);
}

/// Of two proposals that follow the same view, one is made. A proposal needs members that have opened the store.
pub fn a_view_follows_the_one_that_was_expected(mut subject: impl Shared) {
    let mut alone = subject.open();
    let mut registry = registry(&mut alone);
    let joining: Vec<Open> = (1..4).map(|node| subject.join(node)).collect();
    let members: Vec<MemberId> = (1..)
        .zip(&joining)
        .map(|(node, open)| member(node, open))
        .collect();
    let first = alone.opened.view();
    let made = propose(&mut *registry, first, &members[..2], &[]).unwrap();
    assert_eq!(ids(&made), members[..2]);
    // The second proposal learns the view that was made.
    let second = propose(&mut *registry, first, &members[1..], &[9]);
    assert_eq!(second, Ok(made.clone()));
    let unknown = Opened {
        opening: made.number.0 + 50,
        ..alone.opened
    };
    let wrong = [members[0], unknown.member()];
    let error = propose(&mut *registry, made.number, &wrong, &[]).unwrap_err();
    assert!(
        error.message.contains("has not opened the store"),
        "{error}"
    );
    assert_eq!(registry.view().unwrap(), made);
    // A process that left a view must open the store again.
    let next = propose(&mut *registry, made.number, &members[1..], &[]).unwrap();
    assert_eq!(ids(&next), members[1..]);
    assert!(propose(&mut *registry, next.number, &members, &[]).is_err());
    assert_eq!(registry.view().unwrap(), next);
}

/// A view that changes while members commit: each commit belongs to one of the two views, and the registry waits for those that run.
pub fn a_view_changes_between_commits(mut subject: impl Shared) {
    let mut alone = subject.open();
    let mut registry = registry(&mut alone);
    let mut joining = subject.join(1);
    let (one, two) = (alone.opened.member(), member(1, &joining));
    let view = propose(&mut *registry, alone.opened.view(), &[one, two], &[]).unwrap();
    let commits = std::thread::spawn(move || {
        let mut last = 0;
        for version in 1.. {
            let writes = [put("contended", record(version, "[]"))];
            match Store::commit(&mut *joining, view.number, two, &writes) {
                Ok(_) => last = version,
                Err(error) => {
                    assert!(error.trouble.is_eviction(), "{error}");
                    return last;
                }
            }
        }
        last
    });
    let mut reader = alone.reader().unwrap();
    while reader.load(&["contended".into()]).unwrap() == [Loaded::Missing] {}
    propose(&mut *registry, view.number, &[one], &[]).unwrap();
    // Whatever was acknowledged was done before the proposal returned, and nothing was done after it.
    let found = reader.load(&["contended".into()]).unwrap();
    let last = commits.join().unwrap();
    assert_eq!(found, [Loaded::Found(record(last, "[]"))]);
    assert_eq!(reader.load(&["contended".into()]).unwrap(), found);
}

/// A store keeps the whole content of a view, and answers heartbeats with its number.
pub fn a_view_is_kept_as_it_was_proposed(mut subject: impl Shared) {
    // A cluster may begin without a server that was alone.
    let (mut first, second) = (subject.join(3), subject.join(4));
    let mut registry = registry(&mut first);
    let before = registry.view().unwrap();
    assert_eq!((before.number, before.members.len()), (View(0), 0));
    let proposed = |id, state, weight| ViewMember {
        id,
        state,
        profile: Profile {
            shard_count: 12,
            weight,
            versions: Versions { first: 2, last: 5 },
            addresses: vec!["10.0.0.1:6022".to_owned(), "[::1]:6022 \"é\"".to_owned()],
            fingerprint: (weight == 9).then_some([0xa5; 32]),
        },
    };
    let mut proposal = Proposal {
        key: Some(ClusterKey(*b"0123456789abcdef")),
        level: 4,
        members: vec![
            proposed(member(3, &first), MemberState::Active, 9),
            proposed(member(4, &second), MemberState::Joining, 1),
        ],
        raised: Vec::new(),
    };
    let made = registry.propose(View(0), &proposal).unwrap();
    assert!(made.epochs.epoch > before.epochs.epoch && made.epochs.raised.is_empty());
    assert_eq!((made.key, made.level), (proposal.key, 4));
    assert_eq!(made.members, proposal.members);
    assert_eq!(registry.view(), Ok(made.clone()));
    let heartbeat = registry.heartbeat().unwrap();
    assert_eq!(heartbeat.view, made.number);
    assert_eq!(heartbeat.generation, made.generation);
    assert!(!made.generation.0.is_empty());
    // Every slot may be raised.
    proposal.raised = (0..SLOT_COUNT).collect();
    proposal.members[1].state = MemberState::Leaving;
    let raised = registry.propose(made.number, &proposal).unwrap();
    assert_eq!(raised.epochs.raised.len(), usize::from(SLOT_COUNT));
    assert_eq!(registry.view(), Ok(raised.clone()));
    assert_eq!(registry.heartbeat().unwrap().view, raised.number);
    let own = member(3, &first);
    Store::commit(&mut *first, raised.number, own, &many("kept")).unwrap();
}

/// Another server takes over. Members commit only after they have agreed on a view, whose epochs are later for all slots.
pub fn another_generation_stops_commits_until_a_new_view(
    mut subject: impl Shared,
    mut take_over: impl FnMut(),
) {
    let mut open = subject.join(1);
    let own = member(1, &open);
    let mut registry = registry(&mut open);
    let view = propose(&mut *registry, View(0), &[own], &[]).unwrap();
    Store::commit(&mut *open, view.number, own, &many("before")).unwrap();
    take_over();
    let attempts = 5;
    let write = [put("after", record(1, "[]"))];
    for _ in 0..attempts {
        let error = Store::commit(&mut *open, view.number, own, &write).unwrap_err();
        assert_eq!(error.trouble, StoreTrouble::Unavailable, "{error}");
    }
    let heartbeat = (0..attempts)
        .find_map(|_| registry.heartbeat().ok())
        .unwrap();
    assert_eq!(heartbeat.view, view.number);
    let stored = (0..attempts).find_map(|_| registry.view().ok()).unwrap();
    assert_ne!(heartbeat.generation, stored.generation);
    let next = propose(&mut *registry, view.number, &[own], &[]).unwrap();
    assert_eq!(next.generation, heartbeat.generation);
    assert!((0..SLOT_COUNT).all(|slot| next.epochs.of(slot) > view.epochs.of(slot)));
    let is_done =
        (0..attempts).any(|_| Store::commit(&mut *open, next.number, own, &write).is_ok());
    assert!(is_done);
    assert_eq!(
        load(&mut *open, &["after"]),
        [Loaded::Found(record(1, "[]"))]
    );
}
