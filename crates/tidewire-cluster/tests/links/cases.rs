//! The cases that hold over every carrier.

use std::time::{Duration, Instant};

use tidewire_link::limits::{ANSWER_MAX, BROKEN_MAX, SILENCE_MAX};
use tidewire_link::link::Suspicion;

use crate::Ground;
use crate::side::{Side, config};

/// Suspicion on a busy machine may come this much later: other suites start databases and compilers at the same time.
const SLACK: Duration = Duration::from_secs(4);

/// The birth of the first life of a side.
pub fn first_birth(side: usize) -> u64 {
    side as u64 + 1
}

/// Starts a life of a side.
pub fn start(ground: &dyn Ground, side: usize, birth: u64) -> Side {
    let config = config(side, birth);
    let carrier = ground.carrier(config.local);
    Side::start(config, carrier)
}

pub async fn linked(ground: &dyn Ground) -> [Side; 2] {
    let mut sides = [0, 1].map(|side| start(ground, side, first_birth(side)));
    for side in &mut sides {
        side.until("linked", |side| side.linked.is_some()).await;
    }
    sides
}

/// Entries with different lengths and contents.
pub fn entries(range: std::ops::Range<u64>) -> Vec<Vec<u8>> {
    range
        .map(|id| id.to_le_bytes().repeat(1 + (id % 23) as usize))
        .collect()
}

pub async fn posts_arrive(sides: &mut [Side; 2], count: u64) {
    let posts = [entries(0..count), entries(1_000_000..1_000_000 + count)];
    let before = [0, 1].map(|side: usize| sides[side].arrived.len());
    for (side, posts) in sides.iter().zip(&posts) {
        for post in posts {
            side.post(post.clone());
        }
    }
    for to in 0..2 {
        let expected = posts[1 - to].concat();
        let length = before[to] + expected.len();
        sides[to]
            .until("all has arrived", |side| side.arrived.len() >= length)
            .await;
        assert!(sides[to].arrived[before[to]..] == expected);
    }
}

pub async fn entries_arrive_in_order(ground: &dyn Ground) {
    let mut sides = linked(ground).await;
    posts_arrive(&mut sides, 2_000).await;
    let [first, second] = &sides;
    assert_eq!([first.linked, second.linked], [Some(2), Some(1)]);
}

/// Shards post at the same time, while frames of the peer arrive. Some posts are too long for the threads of shards.
pub async fn posts_of_threads_keep_their_order(ground: &dyn Ground) {
    const THREADS: u8 = 4;
    const POSTS: u32 = 1_000;
    const LONG: usize = 20_000;
    let mut sides = linked(ground).await;
    let length = move |number: u32| match number % 100 {
        0 => LONG,
        _ => 1,
    };
    let post = move |thread: u8, number: u32| {
        let mut post = vec![thread];
        post.extend(number.to_le_bytes());
        post.extend(vec![thread; length(number)]);
        post
    };
    let poster = sides[0].poster();
    let threads: Vec<_> = (0..THREADS)
        .map(|thread| {
            let poster = poster.clone();
            std::thread::spawn(move || {
                (0..POSTS).for_each(|number| poster.post(post(thread, number)));
            })
        })
        .collect();
    let answers = entries(0..2_000);
    for answer in &answers {
        sides[1].post(answer.clone());
        tokio::task::yield_now().await;
    }
    let answers = answers.concat();
    let is_answered = |side: &Side| side.arrived.len() >= answers.len();
    sides[0].until("the answers", is_answered).await;
    assert!(sides[0].arrived == answers);
    let total: usize = (0..POSTS).map(|number| post(0, number).len()).sum();
    let all = total * usize::from(THREADS);
    sides[1]
        .until("all posts", |side| side.arrived.len() >= all)
        .await;
    let mut next = [0; THREADS as usize];
    let mut rest = &sides[1].arrived[..];
    while let Some(thread) = rest.first() {
        let number = &mut next[usize::from(*thread)];
        let expected = post(*thread, *number);
        assert!(rest.starts_with(&expected), "post {number} of {thread}");
        rest = &rest[expected.len()..];
        *number += 1;
    }
    assert_eq!(next, [POSTS; THREADS as usize]);
    for thread in threads {
        thread.join().expect("a thread");
    }
}

/// One turn that is longer than a frame may be, and longer than the window.
pub async fn a_large_turn_arrives(ground: &dyn Ground) {
    let mut sides = linked(ground).await;
    let large: Vec<u8> = (0..9_000_000u32).map(|index| (index >> 3) as u8).collect();
    sides[0].post(large.clone());
    sides[1]
        .until("the turn", |side| side.arrived.len() >= large.len())
        .await;
    assert!(sides[1].arrived == large);
}

/// The carrier breaks while both post.
pub async fn breaks_lose_nothing(ground: &dyn Ground) {
    let mut sides = linked(ground).await;
    let mut expected = [Vec::new(), Vec::new()];
    for round in 0..5 {
        for to in 0..2 {
            for post in entries(round * 1_000..round * 1_000 + 500) {
                expected[to].extend_from_slice(&post);
                sides[1 - to].post(post);
            }
        }
        let is_long = round == 4;
        ground.cut();
        if is_long {
            for side in &mut sides {
                side.until("the break", |side| side.suspicion.is_some())
                    .await;
            }
        }
        ground.repair();
        for to in 0..2 {
            let length = expected[to].len();
            sides[to]
                .until("all has arrived", |side| side.arrived.len() >= length)
                .await;
            assert!(sides[to].arrived == expected[to], "round {round}");
        }
    }
    for side in &mut sides {
        side.until("trusted", |side| side.suspicion.is_none()).await;
        assert!(side.lost.is_empty());
    }
}

/// A break that is not repaired makes the peer suspect after half a second.
pub async fn a_break_is_suspect(ground: &dyn Ground) {
    let mut sides = linked(ground).await;
    let start = Instant::now();
    ground.cut();
    for side in &mut sides {
        side.until("the break", |side| side.suspicion.is_some())
            .await;
        assert_eq!(side.suspicion, Some(Suspicion::Broken));
        assert!(
            start.elapsed() < BROKEN_MAX + SLACK,
            "{:?}",
            start.elapsed()
        );
    }
    ground.repair();
    posts_arrive(&mut sides, 10).await;
}

/// Nothing arrives at either side, without an error.
pub async fn silence_is_suspect(ground: &dyn Ground) {
    let mut sides = linked(ground).await;
    let start = Instant::now();
    ground.stall(0);
    ground.stall(1);
    sides[0].post(b"before".to_vec());
    for side in &mut sides {
        // A slow carrier can bring frames after the post. Its sender has then waited for the peer longer than the peer is silent, so the
        // peer is stuck first.
        side.until("the silence", |side| {
            matches!(side.suspicion, Some(Suspicion::Silent | Suspicion::Stuck))
        })
        .await;
        assert!(
            start.elapsed() < SILENCE_MAX + SLACK,
            "{:?}",
            start.elapsed()
        );
    }
    ground.repair();
    sides[1]
        .until("the entry", |side| side.arrived.len() >= 6)
        .await;
    assert_eq!(sides[1].arrived, b"before");
    for side in &mut sides {
        side.until("trusted", |side| side.suspicion.is_none()).await;
    }
}

/// Only one direction works. Both sides notice it, also the one that hears its peer.
pub async fn a_cut_of_one_way_is_suspect(ground: &dyn Ground) {
    let mut sides = linked(ground).await;
    let start = Instant::now();
    ground.stall(0);
    for side in [1, 0] {
        sides[side]
            .until("the cut", |side| side.suspicion.is_some())
            .await;
        assert!(
            start.elapsed() < ANSWER_MAX + SLACK,
            "{:?}",
            start.elapsed()
        );
    }
    ground.repair();
    posts_arrive(&mut sides, 100).await;
}

/// The connections are dead, and no error shows it. They are replaced.
pub async fn dead_connections_are_replaced(ground: &dyn Ground) {
    let mut sides = linked(ground).await;
    ground.abandon();
    posts_arrive(&mut sides, 100).await;
    for side in &mut sides {
        side.until("trusted", |side| side.suspicion.is_none()).await;
        assert!(side.lost.is_empty());
    }
}

/// A process with a later birth: the link to the earlier one ends, and a new one begins.
pub async fn a_new_birth_is_a_new_link(ground: &dyn Ground) {
    let [mut first, second] = linked(ground).await;
    for post in entries(0..100) {
        first.post(post);
    }
    drop(second);
    let mut second = start(ground, 1, 7);
    first
        .until("the new birth", |side| side.linked == Some(7))
        .await;
    assert_eq!(first.lost, [2]);
    second.until("linked", |side| side.linked == Some(1)).await;
    posts_arrive(&mut [first, second], 100).await;
}

/// The view of one side loses the other one: both have no link any longer, and the two births never have one again.
pub async fn a_member_that_left_is_lost(ground: &dyn Ground) {
    let [mut first, mut second] = linked(ground).await;
    first.peer_left(2);
    first.until("the end", |side| side.lost == [2]).await;
    second.until("the end", |side| side.lost == [1]).await;
    drop(second);
    let mut second = start(ground, 1, 3);
    second.until("linked", |side| side.linked == Some(1)).await;
    first.until("linked", |side| side.linked == Some(3)).await;
}

/// The shards of a peer are stuck. The link holds back posts, then suspects the peer, and delivers all when it continues.
pub async fn a_stuck_peer_is_suspect(ground: &dyn Ground) {
    let mut sides = linked(ground).await;
    sides[1].is_handling = false;
    let post: Vec<u8> = (0..1 << 20).map(|index: u32| (index / 7) as u8).collect();
    let mut posted = 0;
    while posted < 20 {
        sides[0].post(post.clone());
        posted += 1;
    }
    sides[0].until("congested", |side| side.is_congested).await;
    sides[0]
        .until("stuck", |side| side.suspicion == Some(Suspicion::Stuck))
        .await;
    let length = posted * post.len();
    // Frames beyond the window were not sent.
    assert!(sides[1].arrived.len() < length);
    sides[1]
        .until("the window is full", |side| side.arrived.len() > 3 << 20)
        .await;
    sides[1].handle();
    sides[1]
        .until("all has arrived", |side| side.arrived.len() >= length)
        .await;
    assert!(sides[1].arrived == post.repeat(posted));
    sides[0]
        .until("relieved", |side| {
            side.suspicion.is_none() && !side.is_congested
        })
        .await;
}

/// More than `link_bytes_max` for a stuck peer: the link ends at both sides, and the two births never have one again.
pub async fn a_full_link_ends(ground: &dyn Ground) {
    let [mut first, mut second] = linked(ground).await;
    second.is_handling = false;
    let post = vec![1; 1 << 20];
    for _ in 0..first.link_bytes_max() / post.len() + 8 {
        first.post(post.clone());
    }
    first.until("the end", |side| side.lost == [2]).await;
    second.until("the end", |side| side.lost == [1]).await;
}

/// Calls a macro with the names of all cases, behind the given tokens.
macro_rules! with_cases {
    ($callback:ident, $($argument:tt)*) => {
        $callback! { $($argument)*, entries_arrive_in_order posts_of_threads_keep_their_order a_large_turn_arrives breaks_lose_nothing a_break_is_suspect
            silence_is_suspect a_cut_of_one_way_is_suspect dead_connections_are_replaced a_new_birth_is_a_new_link a_member_that_left_is_lost a_stuck_peer_is_suspect a_full_link_ends }
    };
}
pub(crate) use with_cases;
