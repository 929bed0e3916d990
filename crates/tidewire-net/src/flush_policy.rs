//! Flush policy for large fan-outs: delays the first send while input keeps arriving, and takes in what arrives during the flush.
//!
//! A send costs the same however many messages it carries, so the policy avoids visiting a recipient twice. A lone message
//! leaves at once. Decisions 12 and 16 have the figures.

use std::io;

use crate::event_loop::{EventLoop, SLICE_SENDS_MAX};

/// What all sockets of a loop together may give in a turn; the rest comes first in the next one.
pub const TURN_BYTES_MAX: usize = 4 << 20;

/// A turn that has read this many bytes polls no more before it flushes. This many bytes of the shortest messages take four
/// milliseconds to handle, and the recipients wait meanwhile, even if the flood is for others.
const AWAIT_BYTES_MAX: usize = 256 << 10;

/// What a sleep costs the recipients that wait, in sends.
const SENDS_PER_SLEEP: usize = 10;

/// With fewer sends the loop polls without sleeping: their flush takes less than twenty sleeps.
const SLEEP_SENDS_MIN: usize = 256;

/// A turn with at most this many sends is small: polling again before it does not pay. Less than a slice, so that a flush goes on however
/// many small turns come between.
pub const SMALL_TURN_SENDS_MAX: usize = SLICE_SENDS_MAX / 2;

/// The owner of a loop, which sends what its input leads to.
pub trait Owner {
    /// What it keeps with a connection.
    type State;

    /// Its loop.
    fn event_loop(&mut self) -> &mut EventLoop<Self::State>;

    /// About how many sends are owed.
    fn owed_count(&self) -> usize;

    /// Bytes read in this turn.
    fn turn_bytes(&self) -> usize;

    /// Whether sockets may be read.
    fn may_read(&self) -> bool {
        true
    }

    /// Takes in whatever the last poll has found.
    ///
    /// # Errors
    /// The owner can't go on.
    fn take_input(&mut self) -> io::Result<()>;

    /// Sends to one slice of those who are owed something.
    fn send_slice(&mut self);
}

/// Flushes to all but the last slice of the recipients, to which a turn sends as to a few, and takes in what comes before and
/// meanwhile: who still waits gets it with the rest, and everybody else once more. When as many sends are done as there were
/// recipients, it is over, or a steady flood would never let the turn end.
///
/// # Errors
/// As of [`EventLoop::poll`] and [`Owner::take_input`].
pub fn flush(owner: &mut impl Owner) -> io::Result<()> {
    await_input(owner)?;
    let mut left = owner.owed_count();
    while left > SLICE_SENDS_MAX && owner.turn_bytes() < TURN_BYTES_MAX {
        owner.send_slice();
        left = (left - SLICE_SENDS_MAX).min(owner.owed_count());
        owner.event_loop().poll_again()?;
        let owed = owner.owed_count();
        owner.take_input()?;
        if owner.owed_count() > owed + SMALL_TURN_SENDS_MAX {
            await_input(owner)?;
        }
    }
    Ok(())
}

/// Takes in what arrives right behind what was read. It ends as soon as nothing arrives, or when it has taken as long as the
/// flush will: one read costs about as much as a send. After the first arrival the loop sleeps between polls, because a
/// flood to many recipients goes on for milliseconds, and a processor that spins all the while is its most expensive part.
fn await_input(owner: &mut impl Owner) -> io::Result<()> {
    let mut left = owner.owed_count();
    let mut is_flood = false;
    while left > 0 && owner.turn_bytes() < AWAIT_BYTES_MAX && owner.may_read() {
        let owed = owner.owed_count();
        let sleeps = is_flood && owed >= SLEEP_SENDS_MIN;
        let has_come = match sleeps {
            true => owner.event_loop().sleep_and_poll()?,
            false => owner.event_loop().poll_repeatedly(owed)?,
        };
        if !has_come {
            break;
        }
        left = left.saturating_sub(if sleeps { SENDS_PER_SLEEP } else { 1 });
        owner.take_input()?;
        is_flood = true;
    }
    Ok(())
}
