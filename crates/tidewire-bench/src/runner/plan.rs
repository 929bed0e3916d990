//! The plan of a run: the cells, their repetitions, contenders and time limits. One table; the times are chosen so
//! that `full` stays within an hour and `quick` within five minutes on two cores.

use super::contender::{Contender, Variant};
use crate::run_results::Role;

/// The extent of a run.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Profile {
    /// All cells, five turns.
    Full,
    /// A part of the cells, for function more than for figures.
    Quick,
}

/// The contenders of a cell.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Who {
    /// All contenders.
    All,
    /// Tidewire, the null server, and rivals with records.
    HasRecords,
    /// Tidewire, and rivals with rpc; the null server has none.
    HasRpc,
    /// Tidewire and the null server.
    Ours,
    /// Tidewire alone, against itself.
    Tidewire,
}

/// The transport of a cell.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Transport {
    /// Unencrypted and uncompressed.
    Clear,
    /// Encrypted.
    Tls,
    /// With permessage-deflate.
    Deflate,
    /// The same, and the messages of a turn come in one frame.
    Batched,
}

impl Transport {
    /// Whether connections are encrypted.
    #[must_use]
    pub fn has_tls(self) -> bool {
        self == Self::Tls
    }

    /// Whether they offer permessage-deflate, and Tidewire accepts it.
    #[must_use]
    pub fn has_compression(self) -> bool {
        matches!(self, Self::Deflate | Self::Batched)
    }

    /// Whether they announce that they read batches.
    #[must_use]
    pub fn has_batches(self) -> bool {
        self == Self::Batched
    }
}

/// Rounds of a turn.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Rounds {
    /// The minimum of measured ones; a fast server does more, so that its turn is long enough.
    pub measured: usize,
    /// The minimum before them; a server that was fast in the turn before does one in any case.
    pub warm_up: usize,
}

/// A cell of the plan.
#[derive(Clone, Debug)]
pub struct Planned {
    /// Its name in files.
    pub id: String,
    /// Its section of the report.
    pub group: &'static str,
    /// Its title.
    pub title: String,
    /// The subcommand and its arguments, without the server.
    pub arguments: Vec<String>,
    /// The same for rivals, if they need a smaller workload.
    pub rival_arguments: Option<Vec<String>>,
    /// The same for the null server.
    pub null_arguments: Option<Vec<String>>,
    /// The same for the variant of Tidewire.
    pub variant_arguments: Option<Vec<String>>,
    /// The rounds of a turn, if it has rounds.
    pub rounds: Option<Rounds>,
    /// The number of turns of each contender.
    pub turns: usize,
    /// The final number of turns of Tidewire and the null server, if a rare event decides their comparison.
    pub own_turns: Option<usize>,
    /// Seconds of a contender for all its turns together.
    pub seconds: u64,
    /// The contenders.
    pub who: Who,
    /// The additional variant of Tidewire.
    pub variant: Option<Variant>,
    /// Tidewire's shards.
    pub shards: usize,
    /// Whether the null server must look at names.
    pub null_has_rooms: bool,
    /// The transport; all except the plain one are Tidewire's alone.
    transport: Transport,
}

impl Planned {
    /// Whether `contender` takes part.
    #[must_use]
    pub fn takes(&self, contender: &Contender) -> bool {
        let role = contender.identity.role;
        let abilities = contender.protocol.abilities();
        if role == Role::Variant {
            return self.variant == contender.difference();
        }
        match self.who {
            Who::All => true,
            Who::HasRecords => abilities.records,
            Who::HasRpc => abilities.rpc && role != Role::Null,
            Who::Ours => role != Role::Rival,
            Who::Tidewire => role == Role::Tidewire,
        }
    }

    /// The generator's arguments for a contender of this role.
    #[must_use]
    pub fn arguments_for(&self, role: Role) -> &[String] {
        let own = match role {
            Role::Tidewire => None,
            Role::Variant => self.variant_arguments.as_ref(),
            Role::Null => self.null_arguments.as_ref(),
            Role::Rival => self.rival_arguments.as_ref(),
        };
        own.unwrap_or(&self.arguments)
    }

    /// The number of turns of a contender of this role.
    #[must_use]
    pub fn turns_of(&self, role: Role) -> usize {
        match role {
            Role::Tidewire | Role::Variant | Role::Null => self.own_turns.unwrap_or(self.turns),
            Role::Rival => self.turns,
        }
    }

    /// The transport of a contender.
    #[must_use]
    pub fn transport_of(&self, contender: &Contender) -> Transport {
        match contender.difference() {
            Some(Variant::Tls) => Transport::Tls,
            _ => self.transport,
        }
    }

    fn with(mut self, change: impl FnOnce(&mut Self)) -> Self {
        change(&mut self);
        self
    }
}

/// Subscribers, publishers, turns, minimum rounds of a turn, rounds of warm-up. If rounds are short, there are at
/// least 500 in turn. If they move half a million messages, a slow rival has five in its five turns; fast servers do
/// more, with one before them, so that a cold first one does not count.
const FULL_GRID: [(usize, usize, usize, usize, usize); 8] = [
    (10, 1, 5, 100, 50),
    (10, 5, 5, 100, 50),
    (100, 10, 5, 100, 20),
    (100, 50, 5, 10, 5),
    (1000, 100, 5, 2, 1),
    (1000, 500, 5, 1, 0),
    (10_000, 1000, 5, 1, 0),
    (10_000, 5000, 5, 1, 0),
];
/// Cells in which a line of the report is a ratio of two of our servers, or of ours to a rival, and in which a turn
/// is short compared with the machine's noise.
const SCATTERED: [&str; 3] = ["grid-1000-500", "grid-10000-1000", "grid-10000-5000"];
/// Turns of our servers there: the turns after a slow rival are the fewer ones, and the first is cold.
const SCATTERED_TURNS: usize = 11;
const QUICK_GRID: [(usize, usize, usize, usize, usize); 3] = [
    (10, 1, 3, 100, 50),
    (100, 10, 3, 50, 20),
    (1000, 500, 2, 1, 0),
];

/// Ticks of one publisher to 1,000 recipients, Tidewire against itself: their bytes, the number published at once,
/// their transport.
const TICKS: [(&str, &str, usize, usize, Transport); 7] = [
    ("ticks-2500", "2,500 bytes", 2500, 1, Transport::Clear),
    (
        "ticks-2500-deflate",
        "2,500 bytes, compressed",
        2500,
        1,
        Transport::Deflate,
    ),
    (
        "ticks-2500-tls",
        "2,500 bytes, TLS",
        2500,
        1,
        Transport::Tls,
    ),
    ("ticks-155", "20 of 155 bytes", 155, 20, Transport::Clear),
    (
        "ticks-155-deflate",
        "20 of 155 bytes, compression negotiated",
        155,
        20,
        Transport::Deflate,
    ),
    (
        "ticks-155-batched",
        "20 of 155 bytes, compressed in a batch",
        155,
        20,
        Transport::Batched,
    ),
    (
        "ticks-155-tls",
        "20 of 155 bytes, TLS",
        155,
        20,
        Transport::Tls,
    ),
];

/// Subscribers and publishers of a chat, with rules and without, and the minimum rounds of a turn.
const RULES: [(usize, usize, usize); 2] = [(100, 50, 100), (1000, 500, 5)];
/// Turns of each: the difference to detect is small, and so is a turn.
const RULES_TURNS: usize = 9;

/// Turns of Tidewire and the null server at a steady rate and with 250 pairs. The deciding thousandth of a turn is
/// three of its milliseconds, so one of five turns in which the machine stalls for that time moves the median.
const TAIL_TURNS: usize = 11;

/// Turns with a crowd: the second worst of a turn's 120 messages decides, and the machine's own threads delay one in
/// a hundred.
const FAN_OUT_TURNS: usize = 11;

/// The cells of a profile, in their order.
#[must_use]
pub fn cells(profile: Profile) -> Vec<Planned> {
    let (table, seconds): (&[_], u64) = match profile {
        Profile::Full => (&FULL_GRID, 120),
        Profile::Quick => (&QUICK_GRID, 15),
    };
    let mut cells: Vec<Planned> = table.iter().map(|row| grid(*row, seconds)).collect();
    let scattered = (profile == Profile::Full).then_some(SCATTERED_TURNS);
    for cell in cells
        .iter_mut()
        .filter(|cell| SCATTERED.contains(&&*cell.id))
    {
        cell.own_turns = scattered;
    }
    // Fewer idle connections than 10,000 would show the server's one-time setup.
    let (turns, idle_seconds, churn, connections) = match profile {
        Profile::Full => (5, 60, 100_000, 30_000),
        Profile::Quick => (1, 1, 2_000, 3_000),
    };
    // The only turn of a quick run warms up.
    let (rounds, warm_up) = match profile {
        Profile::Full => (1, 0),
        Profile::Quick => (2, 1),
    };
    let like_1000_500 = || {
        let row = (1000, 500, turns, rounds, warm_up);
        grid(row, seconds).with(|cell| cell.own_turns = scattered)
    };
    cells.push(like_1000_500().with(|cell| {
        "shards-2".clone_into(&mut cell.id);
        cell.group = "shards";
        "1000/500, Tidewire with two shards on one core".clone_into(&mut cell.title);
        (cell.who, cell.shards) = (Who::Ours, 2);
    }));
    cells.push(like_1000_500().with(|cell| {
        "records-grid".clone_into(&mut cell.id);
        cell.group = "records";
        "1000/500, patches of one record".clone_into(&mut cell.title);
        (cell.variant, cell.variant_arguments) =
            (Some(Variant::Events), Some(cell.arguments.clone()));
        cell.arguments.push("--records".to_owned());
        (cell.who, cell.null_has_rooms) = (Who::HasRecords, true);
    }));
    cells.extend(data_cells(profile, turns, seconds));
    cells.extend(latency_cells(profile, turns));
    cells.push(like_1000_500().with(|cell| {
        "tls".clone_into(&mut cell.id);
        cell.group = "tls";
        (cell.who, cell.variant) = (Who::Tidewire, Some(Variant::Tls));
    }));
    cells.extend(TICKS.map(|row| ticks(row, turns, seconds)));
    cells.extend(RULES.map(|row| rules(row, profile)));
    let idle = |seconds, churn| {
        words(&format!(
            "idle --connections 10000 --seconds {seconds} --churn {churn}"
        ))
    };
    let idle = cell("idle", "idle", "Idle connections").with(|cell| {
        cell.arguments = idle(idle_seconds, churn);
        // A server without heartbeats that frees memory at once needs no wait.
        cell.null_arguments = Some(idle(idle_seconds.min(5), churn));
        cell.rival_arguments = Some(idle(idle_seconds.min(5), 0));
        // Its time includes two waits and the churn.
        cell.seconds = if profile == Profile::Full { 300 } else { 30 };
        cell.null_has_rooms = true;
    });
    let connect = cell("connect", "connect", "New connections, 250 at a time").with(|cell| {
        let line = |connections| words(&format!("connect --connections {connections}"));
        cell.arguments = line(connections);
        cell.rival_arguments = Some(line(connections / 6));
        (cell.turns, cell.own_turns) = (turns, scattered);
    });
    // A full handshake each, which takes ten times as long.
    let idle_tls = with_tls(
        &idle,
        "idle-tls",
        &format!("idle --seconds {idle_seconds} --churn 0"),
    );
    let connect_tls = with_tls(
        &connect,
        "connect-tls",
        &format!("connect --connections {}", connections / 10),
    );
    cells.extend([idle, idle_tls, connect, connect_tls]);
    cells
}

/// The same with TLS, of Tidewire alone.
fn with_tls(cell: &Planned, id: &str, line: &str) -> Planned {
    cell.clone().with(|cell| {
        id.clone_into(&mut cell.id);
        cell.title += ", TLS";
        cell.arguments = words(line);
        (cell.rival_arguments, cell.null_arguments) = (None, None);
        (cell.who, cell.transport) = (Who::Tidewire, Transport::Tls);
    })
}

fn ticks(
    (id, title, payload_bytes, burst, transport): (&str, &str, usize, usize, Transport),
    turns: usize,
    seconds: u64,
) -> Planned {
    cell(id, "ticks", title).with(|cell| {
        cell.arguments = words(&format!(
            "grid --subscribers 1001 --publishers 1 --burst {burst} --payload-bytes {payload_bytes}"
        ));
        cell.rounds = rounds_of(10, 2);
        (cell.turns, cell.seconds) = (turns, seconds);
        (cell.who, cell.transport) = (Who::Tidewire, transport);
    })
}

/// Chat messages with rules and without.
fn rules((subscribers, publishers, rounds): (usize, usize, usize), profile: Profile) -> Planned {
    let title = format!("{subscribers}/{publishers}");
    cell(
        &format!("rules-{subscribers}-{publishers}"),
        "rules",
        &title,
    )
    .with(|cell| {
        cell.arguments = words(&format!(
            "grid --chat --subscribers {subscribers} --publishers {publishers}"
        ));
        cell.rounds = rounds_of(rounds, 2);
        cell.turns = match profile {
            Profile::Full => RULES_TURNS,
            Profile::Quick => 2,
        };
        (cell.who, cell.variant) = (Who::Tidewire, Some(Variant::Rules));
    })
}

/// Many names, many records, acknowledged writes, rpc.
fn data_cells(profile: Profile, turns: usize, seconds: u64) -> Vec<Planned> {
    let planned = |id: &str, group, title: &str, line: &str, rival_line: &str| {
        cell(id, group, title).with(|cell| {
            cell.arguments = words(line);
            cell.rival_arguments = Some(words(rival_line));
            (cell.turns, cell.seconds, cell.null_has_rooms) = (turns, seconds, true);
        })
    };
    let patches = "records --records 1000 --subscribers 10 --acks 0 --patches";
    let acks = "records --records 1 --subscribers 1 --patches 100 --acks";
    let rpc = "rpc --requests";
    let mut cells = vec![
        planned(
            "rooms",
            "rooms",
            "10,000 connections, 10 of 1,000 names each",
            "rooms",
            "rooms",
        )
        .with(|cell| {
            cell.who = Who::Ours;
            cell.rounds = rounds_of(2, 1);
        }),
        planned(
            "records-1000x10",
            "records",
            "1,000 records, 10 subscribers each",
            &format!("{patches} 50000"),
            &format!("{patches} 5000"),
        )
        .with(|cell| cell.who = Who::HasRecords),
        planned(
            "acks",
            "acks",
            "10 writers, 50 writes pending each",
            &format!("{acks} 20000"),
            &format!("{acks} 5000"),
        )
        .with(|cell| cell.who = Who::HasRecords),
        planned(
            "rpc",
            "rpc",
            "10 callers, 10 pending each, 10 providers",
            &format!("{rpc} 100000"),
            &format!("{rpc} 20000"),
        )
        .with(|cell| cell.who = Who::HasRpc),
    ];
    if profile == Profile::Quick {
        cells.retain(|cell| cell.id == "rpc" || cell.id == "acks");
    }
    cells
}

/// Latencies of pairs, alone and with neighbours, and of a steady rate.
fn latency_cells(profile: Profile, turns: usize) -> Vec<Planned> {
    let (seconds, turns) = match profile {
        Profile::Full => (3, turns),
        Profile::Quick => (1, 1),
    };
    let latency = |id: &str, group, title: &str, line: &str| {
        cell(id, group, title).with(|cell| {
            cell.arguments = words(&format!("{line} --seconds {seconds}"));
            (cell.turns, cell.null_has_rooms) = (turns, true);
        })
    };
    let with_neighbour = |neighbour: &str, title: &str| {
        let id = format!("beside-{neighbour}");
        let line = format!("pairs --pairs 1 --neighbour {neighbour}");
        latency(&id, "beside", title, &line).with(|cell| cell.who = Who::Ours)
    };
    let of_tails = (profile == Profile::Full).then_some(TAIL_TURNS);
    let pairs = latency("pairs-250", "latency", "250 pairs", "pairs --pairs 250");
    let mut cells = vec![pairs.with(|cell| cell.own_turns = of_tails)];
    if profile == Profile::Full {
        let pairs = latency("pairs-750", "latency", "750 pairs", "pairs --pairs 750");
        cells.push(pairs.with(|cell| cell.turns = 3));
    }
    cells.extend([
        latency("rate", "latency", "100 x 10 at 100,000/s", "rate").with(|cell| {
            cell.own_turns = of_tails;
        }),
        with_neighbour("flood", "With a flood"),
        with_neighbour("stuck-reader", "With a stuck reader"),
    ]);
    if profile == Profile::Full {
        let fan_out = with_neighbour("crowd", "With 10,000 subscribers");
        let stuck = with_neighbour("stuck-crowd", "");
        cells.push(fan_out.with(|cell| {
            cell.variant = Some(Variant::StuckReader);
            cell.variant_arguments = Some(stuck.arguments);
            cell.turns = FAN_OUT_TURNS;
        }));
    }
    cells
}

fn cell(id: &str, group: &'static str, title: &str) -> Planned {
    Planned {
        id: id.to_owned(),
        group,
        title: title.to_owned(),
        arguments: Vec::new(),
        rival_arguments: None,
        null_arguments: None,
        variant_arguments: None,
        rounds: None,
        turns: 1,
        own_turns: None,
        seconds: 120,
        who: Who::All,
        variant: None,
        shards: 1,
        null_has_rooms: false,
        transport: Transport::Clear,
    }
}

fn grid(row: (usize, usize, usize, usize, usize), seconds: u64) -> Planned {
    let (subscribers, publishers, turns, rounds, warm_up) = row;
    let title = format!("{subscribers}/{publishers}");
    cell(&format!("grid-{subscribers}-{publishers}"), "grid", &title).with(|cell| {
        cell.arguments = words(&format!(
            "grid --subscribers {subscribers} --publishers {publishers}"
        ));
        cell.rounds = rounds_of(rounds, warm_up);
        (cell.turns, cell.seconds) = (turns, seconds);
    })
}

fn rounds_of(measured: usize, warm_up: usize) -> Option<Rounds> {
    Some(Rounds { measured, warm_up })
}

fn words(line: &str) -> Vec<String> {
    line.split_whitespace().map(str::to_owned).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_command_line_understands_every_cell() {
        for profile in [Profile::Full, Profile::Quick] {
            for cell in cells(profile) {
                let program = ["tidewire-bench".to_owned()];
                let end = words(
                    "--url ws://127.0.0.1:1 --cell-seconds 1 --json x --compression --batches",
                );
                let check = |arguments: &[String]| {
                    let line = [&program[..], arguments, &end].concat();
                    let parsed = crate::cli::command().try_get_matches_from(line);
                    assert!(parsed.is_ok(), "{}: {:?}", cell.id, parsed.err());
                };
                for role in [Role::Tidewire, Role::Variant, Role::Null, Role::Rival] {
                    check(cell.arguments_for(role));
                }
            }
        }
    }

    #[test]
    fn names_are_unique_and_small_cells_have_500_rounds() {
        let full = cells(Profile::Full);
        let mut ids: Vec<_> = full.iter().map(|cell| &cell.id).collect();
        ids.sort_unstable();
        ids.dedup();
        assert_eq!(ids.len(), full.len());
        for cell in &full[..3] {
            assert!(
                cell.turns * cell.rounds.unwrap().measured >= 500,
                "{}",
                cell.id
            );
        }
    }
}
