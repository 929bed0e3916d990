//! How a turn flushes to a crowd: it waits as long as others keep coming, and takes in what comes while the flush goes on.
//!
//! A send costs the same however many messages it carries, so what counts is that nobody is visited twice. A lone message
//! leaves at once. Decisions 12 and 16 have the figures.

use std::io;

use crate::event_loop::{EventLoop, SLICE_SENDS_MAX};

/// What all sockets of a loop together may give in a turn; the rest comes first in the next one.
pub const TURN_BYTES_MAX: usize = 4 << 20;

/// A turn that has read so much looks around no more. So much of the shortest messages takes four milliseconds to handle, and
/// the crowd waits meanwhile, be it a flood to somebody else.
const LOOK_BYTES_MAX: usize = 256 << 10;

/// What a nap costs those who wait, in sends.
const SENDS_PER_NAP: usize = 10;

/// To fewer the loop looks without a rest: their flush takes less than twenty naps.
const NAP_SENDS_MIN: usize = 256;

/// A turn of so many sends is small: they are not worth looking around for. Less than a slice, so that a flush goes on however
/// many small turns come between.
pub const SMALL_TURN_SENDS_MAX: usize = SLICE_SENDS_MAX / 2;

/// Who owns a loop and has to send what it gathers.
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
    fn gather(&mut self) -> io::Result<()>;

    /// Sends to one slice of those who are owed something.
    fn send_slice(&mut self);
}

/// Flushes to all but the last slice of the crowd, to which a turn sends as to a few, and takes in what comes before and
/// meanwhile: who still waits gets it with the rest, and everybody else once more. When as many sends are done as there were
/// recipients, it is over, or a steady flood would never let the turn end.
///
/// # Errors
/// As of [`EventLoop::poll`] and [`Owner::gather`].
pub fn send(owner: &mut impl Owner) -> io::Result<()> {
    look_around(owner)?;
    let mut left = owner.owed_count();
    while left > SLICE_SENDS_MAX && owner.turn_bytes() < TURN_BYTES_MAX {
        owner.send_slice();
        left = (left - SLICE_SENDS_MAX).min(owner.owed_count());
        owner.event_loop().look()?;
        let owed = owner.owed_count();
        owner.gather()?;
        if owner.owed_count() > owed + SMALL_TURN_SENDS_MAX {
            look_around(owner)?;
        }
    }
    Ok(())
}

/// Takes in what comes right behind what was read. It ends as soon as nobody comes, or when it has taken as long as the flush
/// will: to read somebody costs about as much as a send. Once somebody has come the others are awaited asleep, because a
/// large crowd's flood goes on for milliseconds, and a processor that spins all the while is the dearest part of it.
fn look_around(owner: &mut impl Owner) -> io::Result<()> {
    let mut left = owner.owed_count();
    let mut is_flood = false;
    while left > 0 && owner.turn_bytes() < LOOK_BYTES_MAX && owner.may_read() {
        let owed = owner.owed_count();
        let naps = is_flood && owed >= NAP_SENDS_MIN;
        let has_come = match naps {
            true => owner.event_loop().nap()?,
            false => owner.event_loop().look_around(owed)?,
        };
        if !has_come {
            break;
        }
        left = left.saturating_sub(if naps { SENDS_PER_NAP } else { 1 });
        owner.gather()?;
        is_flood = true;
    }
    Ok(())
}
