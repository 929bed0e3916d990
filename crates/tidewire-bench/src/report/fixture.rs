//! Results of an invented run, with figures that tests can distinguish.

use crate::result::{Cell, Status};
use crate::run_results::{Facts, Identity, MeasuredCell, MeasuredContender, Role, RunResults};

use crate::meter::Usage;

/// A contender with one turn that has these figures; rounds as samples too.
pub fn contender(name: &str, role: Role, figures: &[(&str, f64)]) -> MeasuredContender {
    let mut turn = Cell::new("grid", "", "plain", &Usage::default());
    for (name, value) in figures {
        turn.set(name, *value);
        if *name == super::figures::ROUND {
            turn.samples
                .insert("round_ms".to_owned(), vec![*value; 500]);
        }
    }
    MeasuredContender {
        name: name.to_owned(),
        title: format!("{name} & co"),
        role,
        turns: vec![turn],
        failure: None,
    }
}

/// Tidewire, the null server, Bun and an interrupted one, in a cell.
pub fn cell(id: &str, group: &str, title: &str, tidewire: &[(&str, f64)]) -> MeasuredCell {
    use super::figures::{DELIVERIES, ROUND};
    let mut slow = contender(
        "slow",
        Role::Rival,
        &[(ROUND, 120_000.0), (DELIVERIES, 1e5)],
    );
    slow.turns[0].status = Status::OverTime;
    let mut broken = contender("broken", Role::Rival, &[]);
    broken.turns.clear();
    broken.failure = Some("connection 3: <reset>".to_owned());
    MeasuredCell {
        key: String::new(),
        id: id.to_owned(),
        group: group.to_owned(),
        title: title.to_owned(),
        contenders: vec![
            contender("tidewire", Role::Tidewire, tidewire),
            contender("null", Role::Null, &[(ROUND, 10.0), (DELIVERIES, 50e6)]),
            contender("bun", Role::Rival, &[(ROUND, 100.0), (DELIVERIES, 4e6)]),
            slow,
            broken,
        ],
    }
}

/// A run of these cells.
pub fn results(cells: Vec<MeasuredCell>) -> RunResults {
    let contenders = cells.first().map_or(&[][..], |cell| &cell.contenders);
    let identity = |one: &MeasuredContender| Identity {
        name: one.name.clone(),
        title: one.title.clone(),
        role: one.role,
        version: format!("{} 1.2.3", one.name),
    };
    RunResults {
        facts: Facts {
            machine: "2 cores, a test".to_owned(),
            cores_apart: true,
            commit: "abc123".to_owned(),
            date: "2026-11-21 12:00 UTC".to_owned(),
            profile: "full".to_owned(),
            contenders: contenders.iter().map(identity).collect(),
        },
        cells,
    }
}
