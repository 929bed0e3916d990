//! The lines of issues 3 and 4 ("Done when") that this bench can check, each computed from the figures of a run.

use super::figures::{CPU, DELIVERIES, ROUND, short};
use crate::run_results::{MeasuredCell, Role, RunResults};

/// The cells of the grid, the small ones first.
const GRID: [&str; 8] = [
    "grid-10-1",
    "grid-10-5",
    "grid-100-10",
    "grid-100-50",
    "grid-1000-100",
    "grid-1000-500",
    "grid-10000-1000",
    "grid-10000-5000",
];
/// The cells whose latencies are compared with rivals'.
const LATENCY: [&str; 2] = ["pairs-250", "rate"];
/// Bytes on the wire for each delivery.
const BYTES: &str = "bytes_per_delivery";
/// A pair's latency.
const P99: &str = "latency_ms_p99";
/// The number of grid cells that wake-ups decide.
const SMALL: usize = 3;
/// The minimum of their rounds.
const SMALL_ROUNDS_MIN: usize = 500;

/// Whether a line is met.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum State {
    /// In every cell.
    Met,
    /// Not in at least one cell.
    NotMet,
    /// A figure that it needs is missing.
    NotMeasured,
}

/// A line with its result.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LineResult {
    /// The requirement.
    pub line: &'static str,
    /// Its state.
    pub state: State,
    /// The figures, cell by cell, or the missing ones.
    pub figures: String,
}

/// The result of a line in a cell: whether it holds there, and its figure.
type CheckedCell = Option<(bool, String)>;

/// All lines.
#[must_use]
pub fn verdicts(results: &RunResults) -> Vec<LineResult> {
    let over = |line, cells: &[&str], check: &dyn Fn(&MeasuredCell) -> CheckedCell| {
        let checked = cells
            .iter()
            .map(|id| (*id, results.cell(id).and_then(check)));
        verdict(line, checked.collect())
    };
    vec![
        over(
            "Deliveries per server-CPU-second above every rival's in all eight cells",
            &GRID,
            &|cell| above_rivals(cell, DELIVERIES),
        ),
        over(
            "With 100 subscribers or more, at least 0.85 of the null server's deliveries per CPU-second",
            &GRID[2..],
            &|cell| at_least_of_null(cell, DELIVERIES, 0.85),
        ),
        over(
            "With 100 subscribers or more, the median round is below every rival's",
            &GRID[2..],
            &|cell| {
                let (rival, ratio) = cell.ratio_to_rivals(ROUND, false)?;
                Some((ratio < 1.0, format!("{ratio:.2} x {rival}")))
            },
        ),
        over(
            "In 10/1, 10/5 and 100/10 the median round is at most 1.1 x that of the best rival or the null server, over at least 500 rounds",
            &GRID[..SMALL],
            &small_round,
        ),
        over(
            "The null server reaches at least 10 x Bun's native publish at 1000/500",
            &["grid-1000-500"],
            &|cell| {
                let bun = cell.contenders.iter().find(|one| one.name == "bun")?;
                at_least(cell.one(Role::Null)?.ratio(bun, DELIVERIES)?, 10.0)
            },
        ),
        over(
            "10,000 connections on 10 of 1,000 names each: at least 0.7 of the null server",
            &["rooms"],
            &|cell| at_least_of_null(cell, DELIVERIES, 0.7),
        ),
        over(
            "1000/500 with two shards on one core: at least 0.7 of the null server",
            &["shards-2"],
            &|cell| at_least_of_null(cell, DELIVERIES, 0.7),
        ),
        over(
            "1000/500 with records: at least 0.7 of the null server",
            &["records-grid"],
            &|cell| at_least_of_null(cell, DELIVERIES, 0.7),
        ),
        over(
            "Patches of one record to 1,000 subscribers reach at least 0.7 of the events' deliveries per CPU-second (1000/500)",
            &["records-grid"],
            &|cell| at_least(cell.ratio(Role::Tidewire, Role::Variant, DELIVERIES)?, 0.7),
        ),
        over(
            "1,000 records with 10 subscribers each: above every rival with records",
            &["records-1000x10"],
            &|cell| above_rivals(cell, DELIVERIES),
        ),
        over(
            "Requests per server-CPU-second above every rival's",
            &["rpc"],
            &|cell| above_rivals(cell, "requests_per_server_cpu_second"),
        ),
        over(
            "A pair with 10,000 subscribers, a flood or a stuck reader as neighbours: p99 at most 5 ms",
            &["beside-crowd", "beside-flood", "beside-stuck-reader"],
            &|cell| {
                let p99 = cell.of(Role::Tidewire, P99)?;
                Some((p99 <= 5.0, format!("{p99:.2} ms")))
            },
        ),
        over(
            "A stuck reader among 10,000 does not delay other connections: p99 at most 1.5 x that without it",
            &["beside-crowd"],
            &|cell| {
                let ratio = cell.ratio(Role::Variant, Role::Tidewire, P99)?;
                Some((ratio <= 1.5, format!("{ratio:.2} x")))
            },
        ),
        over(
            "250 pairs and 100,000 deliveries/s: median latency at most 1.15 x the best rival's",
            &LATENCY,
            &|cell| latency_of_rivals(cell, "latency_ms_p50", 1.15),
        ),
        over(
            "250 pairs and 100,000 deliveries/s: server CPU per message at most 1.15 x the best rival's",
            &LATENCY,
            &|cell| latency_of_rivals(cell, "server_us_per_message", 1.15),
        ),
        over(
            "250 pairs and 100,000 deliveries/s: p99 at most 1.5 x the best rival's",
            &LATENCY,
            &|cell| latency_of_rivals(cell, "latency_ms_p99", 1.5),
        ),
        over(
            "250 pairs and 100,000 deliveries/s: p99.9 at most 1.5 x the null server's, nothing lost",
            &LATENCY,
            &|cell| {
                let ratio = cell.ratio(Role::Tidewire, Role::Null, "latency_ms_p99_9")?;
                // A lost message fails its turn.
                let is_whole = cell.contenders.iter().all(|one| {
                    one.role != Role::Tidewire || one.failure.is_none() && !one.is_over_time()
                });
                Some((ratio <= 1.5 && is_whole, format!("{ratio:.2} x")))
            },
        ),
        over(
            "TLS at 1000/500: at least 0.6 of the deliveries per CPU-second without TLS",
            &["tls"],
            &|cell| at_least(cell.ratio(Role::Variant, Role::Tidewire, DELIVERIES)?, 0.6),
        ),
        over(
            "With permessage-deflate, ticks of 2.5 KB need at least 60 % fewer bytes",
            &["ticks-2500-deflate"],
            &|cell| fewer_bytes(cell, results.cell("ticks-2500")?),
        ),
        over(
            "Ticks of 155 bytes, 20 a turn, in the batched form need at least 60 % fewer bytes",
            &["ticks-155-batched"],
            &|cell| fewer_bytes(cell, results.cell("ticks-155")?),
        ),
        over(
            "Single messages of 155 bytes are sent uncompressed",
            &["ticks-155-deflate"],
            &|cell| {
                let plain = results.cell("ticks-155")?.of(Role::Tidewire, BYTES)?;
                let bytes = cell.of(Role::Tidewire, BYTES)?;
                // The prices in the ticks change from round to round, and with them their digits.
                Some((
                    bytes >= 0.99 * plain,
                    format!("{bytes:.1} bytes, plain {plain:.1}"),
                ))
            },
        ),
        over(
            "Compressed messages to 1,000 recipients cost less CPU per delivery than uncompressed ones with TLS",
            &["ticks-2500-deflate", "ticks-155-batched"],
            &|cell| {
                let tls = match cell.id.as_str() {
                    "ticks-2500-deflate" => "ticks-2500-tls",
                    _ => "ticks-155-tls",
                };
                let tls = results.cell(tls)?.of(Role::Tidewire, CPU)?;
                let ratio = cell.of(Role::Tidewire, CPU)? / tls;
                Some((ratio < 1.0, format!("{ratio:.2} x")))
            },
        ),
        over(
            "With 24 permission rules at most 1.15 x the server processor time per delivery without rules",
            &["rules-100-50", "rules-1000-500"],
            &|cell| {
                let ratio = cell.ratio(Role::Variant, Role::Tidewire, CPU)?;
                Some((ratio <= 1.15, format!("{ratio:.2} x")))
            },
        ),
        over(
            "An idle connection costs at most 600 bytes of user memory, also after churn",
            &["idle"],
            &idle,
        ),
        over(
            "An idle connection with TLS costs at most 5,000 bytes",
            &["idle-tls"],
            &|cell| {
                let bytes = cell.of(Role::Tidewire, "connection_bytes")?;
                Some((bytes <= 5_000.0, format!("{bytes:.0} bytes")))
            },
        ),
        over(
            "At least 15,000 new connections per second",
            &["connect"],
            &|cell| {
                let rate = cell.of(Role::Tidewire, "connections_per_second")?;
                Some((rate >= 15_000.0, short(rate)))
            },
        ),
    ]
}

fn verdict(line: &'static str, checked: Vec<(&str, CheckedCell)>) -> LineResult {
    let missing: Vec<&str> = checked
        .iter()
        .filter_map(|(cell, checked)| checked.is_none().then_some(*cell))
        .collect();
    let is_met = |(_, checked): &(&str, CheckedCell)| checked.as_ref().is_none_or(|(met, _)| *met);
    let state = match (checked.iter().all(is_met), missing.is_empty()) {
        (false, _) => State::NotMet,
        (true, false) => State::NotMeasured,
        (true, true) => State::Met,
    };
    let mut figures: Vec<String> = checked
        .iter()
        .filter_map(|(cell, checked)| {
            let (is_met, figure) = checked.as_ref()?;
            let mark = if *is_met { "" } else { " (not met)" };
            Some(format!("{cell}: {figure}{mark}"))
        })
        .collect();
    if !missing.is_empty() {
        figures.push(format!("not measured: {}", missing.join(", ")));
    }
    LineResult {
        line,
        state,
        figures: figures.join("; "),
    }
}

fn at_least(ratio: f64, ratio_min: f64) -> CheckedCell {
    Some((ratio >= ratio_min, format!("{ratio:.2} x")))
}

fn above_rivals(cell: &MeasuredCell, figure: &str) -> CheckedCell {
    let (rival, ratio) = cell.ratio_to_rivals(figure, true)?;
    Some((ratio > 1.0, format!("{ratio:.2} x {rival}")))
}

fn at_least_of_null(cell: &MeasuredCell, figure: &str, ratio_min: f64) -> CheckedCell {
    at_least(cell.ratio(Role::Tidewire, Role::Null, figure)?, ratio_min)
}

fn latency_of_rivals(cell: &MeasuredCell, figure: &str, ratio_max: f64) -> CheckedCell {
    let (rival, ratio) = cell.ratio_to_rivals(figure, false)?;
    Some((ratio <= ratio_max, format!("{ratio:.2} x {rival}")))
}

fn small_round(cell: &MeasuredCell) -> CheckedCell {
    let own = cell.one(Role::Tidewire)?.figure(ROUND)?;
    let (rival, best) = cell.best_rival(ROUND, false)?;
    let null = cell.of(Role::Null, ROUND)?;
    let (name, best) = if null < best {
        ("the null server", null)
    } else {
        (rival, best)
    };
    let ratio = own.value / best;
    let is_met = ratio <= 1.1 && own.count >= SMALL_ROUNDS_MIN;
    Some((is_met, format!("{ratio:.2} x {name}, {} rounds", own.count)))
}

fn fewer_bytes(cell: &MeasuredCell, plain: &MeasuredCell) -> CheckedCell {
    let bytes = cell.of(Role::Tidewire, BYTES)?;
    let fewer = 1.0 - bytes / plain.of(Role::Tidewire, BYTES)?;
    Some((fewer >= 0.6, format!("{:.0} % fewer", fewer * 100.0)))
}

fn idle(cell: &MeasuredCell) -> CheckedCell {
    let opened = cell.of(Role::Tidewire, "connection_bytes")?;
    let churned = cell.of(Role::Tidewire, "connection_bytes_after_churn")?;
    let figure = format!("{opened:.0} bytes, after churn {churned:.0}");
    Some((opened.max(churned) <= 600.0, figure))
}

#[cfg(test)]
mod tests {
    use super::super::fixture;
    use super::*;

    fn grid(deliveries: f64, round: f64) -> RunResults {
        let cell = |id: &&str| {
            let figures = [(DELIVERIES, deliveries), (ROUND, round)];
            fixture::cell(id, "grid", id, &figures)
        };
        fixture::results(GRID.iter().map(cell).collect())
    }

    /// The states of the first five lines, which the grid alone decides.
    fn states(results: &RunResults) -> Vec<State> {
        verdicts(results)[..5].iter().map(|one| one.state).collect()
    }

    #[test]
    fn lines_are_met_at_their_limits_and_not_beyond() {
        use State::{Met, NotMet};
        assert_eq!(states(&grid(42.5e6, 11.0)), [Met; 5]);
        assert_eq!(states(&grid(42.4e6, 11.0)), [Met, NotMet, Met, Met, Met]);
        assert_eq!(states(&grid(42.5e6, 11.1)), [Met, Met, Met, NotMet, Met]);
        assert_eq!(
            states(&grid(4e6, 101.0)),
            [NotMet, NotMet, NotMet, NotMet, Met]
        );
    }

    #[test]
    fn missing_figures_are_not_met() {
        let mut results = grid(50e6, 10.0);
        results.cells.retain(|cell| cell.id != "grid-10-1");
        let verdicts = verdicts(&results);
        assert_eq!(verdicts[0].state, State::NotMeasured);
        assert!(verdicts[0].figures.ends_with("not measured: grid-10-1"));
        assert_eq!(verdicts[1].state, State::Met);
        assert_eq!(verdicts[5].state, State::NotMeasured);
    }

    #[test]
    fn fewer_rounds_than_asked_do_not_count() {
        let mut results = grid(50e6, 10.0);
        let tidewire = &mut results.cells[0].contenders[0].turns[0];
        tidewire
            .samples
            .insert("round_ms".to_owned(), vec![10.0; 499]);
        assert_eq!(verdicts(&results)[3].state, State::NotMet);
    }

    #[test]
    fn a_lost_message_fails_its_line() {
        let check = |failure: Option<&str>| {
            let cells = LATENCY.map(|id| {
                let mut cell = fixture::cell(id, "latency", id, &[]);
                for (one, value) in cell.contenders.iter_mut().zip([1.5, 1.0]) {
                    one.turns[0].set("latency_ms_p99_9", value);
                }
                cell.contenders[0].failure = failure.map(str::to_owned);
                cell
            });
            let verdicts = verdicts(&fixture::results(cells.to_vec()));
            let line = verdicts
                .iter()
                .find(|one| one.line.contains("nothing lost"));
            line.unwrap().state
        };
        assert_eq!(check(None), State::Met);
        assert_eq!(check(Some("1 delivery is missing")), State::NotMet);
    }

    #[test]
    fn memory_counts_after_churn_too() {
        let check = |churned: f64| {
            let figures = [
                ("connection_bytes", 500.0),
                ("connection_bytes_after_churn", churned),
            ];
            let cell = fixture::cell("idle", "idle", "Idle", &figures);
            let verdicts = verdicts(&fixture::results(vec![cell]));
            let line = verdicts.iter().find(|one| one.line.contains("idle"));
            line.unwrap().state
        };
        assert_eq!((check(600.0), check(601.0)), (State::Met, State::NotMet));
    }

    /// The states of the lines about ticks: bytes of large ones, of batches, of single ones, processor time.
    fn ticks(changed: &str, bytes: f64, cpu: f64) -> Vec<State> {
        let plan = [
            ("ticks-2500", 2500.0, 9.0),
            ("ticks-2500-deflate", 1000.0, 11.0),
            ("ticks-2500-tls", 2500.0, 12.0),
            ("ticks-155", 200.0, 9.0),
            ("ticks-155-deflate", 200.0, 9.0),
            ("ticks-155-batched", 80.0, 9.0),
            ("ticks-155-tls", 200.0, 12.0),
        ];
        let cells = plan.map(|(id, own_bytes, own_cpu)| {
            let (bytes, cpu) = match id == changed {
                true => (bytes, cpu),
                false => (own_bytes, own_cpu),
            };
            fixture::cell(id, "ticks", id, &[(BYTES, bytes), (CPU, cpu)])
        });
        let asked = [
            "2.5 KB",
            "batched form",
            "Single messages",
            "less CPU per delivery",
        ];
        let verdicts = verdicts(&fixture::results(cells.to_vec()));
        let state = |part: &str| verdicts.iter().find(|one| one.line.contains(part));
        asked.map(|part| state(part).unwrap().state).to_vec()
    }

    #[test]
    fn compression_is_measured_by_bytes_and_by_time() {
        use State::{Met, NotMet};
        let check = |changed: &str, bytes: f64, cpu: f64, expected: [State; 4]| {
            assert_eq!(ticks(changed, bytes, cpu), expected, "{changed}");
        };
        check("", 0.0, 0.0, [Met; 4]);
        check("ticks-2500-deflate", 1001.0, 11.0, [NotMet, Met, Met, Met]);
        check("ticks-155-batched", 81.0, 9.0, [Met, NotMet, Met, Met]);
        check("ticks-155-deflate", 198.1, 9.0, [Met; 4]);
        check("ticks-155-deflate", 197.9, 9.0, [Met, Met, NotMet, Met]);
        check("ticks-2500-tls", 2500.0, 11.0, [Met, Met, Met, NotMet]);
        check("ticks-155-tls", 200.0, 9.0, [Met, Met, Met, NotMet]);
    }

    #[test]
    fn rules_are_compared_with_the_same_server_without_them() {
        let check = |guarded: f64| {
            let cells = ["rules-100-50", "rules-1000-500"].map(|id| {
                let mut cell = fixture::cell(id, "rules", id, &[(CPU, 20.0)]);
                let guarded = fixture::contender("rules", Role::Variant, &[(CPU, guarded)]);
                cell.contenders.push(guarded);
                cell
            });
            let verdicts = verdicts(&fixture::results(cells.to_vec()));
            let line = verdicts
                .iter()
                .find(|one| one.line.contains("24 permission"));
            line.unwrap().state
        };
        assert_eq!((check(23.0), check(23.1)), (State::Met, State::NotMet));
    }

    #[test]
    fn a_stuck_reader_tls_and_patches_are_compared_with_the_same_server_without_them() {
        let check = |(cell, line): (&str, &str), figure: &str, plain: f64, variant: f64| {
            let mut cell = fixture::cell(cell, cell, cell, &[(figure, plain)]);
            let variant = fixture::contender("variant", Role::Variant, &[(figure, variant)]);
            cell.contenders.push(variant);
            let verdicts = verdicts(&fixture::results(vec![cell]));
            let line = verdicts.iter().find(|one| one.line.contains(line));
            line.unwrap().state
        };
        let stuck = |p99| check(("beside-crowd", "does not delay"), P99, 2.0, p99);
        assert_eq!((stuck(3.0), stuck(3.01)), (State::Met, State::NotMet));
        let tls = |rate| check(("tls", "TLS at 1000/500"), DELIVERIES, 50e6, rate);
        assert_eq!((tls(30e6), tls(29.9e6)), (State::Met, State::NotMet));
        let patches = |rate| check(("records-grid", "Patches of one"), DELIVERIES, rate, 50e6);
        assert_eq!(
            (patches(35e6), patches(34.9e6)),
            (State::Met, State::NotMet)
        );
    }
}
