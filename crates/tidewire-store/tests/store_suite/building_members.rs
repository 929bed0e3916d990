//! Several members of a cluster that write records and build indexes of one store.

use tidewire_core::store::{IndexBuild, MemberId, Store, StoreWrite, View};

use crate::indexes::{Indexed, Random, declare, entries, rebuilt, value};
use crate::members::{Shared, member, propose, registry};
use crate::store_suite::{Open, delete, put, record};

const DEFINITIONS: [&str; 3] = ["cards\nboard", "cards\nboard\nposition", "cards\ncard.id"];
/// Records before the first index.
const EARLIER: usize = 2_300;
/// Batches of each member.
const BATCHES: u32 = 150;

/// One of the members, which writes its share of the names.
struct Writer {
    open: Open,
    id: MemberId,
    random: Random,
}

impl Writer {
    /// Writes and builds. Declares `definitions` after a third of the batches. Records of an earlier batch are deleted now and then.
    fn run(&mut self, view: View, definitions: Option<&[&str]>) {
        for number in 0..BATCHES {
            if number == BATCHES / 3
                && let Some(definitions) = definitions
            {
                declare(&mut *self.open, definitions);
            }
            let count = 1 + self.random.below(4);
            let mut writes: Vec<StoreWrite> = (0..count).map(|_| self.write()).collect();
            writes.sort_by(|one, next| one.name.cmp(&next.name));
            writes.dedup_by(|one, next| one.name == next.name);
            Store::commit(&mut *self.open, view, self.id, &writes).expect("committed");
            if self.random.below(3) == 0 {
                self.open.build_indexes().expect("a step");
            }
        }
    }

    /// A write of one of the names `cards/N` of which this member is the owner.
    fn write(&mut self) -> StoreWrite {
        let number = self.random.below(EARLIER as u64 / 3) * 3 + u64::from(self.id.node);
        let name = format!("cards/{number}");
        match self.random.below(3) {
            0 => delete(&name),
            _ => put(&name, record(1, &value(&mut self.random))),
        }
    }
}

/// Three members write, declare different indexes and build them, one after a change of the view. Each index is complete in the end.
pub fn three_members_write_and_build(mut subject: impl Shared + Indexed) {
    let mut writers: Vec<Writer> = (0..3)
        .map(|node| {
            let open = subject.join(node);
            let id = member(node, &open);
            let random = Random(node.into());
            Writer { open, id, random }
        })
        .collect();
    let mut registry = registry(&mut writers[0].open);
    let ids: Vec<MemberId> = writers.iter().map(|writer| writer.id).collect();
    let view = propose(&mut *registry, View(0), &ids, &[])
        .expect("a view")
        .number;
    let mut random = Random(99);
    let earlier: Vec<StoreWrite> = (0..EARLIER)
        .map(|number| put(&format!("cards/{number}"), record(1, &value(&mut random))))
        .collect();
    let first = &mut writers[0];
    Store::commit(&mut *first.open, view, first.id, &earlier).expect("committed");

    // The third member declares nothing, and learns of the indexes from its commits.
    let declared: [Option<&[&str]>; 3] = [Some(&DEFINITIONS[..1]), Some(&DEFINITIONS[1..]), None];
    std::thread::scope(|scope| {
        for (writer, definitions) in writers.iter_mut().zip(declared) {
            scope.spawn(move || writer.run(view, definitions));
        }
    });
    // The first member leaves in the middle of a build. An index that no process declares is removed at the next declaration.
    let next = propose(&mut *registry, view, &ids[1..], &[])
        .expect("a view")
        .number;
    writers.remove(0);
    std::thread::scope(|scope| {
        for (writer, definitions) in writers.iter_mut().zip([Some(&DEFINITIONS[1..]), None]) {
            scope.spawn(move || writer.run(next, definitions));
        }
    });
    let last = &mut writers[1].open;
    while last.build_indexes().expect("a step") != IndexBuild::Complete {}
    let mut reader = last.reader().expect("a reader");
    assert_eq!(entries(&mut *reader, DEFINITIONS[0]), None);
    for definition in &DEFINITIONS[1..] {
        let found = entries(&mut *reader, definition).expect("usable");
        assert_eq!(found, rebuilt(&mut *reader, definition), "{definition}");
    }
    drop(writers);
    assert_eq!(subject.stray_entries(), 0);
}

/// A new index waits until each member of the view keeps indexes. `forget` turns a process into one of an earlier version.
pub fn an_index_waits_for_an_older_member(
    mut subject: impl Shared + Indexed,
    forget: impl Fn(u64),
) {
    let (mut first, second, joining) = (subject.join(0), subject.join(1), subject.join(2));
    let (one, two, three) = (member(0, &first), member(1, &second), member(2, &joining));
    let mut registry = registry(&mut first);
    let view = propose(&mut *registry, View(0), &[one, two], &[])
        .expect("a view")
        .number;
    let put = [put("cards/1", record(1, r#"{"board":1}"#))];
    Store::commit(&mut *first, view, one, &put).expect("committed");
    forget(two.birth);
    forget(three.birth);
    declare(&mut *first, &DEFINITIONS[..1]);
    for _ in 0..2 {
        assert_eq!(first.build_indexes().expect("a step"), IndexBuild::Waiting);
    }
    let mut reader = first.reader().expect("a reader");
    assert_eq!(entries(&mut *reader, DEFINITIONS[0]), None);
    let next = propose(&mut *registry, view, &[one], &[])
        .expect("a view")
        .number;
    while first.build_indexes().expect("a step") != IndexBuild::Complete {}
    assert_eq!(
        entries(&mut *reader, DEFINITIONS[0]).map(|all| all.len()),
        Some(1)
    );
    // The older process that has not joined yet has to open the store again.
    assert!(propose(&mut *registry, next, &[one, three], &[]).is_err());
}
