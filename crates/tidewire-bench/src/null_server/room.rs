//! The recipients of a turn: the members of each room, and the ranges of the log that were published to it.

use std::collections::{HashMap, VecDeque};
use std::ops::Range;

use tidewire_net::connection::Key;
use tidewire_net::event_loop::EventLoop;

use super::connection::NullConnection;

/// A range of the turn log.
pub(super) type Span = Range<u64>;
/// A room by its index.
pub(super) type RoomId = u32;
/// The room of a server that ignores names.
pub(super) const ROOM_OF_ALL: RoomId = 0;

/// Connections that are subscribed to the same name.
#[derive(Debug, Default)]
struct Room {
    /// Members, and some that have disconnected.
    members: Vec<Key>,
    /// The ranges published in this turn; touching ones are joined.
    spans: Vec<Span>,
    /// Whether there are publications since the members were queued.
    is_new: bool,
    /// The version of the record of this name.
    version: i32,
}

/// The ranges of a connection in this turn, if it has more than one room's.
#[derive(Debug, Default)]
struct Due {
    key: Option<Key>,
    rooms: Vec<RoomId>,
    /// Its own publications.
    own: Vec<Span>,
}

/// All rooms.
#[derive(Debug)]
pub(super) struct Rooms {
    rooms: Vec<Room>,
    events: HashMap<Box<str>, RoomId>,
    records: HashMap<Box<str>, RoomId>,
    touched: Vec<RoomId>,
    /// Members that have not got everything.
    queue: VecDeque<Key>,
    /// Used from the front; a connection stores its index plus one, 0 for none.
    dues: Vec<Due>,
    due_count: usize,
    publication_count: u64,
    has_echo: bool,
}

impl Rooms {
    /// One room, [`ROOM_OF_ALL`].
    pub(super) fn new(has_echo: bool) -> Self {
        Self {
            rooms: vec![Room::default()],
            events: HashMap::new(),
            records: HashMap::new(),
            touched: Vec::new(),
            queue: VecDeque::new(),
            dues: Vec::new(),
            due_count: 0,
            publication_count: 0,
            has_echo,
        }
    }

    /// The room of an event.
    pub(super) fn event(&mut self, name: &str) -> RoomId {
        room(&mut self.rooms, &mut self.events, name)
    }

    /// The room of a record.
    pub(super) fn record(&mut self, name: &str) -> RoomId {
        room(&mut self.rooms, &mut self.records, name)
    }

    /// The next version of the record of this room.
    pub(super) fn next_version(&mut self, room: RoomId) -> i32 {
        let version = &mut self.rooms[room as usize].version;
        *version += 1;
        *version
    }

    /// The version of the record of this room.
    pub(super) fn version(&self, room: RoomId) -> i32 {
        self.rooms[room as usize].version
    }

    /// The approximate number of pending sends.
    pub(super) fn owed_count(&self) -> usize {
        let rooms = self.touched.iter().map(|room| &self.rooms[*room as usize]);
        let new = rooms.filter(|room| room.is_new);
        self.queue.len() + new.map(|room| room.members.len()).sum::<usize>()
    }

    /// Publications so far.
    pub(super) fn publication_count(&self) -> u64 {
        self.publication_count
    }

    /// Adds a new member.
    pub(super) fn join(&mut self, room: RoomId, key: Key) {
        self.rooms[room as usize].members.push(key);
    }

    /// Records a publication of `key`. `due` is the publisher's.
    pub(super) fn publish(&mut self, room: RoomId, key: Key, due: &mut u32, span: Span) {
        self.publication_count += 1;
        let Room { spans, is_new, .. } = &mut self.rooms[room as usize];
        if spans.is_empty() {
            self.touched.push(room);
        }
        *is_new = true;
        append(spans, span.clone());
        if !self.has_echo {
            append(&mut self.due(key, due).own, span);
        }
    }

    fn due(&mut self, key: Key, due: &mut u32) -> &mut Due {
        if *due == 0 {
            if self.due_count == self.dues.len() {
                self.dues.push(Due::default());
            }
            self.dues[self.due_count].key = Some(key);
            self.due_count += 1;
            *due = self.due_count as u32;
        }
        &mut self.dues[*due as usize - 1]
    }

    /// Gives `count` members at most their missing ranges. With the last one a new turn begins.
    pub(super) fn flush_some(
        &mut self,
        count: usize,
        event_loop: &mut EventLoop<NullConnection>,
        mut send: impl FnMut(&mut EventLoop<NullConnection>, Key, &[Span]),
    ) {
        self.collect(event_loop);
        let (mut all, mut left) = (Vec::new(), Vec::new());
        for _ in 0..count {
            let Some(key) = self.queue.pop_front() else {
                break;
            };
            let Some(connection) = event_loop.connections_mut().get_mut(key) else {
                continue;
            };
            let peer = &mut connection.state;
            peer.is_queued = false;
            let due = (peer.due as usize)
                .checked_sub(1)
                .map(|index| &self.dues[index]);
            let rooms = match due {
                Some(due) if !due.rooms.is_empty() => &due.rooms[..],
                _ => &[ROOM_OF_ALL],
            };
            all.clear();
            for &room in rooms {
                let spans = &self.rooms[room as usize].spans;
                let new = spans.iter().filter(|span| span.end > peer.sent);
                all.extend(new.map(|span| span.start.max(peer.sent)..span.end));
            }
            if rooms.len() > 1 {
                all.sort_unstable_by_key(|span| span.start);
            }
            peer.sent = all.last().map_or(peer.sent, |span| span.end);
            match due {
                None => send(event_loop, key, &all),
                Some(due) => {
                    subtract(&all, &due.own, &mut left);
                    if !left.is_empty() {
                        send(event_loop, key, &left);
                    }
                }
            }
        }
        if self.queue.is_empty() {
            self.start_turn(event_loop);
        }
    }

    /// Queues the members of rooms with publications.
    fn collect(&mut self, event_loop: &mut EventLoop<NullConnection>) {
        for touched in 0..self.touched.len() {
            let room = self.touched[touched];
            if !std::mem::take(&mut self.rooms[room as usize].is_new) {
                continue;
            }
            let members = std::mem::take(&mut self.rooms[room as usize].members);
            for &key in &members {
                let Some(connection) = event_loop.connections_mut().get_mut(key) else {
                    continue;
                };
                let peer = &mut connection.state;
                if room != ROOM_OF_ALL {
                    let rooms = &mut self.due(key, &mut peer.due).rooms;
                    if !rooms.contains(&room) {
                        rooms.push(room);
                    }
                }
                if !std::mem::replace(&mut peer.is_queued, true) {
                    self.queue.push_back(key);
                }
            }
            self.rooms[room as usize].members = members;
        }
    }

    fn start_turn(&mut self, event_loop: &mut EventLoop<NullConnection>) {
        for due in &mut self.dues[..self.due_count] {
            let connection = due
                .key
                .take()
                .and_then(|key| event_loop.connections_mut().get_mut(key));
            if let Some(connection) = connection {
                connection.state.due = 0;
            }
            due.rooms.clear();
            due.own.clear();
        }
        self.due_count = 0;
        let connection_count = event_loop.connections().len();
        for room in self.touched.drain(..) {
            let Room { members, spans, .. } = &mut self.rooms[room as usize];
            spans.clear();
            if members.len() > 2 * connection_count {
                members.retain(|&key| event_loop.connections().get(key).is_some());
            }
        }
    }
}

/// The room of a name; creates a missing one.
fn room(rooms: &mut Vec<Room>, names: &mut HashMap<Box<str>, RoomId>, name: &str) -> RoomId {
    if let Some(&room) = names.get(name) {
        return room;
    }
    let room = rooms.len() as RoomId;
    rooms.push(Room::default());
    names.insert(name.into(), room);
    room
}

/// Appends a later span, joined with the last one if they touch.
fn append(spans: &mut Vec<Span>, span: Span) {
    match spans.last_mut() {
        Some(last) if last.end == span.start => last.end = span.end,
        _ => spans.push(span),
    }
}

/// `from` without `own`; touching ranges are joined. Both are in order, and each of `own` is within one of `from` or
/// in none.
fn subtract(from: &[Span], own: &[Span], left: &mut Vec<Span>) {
    left.clear();
    let mut own = own.iter().peekable();
    for span in from {
        let mut start = span.start;
        while let Some(cut) = own.next_if(|cut| cut.start < span.end) {
            if cut.end <= start {
                continue;
            }
            if cut.start > start {
                append(left, start..cut.start);
            }
            start = cut.end.max(start);
        }
        if start < span.end {
            append(left, start..span.end);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn own_spans_are_cut_out() {
        type Spans<'a> = &'a [(u64, u64)];
        let spans =
            |of: Spans<'_>| -> Vec<Span> { of.iter().map(|&(start, end)| start..end).collect() };
        let check = |from: Spans<'_>, own: Spans<'_>, expected: Spans<'_>| {
            let mut left = spans(&[(0, 1)]);
            subtract(&spans(from), &spans(own), &mut left);
            assert_eq!(left, spans(expected), "{from:?} without {own:?}");
        };
        check(&[(0, 10)], &[], &[(0, 10)]);
        check(&[(0, 10)], &[(0, 10)], &[]);
        check(&[(0, 10)], &[(3, 5)], &[(0, 3), (5, 10)]);
        check(&[(0, 10)], &[(0, 3), (7, 10)], &[(3, 7)]);
        check(&[(0, 4), (6, 10)], &[(6, 8)], &[(0, 4), (8, 10)]);
        check(&[(0, 4), (4, 10)], &[], &[(0, 10)]);
        // Its publications to a room that it has not joined.
        check(&[(6, 10)], &[(2, 4), (7, 8)], &[(6, 7), (8, 10)]);
        check(&[(0, 2)], &[(2, 4)], &[(0, 2)]);
    }

    #[test]
    fn spans_are_joined_where_they_touch() {
        let mut spans = Vec::new();
        for span in [0..2, 2..3, 5..6] {
            append(&mut spans, span);
        }
        assert_eq!(spans, [0..3, 5..6]);
    }
}
