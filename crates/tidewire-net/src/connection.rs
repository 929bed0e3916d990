//! The connections of a shard: a place for each, with a generation, so that what arrives late for a connection that
//! is gone meets nobody.

use std::net::{SocketAddr, TcpStream};

use crate::outbox::Outbox;
use crate::read_buffer::Remainder;
use crate::tls::TlsState;

/// A connection of this shard: its place, and how often that place was used before.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Key {
    /// The place.
    pub index: u32,
    /// How often it was used before.
    pub generation: u32,
}

/// One socket, what it still has to give and to take, and whatever its owner keeps with it.
#[derive(Debug)]
pub struct Connection<C> {
    /// What the owner of the loop knows of it.
    pub state: C,
    pub(crate) socket: TcpStream,
    pub(crate) remainder: Remainder,
    pub(crate) outbox: Option<Box<Outbox>>,
    /// One word for connections in the clear.
    pub(crate) tls: Option<Box<TlsState>>,
    pub(crate) flags: Flags,
    /// What [`Connection::inbound_bytes`] was when it was last counted.
    pub(crate) counted_bytes: u32,
    pub(crate) traffic: Traffic,
}

/// Bytes of a connection since it was handed over.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Traffic {
    /// Bytes that were read.
    pub bytes_in: u64,
    /// Bytes that the kernel took.
    pub bytes_out: u64,
}

/// Where a connection stands between two events of an edge-triggered poll.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Flags {
    /// The socket may hold bytes that were not read yet.
    pub readable: bool,
    /// It stands in the queue of those to be read.
    pub queued_to_read: bool,
    /// It must not be read now.
    pub paused: bool,
    /// The remainder is to be looked at before anything is read.
    pub reload: bool,
    /// The kernel's send buffer was full; nothing is sent before it is writable.
    pub blocked: bool,
    /// It stands in the queue of sends.
    pub queued_to_send: bool,
    /// It stands in the list of those with an outbox.
    pub listed: bool,
    /// The poll saw the peer's end of stream.
    pub ended: bool,
    /// The poll saw that the connection is broken: nobody waits for an answer, so what was not read yet is not kept back any more.
    pub broken: bool,
    /// Nothing is sent to it behind what waits.
    pub ending: bool,
    /// Its owner wants to know when it lags.
    pub watched: bool,
    /// Its owner was told that it lags.
    pub lagging: bool,
    /// Its owner was told so at the end of the last turn.
    pub just_lagging: bool,
    /// Its owner wants to know when little waits for it.
    pub awaited: bool,
}

impl<C> Connection<C> {
    /// Bytes that wait to be sent.
    #[must_use]
    pub fn outbox_bytes(&self) -> usize {
        self.outbox.as_ref().map_or(0, |outbox| outbox.bytes())
    }

    /// Bytes since it was handed over.
    #[must_use]
    pub fn traffic(&self) -> Traffic {
        self.traffic
    }

    /// Whether it is encrypted.
    #[must_use]
    pub fn is_encrypted(&self) -> bool {
        self.tls.is_some()
    }

    /// Bytes that came in and could not be handled yet, as last counted.
    #[must_use]
    pub fn inbound_bytes(&self) -> usize {
        self.counted_bytes as usize
    }

    /// Memory that the connection holds for itself alone, in both directions.
    pub(crate) fn held_bytes(&self) -> usize {
        self.inbound_bytes() + self.outbox.as_ref().map_or(0, |outbox| outbox.own_bytes())
    }

    /// Whether everything that was decided for it was given to the kernel.
    #[must_use]
    pub fn is_flushed(&self) -> bool {
        self.outbox.is_none() && !self.flags.queued_to_send
    }

    /// Whether some of what waited at the last [`crate::event_loop::EventLoop::mark_backlog`] was not sent yet.
    #[must_use]
    pub fn has_marked(&self) -> bool {
        self.outbox
            .as_ref()
            .is_some_and(|outbox| outbox.has_marked())
    }

    /// Where the other end of the socket is; `None` once the kernel has forgotten it.
    #[must_use]
    pub fn peer_address(&self) -> Option<SocketAddr> {
        self.socket.peer_addr().ok()
    }

    /// The certificate that the other end has shown, as DER.
    #[must_use]
    pub fn peer_certificate(&self) -> Option<&[u8]> {
        self.tls.as_ref()?.peer_certificate()
    }

    /// Has the owner of the loop be told when the connection lags, and when it has drained.
    pub fn watch(&mut self) {
        self.flags.watched = true;
    }

    /// Ends the sending half: the peer reads what is on its way, then the end of the stream.
    pub fn shut_down_sending(&self) {
        // It fails when the peer is gone, and then there is nothing to shut down.
        let _ = self.socket.shutdown(std::net::Shutdown::Write);
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
    /// Places without a connection that were lent.
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
    /// How many there are.
    #[must_use]
    pub fn len(&self) -> usize {
        self.slots.len() - self.free.len() - self.lent_count
    }

    /// Whether there are none.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// The place that the next connection gets.
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
        let key = self.take_place();
        self.slots[key.index as usize].connection = Some(connection);
        key
    }

    fn take_place(&mut self) -> Key {
        let key = self.next_key();
        if self.free.pop().is_none() {
            self.slots.push(Slot {
                generation: 0,
                connection: None,
            });
        }
        key
    }

    /// Lends a place to what is no connection, so that its key differs from all of theirs. To be given back.
    pub fn lend_place(&mut self) -> Key {
        self.lent_count += 1;
        self.take_place()
    }

    /// Takes a lent place back; whoever has it next has another generation.
    pub fn take_back(&mut self, key: Key) {
        let slot = &mut self.slots[key.index as usize];
        debug_assert!(
            slot.connection.is_none() && slot.generation == key.generation,
            "the place is lent"
        );
        slot.generation = slot.generation.wrapping_add(1);
        self.free.push(key.index);
        self.lent_count -= 1;
    }

    /// Takes a connection out. Its place is lent from here on, so that what belongs to its key can end before another one has the place.
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

    /// Whoever is in this place now.
    pub(crate) fn at_mut(&mut self, index: u32) -> Option<&mut Connection<C>> {
        self.slots.get_mut(index as usize)?.connection.as_mut()
    }

    /// The key of whoever is in this place now.
    pub(crate) fn key_at(&self, index: u32) -> Option<Key> {
        let slot = self.slots.get(index as usize)?;
        slot.connection.as_ref().map(|_| Key {
            index,
            generation: slot.generation,
        })
    }

    /// How many places there are, taken, lent or free.
    #[must_use]
    pub fn table_len(&self) -> usize {
        self.slots.len()
    }

    /// What is in `count` places from `first` on: a connection, or nothing where a place is free or lent.
    pub fn look(
        &self,
        first: usize,
        count: usize,
    ) -> impl Iterator<Item = (Key, Option<&Connection<C>>)> {
        let end = first.saturating_add(count).min(self.slots.len());
        let slots = self.slots.get(first..end).unwrap_or_default();
        // There are no more places than indexes.
        (first as u32..).zip(slots).map(|(index, slot)| {
            let generation = slot.generation;
            (Key { index, generation }, slot.connection.as_ref())
        })
    }

    /// All keys, by place.
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
        Connection {
            state,
            socket: TcpStream::connect(listener.local_addr().unwrap()).unwrap(),
            remainder: Remainder::default(),
            outbox: None,
            tls: None,
            flags: Flags::default(),
            counted_bytes: 0,
            traffic: Traffic::default(),
        }
    }

    #[test]
    fn a_place_used_again_has_another_generation() {
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
    fn a_lent_place_is_nobodys_and_comes_back_with_another_generation() {
        let mut connections = Connections::default();
        let lent = connections.lend_place();
        let own = connections.insert(connection(1));
        assert_ne!(lent.index, own.index);
        assert!(connections.get(lent).is_none());
        assert_eq!(connections.len(), 1);
        connections.take_back(lent);
        let again = connections.lend_place();
        assert_eq!((again.index, again.generation), (lent.index, 1));
        assert_eq!(connections.keys().collect::<Vec<_>>(), [own]);
    }
}
