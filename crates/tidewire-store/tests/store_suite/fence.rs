//! The fence of PostgreSQL: a change of the view waits for commits, but not for long, and commits leave no MultiXacts.

use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use tidewire_core::store::{Loaded, MemberId, Registry, Store, StoreTrouble, View, Written};
use tokio_postgres::NoTls;

use crate::cutting_proxy::{Cut, CuttingProxy};
use crate::members::{Shared, member, propose, registry};
use crate::store_suite::{Open, Subject, load, put, record};
use crate::{Location, RUNTIME};

/// The first number of a query.
fn number(url: &str, query: &str) -> i64 {
    RUNTIME.block_on(async {
        let (client, connection) = tokio_postgres::connect(url, NoTls).await.unwrap();
        tokio::spawn(connection);
        client.query_one(query, &[]).await.unwrap().get(0)
    })
}

fn wait_for(what: &str, is_done: impl Fn() -> bool) {
    let start = Instant::now();
    while !is_done() {
        assert!(start.elapsed() < Duration::from_secs(30), "{what}");
        std::thread::sleep(Duration::from_millis(5));
    }
}

/// A location that reaches the same database through a proxy.
fn through_a_proxy(location: &Location) -> (CuttingProxy, Location) {
    let (server, database) = location.url.rsplit_once('/').unwrap();
    let (scheme, host) = server.rsplit_once('@').unwrap();
    let proxy = CuttingProxy::start(host.to_owned());
    let url = format!("{scheme}@{}/{database}", proxy.address);
    let open = location.open;
    (proxy, Location { url, open })
}

/// The host of a member is cut off while it commits. The transaction stays open in PostgreSQL, and a view change ends it: at once if the
/// member leaves the view, and otherwise when its commit has taken too long.
pub fn a_member_that_is_cut_off_within_a_commit_does_not_hold_up_a_view(mut location: Location) {
    let (proxy, mut behind) = through_a_proxy(&location);
    let mut alone = location.open();
    let one = alone.opened.member();
    let mut registry = registry(&mut alone);
    let mut view = registry.view().unwrap().number;
    let mut version = 0;
    for (cut, stays) in [
        (Cut::BeforeSync, false),
        (Cut::BeforeCommit, false),
        (Cut::BeforeSync, true),
        (Cut::BeforeCommit, true),
    ] {
        let mut joining = behind.join(5);
        let two = member(5, &joining);
        view = propose(&mut *registry, view, &[one, two], &[])
            .unwrap()
            .number;
        version += 1;
        let (batch, count) = ([put("cut", record(version, "[1]"))], proxy.cut_count());
        proxy.cut(cut);
        let made = view;
        view = std::thread::scope(|scope| {
            let commit = scope.spawn(|| Store::commit(&mut *joining, made, two, &batch));
            wait_for("the connection is cut", || proxy.cut_count() > count);
            proxy.cut(Cut::Nowhere);
            let held = "SELECT count(*) FROM pg_locks JOIN pg_database ON oid = database
                WHERE datname = current_database() AND locktype = 'advisory' AND mode = 'ShareLock'";
            wait_for("the commit holds the fence", || {
                number(&location.url, held) == 1
            });
            let members = [one, two];
            let members = if stays { &members[..] } else { &members[..1] };
            let start = Instant::now();
            let next = propose(&mut *registry, made, members, &[]).unwrap();
            let waited = start.elapsed();
            assert!(next.number > made);
            assert!(waited < Duration::from_secs(3), "{cut:?}: {waited:?}");
            println!("cut {cut:?}, the member stays: {stays}; the view changed after {waited:?}");
            let error = commit.join().unwrap().unwrap_err();
            assert_eq!(error.trouble, StoreTrouble::Unavailable, "{error}");
            next.number
        });
        // The batch was not done.
        let before = record(version - 1, "[1]");
        let expected = if version == 1 {
            Loaded::Missing
        } else {
            Loaded::Found(before)
        };
        assert_eq!(load(&mut *alone, &["cut"]), [expected]);
        // A member that stays repeats it on a new connection.
        let repeated = Store::commit(&mut *joining, view, two, &batch);
        if stays {
            assert_eq!(repeated, Ok(vec![Written::Done]));
        } else {
            assert!(repeated.unwrap_err().trouble.is_eviction());
            Store::commit(&mut *alone, view, one, &batch).unwrap();
        }
        view = propose(&mut *registry, view, &[one], &[]).unwrap().number;
    }
}

/// Three members commit while the view changes every 20 ms, one of them under ever new births.
pub fn commits_and_views_leave_no_multixacts(mut location: Location) {
    let (is_long, seconds) = match std::env::var("TIDEWIRE_TEST_FENCE_SECONDS") {
        Ok(seconds) => (true, seconds.parse().expect("a number of seconds")),
        Err(_) => (false, 3),
    };
    let url = location.url.clone();
    let multixacts = || {
        crate::postgres::run(&url, "CHECKPOINT");
        let next = "SELECT next_multixact_id::TEXT::BIGINT FROM pg_control_checkpoint()";
        let age = "SELECT max(mxid_age(datminmxid))::BIGINT FROM pg_database WHERE datallowconn";
        [number(&url, next), number(&url, age)]
    };
    let before = multixacts();
    let mut first = location.open();
    let mut registry = registry(&mut first);
    let mut opens = vec![first, location.join(1), location.join(2)];
    let mut members: Vec<MemberId> = (0..)
        .zip(&opens)
        .map(|(node, open)| member(node, open))
        .collect();
    let mut view = registry.view().unwrap().number;
    view = propose(&mut *registry, view, &members, &[]).unwrap().number;
    let (end, commits) = (AtomicBool::new(false), AtomicUsize::new(0));
    let mut changes = Vec::new();
    let deadline = Instant::now() + Duration::from_secs(seconds);
    std::thread::scope(|scope| {
        let work = |mut open: Open, own: MemberId, view: View| {
            let (end, commits) = (&end, &commits);
            scope.spawn(move || commit_until(&mut open, own, view, end, commits));
        };
        let last = opens.pop().unwrap();
        for (open, own) in opens.into_iter().zip(&members) {
            work(open, *own, view);
        }
        work(last, members[2], view);
        while Instant::now() < deadline {
            std::thread::sleep(Duration::from_millis(20));
            if changes.len() % 10 == 9 {
                let next = location.join(2);
                members[2] = member(2, &next);
                view = timed_change(&mut *registry, view, &members, &mut changes);
                work(next, members[2], view);
            } else {
                view = timed_change(&mut *registry, view, &members, &mut changes);
            }
        }
        end.store(true, Ordering::SeqCst);
    });
    let after = multixacts();
    changes.sort_unstable();
    let (median, longest) = (changes[changes.len() / 2], changes[changes.len() - 1]);
    println!(
        "{} commits, {} changes of the view, median {median:?}, longest {longest:?}; MultiXacts {before:?}, then {after:?}",
        commits.load(Ordering::SeqCst),
        changes.len(),
    );
    assert!(commits.load(Ordering::SeqCst) > 10 * seconds as usize);
    assert_eq!(after, before, "next MultiXact and age");
    // The other tests of the suite use the same disk.
    let slowest = if is_long { longest } else { median };
    assert!(slowest < Duration::from_millis(200), "{slowest:?}");
}

fn timed_change(
    registry: &mut dyn Registry,
    view: View,
    members: &[MemberId],
    changes: &mut Vec<Duration>,
) -> View {
    let start = Instant::now();
    let next = propose(registry, view, members, &[]).unwrap().number;
    assert!(next > view);
    changes.push(start.elapsed());
    next
}

/// Commits as a member does: adopts each new view, until the member is evicted or the test ends.
fn commit_until(
    open: &mut Open,
    own: MemberId,
    mut view: View,
    end: &AtomicBool,
    commits: &AtomicUsize,
) {
    let mut version = 0;
    while !end.load(Ordering::SeqCst) {
        let writes: Vec<_> = (0..20)
            .map(|name| put(&format!("{}/{name}", own.birth), record(version, "[1]")))
            .collect();
        match Store::commit(&mut **open, view, own, &writes) {
            Ok(written) => {
                assert_eq!(written, [Written::Done; 20]);
                commits.fetch_add(1, Ordering::SeqCst);
                version += 1;
            }
            Err(error) => match error.trouble {
                StoreTrouble::StaleView {
                    current,
                    is_member: true,
                } => view = current,
                StoreTrouble::StaleView { .. } => return,
                // A slow disk: a change of the view has ended the connection.
                _ => println!("{error}"),
            },
        }
    }
}
