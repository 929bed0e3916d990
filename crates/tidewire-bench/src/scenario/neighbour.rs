//! What else a server has to do while latencies are measured. A neighbour has a thread and a swarm of its own, which runs while
//! the measuring thread is idle, so that on a machine with one core for both it delays that one as little as the system can.

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

/// What the crowd is subscribed to.
const CROWD: &str = "bench/crowd";
/// How often the crowd gets a message.
const CROWD_INTERVAL: Duration = Duration::from_millis(100);
/// What a flood keeps waiting for its socket, so that the socket never runs dry.
const FLOOD_BYTES: usize = 64 << 10;
/// A stuck reader is sent so many bytes so often.
const STUCK_BYTES: usize = 16 << 10;
const STUCK_INTERVAL: Duration = Duration::from_millis(5);
/// After this time a stuck reader has filled the buffers of both kernels and its outbox, and was cut.
const STUCK_TIME: Duration = Duration::from_secs(4);
/// Deliveries to the crowd come within this time.
const PATIENCE: Duration = Duration::from_secs(30);
/// How long a neighbour that writes waits before it looks whether it is to end.
const LOOK_INTERVAL: Duration = Duration::from_millis(20);

/// What a neighbour does.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Neighbour {
    /// So many subscribers of another name, which get a message every 100 ms.
    Crowd(usize),
    /// The same with one more among them that never reads and is sent 3 MB in a second besides; when it may have been cut,
    /// another one takes its place.
    StuckCrowd(usize),
    /// A connection publishes as fast as its socket takes it, to nobody.
    Flood,
    /// A connection subscribes to a name that gets 3 MB in a second, and never reads.
    StuckReader,
}

/// A neighbour at work.
pub struct Working {
    is_over: Arc<AtomicBool>,
    thread: JoinHandle<Result<u64, Failure>>,
}

impl Neighbour {
    /// As it stands in a cell's name.
    #[must_use]
    pub fn label(self) -> String {
        match self {
            Self::Crowd(count) => format!(" beside {count} subscribers"),
            Self::StuckCrowd(count) => format!(" beside {count} subscribers and a stuck one"),
            Self::Flood => " beside a flood".to_owned(),
            Self::StuckReader => " beside a stuck reader".to_owned(),
        }
    }

    /// Sets it to work and waits until it has opened its connections.
    ///
    /// # Errors
    /// It could not open them.
    pub fn start(self, target: &Target) -> Result<Working, Failure> {
        let is_over = Arc::new(AtomicBool::new(false));
        let (opened, ready) = channel();
        let (target, flag) = (target.clone(), Arc::clone(&is_over));
        let thread = std::thread::spawn(move || {
            // Where it is refused, the measuring thread waits now and then.
            let _ = scheduling::background();
            match self {
                Self::Crowd(count) => crowd(&target, count, None, &flag, &opened),
                Self::StuckCrowd(count) => {
                    let stuck = Stuck::open(&target);
                    stuck.and_then(|stuck| crowd(&target, count, Some(stuck), &flag, &opened))
                }
                Self::Flood => flood(&target, &flag, &opened),
                Self::StuckReader => stick(&target, &flag, &opened),
            }
        });
        let working = Working { is_over, thread };
        match ready.recv() {
            Ok(()) => Ok(working),
            // It ended before it was ready, and says why.
            Err(_) => working.end().and_then(|_| {
                Err(Failure::Server(
                    "a neighbour ended before its time".to_owned(),
                ))
            }),
        }
    }
}

impl Working {
    /// Ends it. How many messages it sent.
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

/// One of a crowd that never reads.
struct Stuck {
    /// Nobody looks at it.
    reader: Swarm,
    since: Instant,
    /// When it is to be sent the next message.
    due: Instant,
    payload: String,
}

impl Stuck {
    const NAME: &str = "bench/stuck";

    fn open(target: &Target) -> Result<Self, Failure> {
        let mut reader = Swarm::new(target)?;
        let names = vec![CROWD.to_owned(), Self::NAME.to_owned()];
        reader.open(1, |_| Subscription::Names(names.clone()))?;
        Ok(Self {
            reader,
            since: Instant::now(),
            due: Instant::now(),
            payload: format!("\"{}\"", "x".repeat(STUCK_BYTES)),
        })
    }

    /// Sends it what is due, through the publisher of the crowd, and replaces it in time.
    fn feed(
        &mut self,
        target: &Target,
        swarm: &mut Swarm,
        publisher: usize,
    ) -> Result<(), Failure> {
        if self.since.elapsed() > STUCK_TIME {
            // Kept open until the next one is there, so that the server never has none.
            let next = Self::open(target)?;
            drop(std::mem::replace(&mut self.reader, next.reader));
            self.since = next.since;
        }
        // Not what was left out while the crowd was opened.
        self.due = self.due.max(Instant::now() - LOOK_INTERVAL);
        while self.due <= Instant::now() {
            swarm.send(publisher, |driver, out| {
                driver.publish(Self::NAME, &self.payload, out);
            })?;
            self.due += STUCK_INTERVAL;
        }
        Ok(())
    }
}

fn crowd(
    target: &Target,
    count: usize,
    mut stuck: Option<Stuck>,
    is_over: &AtomicBool,
    opened: &Sender<()>,
) -> Result<u64, Failure> {
    let mut swarm = Swarm::new(target)?;
    swarm.open(count, |_| Subscription::Names(vec![CROWD.to_owned()]))?;
    swarm.open(1, |_| Subscription::Nothing)?;
    // Nobody waits any more if the measuring thread has failed.
    let _ = opened.send(());
    let (mut sent, mut received) = (0, 0);
    let start = Instant::now();
    let mut last = start;
    loop {
        let due = start + CROWD_INTERVAL * sent as u32;
        let is_ending = is_over.load(Ordering::Relaxed);
        if is_ending && received == sent * count as u64 {
            return Ok(sent);
        }
        if is_ending && last.elapsed() > PATIENCE {
            return Err(Failure::Server(format!(
                "the crowd received {received} of {} deliveries",
                sent * count as u64
            )));
        }
        if Instant::now() >= due && !is_ending {
            swarm.send(count, |driver, out| driver.publish(CROWD, "1000000", out))?;
            sent += 1;
        }
        if let Some(stuck) = stuck.as_mut().filter(|_| !is_ending) {
            stuck.feed(target, &mut swarm, count)?;
        }
        let due = Instant::now() + LOOK_INTERVAL;
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
            swarm.receive_until(Instant::now() + LOOK_INTERVAL, super::nothing)?;
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
