//! Several members that share one store: the suite of stores with a registry.

use tidewire_core::slot::SLOT_COUNT;
use tidewire_core::store::{
    Loaded, MemberId, Opened, Registry, Store, StoreTrouble, StoredView, View, Written,
};

use crate::store_suite::{Open, Subject, load, put, record};

/// A place where processes can open one store as members.
pub trait Shared: Subject {
    /// Opens the store as a node that joins the others.
    fn join(&mut self, node: u16) -> Open;
}

fn member(node: u16, open: &Open) -> MemberId {
    MemberId {
        node,
        birth: open.opened.opening,
    }
}

fn registry(open: &mut Open) -> Box<dyn Registry> {
    let registry = open.registry().expect("the registry opens");
    registry.expect("the store has a registry")
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

/// Two members of one view both commit; a member of an older view and a process outside of the view are refused.
pub fn two_members_of_one_view_both_commit(mut subject: impl Shared) {
    let mut alone = subject.open();
    let mut registry = registry(&mut alone);
    let first_view = StoredView::of_one_node(alone.opened);
    assert_eq!(registry.view().unwrap(), first_view);
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

    let both = registry
        .propose(first_view.number, &[one, two], &[3, 5])
        .unwrap();
    assert!(both.number > first_view.number);
    assert_eq!(both.members, [one, two]);
    assert!(both.has(one) && both.has(two));
    assert_eq!(registry.view().unwrap(), both);
    for slot in 0..SLOT_COUNT {
        let is_raised = [3, 5].contains(&slot);
        assert_eq!(both.epoch(slot) > first_view.epoch, is_raised, "{slot}");
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
    let last = registry.propose(both.number, &[two], &[3]).unwrap();
    assert!(last.number > both.number);
    assert!(last.epoch(3) > both.epoch(3) && last.epoch(5) == both.epoch(5));
    check_stale(&mut alone, both.number, one, last.number, false);
    check_stale(&mut alone, last.number, one, last.number, false);
    check_stale(&mut joining, both.number, two, last.number, true);
    Store::commit(&mut *joining, last.number, two, &many("three")).unwrap();
    // A clean stop of the process outside of the view marks nothing.
    alone.close().unwrap();

    // A server that opens the store alone ends all views, and its epoch is later than that of each slot.
    let mut next = subject.open();
    assert!(next.opened.epoch > last.epoch(3));
    check_stale(&mut joining, last.number, two, next.opened.view(), false);
    next.commit(&many("four")).unwrap();
    let view = self::registry(&mut next).view().unwrap();
    assert_eq!(view, StoredView::of_one_node(next.opened));
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
    let made = registry.propose(first, &members[..2], &[]).unwrap();
    assert_eq!(made.members, members[..2]);
    // The second proposal learns the view that was made.
    assert_eq!(registry.propose(first, &members[1..], &[9]).unwrap(), made);
    let unknown = Opened {
        opening: made.number.0 + 50,
        ..alone.opened
    };
    let wrong = [members[0], unknown.member()];
    let error = registry.propose(made.number, &wrong, &[]).unwrap_err();
    assert!(
        error.message.contains("has not opened the store"),
        "{error}"
    );
    assert_eq!(registry.view().unwrap(), made);
    // A process that left a view must open the store again.
    let next = registry.propose(made.number, &members[1..], &[]).unwrap();
    assert_eq!(next.members, members[1..]);
    assert!(registry.propose(next.number, &members, &[]).is_err());
    assert_eq!(registry.view().unwrap(), next);
}

/// A view that changes while members commit: each commit belongs to one of the two views, and the registry waits for those that run.
pub fn a_view_changes_between_commits(mut subject: impl Shared) {
    let mut alone = subject.open();
    let mut registry = registry(&mut alone);
    let mut joining = subject.join(1);
    let (one, two) = (alone.opened.member(), member(1, &joining));
    let view = registry
        .propose(alone.opened.view(), &[one, two], &[])
        .unwrap();
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
    registry.propose(view.number, &[one], &[]).unwrap();
    // Whatever was acknowledged was done before the proposal returned, and nothing was done after it.
    let found = reader.load(&["contended".into()]).unwrap();
    let last = commits.join().unwrap();
    assert_eq!(found, [Loaded::Found(record(last, "[]"))]);
    assert_eq!(reader.load(&["contended".into()]).unwrap(), found);
}
