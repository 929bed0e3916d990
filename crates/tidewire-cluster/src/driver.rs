//! The task that drives a link over a carrier: it reads the clock, and moves frames, posts and deliveries.

use std::future::{Future as _, poll_fn};
use std::pin::pin;
use std::task::{Context, Poll};
use std::time::Duration;

use tidewire_core::time::Instant;
use tidewire_link::link::{Config, Link, Output, Stats};
use tokio::sync::mpsc;
use tokio::time::Sleep;

use crate::carrier::{Carrier, CarrierEvent};

/// Frames that one poll takes before posts have their turn.
const FRAMES_MAX: usize = 64;

/// An order for a link.
#[derive(Debug)]
pub enum Command {
    /// Entries for a birth of the peer: one or several batches. All posts that wait leave in one frame.
    Post {
        /// The birth of the peer.
        birth: u64,
        /// The batches.
        entries: Vec<u8>,
    },
    /// The shards have handled all deliveries of a birth up to a number.
    Handled {
        /// The birth of the peer.
        birth: u64,
        /// The number.
        number: u64,
    },
    /// The view has lost the peer with this birth.
    PeerLeft(u64),
}

/// Drives a link until the senders of its commands are dropped. `notify` receives all outputs but the frames, in order, with the counts of the
/// link.
pub async fn drive(
    config: Config,
    mut carrier: impl Carrier,
    mut commands: mpsc::UnboundedReceiver<Command>,
    mut notify: impl FnMut(Output, Stats),
) {
    let clock = Clock::new();
    let mut link = Link::new(config, clock.now());
    let mut timer = pin!(tokio::time::sleep(Duration::ZERO));
    poll_fn(|context| {
        loop {
            let mut is_posted = false;
            loop {
                match commands.poll_recv(context) {
                    Poll::Ready(Some(Command::Post { birth, entries })) => {
                        link.post(birth, &entries);
                        is_posted = true;
                    }
                    Poll::Ready(Some(Command::Handled { birth, number })) => {
                        link.handled(clock.now(), birth, number);
                    }
                    Poll::Ready(Some(Command::PeerLeft(birth))) => {
                        link.peer_left(clock.now(), birth);
                    }
                    Poll::Ready(None) => return Poll::Ready(()),
                    Poll::Pending => break,
                }
            }
            if is_posted {
                link.end_turn(clock.now());
            }
            take_outputs(&mut link, &mut carrier, &mut notify);
            let is_ready = poll_carrier(context, &clock, &mut link, &mut carrier);
            let is_due = poll_timer(context, &clock, &mut link, timer.as_mut());
            let has_sent = take_outputs(&mut link, &mut carrier, &mut notify);
            if !is_ready && !is_due && !has_sent {
                return Poll::Pending;
            }
        }
    })
    .await;
}

/// Takes events of the carrier. Returns whether more may be ready.
fn poll_carrier(
    context: &mut Context<'_>,
    clock: &Clock,
    link: &mut Link,
    carrier: &mut impl Carrier,
) -> bool {
    for _ in 0..FRAMES_MAX {
        match carrier.poll_event(context) {
            Poll::Pending => return false,
            Poll::Ready(CarrierEvent::Up) => link.carrier_up(clock.now()),
            Poll::Ready(CarrierEvent::Down) => link.carrier_down(clock.now()),
            Poll::Ready(CarrierEvent::Frame(frame)) => {
                if let Err(error) = link.handle_frame(clock.now(), &frame) {
                    tracing::warn!(%error, "refused a frame of a link");
                }
            }
        }
    }
    true
}

/// Handles time if the deadline has passed, and waits for the next one. Returns whether it has passed.
fn poll_timer(
    context: &mut Context<'_>,
    clock: &Clock,
    link: &mut Link,
    mut timer: std::pin::Pin<&mut Sleep>,
) -> bool {
    let Some(deadline) = link.deadline() else {
        return false;
    };
    let now = clock.now();
    if deadline <= now {
        link.handle_time(now);
        return true;
    }
    timer.as_mut().reset(clock.at(deadline));
    timer.poll(context).is_ready()
}

/// Returns whether frames were given to the carrier, which then must be polled.
fn take_outputs(
    link: &mut Link,
    carrier: &mut impl Carrier,
    notify: &mut impl FnMut(Output, Stats),
) -> bool {
    let mut has_sent = false;
    while let Some(output) = link.poll_output() {
        match output {
            Output::Send(frame) => {
                carrier.send(&frame);
                has_sent = true;
            }
            Output::Reset => {
                carrier.reset();
                has_sent = true;
            }
            other => notify(other, link.stats()),
        }
    }
    has_sent
}

/// Monotonic time since the start of the link.
struct Clock(tokio::time::Instant);

impl Clock {
    fn new() -> Self {
        Self(tokio::time::Instant::now())
    }

    fn now(&self) -> Instant {
        // A ping has its time as number, which is not 0.
        Instant(1) + self.0.elapsed()
    }

    fn at(&self, time: Instant) -> tokio::time::Instant {
        self.0 + Duration::from_nanos(time.0)
    }
}
