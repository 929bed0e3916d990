//! Pairs of connections, one of which sends the other a message every 25 ms: the latency of each, alone and with
//! neighbours.

use std::time::Duration;

use clap::{Arg, ArgMatches, Command};

use super::Scenario;
use super::neighbour::Neighbour;
use super::stream::{Stream, Traffic};
use crate::arguments;
use crate::failure::Failure;

/// The scenario.
pub(super) const SCENARIO: Scenario = Scenario {
    name: "pairs",
    about: "Pairs with a message every 25 ms: latency percentiles, alone or with a neighbour",
    arguments,
    is_pinned: true,
    run,
};

/// Not measured at the start.
const WARM_UP: Duration = Duration::from_millis(500);

fn arguments(command: Command) -> Command {
    super::cell_arguments(arguments::server_arguments(command, "1"))
        .arg(arguments::number("pairs", "250", "Pairs"))
        .arg(arguments::number(
            "interval-ms",
            "25",
            "Milliseconds between two messages of a pair",
        ))
        .arg(arguments::number(
            "seconds",
            "10",
            "Seconds of the measurement",
        ))
        .arg(
            Arg::new("neighbour")
                .long("neighbour")
                .value_parser(["crowd", "stuck-crowd", "flood", "stuck-reader"])
                .help("Other load on the server during the measurement"),
        )
        .arg(arguments::number(
            "crowd",
            "10000",
            "Connections of the crowd",
        ))
}

fn run(matches: &ArgMatches) -> Result<(), Failure> {
    let pairs = arguments::take_count(matches, "pairs", 1)?;
    let interval = Duration::from_millis(arguments::take_count(matches, "interval-ms", 1)? as u64);
    let time = Duration::from_secs(arguments::take_count(matches, "seconds", 1)? as u64);
    let count = arguments::take_count(matches, "crowd", 1)?;
    let neighbour = match matches.get_one::<String>("neighbour").map(String::as_str) {
        Some("crowd") => Some(Neighbour::FanOut(count)),
        Some("stuck-crowd") => Some(Neighbour::FanOutWithStuckReader(count)),
        Some("flood") => Some(Neighbour::Flood),
        Some(_) => Some(Neighbour::StuckReader),
        None => None,
    };
    let time_max = super::take_time_max(matches)?;
    super::measure(matches, true, |target| {
        let stream = stream(pairs, interval, time, neighbour, time_max);
        let name = format!("{pairs} pairs at {} ms", interval.as_millis());
        Ok(vec![stream.run("pairs", &name, target)?])
    })
}

/// The stream of this many pairs, each of which sends once per `interval`.
#[must_use]
pub fn stream(
    pairs: usize,
    interval: Duration,
    time: Duration,
    neighbour: Option<Neighbour>,
    time_max: Duration,
) -> Stream {
    let interval = interval / pairs as u32;
    let messages = |time: Duration| (time.as_nanos() / interval.as_nanos().max(1)) as u64;
    Stream {
        traffic: Traffic::Pairs(pairs),
        interval,
        warm_up: messages(WARM_UP),
        messages: messages(time),
        neighbour,
        time_max,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pairs_share_the_interval() {
        let ms = Duration::from_millis;
        let stream = stream(250, ms(25), ms(1000), None, ms(1));
        assert_eq!(stream.interval, Duration::from_micros(100));
        assert_eq!((stream.messages, stream.warm_up), (10_000, 5000));
    }
}
