//! One process of a test: a link with its driver, and the entries that arrived.

use std::sync::{Arc, Mutex};
use std::time::Duration;

use tidewire_cluster::carrier::Carrier;
use tidewire_cluster::driver::{Command, DrivenLink, Handled, drive};
use tidewire_link::frame::{Levels, Process};
use tidewire_link::limits::Limits;
use tidewire_link::link::{Config, Output, Stats, Suspicion};
use tokio::sync::mpsc;
use tokio::task::JoinHandle;
use tokio::time::{Instant, timeout_at};

/// All events of a test arrive within this time, on a busy machine too, where a broker may need a minute to start again.
pub const DEADLINE: Duration = Duration::from_secs(120);

pub struct Side {
    driven: Arc<DrivenLink>,
    commands: mpsc::UnboundedSender<Command>,
    outputs: mpsc::UnboundedReceiver<(Output, Stats)>,
    driving: JoinHandle<()>,
    handled: Arc<Mutex<Handled>>,
    /// The bytes that have arrived since the link began.
    pub arrived: Vec<u8>,
    pub linked: Option<u64>,
    pub lost: Vec<u64>,
    pub suspicion: Option<Suspicion>,
    pub is_congested: bool,
    pub stats: Stats,
    /// The last number that was delivered.
    delivered: u64,
    /// Deliveries are handled at once.
    pub is_handling: bool,
}

pub fn config(side: usize, birth: u64) -> Config {
    Config {
        local: Process {
            node: side as u16,
            birth,
        },
        peer: 1 - side as u16,
        peer_birth_min: 1,
        cluster: 5,
        levels: Levels { min: 1, max: 1 },
        limits: Limits::default(),
    }
}

/// Posts to the peer of a side, on any thread.
#[derive(Clone)]
pub struct Poster {
    birth: u64,
    driven: Arc<DrivenLink>,
    commands: mpsc::UnboundedSender<Command>,
}

impl Poster {
    pub fn post(&self, entries: Vec<u8>) {
        if !self.driven.post(self.birth, entries) {
            self.commands.send(Command::Run).expect("the driver runs");
        }
    }
}

impl Side {
    pub fn start(config: Config, carrier: Box<dyn Carrier>) -> Self {
        let (commands, orders) = mpsc::unbounded_channel();
        let (notify, outputs) = mpsc::unbounded_channel();
        let handled = Arc::new(Mutex::new(Handled::default()));
        let known = Arc::clone(&handled);
        let known = move || *known.lock().expect("not poisoned");
        let driven = Arc::new(DrivenLink::default());
        let driving = drive(
            Arc::clone(&driven),
            config,
            carrier,
            orders,
            known,
            move |output, stats| {
                let _ = notify.send((output, stats));
            },
        );
        Self {
            driven,
            commands,
            outputs,
            driving: tokio::spawn(driving),
            handled,
            arrived: Vec::new(),
            linked: None,
            lost: Vec::new(),
            suspicion: None,
            is_congested: false,
            stats: Stats::default(),
            delivered: 0,
            is_handling: true,
        }
    }

    /// The most bytes that may wait for the peer.
    pub fn link_bytes_max(&self) -> usize {
        Limits::default().link_bytes_max
    }

    /// Posts to the linked birth of the peer.
    pub fn poster(&self) -> Poster {
        Poster {
            birth: self.linked.expect("linked"),
            driven: Arc::clone(&self.driven),
            commands: self.commands.clone(),
        }
    }

    pub fn post(&self, entries: Vec<u8>) {
        self.poster().post(entries);
    }

    pub fn peer_left(&self, birth: u64) {
        self.order(Command::PeerLeft(birth));
    }

    pub fn handle(&mut self) {
        self.is_handling = true;
        self.end(self.linked.expect("linked"), self.delivered);
    }

    fn end(&self, birth: u64, number: u64) {
        *self.handled.lock().expect("not poisoned") = Handled { birth, number };
    }

    fn order(&self, command: Command) {
        self.commands.send(command).expect("the driver runs");
    }

    /// Takes outputs until the condition holds.
    pub async fn until(&mut self, what: &str, holds: impl Fn(&Self) -> bool) {
        let deadline = Instant::now() + DEADLINE;
        while !holds(self) {
            let output = timeout_at(deadline, self.outputs.recv()).await;
            let Ok(Some((output, stats))) = output else {
                let (linked, arrived) = (self.linked, self.arrived.len());
                panic!("{what}: not in time; linked to {linked:?}, {arrived} bytes arrived");
            };
            self.stats = stats;
            self.take(output);
        }
    }

    fn take(&mut self, output: Output) {
        match output {
            Output::Deliver {
                birth,
                number,
                entries,
            } => {
                self.arrived.extend(entries);
                self.delivered = number;
                if self.is_handling {
                    self.end(birth, number);
                }
            }
            Output::Linked { birth, .. } => {
                self.linked = Some(birth);
                self.arrived.clear();
            }
            Output::NodeLost { birth } => {
                self.linked = None;
                self.lost.push(birth);
            }
            Output::Suspect(suspicion) => self.suspicion = Some(suspicion),
            Output::Trusted => self.suspicion = None,
            Output::Congested(is_congested) => self.is_congested = is_congested,
            Output::Answered(_) => {}
            other => panic!("{other:?}"),
        }
    }
}

/// The process ends, with its connection.
impl Drop for Side {
    fn drop(&mut self) {
        self.driving.abort();
    }
}
