//! The encrypted sends of a turn: the bytes for connections with TLS are sealed into one arena, from which a batch is
//! submitted.
//!
//! Sealed bytes have a fixed position in the order of records and can't be taken back. So at most as much is sealed
//! as one send may carry, and bytes that the kernel does not accept stay with the connection as ciphertext.

use std::ops::Range;

use crate::connection::Connection;
use crate::outbox::{LogRange, Outbox};
use crate::tls::{RECORD_BYTES_MAX, TlsError, TlsState};
use crate::turn_log::TurnLogs;

/// The largest plaintext that one send seals: a slow reader keeps the rest as ranges, which others share.
const SEALED_BYTES_MAX: usize = 8 * RECORD_BYTES_MAX;

/// A batch is submitted when the arena holds this much. More would leave the processor's cache before it is sent.
pub(crate) const ARENA_BYTES: usize = 512 << 10;

/// Ciphertext of one batch, reused for the next one.
#[derive(Debug, Default)]
pub(crate) struct Arena {
    bytes: Vec<u8>,
    used: usize,
    /// A record whose plaintext is in several places.
    collected: Vec<u8>,
}

impl Arena {
    /// Clears the previous batch.
    pub(crate) fn clear(&mut self) {
        self.used = 0;
    }

    /// Whether the batch must be submitted.
    pub(crate) fn is_full(&self) -> bool {
        self.used >= ARENA_BYTES
    }

    /// The ciphertext of one send.
    pub(crate) fn slice(&self, range: &Range<usize>) -> &[u8] {
        &self.bytes[range.clone()]
    }

    /// Seals the bytes for a connection, `new` ranges before its outbox, as far as one send carries them. The rest
    /// stays in the outbox.
    ///
    /// # Errors
    /// This connection can seal nothing more.
    pub(crate) fn seal<C>(
        &mut self,
        connection: &mut Connection<C>,
        new: &[LogRange],
        logs: &TurnLogs,
    ) -> Result<Range<usize>, TlsError> {
        let start = self.used;
        let Some(tls) = connection.tls.as_deref_mut() else {
            return Ok(start..start);
        };
        let outbox = connection.outbox.as_deref();
        let waiting = outbox.map_or(0, |outbox| outbox.sealed().len());
        let mut room = SEALED_BYTES_MAX.saturating_sub(waiting);
        let of_new = new
            .iter()
            .map(|range| logs.slice(range.format, &range.range));
        let of_outbox = outbox.into_iter().flat_map(|outbox| outbox.slices(logs));
        let mut record = Record::new(&mut self.collected);
        let mut taken = 0;
        for mut slice in of_new.chain(of_outbox) {
            slice = &slice[..slice.len().min(room)];
            room -= slice.len();
            taken += slice.len();
            while !slice.is_empty() {
                slice = record.take(slice);
                if record.is_full() {
                    seal_record(tls, &mut self.bytes, &mut self.used, &mut record)?;
                }
            }
            if room == 0 {
                break;
            }
        }
        seal_record(tls, &mut self.bytes, &mut self.used, &mut record)?;
        keep_rest(connection, new, taken);
        self.seal_end(connection)?;
        Ok(start..self.used)
    }

    /// Writes the close message after the last byte of a closing connection.
    fn seal_end<C>(&mut self, connection: &mut Connection<C>) -> Result<(), TlsError> {
        let has_more = connection
            .outbox
            .as_ref()
            .is_some_and(|outbox| outbox.piece_count() > 0);
        if let Some(tls) = connection.tls.as_deref_mut()
            && connection.flags.ending
            && !has_more
        {
            let room = room(&mut self.bytes, self.used, tls.room_for(0));
            self.used += tls.seal_end(room)?;
        }
        Ok(())
    }
}

fn room(bytes: &mut Vec<u8>, used: usize, wanted: usize) -> &mut [u8] {
    if bytes.len() < used + wanted {
        bytes.resize(used + wanted, 0);
    }
    &mut bytes[used..used + wanted]
}

fn seal_record(
    tls: &mut TlsState,
    bytes: &mut Vec<u8>,
    used: &mut usize,
    record: &mut Record<'_, '_>,
) -> Result<(), TlsError> {
    let plaintext = record.plaintext();
    if !plaintext.is_empty() {
        let room = room(bytes, *used, tls.room_for(plaintext.len()));
        *used += tls.seal(plaintext, room)?;
    }
    record.clear();
    Ok(())
}

/// Moves the bytes after the first `taken` ones of the ranges and the outbox to the outbox.
fn keep_rest<C>(connection: &mut Connection<C>, new: &[LogRange], mut taken: usize) {
    let mut left = Vec::new();
    for range in new {
        let here = range.bytes().min(taken);
        taken -= here;
        if here < range.bytes() {
            let from = range.range.start + here as u64;
            left.push(LogRange {
                format: range.format,
                range: from..range.range.end,
            });
        }
    }
    if let Some(outbox) = &mut connection.outbox {
        outbox.advance(taken);
    }
    if !left.is_empty() {
        let outbox: &mut Outbox = connection.outbox.get_or_insert_default();
        left.into_iter()
            .rev()
            .for_each(|range| outbox.push_range_front(range));
    }
}

/// The plaintext of the next record. It is copied only if it is in more than one place.
struct Record<'g, 's> {
    single: &'s [u8],
    collected: &'g mut Vec<u8>,
}

impl<'g, 's> Record<'g, 's> {
    fn new(collected: &'g mut Vec<u8>) -> Self {
        collected.clear();
        Self {
            single: &[],
            collected,
        }
    }

    /// Takes as much of `slice` as fits and returns the rest.
    fn take(&mut self, slice: &'s [u8]) -> &'s [u8] {
        let count = slice.len().min(RECORD_BYTES_MAX - self.plaintext().len());
        let (taken, rest) = slice.split_at(count);
        if self.plaintext().is_empty() {
            self.single = taken;
        } else {
            self.collected.extend_from_slice(self.single);
            self.collected.extend_from_slice(taken);
            self.single = &[];
        }
        rest
    }

    fn is_full(&self) -> bool {
        self.plaintext().len() == RECORD_BYTES_MAX
    }

    fn plaintext(&self) -> &[u8] {
        if self.collected.is_empty() {
            self.single
        } else {
            self.collected
        }
    }

    fn clear(&mut self) {
        self.single = &[];
        self.collected.clear();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_record_copies_only_bytes_from_several_slices() {
        let mut collected = Vec::new();
        let mut record = Record::new(&mut collected);
        let long = vec![7; RECORD_BYTES_MAX + 5];
        assert_eq!(record.take(&long).len(), 5);
        assert!(record.is_full() && record.collected.is_empty());
        record.clear();
        assert!(record.take(b"one").is_empty() && record.collected.is_empty());
        assert!(record.take(b"two").is_empty());
        assert!(record.take(b"three").is_empty());
        assert_eq!(record.plaintext(), b"onetwothree");
        assert_eq!(record.take(&long).len(), 5 + 11);
        assert!(record.is_full());
        record.clear();
        assert_eq!(record.plaintext(), b"");
    }
}
