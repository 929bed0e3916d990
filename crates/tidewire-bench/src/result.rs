//! Results as data: one schema for all modes, and their printed form. `docs/bench.md` describes it for readers of the
//! files.

use std::collections::BTreeMap;
use std::path::Path;
use std::time::Duration;

use serde::{Deserialize, Serialize};

use crate::cores;
use crate::failure::Failure;
use crate::histogram::Histogram;
use crate::meter::{GENERATOR_SHARE_MAX, STOLEN_SHARE_MAX, Usage};
use crate::process;
use crate::statistics::Summary;

/// The number of the schema. A reader that knows another one must not guess.
pub const SCHEMA: u32 = 1;

/// A file of results.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Results {
    /// [`SCHEMA`].
    pub schema: u32,
    /// The machine.
    pub machine: String,
    /// Whether servers and generator had separate cores.
    pub cores_apart: bool,
    /// The cells, in the order in which they ran.
    pub cells: Vec<Cell>,
}

/// Whether a cell was completed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Status {
    /// All of its work was done and checked.
    Complete,
    /// Its time limit passed first. The figures cover the finished part; times are "more than".
    OverTime,
}

/// One server under one workload.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Cell {
    /// The mode, a subcommand.
    pub mode: String,
    /// The workload in short, such as `1000/500`.
    pub cell: String,
    /// The server's label.
    pub server: String,
    /// Its protocol.
    pub protocol: String,
    /// Whether it was completed.
    pub status: Status,
    /// Wall time of the measured part, in seconds.
    pub elapsed_s: f64,
    /// The share of a processor that the generator used in the measured part.
    pub generator_share: f64,
    /// Whether that was so high that the generator limited the speed.
    pub generator_was_bottleneck: bool,
    /// The share of a processor that the machine's host gave to other machines in the measured part.
    #[serde(default)]
    pub stolen_share: f64,
    /// Figures by name; the unit ends the name.
    pub figures: BTreeMap<String, f64>,
    /// Single values behind the figures, if there are few.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub samples: BTreeMap<String, Vec<f64>>,
}

impl Cell {
    /// A cell with the figures of its usage, which all cells have. The starter of the server sets its label.
    #[must_use]
    pub fn new(mode: &str, cell: impl Into<String>, protocol: &str, usage: &Usage) -> Self {
        let share = usage.generator_share();
        let mut new = Self {
            mode: mode.to_owned(),
            cell: cell.into(),
            server: String::new(),
            protocol: protocol.to_owned(),
            status: Status::Complete,
            elapsed_s: usage.elapsed.as_secs_f64(),
            generator_share: share,
            generator_was_bottleneck: share > GENERATOR_SHARE_MAX,
            stolen_share: usage.stolen_share(),
            figures: BTreeMap::new(),
            samples: BTreeMap::new(),
        };
        new.set("server_cpu_s", usage.server.map(|time| time.as_secs_f64()));
        new
    }

    /// Whether the machine's host took too much CPU time for the figures to describe the server.
    #[must_use]
    pub fn is_disturbed(&self) -> bool {
        self.stolen_share > STOLEN_SHARE_MAX
    }

    /// Sets a figure, if there is one.
    pub fn set(&mut self, name: &str, value: impl Into<Option<f64>>) {
        if let Some(value) = value.into().filter(|value| value.is_finite()) {
            self.figures.insert(name.to_owned(), value);
        }
    }

    /// Sets the rates of `count` items of the kind `things`: per second, per second of the server's time, and the
    /// cost of each.
    pub fn set_rate(&mut self, things: &str, count: u64, usage: &Usage) {
        self.set(things, count as f64);
        self.set(&format!("{things}_per_second"), usage.per_second(count));
        let each = usage.per_server_second(count);
        self.set(&format!("{things}_per_server_cpu_second"), each);
        self.set("server_ns_each", usage.server_nanos(count));
    }

    /// Sets median, lowest and highest of times, and keeps the times.
    pub fn set_times(&mut self, name: &str, times: &[Duration]) {
        if let Some(summary) = Summary::of_times_ms(times) {
            self.set(&format!("{name}_ms_median"), summary.median);
            self.set(&format!("{name}_ms_min"), summary.min);
            self.set(&format!("{name}_ms_max"), summary.max);
        }
        let times = times.iter().map(|time| time.as_secs_f64() * 1e3);
        self.samples.insert(format!("{name}_ms"), times.collect());
    }

    /// Sets percentiles of latencies.
    pub fn set_latencies(&mut self, latencies: &Histogram) {
        for (name, percent) in [
            ("latency_ms_p50", 50.0),
            ("latency_ms_p90", 90.0),
            ("latency_ms_p99", 99.0),
            ("latency_ms_p99_9", 99.9),
        ] {
            let latency = latencies.percentile(percent);
            self.set(name, latency.map(|latency| latency.as_secs_f64() * 1e3));
        }
        self.set("latency_ms_max", latencies.max().as_secs_f64() * 1e3);
    }

    /// The printed form: a line for the cell and one for each figure.
    #[must_use]
    pub fn text(&self) -> String {
        let status = match self.status {
            Status::Complete => "complete".to_owned(),
            Status::OverTime => format!("incomplete, > {:.1} s", self.elapsed_s),
        };
        let remark = match self.generator_was_bottleneck {
            true => ": it was the bottleneck and decided the figures that depend on wall time",
            false => "",
        };
        let mut text = format!(
            "{} {}, {} ({}): {status}\n  generator: {:.0} % of a processor{remark}\n",
            self.mode,
            self.cell,
            self.server,
            self.protocol,
            self.generator_share * 100.0
        );
        for (name, value) in &self.figures {
            text += &format!("  {name}: {}\n", rounded(*value));
        }
        text
    }
}

/// Four significant digits; integers stay integers.
fn rounded(value: f64) -> String {
    let size = value.abs();
    match value {
        _ if size >= 1000.0 || value.fract() == 0.0 => format!("{value:.0}"),
        _ if size >= 100.0 => format!("{value:.1}"),
        _ if size >= 1.0 => format!("{value:.3}"),
        _ => format!("{value:.4}"),
    }
}

impl Results {
    /// Cells that this process measured.
    #[must_use]
    pub fn new(cells: Vec<Cell>) -> Self {
        Self {
            schema: SCHEMA,
            machine: process::machine(),
            cores_apart: cores::divided().is_some_and(cores::Cores::are_apart),
            cells,
        }
    }

    /// Writes them to a file.
    ///
    /// # Errors
    /// The file can't be written.
    pub fn write(&self, file: &Path) -> Result<(), Failure> {
        let system = || Failure::system(file.display().to_string());
        let text = serde_json::to_string_pretty(self).map_err(|error| system()(error.into()))?;
        std::fs::write(file, text + "\n").map_err(system())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn cell(generator_ms: u64) -> Cell {
        let usage = Usage {
            elapsed: Duration::from_millis(100),
            server: Some(Duration::from_millis(50)),
            generator: Duration::from_millis(generator_ms),
            stolen: Duration::ZERO,
            ..Usage::default()
        };
        let mut cell = Cell::new("grid", "10/5", "deepstream", &usage);
        cell.set_rate("deliveries", 1000, &usage);
        cell.set_times("round", &[10, 30].map(Duration::from_millis));
        cell.set("nothing", None);
        cell.set("unknown", f64::NAN);
        cell
    }

    #[test]
    fn figures_have_their_units() {
        let cell = cell(10);
        let expected = [
            ("deliveries", 1000.0),
            ("deliveries_per_second", 10_000.0),
            ("deliveries_per_server_cpu_second", 20_000.0),
            ("round_ms_max", 30.0),
            ("round_ms_median", 20.0),
            ("round_ms_min", 10.0),
            ("server_cpu_s", 0.05),
            ("server_ns_each", 50_000.0),
        ];
        let figures: Vec<_> = cell
            .figures
            .iter()
            .map(|(name, value)| (&**name, *value))
            .collect();
        assert_eq!(figures, expected);
        assert_eq!(cell.samples["round_ms"], [10.0, 30.0]);
    }

    #[test]
    fn a_bottleneck_and_a_cell_without_end_are_named() {
        assert!(!cell(90).text().contains("bottleneck"));
        assert!(cell(91).text().contains("bottleneck"));
        assert!(cell(91).generator_was_bottleneck);
        let mut cell = cell(10);
        cell.status = Status::OverTime;
        assert!(cell.text().contains("> 0.1 s"), "{}", cell.text());
    }

    #[test]
    fn a_file_reads_as_it_was_written() {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("results.json");
        let results = Results::new(vec![cell(25)]);
        results.write(&file).unwrap();
        let text = std::fs::read_to_string(&file).unwrap();
        assert_eq!(serde_json::from_str::<Results>(&text).unwrap(), results);
        assert!(text.contains("\"status\": \"complete\""), "{text}");
        assert!(Results::new(Vec::new()).write(folder.path()).is_err());
    }
}
