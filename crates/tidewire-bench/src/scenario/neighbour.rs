//! Additional load on a server while latencies are measured. A neighbour has a separate thread and swarm, which run
//! while the measuring thread is idle, so that on a machine with one core for both it delays that thread as little as
//! possible.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{Sender, channel};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use tidewire_net::scheduling;

use super::unexpected;
use crate::connection::Subscription;
use crate::driver::Incoming;
use crate::failure::Failure;
use crate::swarm::Swarm;
use crate::target::Target;

/// The name that the crowd is subscribed to.
const FAN_OUT_NAME: &str = "bench/crowd";
/// The interval of the crowd's messages.
const FAN_OUT_INTERVAL: Duration = Duration::from_millis(100);
/// Bytes that a flood keeps waiting for its socket, so that the socket is never idle.
const FLOOD_BYTES: usize = 64 << 10;
/// The size and the interval of a stuck reader's messages.
const STUCK_BYTES: usize = 16 << 10;
const STUCK_INTERVAL: Duration = Duration::from_millis(5);
/// After this time a stuck reader has filled the buffers of both kernels and its outbox, and was disconnected.
const STUCK_TIME: Duration = Duration::from_secs(4);
/// The time limit for deliveries to the crowd.
const PATIENCE: Duration = Duration::from_secs(30);
/// The interval in which a writing neighbour checks whether it must end.
const POLL_INTERVAL: Duration = Duration::from_millis(20);

/// The work of a neighbour.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Neighbour {
    /// This many subscribers of another name, which get a message every 100 ms.
    FanOut(usize),
    /// The same with another one among them that never reads and also gets 3 MB per second; when it may have been
    /// disconnected, another one replaces it.
    FanOutWithStuckReader(usize),
    /// A connection publishes as fast as its socket accepts, without subscribers.
    Flood,
    /// A connection subscribes to a name that gets 3 MB per second, and never reads.
    StuckReader,
}

/// A running neighbour.
pub struct Working {
    is_over: Arc<AtomicBool>,
    thread: JoinHandle<Result<u64, Failure>>,
}

impl Neighbour {
    /// Its name in a cell's name.
    #[must_use]
    pub fn label(self) -> String {
        match self {
            Self::FanOut(count) => format!(" with {count} subscribers"),
            Self::FanOutWithStuckReader(count) => {
                format!(" with {count} subscribers and a stuck reader")
            }
            Self::Flood => " with a flood".to_owned(),
            Self::StuckReader => " with a stuck reader".to_owned(),
        }
    }

    /// Starts it and waits until it has opened its connections.
    ///
    /// # Errors
    /// It could not open them.
    pub fn start(self, target: &Target) -> Result<Working, Failure> {
        let is_over = Arc::new(AtomicBool::new(false));
        let (opened, ready) = channel();
        let (target, flag) = (target.clone(), Arc::clone(&is_over));
        let thread = std::thread::spawn(move || {
            // If the system refuses it, the measuring thread sometimes waits.
            let _ = scheduling::background();
            match self {
                Self::FanOut(count) => run_fan_out(&target, count, None, &flag, &opened),
                Self::FanOutWithStuckReader(count) => {
                    let stuck = Stuck::open(&target);
                    stuck.and_then(|stuck| run_fan_out(&target, count, Some(stuck), &flag, &opened))
                }
                Self::Flood => flood(&target, &flag, &opened),
                Self::StuckReader => stick(&target, &flag, &opened),
            }
        });
        let working = Working { is_over, thread };
        match ready.recv() {
            Ok(()) => Ok(working),
            // It ended before it was ready, and returns the reason.
            Err(_) => working.end().and_then(|_| {
                Err(Failure::Server(
                    "a neighbour ended before the measurement".to_owned(),
                ))
            }),
        }
    }
}

impl Working {
    /// Ends it. Returns the number of messages that it sent.
    ///
    /// # Errors
    /// A connection of it failed, or a delivery to the crowd is missing.
    pub fn end(self) -> Result<u64, Failure> {
        self.is_over.store(true, Ordering::Relaxed);
        self.thread
            .join()
            .unwrap_or_else(|_| Err(Failure::Server("a neighbour panicked".to_owned())))
    }
}

/// A member of a crowd that never reads.
struct Stuck {
    /// Never polled.
    reader: Swarm,
    since: Instant,
    /// The time of its next message.
    due: Instant,
    payload: String,
}

impl Stuck {
    const NAME: &str = "bench/stuck";

    fn open(target: &Target) -> Result<Self, Failure> {
        let mut reader = Swarm::new(target)?;
        let names = vec![FAN_OUT_NAME.to_owned(), Self::NAME.to_owned()];
        reader.open(1, |_| Subscription::Names(names.clone()))?;
        Ok(Self {
            reader,
            since: Instant::now(),
            due: Instant::now(),
            payload: format!("\"{}\"", "x".repeat(STUCK_BYTES)),
        })
    }

    /// Sends its pending messages, through the publisher of the crowd, and replaces it in time.
    fn feed(
        &mut self,
        target: &Target,
        swarm: &mut Swarm,
        publisher: usize,
    ) -> Result<(), Failure> {
        if self.since.elapsed() > STUCK_TIME {
            // Stays open until the next one is connected, so that the server always has one.
            let next = Self::open(target)?;
            drop(std::mem::replace(&mut self.reader, next.reader));
            self.since = next.since;
        }
        // Without the messages that were skipped while the crowd was opened.
        self.due = self.due.max(Instant::now() - POLL_INTERVAL);
        while self.due <= Instant::now() {
            swarm.send(publisher, |driver, out| {
                driver.publish(Self::NAME, &self.payload, out);
            })?;
            self.due += STUCK_INTERVAL;
        }
        Ok(())
    }
}

fn run_fan_out(
    target: &Target,
    count: usize,
    mut stuck: Option<Stuck>,
    is_over: &AtomicBool,
    opened: &Sender<()>,
) -> Result<u64, Failure> {
    let mut swarm = Swarm::new(target)?;
    swarm.open(count, |_| {
        Subscription::Names(vec![FAN_OUT_NAME.to_owned()])
    })?;
    swarm.open(1, |_| Subscription::Nothing)?;
    // If the measuring thread has failed, there is no receiver.
    let _ = opened.send(());
    let (mut sent, mut received) = (0, 0);
    let start = Instant::now();
    let mut last = start;
    loop {
        let due = start + FAN_OUT_INTERVAL * sent as u32;
        let is_ending = is_over.load(Ordering::Relaxed);
        if is_ending && received == sent * count as u64 {
            return Ok(sent);
        }
        if is_ending && last.elapsed() > PATIENCE {
            return Err(Failure::Server(format!(
                "the crowd received only {received} of {} deliveries",
                sent * count as u64
            )));
        }
        if Instant::now() >= due && !is_ending {
            swarm.send(count, |driver, out| {
                driver.publish(FAN_OUT_NAME, "1000000", out)
            })?;
            sent += 1;
        }
        if let Some(stuck) = stuck.as_mut().filter(|_| !is_ending) {
            stuck.feed(target, &mut swarm, count)?;
        }
        let due = Instant::now() + POLL_INTERVAL;
        swarm.receive_until(due, |connection, incoming| match incoming {
            Incoming::Delivery { .. } => {
                received += 1;
                last = Instant::now();
                Ok(())
            }
            other => Err(unexpected(connection, other)),
        })?;
    }
}

fn flood(target: &Target, is_over: &AtomicBool, opened: &Sender<()>) -> Result<u64, Failure> {
    let mut swarm = Swarm::new(target)?;
    swarm.open(1, |_| Subscription::Nothing)?;
    let _ = opened.send(());
    let mut sent = 0;
    while !is_over.load(Ordering::Relaxed) {
        let connection = swarm.connection_mut(0);
        while connection.outbox_bytes() < FLOOD_BYTES {
            connection.push(|driver, out| driver.publish("bench/flood", "1000000", out));
            sent += 1;
        }
        connection.flush()?;
        if connection.outbox_bytes() > 0 {
            swarm.receive_until(Instant::now() + POLL_INTERVAL, super::nothing)?;
        }
    }
    Ok(sent)
}

fn stick(target: &Target, is_over: &AtomicBool, opened: &Sender<()>) -> Result<u64, Failure> {
    const NAME: &str = "bench/stuck";
    let mut stuck = Swarm::new(target)?;
    stuck.open(1, |_| Subscription::Names(vec![NAME.to_owned()]))?;
    let mut swarm = Swarm::new(target)?;
    swarm.open(1, |_| Subscription::Nothing)?;
    let _ = opened.send(());
    let payload = format!("\"{}\"", "x".repeat(STUCK_BYTES));
    let mut sent = 0;
    while !is_over.load(Ordering::Relaxed) {
        swarm.send(0, |driver, out| driver.publish(NAME, &payload, out))?;
        sent += 1;
        let due = Instant::now() + STUCK_INTERVAL;
        while Instant::now() < due {
            swarm.receive_until(due, super::nothing)?;
        }
    }
    Ok(sent)
}
