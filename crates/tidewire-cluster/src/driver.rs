//! Drives a link over a carrier: reads the clock, and moves frames, posts and deliveries.
//!
//! A task drives each link (`drive`). Shards post on their own threads ([`DrivenLink::post`]), because a post that wakes the task costs more
//! processor time than the post. Both hold the lock of the state while they work, and a shard never waits for it.

use std::collections::VecDeque;
use std::fmt;
use std::future::{Future as _, poll_fn};
use std::pin::{Pin, pin};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll};
use std::time::Duration;

use tidewire_core::time::Instant;
use tidewire_link::link::{Config, Link, Output, Stats};
use tokio::sync::mpsc;
use tokio::time::Sleep;

use crate::carrier::{Carrier, CarrierEvent};

/// Frames that one poll takes before posts have their turn.
const FRAMES_MAX: usize = 64;
/// A task without other work reads after this time whether the shards have handled what it has delivered. At full speed a link would have
/// to send its window of 4 MiB within this time before it waited.
const HANDLED_INTERVAL: Duration = Duration::from_millis(5);
/// The task sends longer posts, so that a shard does not encrypt them while its clients wait.
const OWN_THREAD_BYTES_MAX: usize = 16 << 10;

/// An order for the task of a link.
#[derive(Debug)]
pub enum Command {
    /// [`DrivenLink::post`] has left work for the task.
    Run,
    /// The view has lost the peer with this birth.
    PeerLeft(u64),
}

/// The last delivery of a birth that the shards have handled, and all before it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Handled {
    /// The birth of the peer.
    pub birth: u64,
    /// The number of the delivery.
    pub number: u64,
}

/// A link with its carrier, which a task drives.
#[derive(Default)]
pub struct DrivenLink {
    clock: Clock,
    /// Batches for births of the peer. Only the holder of `state` takes them, so they keep their order.
    posts: Mutex<Vec<(u64, Vec<u8>)>>,
    /// `None` before the task has begun, and after its end.
    state: Mutex<Option<State>>,
}

struct State {
    link: Link,
    carrier: Box<dyn Carrier>,
    /// Read whenever the link sends, because a wake of the task for each delivery takes more time than most deliveries.
    handled: Box<dyn Fn() -> Handled + Send>,
    known: Handled,
    /// Outputs that the task has to pass on.
    outputs: VecDeque<Output>,
    /// When the task runs at the latest.
    runs_at: Option<Instant>,
}

/// Ends a link with its task, also if the task is aborted.
struct End<'a>(&'a DrivenLink);

/// Drives a link until the senders of its commands are dropped. `notify` receives all outputs but the frames, in order, with the counts of the
/// link. `handled` returns what the shards have handled.
pub async fn drive(
    driven: Arc<DrivenLink>,
    config: Config,
    carrier: Box<dyn Carrier>,
    mut commands: mpsc::UnboundedReceiver<Command>,
    handled: impl Fn() -> Handled + Send + 'static,
    mut notify: impl FnMut(Output, Stats),
) {
    let clock = &driven.clock;
    *driven.state() = Some(State {
        link: Link::new(config, clock.now()),
        carrier,
        handled: Box::new(handled),
        known: Handled::default(),
        outputs: VecDeque::new(),
        runs_at: None,
    });
    let _end = End(&driven);
    let mut timer = pin!(tokio::time::sleep(Duration::ZERO));
    poll_fn(|context| {
        let mut state = driven.state();
        let Some(state) = &mut *state else {
            return Poll::Ready(());
        };
        loop {
            loop {
                match commands.poll_recv(context) {
                    Poll::Ready(Some(Command::Run)) => {}
                    Poll::Ready(Some(Command::PeerLeft(birth))) => {
                        state.link.peer_left(clock.now(), birth);
                    }
                    Poll::Ready(None) => return Poll::Ready(()),
                    Poll::Pending => break,
                }
            }
            state.take_posts(&driven.posts, clock);
            state.send(&mut notify);
            let is_ready = state.poll_carrier(context, clock);
            let is_due = state.poll_timer(context, clock, timer.as_mut());
            let has_sent = state.send(&mut notify);
            if !is_ready && !is_due && !has_sent {
                return Poll::Pending;
            }
        }
    })
    .await;
}

impl fmt::Debug for DrivenLink {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("DrivenLink").finish_non_exhaustive()
    }
}

impl DrivenLink {
    /// Takes a batch of entries for a birth of the peer, and sends it if no other thread drives the link and the carrier takes it at once.
    /// Never blocks. Returns whether nothing is left to do: otherwise the task needs [`Command::Run`].
    #[must_use]
    pub fn post(&self, birth: u64, entries: Vec<u8>) -> bool {
        let is_short = entries.len() <= OWN_THREAD_BYTES_MAX;
        lock(&self.posts).push((birth, entries));
        if !is_short {
            return false;
        }
        // The holder may have taken the posts before this one came.
        let Ok(mut state) = self.state.try_lock() else {
            return false;
        };
        let Some(state) = &mut *state else {
            lock(&self.posts).clear();
            return true;
        };
        state.take_posts(&self.posts, &self.clock);
        state.take_outputs();
        let is_sent = state.carrier.flush();
        let deadline = state.link.deadline();
        let is_late = deadline.is_some_and(|at| state.runs_at.is_none_or(|runs| at < runs));
        is_sent && state.outputs.is_empty() && !is_late
    }

    fn state(&self) -> MutexGuard<'_, Option<State>> {
        lock(&self.state)
    }
}

impl Drop for End<'_> {
    fn drop(&mut self) {
        *self.0.state() = None;
        lock(&self.0.posts).clear();
    }
}

impl State {
    /// Gives the posts that wait to the link. They leave in one frame.
    fn take_posts(&mut self, posts: &Mutex<Vec<(u64, Vec<u8>)>>, clock: &Clock) {
        let now = clock.now();
        // Before the frames leave, which take the number along.
        let handled = (self.handled)();
        if handled != self.known {
            self.known = handled;
            self.link.handled(now, handled.birth, handled.number);
        }
        let posts = std::mem::take(&mut *lock(posts));
        if posts.is_empty() {
            return;
        }
        for (birth, entries) in posts {
            self.link.post(birth, &entries);
        }
        self.link.end_turn(now);
    }

    /// Gives frames to the carrier, and keeps the other outputs for the task. Returns whether the carrier must be polled.
    fn take_outputs(&mut self) -> bool {
        let mut has_sent = false;
        while let Some(output) = self.link.poll_output() {
            match output {
                Output::Send(frame) => {
                    self.carrier.send(&frame);
                    has_sent = true;
                }
                Output::Reset => {
                    self.carrier.reset();
                    has_sent = true;
                }
                other => self.outputs.push_back(other),
            }
        }
        has_sent
    }

    /// Gives frames to the carrier and the other outputs to `notify`. Returns whether the carrier must be polled.
    fn send(&mut self, notify: &mut impl FnMut(Output, Stats)) -> bool {
        let has_sent = self.take_outputs();
        for output in self.outputs.drain(..) {
            notify(output, self.link.stats());
        }
        has_sent
    }

    /// Takes events of the carrier. Returns whether more may be ready.
    fn poll_carrier(&mut self, context: &mut Context<'_>, clock: &Clock) -> bool {
        for _ in 0..FRAMES_MAX {
            match self.carrier.poll_event(context) {
                Poll::Pending => return false,
                Poll::Ready(CarrierEvent::Up) => self.link.carrier_up(clock.now()),
                Poll::Ready(CarrierEvent::Down) => self.link.carrier_down(clock.now()),
                Poll::Ready(CarrierEvent::Frame(frame)) => {
                    if let Err(error) = self.link.handle_frame(clock.now(), &frame) {
                        tracing::warn!(%error, "refused a frame of a link");
                    }
                }
            }
        }
        true
    }

    /// Handles time if the deadline has passed, and waits for the next one. Returns whether it has passed.
    fn poll_timer(
        &mut self,
        context: &mut Context<'_>,
        clock: &Clock,
        mut timer: Pin<&mut Sleep>,
    ) -> bool {
        self.runs_at = self.link.deadline();
        let Some(mut deadline) = self.runs_at else {
            return false;
        };
        let now = clock.now();
        if deadline <= now {
            self.link.handle_time(now);
            return true;
        }
        if self.link.has_unhandled() {
            deadline = deadline.min(now + HANDLED_INTERVAL);
            self.runs_at = Some(deadline);
        }
        timer.as_mut().reset(clock.at(deadline));
        timer.poll(context).is_ready()
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Monotonic time since the start of the link.
struct Clock(tokio::time::Instant);

impl Default for Clock {
    fn default() -> Self {
        Self(tokio::time::Instant::now())
    }
}

impl Clock {
    fn now(&self) -> Instant {
        // A ping has its time as number, which is not 0.
        Instant(1) + self.0.elapsed()
    }

    fn at(&self, time: Instant) -> tokio::time::Instant {
        self.0 + Duration::from_nanos(time.0)
    }
}
