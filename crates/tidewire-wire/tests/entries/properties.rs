//! Properties of the wire form: each variant comes back, any split gives the same entries, unknown fields are skipped, an announced length
//! allocates nothing.

use proptest::prelude::*;
use proptest::sample::Index;
use tidewire_core::entry::{Entry, Listening};
use tidewire_core::rights::RightsChange;
use tidewire_wire::entry::{DecodeError, DecodeLimits, Decoder, Post};
use tidewire_wire::protobuf::Sink;

use crate::check::{LIMITS, batch, decode};
use crate::samples;

fn posts() -> Vec<Post> {
    let samples = samples::all().into_iter();
    let posts = (0..).zip(samples);
    posts
        .map(|(shard, (_, entry))| Post {
            shard,
            entry,
            from: shard / 2,
        })
        .collect()
}

#[test]
fn every_variant_comes_back() {
    let posts = posts();
    let mut missing: Vec<usize> = (1..=23).collect();
    for post in &posts {
        missing.retain(|number| *number != samples::number(&post.entry));
        let (back, error) = decode([&batch(std::slice::from_ref(post))[..]], LIMITS);
        assert_eq!(error, None, "{post:?}");
        assert_eq!(format!("{back:?}"), format!("[{post:?}]"));
    }
    assert!(missing.is_empty(), "variants without a sample: {missing:?}");
}

#[test]
fn bytes_are_as_many_as_announced_and_none_is_left() {
    for post in posts() {
        let bytes = batch(std::slice::from_ref(&post));
        let (back, error) = decode([&bytes[..bytes.len() - 1]], LIMITS);
        assert!(back.is_empty() && error.is_none(), "{post:?}");
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(200))]

    #[test]
    fn any_split_gives_the_same_entries(chosen in prop::collection::vec(any::<Index>(), 1..12), cuts in prop::collection::vec(any::<Index>(), 0..20), broken in prop::option::of((any::<Index>(), any::<u8>()))) {
        let samples = posts();
        let chosen: Vec<Post> = chosen.iter().map(|index| index.get(&samples).clone()).collect();
        let (first, second) = chosen.split_at(chosen.len() / 2);
        let mut bytes = [batch(first), batch(second)].concat();
        // A wrong byte leads to the same error or to the same other posts.
        if let Some((at, byte)) = broken {
            let at = at.index(bytes.len());
            bytes[at] = byte;
        }
        let mut places: Vec<usize> = cuts.iter().map(|index| index.index(bytes.len())).collect();
        places.extend([0, bytes.len()]);
        places.sort_unstable();
        let pieces = places.windows(2).map(|ends| &bytes[ends[0]..ends[1]]);
        let (whole, error) = decode([&bytes[..]], LIMITS);
        let (split, split_error) = decode(pieces, LIMITS);
        prop_assert_eq!(error, split_error);
        prop_assert_eq!(format!("{whole:?}"), format!("{split:?}"));
        prop_assert!(broken.is_some() || whole.len() == chosen.len());
    }
}

#[test]
fn an_announced_length_allocates_nothing() {
    let mut bytes = batch(&[]);
    bytes.length_field(2, 1 << 15);
    let mut decoder = Decoder::new(LIMITS);
    let allocated = allocation_counter::measure(|| {
        decoder.push(&bytes);
        assert!(decoder.decode(&|_| None).is_ok_and(|post| post.is_none()));
    });
    assert!(allocated.bytes_total < 100, "{allocated:?}");
    // A length inside of a post, of a name.
    let inner = [0x12, 5, 0x0A, 3, 0x0A, 0xFF, 0x7F];
    let bytes = [&batch(&[])[..], &[0x12, 7], &inner].concat();
    let allocated = allocation_counter::measure(|| {
        assert!(decode([&bytes[..]], LIMITS).1.is_some());
    });
    assert!(allocated.bytes_total < 1_000, "{allocated:?}");
}

#[test]
fn posts_above_the_limit_are_refused_when_they_are_announced() {
    let mut bytes = batch(&[]);
    bytes.length_field(2, LIMITS.post_bytes_max + 1);
    let max = LIMITS.post_bytes_max;
    let bytes_announced = max as u64 + 1;
    let (_, error) = decode([&bytes[..]], LIMITS);
    assert_eq!(
        error,
        Some(DecodeError::TooLong {
            bytes: bytes_announced,
            max
        })
    );
}

#[test]
fn other_versions_are_refused() {
    assert_eq!(
        decode([&[0x08, 2][..]], LIMITS).1,
        Some(DecodeError::Version(2))
    );
    assert_eq!(
        decode([&[0x12, 0][..]], LIMITS).1,
        Some(DecodeError::Version(0))
    );
}

#[test]
fn unknown_kinds_and_missing_fields_are_errors() {
    let in_batch = |post: &[u8]| [&batch(&[])[..], &[0x12, post.len() as u8], post].concat();
    let cases: [(&[u8], DecodeError); 4] = [
        (&[], DecodeError::Missing),
        (&[0x12, 0], DecodeError::UnknownVariant),
        // Field 90 of `Entry`.
        (&[0x12, 3, 0xD2, 0x05, 0], DecodeError::UnknownVariant),
        // A session that has ended, without its id.
        (&[0x12, 3, 0xBA, 0x01, 0], DecodeError::Missing),
    ];
    for (post, expected) in cases {
        let bytes = in_batch(post);
        assert_eq!(decode([&bytes[..]], LIMITS).1, Some(expected), "{post:?}");
    }
}

#[test]
fn a_marker_waits_until_the_rules_are_loaded() {
    let posts = posts();
    let is_rules = |post: &&Post| matches!(&post.entry, Entry::Rights(marker) if matches!(marker.change, RightsChange::Rules(_)));
    let marker = posts.iter().find(is_rules).expect("there is a sample");
    let mut decoder = Decoder::new(LIMITS);
    decoder.push(&batch(std::slice::from_ref(marker)));
    for _ in 0..2 {
        assert_eq!(
            decoder.decode(&|_| None).err(),
            Some(DecodeError::UnknownRules(6))
        );
    }
    let rules = |_| Some(std::sync::Arc::new(tidewire_core::permission::AllowAll) as _);
    assert!(decoder.decode(&rules).is_ok_and(|post| post.is_some()));
    assert!(decoder.decode(&rules).is_ok_and(|post| post.is_none()));
}

#[test]
fn the_shards_of_a_node_share_a_compiled_pattern() {
    let posts = posts();
    let is_add = |post: &&Post| matches!(post.entry, Entry::Listening(Listening::Add { .. }));
    let add = posts.iter().find(is_add).expect("there is a sample");
    let decoded = |count: usize| {
        let bytes = batch(&vec![add.clone(); count]);
        let mut kept = None;
        let allocated = allocation_counter::measure(|| kept = Some(decode([&bytes[..]], LIMITS)));
        assert_eq!(kept.map(|(posts, _)| posts.len()), Some(count));
        allocated.bytes_total
    };
    let (one, eight) = (decoded(1), decoded(8));
    assert!(
        eight < one + one / 2,
        "one takes {one} bytes, eight take {eight}"
    );
}

#[test]
fn patterns_that_are_too_long_or_do_not_compile_are_errors() {
    let posts = posts();
    let is_add = |post: &&Post| matches!(post.entry, Entry::Listening(Listening::Add { .. }));
    let bytes = batch(std::slice::from_ref(
        posts.iter().find(is_add).expect("there is a sample"),
    ));
    let limits = DecodeLimits {
        pattern_bytes_max: 7,
        ..LIMITS
    };
    assert_eq!(decode([&bytes[..]], limits).1, Some(DecodeError::Pattern));
    let at = bytes
        .windows(8)
        .position(|bytes| bytes == b"price/.*")
        .expect("the pattern is there");
    let mut broken = bytes.clone();
    broken[at] = b'(';
    assert_eq!(decode([&broken[..]], LIMITS).1, Some(DecodeError::Pattern));
}
