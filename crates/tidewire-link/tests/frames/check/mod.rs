//! Checks that must hold for any bytes, shared by the tests and the fuzz target. An input is a list of operations on one link; most of them are
//! frames.

#[path = "../../../../tidewire-wire/tests/shared/panics.rs"]
mod panics;

use std::time::Duration;

use prost::Message;
use tidewire_core::time::Instant;
use tidewire_link::frame::{DecodeError, Frame, HEAD_BYTES_MAX, Hello, Levels, Process};
use tidewire_link::limits::Limits;
use tidewire_link::link::{Config, Link, Output};

/// The node of the link under test.
pub const LOCAL: Process = Process { node: 2, birth: 9 };
/// The node of its peer.
pub const PEER: u16 = 5;
pub const CLUSTER: u64 = 0x1234_5678_9abc_def0;
pub const LIMITS: Limits = Limits {
    link_bytes_max: 4_000,
    congestion_bytes: 2_000,
    window_bytes: 1_500,
    frame_bytes_max: 300,
    start_bytes: 200,
};

/// One frame may cause this many: the window again, because it is missing or the carrier was new.
const SENT_PER_FRAME_MAX: usize = 64;

/// An operation of an input: one byte that selects it, and its data.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Operation {
    /// A frame arrives: its length in two bytes, and its bytes.
    Frame(Vec<u8>),
    /// Time passes: milliseconds in two bytes.
    Time(u16),
    /// A turn with as many bytes as the byte says, times ten.
    Post(u8),
    Up,
    Down,
    /// All deliveries are handled.
    Handled,
    /// The view loses the peer.
    Left,
}

impl Operation {
    pub fn encode(&self, out: &mut Vec<u8>) {
        match self {
            Self::Frame(bytes) => {
                out.push(0);
                out.extend((bytes.len() as u16).to_le_bytes());
                out.extend(bytes);
            }
            Self::Time(millis) => {
                out.push(1);
                out.extend(millis.to_le_bytes());
            }
            Self::Post(tens) => out.extend([2, *tens]),
            Self::Up => out.push(3),
            Self::Down => out.push(4),
            Self::Handled => out.push(5),
            Self::Left => out.push(6),
        }
    }

    fn next(input: &mut &[u8]) -> Option<Self> {
        let (&kind, rest) = input.split_first()?;
        *input = rest;
        let mut take = |count: usize| {
            let (taken, rest) = input.split_at(count.min(input.len()));
            *input = rest;
            taken
        };
        let two = |bytes: &[u8]| u16::from_le_bytes([bytes[0], bytes[1]]);
        Some(match kind % 7 {
            0 => {
                let length = take(2);
                if length.len() < 2 {
                    return None;
                }
                Self::Frame(take(two(length).into()).to_vec())
            }
            1 => match take(2) {
                millis @ [_, _] => Self::Time(two(millis)),
                _ => return None,
            },
            2 => Self::Post(*take(1).first()?),
            3 => Self::Up,
            4 => Self::Down,
            5 => Self::Handled,
            _ => Self::Left,
        })
    }
}

/// The messages of `spec/links.proto` for another decoder.
#[derive(Clone, PartialEq, Message)]
struct ReferenceFrame {
    #[prost(uint64, tag = 1)]
    version: u64,
    #[prost(uint64, tag = 2)]
    from_node: u64,
    #[prost(uint64, tag = 3)]
    from_birth: u64,
    #[prost(uint64, tag = 4)]
    to_node: u64,
    #[prost(uint64, tag = 5)]
    to_birth: u64,
    // As bytes: prost would merge repeated messages.
    #[prost(bytes = "vec", optional, tag = 6)]
    hello: Option<Vec<u8>>,
    #[prost(uint64, tag = 7)]
    received: u64,
    #[prost(uint64, tag = 8)]
    handled: u64,
    #[prost(uint64, tag = 9)]
    sent: u64,
    #[prost(uint64, tag = 10)]
    missing_to: u64,
    #[prost(uint64, tag = 11)]
    ping: u64,
    #[prost(uint64, tag = 12)]
    pong: u64,
    #[prost(uint64, tag = 13)]
    end: u64,
    #[prost(uint64, tag = 14)]
    number: u64,
    #[prost(bytes = "vec", tag = 15)]
    entries: Vec<u8>,
}

#[derive(Clone, PartialEq, Message)]
struct ReferenceHello {
    #[prost(uint64, tag = 1)]
    cluster: u64,
    #[prost(uint64, tag = 2)]
    level_min: u64,
    #[prost(uint64, tag = 3)]
    level_max: u64,
    #[prost(uint64, tag = 4)]
    answer: u64,
}

/// The failed check of an input, if one fails.
pub fn finding(input: &[u8]) -> Option<String> {
    panics::failure(|| check(input))
}

/// Compares a decoded frame with its bytes and with another decoder.
pub fn check_frame(bytes: &[u8]) -> Result<(), String> {
    let mut decoded = Err(DecodeError::Birth);
    let allocated = allocation_counter::measure(|| decoded = Frame::decode(bytes));
    if allocated.count_total != 0 {
        return Err(format!(
            "decoding allocates {} times",
            allocated.count_total
        ));
    }
    let Ok(frame) = decoded else {
        return Ok(());
    };
    let mut again = Vec::new();
    frame.encode(&mut again);
    if again.len() > HEAD_BYTES_MAX + frame.entries.len() {
        return Err(format!("a frame of {} bytes", again.len()));
    }
    if Frame::decode(&again) != Ok(frame) {
        return Err(format!(
            "{frame:?} came back as {:?}",
            Frame::decode(&again)
        ));
    }
    let reference = ReferenceFrame::decode(bytes).map_err(|error| error.to_string())?;
    let hello = reference.hello.as_deref().map(ReferenceHello::decode);
    let hello = hello.transpose().map_err(|error| error.to_string())?;
    let expected = (
        (reference.version, reference.from_node, reference.to_node),
        (reference.from_birth, reference.to_birth),
        hello.map(|hello| {
            (
                hello.cluster,
                hello.level_min,
                hello.level_max,
                hello.answer != 0,
            )
        }),
        (reference.received, reference.handled, reference.sent),
        (reference.missing_to, reference.ping, reference.pong),
        (reference.end != 0, reference.number, &reference.entries[..]),
    );
    let Frame { from, to, .. } = frame;
    let read = |Hello {
                    cluster,
                    levels,
                    is_answer,
                }| {
        (
            cluster,
            u64::from(levels.min),
            u64::from(levels.max),
            is_answer,
        )
    };
    let found = (
        (1, u64::from(from.node), u64::from(to.node)),
        (from.birth, to.birth),
        frame.hello.map(read),
        (frame.received, frame.handled, frame.sent),
        (frame.missing_to, frame.ping, frame.pong),
        (frame.is_end, frame.number, frame.entries),
    );
    if found != expected || (frame.number == 0) != frame.entries.is_empty() {
        return Err(format!("{frame:?} is {reference:?}"));
    }
    Ok(())
}

pub fn config() -> Config {
    Config {
        local: LOCAL,
        peer: PEER,
        peer_birth_min: 1,
        cluster: CLUSTER,
        levels: Levels { min: 1, max: 3 },
        limits: LIMITS,
    }
}

fn check(mut input: &[u8]) -> Result<(), String> {
    let mut now = Instant(1_000_000_000);
    let mut link = Link::new(config(), now);
    let mut linked = None;
    let mut delivered = 0;
    while let Some(operation) = Operation::next(&mut input) {
        match &operation {
            Operation::Frame(bytes) => {
                check_frame(bytes)?;
                // An error refuses the frame; the link continues.
                let _ = link.handle_frame(now, bytes);
            }
            Operation::Time(millis) => {
                now = now + Duration::from_millis(u64::from(*millis));
                link.handle_time(now);
            }
            Operation::Post(tens) => {
                link.post(linked.unwrap_or(0), &vec![7; usize::from(*tens) * 10]);
                link.end_turn(now);
            }
            Operation::Up => link.carrier_up(now),
            Operation::Down => link.carrier_down(now),
            Operation::Handled => link.handled(now, linked.unwrap_or(0), delivered),
            Operation::Left => link.peer_left(now, linked.unwrap_or(0)),
        }
        let mut sent = 0;
        while let Some(output) = link.poll_output() {
            match output {
                Output::Send(bytes) => {
                    sent += 1;
                    check_sent(&bytes)?;
                }
                Output::Deliver { number, .. } => {
                    if linked.is_none() || number != delivered + 1 {
                        return Err(format!("frame {number} is delivered after {delivered}"));
                    }
                    delivered = number;
                }
                Output::Linked { birth, .. } => {
                    if linked.is_some() {
                        return Err(format!("{birth} is linked after {linked:?}"));
                    }
                    linked = Some(birth);
                    delivered = 0;
                }
                Output::NodeLost { birth } if linked != Some(birth) => {
                    return Err(format!("{birth} is lost after {linked:?}"));
                }
                Output::NodeLost { .. } => linked = None,
                _ => {}
            }
        }
        if sent > SENT_PER_FRAME_MAX {
            return Err(format!("{operation:?} causes {sent} frames"));
        }
        let stats = link.stats();
        if stats.waiting_bytes > LIMITS.link_bytes_max || stats.early_bytes > LIMITS.window_bytes {
            return Err(format!("too much is kept: {stats:?}"));
        }
        if link.deadline().is_some_and(|at| at < now) && matches!(operation, Operation::Time(_)) {
            return Err("a deadline has passed without effect".to_owned());
        }
    }
    Ok(())
}

fn check_sent(bytes: &[u8]) -> Result<(), String> {
    let frame =
        Frame::decode(bytes).map_err(|error| format!("the link sends {bytes:02x?}: {error}"))?;
    if frame.from != LOCAL || frame.to.node != PEER {
        return Err(format!("the link sends {frame:?}"));
    }
    Ok(())
}
