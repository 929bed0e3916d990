//! Tidewire and servers that have no live queries, or evaluate them again, under the same writes, each alone in turn.

use std::path::PathBuf;

use clap::ArgMatches;

use super::{Follow, Queries};
use crate::arguments;
use crate::driver::Protocol;
use crate::failure::Failure;
use crate::process;
use crate::result::{Cell, Results};
use crate::rival::{QUERY_NAMES, named};
use crate::server::{Server, ServerKind};

/// The figures whose factors are printed.
const COMPARED: [&str; 2] = ["server_us_per_write", "latency_ms_p99"];

/// Measures all of them, prints their cells and the factors, and writes them.
pub(super) fn compare(queries: &Queries, matches: &ArgMatches) -> Result<(), Failure> {
    println!("machine: {}", process::machine());
    let tidewire = ServerKind::Tidewire {
        program: arguments::take_server_bin(matches)?,
        shards: 1,
        has_rules: false,
        options: Vec::new(),
    };
    let rivals = QUERY_NAMES.into_iter().filter_map(named);
    let mut cells = vec![measure(queries, &tidewire, Follow::Query)?];
    for rival in rivals {
        let follow = match rival.protocol {
            Protocol::Plain => Follow::Name,
            _ => Follow::Filter,
        };
        println!("{}", rival.version()?);
        cells.push(measure(queries, &ServerKind::Rival(rival), follow)?);
    }
    for cell in &cells[1..] {
        for figure in COMPARED {
            let (own, other) = (cells[0].figures.get(figure), cell.figures.get(figure));
            if let Some((own, other)) = own.zip(other) {
                println!(
                    "{figure}: {} has {:.1} times Tidewire's",
                    cell.server,
                    other / own
                );
            }
        }
    }
    match matches.get_one::<PathBuf>("json") {
        Some(file) => Results::new(cells).write(file),
        None => Ok(()),
    }
}

fn measure(queries: &Queries, kind: &ServerKind, follow: Follow) -> Result<Cell, Failure> {
    let server = Server::start(kind)?;
    let (mut cell, ..) = queries.run(server.target(), follow)?;
    cell.server = server.label();
    print!("{}", cell.text());
    Ok(cell)
}
