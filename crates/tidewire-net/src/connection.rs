//! The connections of a shard. Each has a slot with a generation, so a late event for a closed connection finds
//! another generation and is dropped.

use std::net::{SocketAddr, TcpStream};

use crate::outbox::Outbox;
use crate::read_buffer::Remainder;
use crate::tls::TlsState;

/// A connection of this shard: its slot, and how often that slot was used before.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Key {
    /// The slot.
    pub index: u32,
    /// The number of earlier uses of the slot.
    pub generation: u32,
}

/// One socket, its unread and unsent bytes, and its owner's state. Without a socket its owner passes on the bytes in both directions, until the
/// connection gets one.
#[derive(Debug)]
pub struct Connection<C> {
    /// The state of the loop's owner.
    pub state: C,
    pub(crate) socket: Option<TcpStream>,
    pub(crate) remainder: Remainder,
    pub(crate) outbox: Option<Box<Outbox>>,
    /// One word for connections without TLS.
    pub(crate) tls: Option<Box<TlsState>>,
    pub(crate) flags: Flags,
    /// The last counted value of [`Connection::inbound_bytes`].
    pub(crate) counted_bytes: u32,
    pub(crate) traffic: Traffic,
}

/// Traffic of a connection since it was handed over.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Traffic {
    /// Bytes that were read.
    pub bytes_in: u64,
    /// Bytes that the kernel accepted.
    pub bytes_out: u64,
}

/// State of a connection between two events of an edge-triggered poll.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Flags {
    /// The socket may have unread bytes.
    pub readable: bool,
    /// It is in the queue of connections to read.
    pub queued_to_read: bool,
    /// Its last read was expensive.
    pub expensive: bool,
    /// It must not be read now.
    pub paused: bool,
    /// The remainder must be handled before anything is read.
    pub reload: bool,
    /// The kernel's send buffer was full; the loop sends nothing before it is writable.
    pub blocked: bool,
    /// It is in the queue of sends; without a socket, in the list of connections with output.
    pub queued_to_send: bool,
    /// It is in the list of connections with an outbox.
    pub listed: bool,
    /// The poll saw the peer's end of stream.
    pub ended: bool,
    /// The poll reported a broken connection: no peer waits for an answer, so unread input is no longer held back.
    pub broken: bool,
    /// Nothing is sent after the waiting bytes.
    pub ending: bool,
    /// Its owner requests a report when it lags.
    pub watched: bool,
    /// Its owner knows that it lags.
    pub lagging: bool,
    /// Its owner learned at the end of the last turn that it lags.
    pub just_lagging: bool,
    /// Its owner requests a report when few bytes wait for it.
    pub awaited: bool,
}

impl<C> Connection<C> {
    /// A connection that has neither sent nor received.
    pub(crate) fn new(state: C, socket: Option<TcpStream>) -> Self {
        Self {
            state,
            socket,
            remainder: Remainder::default(),
            outbox: None,
            tls: None,
            flags: Flags::default(),
            counted_bytes: 0,
            traffic: Traffic::default(),
        }
    }

    /// Bytes that wait to be sent.
    #[must_use]
    pub fn outbox_bytes(&self) -> usize {
        self.outbox.as_ref().map_or(0, |outbox| outbox.bytes())
    }

    /// Traffic since the hand-over.
    #[must_use]
    pub fn traffic(&self) -> Traffic {
        self.traffic
    }

    /// Whether it is encrypted.
    #[must_use]
    pub fn is_encrypted(&self) -> bool {
        self.tls.is_some()
    }

    /// Received bytes that could not be handled yet, as last counted.
    #[must_use]
    pub fn inbound_bytes(&self) -> usize {
        self.counted_bytes as usize
    }

    /// Memory of this connection alone, in both directions.
    pub(crate) fn held_bytes(&self) -> usize {
        self.inbound_bytes() + self.outbox.as_ref().map_or(0, |outbox| outbox.own_bytes())
    }

    /// Whether the kernel has accepted all bytes for it.
    #[must_use]
    pub fn is_flushed(&self) -> bool {
        self.outbox.is_none() && !self.flags.queued_to_send
    }

    /// Whether some of the bytes that waited at the last [`crate::event_loop::EventLoop::mark_backlog`] are still
    /// unsent.
    #[must_use]
    pub fn has_marked(&self) -> bool {
        self.outbox
            .as_ref()
            .is_some_and(|outbox| outbox.has_marked())
    }

    /// The address of the peer; `None` once the kernel has forgotten it, and without a socket.
    #[must_use]
    pub fn peer_address(&self) -> Option<SocketAddr> {
        self.socket.as_ref()?.peer_addr().ok()
    }

    /// Whether all input that was passed on was handled.
    #[must_use]
    pub fn is_input_handled(&self) -> bool {
        !self.remainder.has_bytes()
    }

    /// The peer's certificate, as DER.
    #[must_use]
    pub fn peer_certificate(&self) -> Option<&[u8]> {
        self.tls.as_ref()?.peer_certificate()
    }

    /// Whether its owner requests reports when it lags.
    #[must_use]
    pub fn is_watched(&self) -> bool {
        self.flags.watched
    }

    /// Requests reports to the loop's owner when the connection lags, and when it has drained.
    pub fn watch(&mut self) {
        self.flags.watched = true;
    }

    /// Closes the sending half: the peer reads the bytes in flight, then the end of the stream.
    pub fn shut_down_sending(&self) {
        if let Some(socket) = &self.socket {
            // It fails if the peer has closed, and then there is nothing to shut down.
            let _ = socket.shutdown(std::net::Shutdown::Write);
        }
    }
}

#[derive(Debug)]
struct Slot<C> {
    generation: u32,
    connection: Option<Connection<C>>,
}

/// All connections of a shard.
#[derive(Debug)]
pub struct Connections<C> {
    slots: Vec<Slot<C>>,
    free: Vec<u32>,
    /// Lent slots without a connection.
    lent_count: usize,
}

impl<C> Default for Connections<C> {
    fn default() -> Self {
        Self {
            slots: Vec::new(),
            free: Vec::new(),
            lent_count: 0,
        }
    }
}

impl<C> Connections<C> {
    /// The number of connections.
    #[must_use]
    pub fn len(&self) -> usize {
        self.slots.len() - self.free.len() - self.lent_count
    }

    /// Whether the shard has no connections.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// The slot of the next connection.
    #[must_use]
    pub fn next_key(&self) -> Key {
        match self.free.last() {
            Some(&index) => Key {
                index,
                generation: self.slots[index as usize].generation,
            },
            None => Key {
                index: self.slots.len() as u32,
                generation: 0,
            },
        }
    }

    pub(crate) fn insert(&mut self, connection: Connection<C>) -> Key {
        let key = self.take_slot();
        self.slots[key.index as usize].connection = Some(connection);
        key
    }

    fn take_slot(&mut self) -> Key {
        let key = self.next_key();
        if self.free.pop().is_none() {
            self.slots.push(Slot {
                generation: 0,
                connection: None,
            });
        }
        key
    }

    /// Lends a slot to a user other than a connection, so that its key differs from all keys of connections. The user
    /// must return it.
    pub fn lend_slot(&mut self) -> Key {
        self.lent_count += 1;
        self.take_slot()
    }

    /// Takes a lent slot back; its next user has another generation.
    pub fn take_back(&mut self, key: Key) {
        let slot = &mut self.slots[key.index as usize];
        debug_assert!(
            slot.connection.is_none() && slot.generation == key.generation,
            "the slot is lent"
        );
        slot.generation = slot.generation.wrapping_add(1);
        self.free.push(key.index);
        self.lent_count -= 1;
    }

    /// Moves a connection to a lent slot without one. The slot that it leaves is lent afterwards.
    pub(crate) fn relocate(&mut self, from: Key, to: Key) -> Option<&mut Connection<C>> {
        let is_lent = self
            .slots
            .get(to.index as usize)
            .is_some_and(|slot| slot.generation == to.generation && slot.connection.is_none());
        debug_assert!(is_lent, "the slot is lent and has no connection");
        if !is_lent {
            return None;
        }
        // `lent_count` stays the same: one slot becomes lent, and another one gets a connection.
        let slot = self.slots.get_mut(from.index as usize)?;
        if slot.generation != from.generation {
            return None;
        }
        let connection = slot.connection.take()?;
        Some(self.slots[to.index as usize].connection.insert(connection))
    }

    /// Removes a connection. Its slot is lent afterwards, so that other state with its key can end before the slot is
    /// reused.
    pub(crate) fn remove_and_lend(&mut self, key: Key) -> Option<Connection<C>> {
        let slot = self.slots.get_mut(key.index as usize)?;
        if slot.generation != key.generation {
            return None;
        }
        let connection = slot.connection.take()?;
        self.lent_count += 1;
        Some(connection)
    }

    /// The connection, if it still exists.
    #[must_use]
    pub fn get(&self, key: Key) -> Option<&Connection<C>> {
        let slot = self.slots.get(key.index as usize)?;
        slot.connection
            .as_ref()
            .filter(|_| slot.generation == key.generation)
    }

    /// The connection, if it still exists.
    pub fn get_mut(&mut self, key: Key) -> Option<&mut Connection<C>> {
        let slot = self.slots.get_mut(key.index as usize)?;
        slot.connection
            .as_mut()
            .filter(|_| slot.generation == key.generation)
    }

    /// The connection in this slot.
    pub(crate) fn at_mut(&mut self, index: u32) -> Option<&mut Connection<C>> {
        self.slots.get_mut(index as usize)?.connection.as_mut()
    }

    /// The key of the connection in this slot.
    pub(crate) fn key_at(&self, index: u32) -> Option<Key> {
        let slot = self.slots.get(index as usize)?;
        slot.connection.as_ref().map(|_| Key {
            index,
            generation: slot.generation,
        })
    }

    /// The number of slots, used, lent or free.
    #[must_use]
    pub fn table_len(&self) -> usize {
        self.slots.len()
    }

    /// The content of `count` slots from `first` on: a connection, or nothing if a slot is free or lent.
    pub fn inspect(
        &self,
        first: usize,
        count: usize,
    ) -> impl Iterator<Item = (Key, Option<&Connection<C>>)> {
        let end = first.saturating_add(count).min(self.slots.len());
        let slots = self.slots.get(first..end).unwrap_or_default();
        // There are no more slots than indexes.
        (first as u32..).zip(slots).map(|(index, slot)| {
            let generation = slot.generation;
            (Key { index, generation }, slot.connection.as_ref())
        })
    }

    /// All keys, by slot.
    pub fn keys(&self) -> impl Iterator<Item = Key> {
        (0u32..).zip(&self.slots).filter_map(|(index, slot)| {
            slot.connection.as_ref().map(|_| Key {
                index,
                generation: slot.generation,
            })
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn connection(state: u32) -> Connection<u32> {
        let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
        let socket = TcpStream::connect(listener.local_addr().unwrap());
        Connection::new(state, socket.ok())
    }

    #[test]
    fn a_reused_slot_has_another_generation() {
        let mut connections = Connections::default();
        let first = connections.insert(connection(1));
        let second = connections.insert(connection(2));
        assert!(connections.remove_and_lend(first).is_some());
        connections.take_back(first);
        assert!(connections.remove_and_lend(first).is_none());
        assert_eq!(connections.next_key().index, first.index);
        let third = connections.insert(connection(3));
        assert_eq!((third.index, third.generation), (first.index, 1));
        assert!(connections.get(first).is_none());
        assert!(connections.get_mut(first).is_none());
        assert_eq!(
            connections.get(third).map(|connection| connection.state),
            Some(3)
        );
        assert_eq!(connections.keys().collect::<Vec<_>>(), [third, second]);
        assert_eq!(connections.len(), 2);
    }

    #[test]
    fn a_connection_moves_to_a_lent_slot_and_its_old_slot_is_lent() {
        let mut connections = Connections::default();
        let lent = connections.lend_slot();
        let first = connections.insert(connection(1));
        let moved = connections.relocate(first, lent);
        assert_eq!(moved.map(|connection| connection.state), Some(1));
        assert!(connections.get(first).is_none());
        assert_eq!(connections.len(), 1);
        connections.take_back(first);
        assert_eq!(connections.keys().collect::<Vec<_>>(), [lent]);
        assert_eq!(connections.next_key().index, first.index);
    }

    #[test]
    fn a_lent_slot_has_no_connection_and_returns_with_another_generation() {
        let mut connections = Connections::default();
        let lent = connections.lend_slot();
        let own = connections.insert(connection(1));
        assert_ne!(lent.index, own.index);
        assert!(connections.get(lent).is_none());
        assert_eq!(connections.len(), 1);
        connections.take_back(lent);
        let again = connections.lend_slot();
        assert_eq!((again.index, again.generation), (lent.index, 1));
        assert_eq!(connections.keys().collect::<Vec<_>>(), [own]);
    }
}
