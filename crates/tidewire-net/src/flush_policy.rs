//! Flush policy for large fan-outs: delays the first send while input keeps arriving, and includes input that arrives
//! during the flush.
//!
//! A send costs the same for any number of messages, so the policy avoids visiting a recipient twice. A single
//! message leaves at once. Decisions 12 and 16 have the figures.

use std::io;
use std::time::{Duration, Instant};

use crate::event_loop::{EventLoop, SLICE_SENDS_MAX};

/// The largest input of all sockets of a loop in a turn; the next turn starts with the rest.
pub const TURN_BYTES_MAX: usize = 4 << 20;

/// A turn that has read this many bytes stops polling before it flushes. This many bytes of the shortest messages
/// take four milliseconds to handle, in which the recipients wait, even if the flood is for others.
const AWAIT_BYTES_MAX: usize = 256 << 10;

/// The cost of a sleep for the waiting recipients, in sends.
const SENDS_PER_SLEEP: usize = 10;

/// The time of a send. Input that takes longer than [`SHORT_INPUT`] counts as many sends as fit into its time.
const SEND_TIME: Duration = Duration::from_micros(2);

/// Input that is handled in this time counts as one send.
const SHORT_INPUT: Duration = Duration::from_millis(2);

/// With fewer sends the loop polls without sleeping: their flush takes less than twenty sleeps.
const SLEEP_SENDS_MIN: usize = 256;

/// A turn with at most this many sends is small: polling again before it does not pay. Less than a slice, so that a
/// flush continues whatever the number of small turns in between.
pub const SMALL_TURN_SENDS_MAX: usize = SLICE_SENDS_MAX / 2;

/// The owner of a loop, which sends what its input leads to.
pub trait Owner {
    /// Its state of a connection.
    type State;

    /// Its loop.
    fn event_loop(&mut self) -> &mut EventLoop<Self::State>;

    /// The approximate number of pending sends.
    fn owed_count(&self) -> usize;

    /// Bytes read in this turn.
    fn turn_bytes(&self) -> usize;

    /// How long this turn has taken so far.
    fn turn_time(&self) -> Duration {
        Duration::ZERO
    }

    /// Whether sockets may be read.
    fn may_read(&self) -> bool {
        true
    }

    /// Handles the input of the last poll.
    ///
    /// # Errors
    /// The owner can't continue.
    fn take_input(&mut self) -> io::Result<()>;

    /// Sends to one slice of the recipients.
    fn send_slice(&mut self);
}

/// Flushes to all but the last slice of the recipients, to which a turn sends as to a few, and includes input from
/// before and during the flush: a waiting recipient gets it with the rest, and a served one gets one more send. It
/// ends when as many sends are done as there were recipients at first, because a steady flood would otherwise never
/// let the turn end.
///
/// # Errors
/// As for [`EventLoop::poll`] and [`Owner::take_input`].
pub fn flush(owner: &mut impl Owner) -> io::Result<()> {
    // `left` never grows, and each round decreases it by a slice. So the loop ends after as many sends as there were
    // recipients at first, even if new messages keep `owed_count` high. A slice is sent before the poll, so that
    // progress does not depend on the input. Only a round that brought many new recipients waits for more input: a
    // small turn would gain nothing from that.
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

/// Reads input that directly follows the previous input. It ends as soon as no input arrives, or when it has taken as
/// long as the flush will: one read costs about as much as a send. After the first arrival the loop sleeps between
/// polls, because a flood to many recipients lasts for milliseconds, and a processor that spins for that time is its
/// most expensive part.
fn await_input(owner: &mut impl Owner) -> io::Result<()> {
    let mut left = owner
        .owed_count()
        .saturating_sub(sends_in(owner.turn_time()));
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
        let start = Instant::now();
        owner.take_input()?;
        left = left.saturating_sub(sends_in(start.elapsed()));
        is_flood = true;
    }
    Ok(())
}

/// The number of sends that fit into the time of an input, if it was long: answers of a store, or the end of a session with many names.
fn sends_in(time: Duration) -> usize {
    match time > SHORT_INPUT {
        true => (time.as_nanos() / SEND_TIME.as_nanos()) as usize,
        false => 0,
    }
}
