//! Two processes, their carrier, and the streams that must arrive.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use tidewire_core::time::Instant;
use tidewire_link::frame::{Frame, Levels, Process};
use tidewire_link::limits::{ANSWER_MAX, BROKEN_MAX, FRAME_COST, Limits, SILENCE_MAX};
use tidewire_link::link::{Config, Link, Output, Suspicion};

use crate::carrier::{Direction, Faults};
use crate::met::Met;
use crate::random::Random;

/// Small, so that all limits are met.
const LIMITS: Limits = Limits {
    link_bytes_max: 60_000,
    congestion_bytes: 12_000,
    window_bytes: 8_000,
    frame_bytes_max: 700,
    start_bytes: 500,
};
/// Time from an event to its latest effect, beyond the promised time.
const SLACK: Duration = Duration::from_millis(100);
/// All is delivered within this time after the repair.
const REPAIR: Duration = Duration::from_secs(10);
const QUIET: Duration = Duration::from_secs(5);
/// Frames that one side may send while the link is quiet: a ping and a pong each 500 ms.
const QUIET_FRAMES_MAX: u64 = 24;

type Checked = Result<(), String>;

fn ensure(holds: bool, why: impl FnOnce() -> String) -> Checked {
    match holds {
        true => Ok(()),
        false => Err(why()),
    }
}

/// A process: one life of a node.
struct Node {
    birth: u64,
    link: Link,
    /// The linked birth of the peer.
    linked: Option<u64>,
    /// Births of the peer whose link has ended here.
    ended: BTreeSet<u64>,
    suspicion: Option<Suspicion>,
    is_congested: bool,
    /// The carrier is connected at this node.
    is_up: bool,
    down_since: Instant,
    /// Deliveries that the shards have not handled.
    delivered: u64,
    handled: u64,
    /// The shards handle nothing.
    is_stuck: bool,
    /// The process does not run before this time.
    paused_until: Instant,
    /// The earliest time at which silence counts: the process was paused, or the link began.
    listens_since: Instant,
    /// The carrier was connected, and no hello has arrived since.
    awaits_hello: bool,
    /// The frames that the peer has acknowledged.
    received: u64,
    /// The cost of each frame that was sent since the link began or continued after a break, until the peer acknowledges one.
    started: Option<BTreeMap<u64, usize>>,
}

/// The bytes from one birth to another.
#[derive(Default)]
struct Stream {
    posted: Vec<u8>,
    delivered: usize,
}

/// See the documentation of this module.
pub struct World {
    random: Random,
    now: Instant,
    faults: Faults,
    /// The nodes post without regard to congestion, and much.
    is_greedy: bool,
    nodes: [Node; 2],
    /// By the sending node.
    directions: [Direction; 2],
    /// By the sending node, its birth and the birth of the receiver.
    streams: BTreeMap<(usize, u64, u64), Stream>,
    next_id: u64,
    last_birth: u64,
    met: Met,
}

fn process(node: usize, birth: u64, now: Instant) -> Node {
    let config = Config {
        local: Process {
            node: node as u16 + 3,
            birth,
        },
        peer: 4 - node as u16,
        peer_birth_min: 1,
        cluster: 77,
        levels: Levels {
            min: 1,
            max: 2 + node as u32,
        },
        limits: LIMITS,
    };
    Node {
        birth,
        link: Link::new(config, now),
        linked: None,
        ended: BTreeSet::new(),
        suspicion: None,
        is_congested: false,
        is_up: false,
        down_since: now,
        delivered: 0,
        handled: 0,
        is_stuck: false,
        paused_until: now,
        listens_since: now,
        awaits_hello: false,
        received: 0,
        started: Some(BTreeMap::new()),
    }
}

impl World {
    pub fn new(seed: u64) -> Self {
        let mut random = Random::new(seed);
        let now = Instant(1_000_000_000);
        let faults = Faults::draw(&mut random);
        let is_greedy = random.chance(10);
        Self {
            is_greedy,
            random,
            now,
            faults,
            nodes: [process(0, 1, now), process(1, 2, now)],
            directions: [Direction::default(), Direction::default()],
            streams: BTreeMap::new(),
            next_id: 0,
            last_birth: 2,
            met: Met::default(),
        }
    }

    /// Runs with faults, repairs everything, and checks that all has arrived and the link is quiet.
    pub fn run(mut self) -> Result<Met, String> {
        for _ in 0..100 + self.random.below(400) {
            self.step()?;
        }
        self.repair()?;
        self.advance(REPAIR)?;
        self.all_has_arrived()?;
        let before = [0, 1].map(|node| self.directions[node].count);
        self.advance(QUIET)?;
        for (node, before) in before.into_iter().enumerate() {
            let count = self.directions[node].count - before;
            ensure(count <= QUIET_FRAMES_MAX, || {
                format!("{count} frames from node {node} without posts")
            })?;
        }
        Ok(self.met)
    }

    fn step(&mut self) -> Checked {
        let node = self.random.below(2);
        match self.random.below(100) {
            0..55 => self.posts(node)?,
            55..85 => {
                let micros = match self.random.below(20) {
                    0 => 700_000,
                    1..4 => 100_000,
                    _ => 5_000,
                };
                let time = Duration::from_micros(self.random.below(micros) as u64);
                self.advance(time)?;
            }
            85..88 => self.breaks()?,
            88..91 => {
                for node in 0..2 {
                    if !self.nodes[node].is_up && self.random.chance(70) {
                        self.up(node)?;
                    }
                }
            }
            91..93 => {
                let cut = &mut self.directions[node].cut_since;
                self.met.cuts += usize::from(cut.is_none());
                *cut = Some(cut.unwrap_or(self.now));
                if self.random.chance(20) {
                    let millis = 2_000 + self.random.below(1_500) as u64;
                    self.advance(Duration::from_millis(millis))?;
                }
            }
            93..96 => {
                for direction in &mut self.directions {
                    direction.cut_since = None;
                }
            }
            96..98 => self.nodes[node].is_stuck = self.random.chance(50),
            98 => match self.random.below(4) {
                0 => self.leaves(node)?,
                1 => {
                    let time = Duration::from_millis(1_000 + self.random.below(5_000) as u64);
                    self.nodes[node].paused_until = self.now + time;
                    self.met.pauses += 1;
                }
                _ => self.restarts(node)?,
            },
            _ => {
                // A long fault.
                let time = Duration::from_millis(self.random.below(3_000) as u64);
                self.advance(time)?;
            }
        }
        Ok(())
    }

    fn is_running(&self, node: usize) -> bool {
        self.nodes[node].paused_until <= self.now
    }

    /// A turn of a node that posts, as long as the peer is not congested. Answers are posted also if it is.
    fn posts(&mut self, node: usize) -> Checked {
        let is_answer = self.is_greedy || self.random.chance(10);
        let Some(to) = self.nodes[node].linked else {
            return Ok(());
        };
        if !self.is_running(node) || (self.nodes[node].is_congested && !is_answer) {
            return Ok(());
        }
        let now = self.now;
        for _ in 0..=self.random.below(4) {
            self.next_id += 1;
            let long = self.is_greedy || self.random.chance(10);
            let words = 1 + self.random.below(if long { 400 } else { 12 });
            self.met.cut_turns += usize::from(words * 8 > LIMITS.frame_bytes_max);
            let entry = self.next_id.to_le_bytes().repeat(words);
            let from = &mut self.nodes[node];
            from.link.post(to, &entry);
            if from.link.is_linked() {
                let stream = self.streams.entry((node, from.birth, to)).or_default();
                stream.posted.extend_from_slice(&entry);
            }
        }
        self.nodes[node].link.end_turn(now);
        self.take_outputs(node)
    }

    /// The carrier breaks, at both nodes or, as a broker, at one. All that is on its way is lost.
    fn breaks(&mut self) -> Checked {
        let only = self.random.chance(30).then(|| self.random.below(2));
        self.met.breaks += 1;
        for node in 0..2 {
            self.directions[node].clear();
            if only.is_none_or(|only| only == node) {
                self.down(node)?;
            }
        }
        Ok(())
    }

    fn down(&mut self, node: usize) -> Checked {
        if self.nodes[node].is_up {
            self.nodes[node].is_up = false;
            self.nodes[node].down_since = self.now;
            self.nodes[node].link.carrier_down(self.now);
            self.take_outputs(node)?;
        }
        Ok(())
    }

    fn up(&mut self, node: usize) -> Checked {
        self.nodes[node].is_up = true;
        self.nodes[node].awaits_hello = true;
        self.nodes[node].link.carrier_up(self.now);
        self.take_outputs(node)
    }

    fn restarts(&mut self, node: usize) -> Checked {
        self.met.restarts += 1;
        self.last_birth += 1;
        self.nodes[node] = process(node, self.last_birth, self.now);
        Ok(())
    }

    /// The view of one node loses the other one.
    fn leaves(&mut self, node: usize) -> Checked {
        if let Some(birth) = self.nodes[node].linked {
            self.met.left += 1;
            self.nodes[node].link.peer_left(self.now, birth);
            self.take_outputs(node)?;
        }
        Ok(())
    }

    /// Lets time pass: frames arrive, deadlines are kept, shards handle deliveries.
    fn advance(&mut self, time: Duration) -> Checked {
        let end = self.now + time;
        loop {
            let mut next = end;
            for node in 0..2 {
                let from = &self.nodes[node];
                let paused = from.paused_until;
                let arrival = self.directions[1 - node].next_arrival();
                for at in arrival.into_iter().chain(from.link.deadline()) {
                    next = next.min(at.max(paused));
                }
            }
            // The checks of this time must run, also if neither node has anything to do.
            let limit = SILENCE_MAX + self.faults.delay_max + SLACK + Duration::from_nanos(1);
            for since in self.directions.iter().filter_map(|way| way.cut_since) {
                let due = since + limit;
                next = if due > self.now { next.min(due) } else { next };
            }
            self.now = next.max(self.now);
            for node in 0..2 {
                if self.is_running(node) {
                    self.runs(node)?;
                }
            }
            self.check_times()?;
            if next >= end && self.is_at_rest() {
                return Ok(());
            }
        }
    }

    /// Whether nothing more happens at this time.
    fn is_at_rest(&self) -> bool {
        (0..2).filter(|node| self.is_running(*node)).all(|node| {
            let arrival = self.directions[1 - node].next_arrival();
            let deadline = self.nodes[node].link.deadline();
            arrival.into_iter().chain(deadline).all(|at| at > self.now)
        })
    }

    fn runs(&mut self, node: usize) -> Checked {
        let now = self.now;
        if self.nodes[node].paused_until > self.nodes[node].listens_since {
            self.nodes[node].listens_since = now;
        }
        self.nodes[node].link.handle_time(now);
        self.take_outputs(node)?;
        while let Some(frame) = self.directions[1 - node].receive(now) {
            if !self.nodes[node].is_up {
                self.directions[1 - node].lose_received();
                continue;
            }
            self.note_frame(node, &frame)?;
            let taken = self.nodes[node].link.handle_frame(now, &frame);
            taken.map_err(|error| format!("node {node} refuses a frame: {error}"))?;
            self.take_outputs(node)?;
        }
        let is_slow = self.random.chance(30);
        let from = &mut self.nodes[node];
        if let Some(birth) = from.linked
            && !from.is_stuck
            && !is_slow
            && from.handled < from.delivered
        {
            from.handled = from.delivered;
            from.link.handled(now, birth, from.handled);
            self.take_outputs(node)?;
        }
        Ok(())
    }

    /// Notes what a received frame changes for the frames that the node sends and requests.
    fn note_frame(&mut self, node: usize, bytes: &[u8]) -> Checked {
        let frame = Frame::decode(bytes).map_err(|error| error.to_string())?;
        let here = &mut self.nodes[node];
        if frame.to.birth != here.birth {
            return Ok(());
        }
        if here.linked == Some(frame.from.birth) && frame.received > here.received {
            here.received = frame.received;
            here.started = None;
        }
        if let Some(hello) = frame.hello
            && (here.awaits_hello || !hello.is_answer)
        {
            here.awaits_hello = false;
            here.started = Some(BTreeMap::new());
            self.directions[1 - node].note_hello();
        }
        Ok(())
    }

    /// A node sends little until the peer acknowledges something, and requests no frame that is only on its way.
    fn check_sent(&mut self, node: usize, bytes: &[u8]) -> Checked {
        let frame = Frame::decode(bytes).map_err(|error| error.to_string())?;
        if let Some(started) = self.nodes[node]
            .started
            .as_mut()
            .filter(|_| frame.number != 0)
        {
            started.insert(frame.number, frame.entries.len() + FRAME_COST);
            let (count, sent): (usize, usize) = (started.len(), started.values().sum());
            self.met.starts += 1;
            ensure(count == 1 || sent <= LIMITS.start_bytes, || {
                format!("node {node} sends {count} frames with {sent} bytes without an answer")
            })?;
        }
        ensure(
            frame.missing_to == 0 || self.directions[1 - node].has_gap(),
            || format!("node {node} requests frames that were not lost"),
        )
    }

    fn take_outputs(&mut self, node: usize) -> Checked {
        while let Some(output) = self.nodes[node].link.poll_output() {
            self.take_output(node, output)?;
        }
        let stats = self.nodes[node].link.stats();
        ensure(
            stats.waiting_bytes <= LIMITS.link_bytes_max
                && stats.early_bytes <= LIMITS.window_bytes,
            || format!("node {node} keeps too much: {stats:?}"),
        )
    }

    fn take_output(&mut self, node: usize, output: Output) -> Checked {
        let birth = self.nodes[node].birth;
        match output {
            Output::Send(frame) => {
                self.check_sent(node, &frame)?;
                let (now, faults) = (self.now, self.faults);
                self.directions[node].send(now, frame, &faults, &mut self.random);
            }
            Output::Deliver {
                birth: from,
                number,
                entries,
            } => {
                let linked = self.nodes[node].linked;
                ensure(linked == Some(from), || "a delivery without a link".into())?;
                let stream = self.streams.entry((1 - node, from, birth)).or_default();
                let end = stream.delivered + entries.len();
                let expected = stream.posted.get(stream.delivered..end);
                ensure(expected == Some(&entries[..]), || {
                    format!("frame {number} at node {node} is not the next piece of the stream")
                })?;
                stream.delivered = end;
                self.nodes[node].delivered = number;
                self.met.delivered += 1;
            }
            Output::Linked { birth: peer, level } => {
                ensure(level == 2, || format!("level {level}"))?;
                ensure(self.nodes[node].linked.is_none(), || "linked twice".into())?;
                let is_new = !self.nodes[node].ended.contains(&peer);
                ensure(is_new, || format!("node {node} has lost {peer} before"))?;
                self.nodes[node].linked = Some(peer);
                self.nodes[node].listens_since = self.now;
                self.nodes[node].delivered = 0;
                self.nodes[node].handled = 0;
                self.nodes[node].received = 0;
                self.nodes[node].started = Some(BTreeMap::new());
                self.met.linked += 1;
            }
            Output::NodeLost { birth: peer } => {
                let linked = self.nodes[node].linked.take();
                ensure(linked == Some(peer), || "a loss without a link".into())?;
                self.nodes[node].ended.insert(peer);
                self.add_stats(node);
                self.met.lost += 1;
            }
            Output::Suspect(suspicion) => {
                match suspicion {
                    Suspicion::Broken => self.met.broken += 1,
                    Suspicion::Silent => self.met.silent += 1,
                    Suspicion::Stuck => self.met.stuck += 1,
                    Suspicion::Full => self.met.full += 1,
                }
                self.nodes[node].suspicion = Some(suspicion);
            }
            Output::Trusted => {
                self.met.trusted += 1;
                self.nodes[node].suspicion = None;
            }
            Output::Congested(is_congested) => {
                self.met.congested += usize::from(is_congested);
                self.nodes[node].is_congested = is_congested;
            }
            Output::Answered(_) => {}
            Output::Reset => self.met.resets += 1,
            Output::Refused(refusal) => return Err(format!("refused: {refusal}")),
        }
        Ok(())
    }

    fn add_stats(&mut self, node: usize) {
        let stats = self.nodes[node].link.stats();
        self.met.resent += stats.resent_count;
        self.met.duplicates += stats.duplicate_count;
        self.met.early += stats.early_count;
    }

    /// A peer that can't be heard is suspect in time.
    fn check_times(&self) -> Checked {
        for node in 0..2 {
            let here = &self.nodes[node];
            if here.linked.is_none() || !self.is_running(node) || here.suspicion.is_some() {
                continue;
            }
            let latest = |since: Instant| since.max(here.listens_since);
            let delay = self.faults.delay_max + SLACK;
            let late = |since: Instant, max: Duration| self.now > latest(since) + max + delay;
            let is_broken = !here.is_up && late(here.down_since, BROKEN_MAX);
            ensure(!is_broken, || format!("node {node} does not see the break"))?;
            let is_deaf = self.directions[1 - node].cut_since;
            let is_deaf = is_deaf.is_some_and(|since| late(since, SILENCE_MAX));
            ensure(!is_deaf, || format!("node {node} hears nothing"))?;
            let is_mute = self.directions[node].cut_since;
            let is_mute = is_mute.is_some_and(|since| late(since, ANSWER_MAX));
            ensure(!is_mute, || format!("node {node} gets no answers"))?;
        }
        Ok(())
    }

    fn repair(&mut self) -> Checked {
        self.faults = Faults::NONE;
        for node in 0..2 {
            self.directions[node].cut_since = None;
            self.nodes[node].is_stuck = false;
            self.nodes[node].paused_until = self.now;
            if !self.nodes[node].is_up {
                self.up(node)?;
            }
        }
        Ok(())
    }

    fn all_has_arrived(&mut self) -> Checked {
        let births = [self.nodes[0].birth, self.nodes[1].birth];
        let is_ended = |node: usize| self.nodes[node].ended.contains(&births[1 - node]);
        if is_ended(0) || is_ended(1) {
            for node in 0..2 {
                let linked = self.nodes[node].linked;
                ensure(linked.is_none(), || format!("node {node} is linked alone"))?;
            }
            return Ok(());
        }
        for node in 0..2 {
            let here = &self.nodes[node];
            ensure(here.linked == Some(births[1 - node]), || {
                format!("node {node} is linked to {:?}", here.linked)
            })?;
            ensure(here.suspicion.is_none() && !here.is_congested, || {
                format!("node {node}: {:?} after the repair", here.suspicion)
            })?;
            let waiting = here.link.stats().waiting_bytes;
            ensure(waiting == 0, || format!("{waiting} bytes wait at {node}"))?;
            let key = (node, births[node], births[1 - node]);
            let stream = self.streams.entry(key).or_default();
            ensure(stream.delivered == stream.posted.len(), || {
                let (delivered, posted) = (stream.delivered, stream.posted.len());
                format!("{delivered} bytes of {posted} arrived from node {node}")
            })?;
            self.add_stats(node);
        }
        Ok(())
    }
}
