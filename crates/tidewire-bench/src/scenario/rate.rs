//! A steady rate of deliveries from some publishers to some subscribers, and the latency of each.

use std::time::Duration;

use clap::{ArgMatches, Command};

use super::Scenario;
use super::stream::{Stream, Traffic};
use crate::arguments;
use crate::failure::Failure;

/// The scenario.
pub(super) const SCENARIO: Scenario = Scenario {
    name: "rate",
    about: "A steady rate of deliveries: latency percentiles from the intended send times",
    arguments,
    is_pinned: true,
    run,
};

/// Not measured at the start.
const WARM_UP: Duration = Duration::from_millis(500);

fn arguments(command: Command) -> Command {
    super::cell_arguments(arguments::server_arguments(command, "1"))
        .arg(arguments::number("subscribers", "100", "Subscribers"))
        .arg(arguments::number(
            "publishers",
            "10",
            "Publishers, which do not subscribe",
        ))
        .arg(arguments::number(
            "deliveries",
            "100000",
            "Deliveries per second, to all subscribers together",
        ))
        .arg(arguments::number(
            "seconds",
            "10",
            "Seconds of the measurement",
        ))
}

fn run(matches: &ArgMatches) -> Result<(), Failure> {
    let subscribers = arguments::take_count(matches, "subscribers", 1)?;
    let publishers = arguments::take_count(matches, "publishers", 1)?;
    let deliveries = arguments::take_count(matches, "deliveries", 1)?;
    let time = Duration::from_secs(arguments::take_count(matches, "seconds", 1)? as u64);
    let time_max = super::take_time_max(matches)?;
    super::measure(matches, false, |target| {
        let stream = stream(subscribers, publishers, deliveries, time, time_max);
        let name = format!("{subscribers} x {publishers} at {deliveries}/s");
        Ok(vec![stream.run("rate", &name, target)?])
    })
}

/// The stream with this many deliveries per second.
#[must_use]
pub fn stream(
    subscribers: usize,
    publishers: usize,
    deliveries: usize,
    time: Duration,
    time_max: Duration,
) -> Stream {
    let interval = Duration::from_secs(1).mul_f64(subscribers as f64 / deliveries as f64);
    let messages = |time: Duration| (time.as_secs_f64() / interval.as_secs_f64()).round() as u64;
    Stream {
        traffic: Traffic::Fan {
            subscribers,
            publishers,
        },
        interval,
        warm_up: messages(WARM_UP),
        messages: messages(time).max(1),
        neighbour: None,
        time_max,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn deliveries_are_messages_times_subscribers() {
        let second = Duration::from_secs(1);
        let stream = stream(100, 10, 100_000, second, second);
        assert_eq!(stream.interval, Duration::from_millis(1));
        assert_eq!((stream.messages, stream.warm_up), (1000, 500));
    }
}
