//! The hub equals a naive model: every session keeps its own list of what it is owed, byte by byte.

use std::collections::{BTreeMap, BTreeSet};
use std::ops::Range;
use std::time::Duration;

use proptest::prelude::*;

use super::flush::FEW_MEMBERS_MAX;
use super::{Edge, Hub, HubTopic};
use crate::address::{Address, SessionId};
use crate::effect::{Format, Span};
use crate::publication::InterestTopic;
use crate::session::Sessions;
use crate::text::Name;
use crate::time::Instant;

const SESSIONS: u32 = 6;
const NAMES: usize = 4;
const FORMATS: u8 = 3;
const TOPIC: HubTopic = HubTopic::Interest(InterestTopic::Event);

/// What can happen to a hub within and between turns.
#[derive(Clone, Debug)]
enum Step {
    Open {
        index: u32,
        format: u8,
    },
    Close {
        index: u32,
    },
    Reformat {
        index: u32,
        format: u8,
    },
    Join {
        index: u32,
        name: usize,
    },
    Leave {
        index: u32,
        name: usize,
    },
    Dissolve {
        name: usize,
    },
    Publish {
        name: usize,
        except: Option<u32>,
        bytes: u64,
    },
    /// The same range for several names.
    PublishToAll {
        names: Range<usize>,
        except: Option<u32>,
        bytes: u64,
    },
    Answer {
        index: u32,
        bytes: u64,
    },
    Flush,
    FlushSome {
        count: usize,
    },
}

fn step() -> impl Strategy<Value = Step> {
    let (index, name, bytes) = (0..SESSIONS, 0..NAMES, 1..4_u64);
    prop_oneof![
        2 => (index.clone(), 0..FORMATS).prop_map(|(index, format)| Step::Open { index, format }),
        1 => index.clone().prop_map(|index| Step::Close { index }),
        2 => (index.clone(), 0..FORMATS).prop_map(|(index, format)| Step::Reformat { index, format }),
        6 => (index.clone(), name.clone()).prop_map(|(index, name)| Step::Join { index, name }),
        2 => (index.clone(), name.clone()).prop_map(|(index, name)| Step::Leave { index, name }),
        1 => name.clone().prop_map(|name| Step::Dissolve { name }),
        8 => (name.clone(), prop::option::of(index.clone()), bytes.clone())
            .prop_map(|(name, except, bytes)| Step::Publish { name, except, bytes }),
        4 => (name, 2..=NAMES, prop::option::of(index.clone()), bytes.clone())
            .prop_map(|(first, count, except, bytes)| {
                let names = first..NAMES.min(first + count);
                Step::PublishToAll { names, except, bytes }
            }),
        4 => (index, bytes).prop_map(|(index, bytes)| Step::Answer { index, bytes }),
        2 => Just(Step::Flush),
        3 => (0..4_usize).prop_map(|count| Step::FlushSome { count }),
    ]
}

/// A session as the model sees it.
#[derive(Debug)]
struct ModelSession {
    id: SessionId,
    format: Format,
    /// Offsets of single bytes in the format's log, in the order in which they were decided.
    owed: Vec<u64>,
}

/// Hub and model side by side.
struct Both {
    hub: Hub,
    sessions: Sessions,
    ends: [u64; FORMATS as usize],
    generation: u32,
    peers: BTreeMap<u32, ModelSession>,
    members: BTreeMap<usize, BTreeSet<u32>>,
}

impl Both {
    fn new() -> Self {
        Self {
            hub: Hub::new(1),
            sessions: Sessions::new(Duration::from_secs(30), Duration::from_secs(30)),
            ends: [0; FORMATS as usize],
            generation: 0,
            peers: BTreeMap::new(),
            members: BTreeMap::new(),
        }
    }

    fn take(&mut self, step: &Step) {
        match *step {
            Step::Open { index, format } => self.open(index, Format(format)),
            Step::Close { index } => self.close(index),
            Step::Reformat { index, format } => self.reformat(index, Format(format)),
            Step::Join { index, name } => self.join(index, name),
            Step::Leave { index, name } => self.leave(index, name),
            Step::Dissolve { name } => self.dissolve(name),
            Step::Publish {
                name,
                except,
                bytes,
            } => self.publish(name, except, bytes),
            Step::PublishToAll {
                ref names,
                except,
                bytes,
            } => self.publish_to_all(names.clone(), except, bytes),
            Step::Answer { index, bytes } => self.answer(index, bytes),
            Step::Flush => self.flush(),
            Step::FlushSome { count } => self.flush_some(count),
        }
    }

    fn open(&mut self, index: u32, format: Format) {
        if self.peers.contains_key(&index) {
            return;
        }
        self.generation += 1;
        let id = SessionId {
            address: Address { node: 0, shard: 0 },
            index,
            generation: self.generation,
        };
        self.sessions.open(id, format, None, Instant(0));
        let owed = Vec::new();
        self.peers.insert(index, ModelSession { id, format, owed });
    }

    fn close(&mut self, index: u32) {
        let Some(peer) = self.peers.remove(&index) else {
            return;
        };
        let session = self.sessions.find(peer.id).expect("it is open");
        let channels = session.memberships.channels();
        let index = peer.id.index;
        self.sessions.end(peer.id);
        let emptied = self
            .hub
            .leave_channels(index, channels.into_iter(), &mut self.sessions);
        self.hub.forget(index);
        self.sessions.vacate(index);
        let mut expected = Vec::new();
        for (name, members) in &mut self.members {
            if members.remove(&index) && members.is_empty() {
                expected.push(text(*name));
            }
        }
        let mut emptied: Vec<_> = emptied
            .into_iter()
            .map(|(_, name)| name.to_string())
            .collect();
        emptied.sort_unstable();
        assert_eq!(emptied, expected, "names that became empty");
    }

    /// As an engine does it for a session that has introduced itself. Before that it can't have joined anything.
    fn reformat(&mut self, index: u32, format: Format) {
        let is_member = self
            .members
            .values()
            .any(|members| members.contains(&index));
        let Some(peer) = self.peers.get_mut(&index).filter(|_| !is_member) else {
            return;
        };
        let taken = self.hub.take_answers(index, peer.format);
        let taken: Vec<u64> = taken.iter().flat_map(|span| span.start..span.end).collect();
        assert_eq!(
            taken,
            std::mem::take(&mut peer.owed),
            "what {index} was owed"
        );
        peer.format = format;
        self.sessions.at_mut(index).expect("it is open").format = format;
    }

    fn join(&mut self, index: u32, name: usize) {
        let Some(peer) = self.peers.get(&index) else {
            return;
        };
        let key = Name::from(text(name).as_str());
        let edge = self.hub.join(TOPIC, &key, peer.id, &mut self.sessions);
        let members = self.members.entry(name).or_default();
        let was_empty = members.is_empty();
        let expected = match (members.insert(index), was_empty) {
            (false, _) => Edge::Unchanged,
            (true, true) => Edge::Crossed,
            (true, false) => Edge::Inside,
        };
        assert_eq!(edge, expected, "{index} joins {name}");
    }

    fn leave(&mut self, index: u32, name: usize) {
        let Some(peer) = self.peers.get(&index) else {
            return;
        };
        let edge = self
            .hub
            .leave(TOPIC, &text(name), peer.id, &mut self.sessions);
        let members = self.members.entry(name).or_default();
        let expected = match (members.remove(&index), members.is_empty()) {
            (false, _) => Edge::Unchanged,
            (true, true) => Edge::Crossed,
            (true, false) => Edge::Inside,
        };
        assert_eq!(edge, expected, "{index} leaves {name}");
    }

    fn dissolve(&mut self, name: usize) {
        let mut dissolved: Vec<u32> = self
            .hub
            .dissolve(TOPIC, &text(name), &mut self.sessions)
            .into_iter()
            .map(|id| id.index)
            .collect();
        dissolved.sort_unstable();
        let members = self.members.remove(&name).unwrap_or_default();
        assert_eq!(dissolved, Vec::from_iter(members), "members of {name}");
    }

    fn publish(&mut self, name: usize, except: Option<u32>, bytes: u64) {
        self.publish_to_all(name..name + 1, except, bytes);
    }

    /// Like `TurnContext::fan_out`, for several names: one range for each format that members want, without the sender's own.
    fn publish_to_all(&mut self, names: Range<usize>, except: Option<u32>, bytes: u64) {
        let sender = except.and_then(|index| self.peers.get(&index));
        let sender = sender.map(|peer| (peer.id.index, peer.format));
        let mut channels = Vec::new();
        for name in names.clone() {
            let Some(channel) = self.hub.find(TOPIC, &text(name)) else {
                continue;
            };
            let members = self.members.get(&name).into_iter().flatten();
            let used: BTreeSet<u8> = members.map(|index| self.peers[index].format.0).collect();
            let formats = self.hub.formats(channel).map(|format| format.0);
            assert_eq!(BTreeSet::from_iter(formats), used, "formats of {name}");
            channels.push(channel);
        }
        for format in (0..FORMATS).map(Format) {
            let mut wanted = channels.clone();
            wanted.retain(|channel| self.hub.formats(*channel).any(|wanted| wanted == format));
            if wanted.is_empty() {
                continue;
            }
            let span = self.append(format, bytes);
            let own = sender.filter(|(_, own)| *own == format);
            let own = own.map(|(index, _)| index);
            for channel in wanted {
                self.hub.publish(channel, format, span, own);
            }
            let members: BTreeSet<u32> = names
                .clone()
                .flat_map(|name| self.members.get(&name).into_iter().flatten().copied())
                .collect();
            for member in members {
                if let Some(peer) = self.peers.get_mut(&member)
                    && peer.format == format
                    && sender.is_none_or(|(index, _)| index != member)
                {
                    peer.owed.extend(span.start..span.end);
                }
            }
        }
    }

    fn answer(&mut self, index: u32, bytes: u64) {
        let Some(format) = self.peers.get(&index).map(|peer| peer.format) else {
            return;
        };
        let span = self.append(format, bytes);
        self.hub.answer(index, format, span);
        if let Some(peer) = self.peers.get_mut(&index) {
            peer.owed.extend(span.start..span.end);
        }
    }

    fn flush(&mut self) {
        self.flush_some(usize::MAX);
        for (index, peer) in &self.peers {
            assert!(peer.owed.is_empty(), "{index} got it all");
        }
        let named = self.members.values().filter(|members| !members.is_empty());
        assert_eq!(self.hub.name_count(), named.count(), "names with members");
    }

    /// A session that receives a range receives all of its outstanding ranges.
    fn flush_some(&mut self, count: usize) {
        let mut sent: BTreeMap<u32, Vec<u64>> = BTreeMap::new();
        let peers = &self.peers;
        self.hub.collect(&self.sessions);
        self.hub
            .flush_some(count, &self.sessions, |id, format, spans| {
                assert!(spans.iter().all(|span| !span.is_empty()), "{spans:?}");
                let apart = spans.windows(2).all(|pair| pair[0].end < pair[1].start);
                assert!(apart, "not in order and joined: {spans:?}");
                let peer = peers.get(&id.index);
                let known = peer.is_some_and(|peer| peer.id == id && peer.format == format);
                assert!(known, "{id:?} is not there in {format:?}");
                let bytes = spans.iter().flat_map(|span| span.start..span.end).collect();
                assert!(
                    sent.insert(id.index, bytes).is_none(),
                    "{id:?} is sent twice"
                );
            });
        assert!(sent.len() <= count, "not more than asked for");
        for (index, bytes) in sent {
            let peer = self.peers.get_mut(&index).expect("it is known, as above");
            assert_eq!(bytes, std::mem::take(&mut peer.owed), "what {index} gets");
        }
    }

    /// Flushes some sessions and returns the sessions that received a range, in that order.
    fn sent_some(&mut self, count: usize) -> Vec<u32> {
        let mut sent = Vec::new();
        self.hub.collect(&self.sessions);
        let send = |id: SessionId, _, _: &[Span]| sent.push(id.index);
        self.hub.flush_some(count, &self.sessions, send);
        sent
    }

    fn append(&mut self, format: Format, bytes: u64) -> Span {
        let end = &mut self.ends[usize::from(format.0)];
        let start = *end;
        *end += bytes;
        Span { start, end: *end }
    }
}

fn text(name: usize) -> String {
    format!("name {name}")
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 2_000, ..ProptestConfig::default() })]

    #[test]
    fn each_session_gets_what_the_model_expects(steps in prop::collection::vec(step(), 1..80)) {
        let mut both = Both::new();
        for step in &steps {
            both.take(step);
        }
        both.flush();
        for index in 0..SESSIONS {
            both.close(index);
        }
        both.flush();
        prop_assert_eq!(both.hub.name_count(), 0);
    }
}

#[test]
fn a_format_without_members_is_not_encoded_again() {
    let mut both = Both::new();
    for (index, format) in [(0, 0), (1, 0), (2, 2)] {
        both.open(index, Format(format));
        both.join(index, 0);
    }
    let formats = |both: &Both| -> Vec<u8> {
        let channel = both.hub.find(TOPIC, &text(0)).expect("it has members");
        both.hub.formats(channel).map(|format| format.0).collect()
    };
    assert_eq!(formats(&both), [0, 2]);
    // A session that lags gets no publications, so its format counts again only when it resumes.
    let id = both.peers[&2].id;
    both.hub.suspend(id, &mut both.sessions, |_| true);
    assert_eq!(formats(&both), [0]);
    let channel = both.hub.find(TOPIC, &text(0)).expect("it has members");
    both.hub.resume(channel, id, &mut both.sessions);
    assert_eq!(formats(&both), [0, 2]);
    both.leave(0, 0);
    assert_eq!(formats(&both), [0, 2], "another session has the format");
    both.leave(1, 0);
    assert_eq!(formats(&both), [2]);
    both.leave(2, 0);
    both.flush();
    assert_eq!(both.hub.bytes(), 0);
}

#[test]
fn the_sender_is_cut_out_of_a_joined_range() {
    let mut both = Both::new();
    for index in 0..2 {
        both.open(index, Format(0));
        both.join(index, 0);
    }
    both.publish(0, Some(1), 3);
    both.publish(0, Some(0), 2);
    both.publish(0, None, 1);
    let mut sent = Vec::new();
    both.hub.collect(&both.sessions);
    let all = usize::MAX;
    both.hub.flush_some(all, &both.sessions, |id, _, spans| {
        sent.push((id.index, spans.to_vec()));
    });
    sent.sort_by_key(|(index, _)| *index);
    let span = |start, end| Span { start, end };
    assert_eq!(
        sent,
        [(0, vec![span(0, 3), span(5, 6)]), (1, vec![span(3, 6)]),]
    );
}

#[test]
fn a_publication_reaches_a_session_once_through_several_names() {
    let mut both = Both::new();
    both.open(0, Format(0));
    both.join(0, 0);
    both.join(0, 1);
    both.publish(0, None, 2);
    both.publish_to_all(0..2, None, 3);
    both.publish(1, None, 1);
    both.flush();
    both.publish_to_all(0..2, Some(0), 3);
    both.leave(0, 0);
    both.publish_to_all(0..2, None, 1);
    both.flush();
}

#[test]
fn names_with_few_members_are_sent_before_a_large_fan_out() {
    let mut both = Both::new();
    for index in 0..4 {
        both.open(index, Format(0));
    }
    (0..3).for_each(|index| both.join(index, 0));
    both.join(3, 1);
    both.publish(0, None, 1);
    both.publish(1, None, 1);
    assert_eq!(both.hub.owed_count(), 4);
    assert_eq!(both.sent_some(usize::MAX)[0], 3);
    assert_eq!(both.hub.owed_count(), 0);
}

#[test]
fn a_small_name_overtakes_a_large_fan_out_in_progress() {
    let mut both = Both::new();
    let member_count = FEW_MEMBERS_MAX as u32 + 72;
    for index in 0..=member_count {
        both.open(index, Format(0));
    }
    (0..member_count).for_each(|index| both.join(index, 0));
    both.join(member_count, 1);
    both.publish(0, None, 1);
    assert_eq!(both.sent_some(50), Vec::from_iter(0..50));
    // A waiting session gets both at once; a session that has the first one gets the second one at the end.
    both.publish(0, None, 1);
    both.publish(1, None, 1);
    assert_eq!(both.hub.owed_count(), 150 + 200 + 1);
    let sent = both.sent_some(usize::MAX);
    assert_eq!(sent[0], member_count);
    assert_eq!(sent[1..151], Vec::from_iter(50..200));
    assert_eq!(sent[151..], Vec::from_iter(0..50));
}

#[test]
fn a_large_fan_out_progresses_while_small_names_are_sent() {
    let mut both = Both::new();
    let member_count = FEW_MEMBERS_MAX as u32 + 72;
    for index in 0..member_count + 100 {
        both.open(index, Format(0));
        both.join(index, usize::from(index >= member_count));
    }
    both.publish(0, None, 1);
    both.sent_some(50);
    both.publish(1, None, 1);
    let sent = both.sent_some(100);
    assert_eq!(sent[..50], Vec::from_iter(member_count..member_count + 50));
    assert_eq!(sent[50..], Vec::from_iter(50..100));
}

#[test]
fn a_burst_of_names_leaves_no_memory_in_the_table() {
    let mut both = Both::new();
    both.open(0, Format(0));
    both.open(1, Format(0));
    let ids: Vec<SessionId> = [0, 1]
        .map(|index| both.sessions.at(index).unwrap().id)
        .into();
    let name = |number: usize| Name::from(&*format!("n{number}"));
    let join = |both: &mut Both, number: usize| {
        let id = ids[usize::from(number >= 100)];
        both.hub.join(TOPIC, &name(number), id, &mut both.sessions);
    };
    (0..100_000).for_each(|number| join(&mut both, number));
    assert_eq!(both.hub.table_len(), 100_000);
    // In an order in which the last entries of the table are not the last to leave.
    for number in (0..100_000).map(|number| (number * 7_919) % 100_000) {
        if number >= 100 {
            both.hub
                .leave(TOPIC, &name(number), ids[1], &mut both.sessions);
        }
    }
    assert_eq!(both.hub.table_len(), 100);
    assert!(
        both.hub.channels.capacity() < 10_000,
        "{}",
        both.hub.channels.capacity()
    );
    (100..300).for_each(|number| join(&mut both, number));
    assert_eq!((both.hub.name_count(), both.hub.table_len()), (300, 300));
    assert!(both.hub.find(TOPIC, "n299").is_some());
}
