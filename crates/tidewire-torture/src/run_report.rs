//! The report of a run: its figures and its verdict, which is `green`, `RED` or `unproven`.

use std::fmt;
use std::time::Duration;

use super::broken_store::Break;
use super::load::Work;
use tidewire_server::exit::Exit;

/// A kind of fault that the run injects and counts.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Fault {
    Kill,
    PowerCut,
    Stop,
    Drain,
    CutConnection,
    FailedSync,
    FullDisk,
}

impl Fault {
    /// All faults in the order of the report.
    pub(super) const ALL: [Self; 7] = [
        Self::Kill,
        Self::PowerCut,
        Self::Stop,
        Self::Drain,
        Self::CutConnection,
        Self::FailedSync,
        Self::FullDisk,
    ];

    /// The name in the report.
    pub(super) fn name(self) -> &'static str {
        match self {
            Self::Kill => "kills",
            Self::PowerCut => "power cuts",
            Self::Stop => "stops",
            Self::Drain => "drains",
            Self::CutConnection => "cut connections",
            Self::FailedSync => "failed syncs",
            Self::FullDisk => "full disks",
        }
    }
}

/// How often each fault was injected.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Tally([u64; Fault::ALL.len()]);

impl Tally {
    pub(super) fn add(&mut self, fault: Fault, count: u64) {
        self.0[fault as usize] += count;
    }

    pub(super) fn count(&self, fault: Fault) -> u64 {
        self.0[fault as usize]
    }
}

/// The results of a run.
#[derive(Clone, Debug)]
pub(super) struct RunReport {
    pub(super) seed: u64,
    pub(super) time: Duration,
    pub(super) broken: Option<Break>,
    pub(super) tally: Tally,
    pub(super) work: Work,
    /// The promise that a server broke.
    pub(super) loss: Option<String>,
    /// The faults that the system can't inject, with the reason.
    pub(super) skipped: Vec<(Fault, String)>,
    /// Why the run ended early.
    pub(super) cut_short: Option<String>,
}

impl RunReport {
    /// The faults that the run did not inject, with the reason.
    fn missing(&self) -> Vec<(Fault, &str)> {
        let is_missing = |fault: &Fault| self.tally.count(*fault) == 0;
        let reason = |fault| {
            let known = self.skipped.iter().find(|(skipped, _)| *skipped == fault);
            known.map_or("the run ended before it", |(_, reason)| reason.as_str())
        };
        Fault::ALL
            .into_iter()
            .filter(is_missing)
            .map(|fault| (fault, reason(fault)))
            .collect()
    }

    /// The exit code of the command.
    pub(super) fn exit(&self) -> Exit {
        match (&self.loss, self.broken) {
            (Some(_), _) => Exit::Unwell,
            (None, Some(_)) => Exit::Unproven,
            (None, None) if self.cut_short.is_none() && self.missing().is_empty() => Exit::Stopped,
            (None, None) => Exit::Unproven,
        }
    }
}

impl fmt::Display for RunReport {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut line = |name: &str, count: u64| writeln!(f, "{name:<18}{count:>10}");
        for fault in Fault::ALL {
            line(fault.name(), self.tally.count(fault))?;
        }
        line("acked writes", self.work.acknowledged)?;
        line("refused writes", self.work.refused)?;
        line("repeated writes", self.work.repeated)?;
        line("shown changes", self.work.shown)?;
        line("delivered events", self.work.events.delivered)?;
        line("resumed readers", self.work.events.resumed)?;
        line("reported gaps", self.work.events.gaps)?;
        line("checked reads", self.work.checked)?;
        line("seconds", self.time.as_secs())?;
        line("seed", self.seed)?;
        if let Some(broken) = self.broken {
            writeln!(f, "the server was broken on purpose: {}", broken.name())?;
        }
        if let Some(loss) = &self.loss {
            return writeln!(f, "verdict: RED: {loss}");
        }
        for (fault, reason) in self.missing() {
            writeln!(f, "skipped: {}: {reason}", fault.name())?;
        }
        if let Some(reason) = &self.cut_short {
            writeln!(f, "ended early: {reason}")?;
        }
        match (self.exit(), self.broken) {
            (Exit::Stopped, _) => {
                writeln!(
                    f,
                    "verdict: green: no acknowledged write or delivered event was lost"
                )
            }
            (_, Some(_)) => writeln!(
                f,
                "verdict: unproven: the test did not find the loss of the broken server"
            ),
            (_, None) => writeln!(
                f,
                "verdict: unproven: nothing was lost, but the run skipped faults or ended early"
            ),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn verdict() -> RunReport {
        let mut tally = Tally::default();
        Fault::ALL.into_iter().for_each(|fault| tally.add(fault, 1));
        RunReport {
            seed: 7,
            time: Duration::from_secs(60),
            broken: None,
            tally,
            work: Work::default(),
            loss: None,
            skipped: Vec::new(),
            cut_short: None,
        }
    }

    fn check(verdict: &RunReport, exit: Exit, part: &str) {
        assert_eq!(verdict.exit(), exit);
        let text = verdict.to_string();
        assert!(text.contains(part), "{text}");
    }

    #[test]
    fn only_a_complete_run_without_a_loss_succeeds() {
        check(&verdict(), Exit::Stopped, "verdict: green");
        let loss = Some("r: is missing".to_owned());
        let red = RunReport { loss, ..verdict() };
        check(&red, Exit::Unwell, "verdict: RED: r: is missing");
        let broken = Some(Break::SkipSync);
        check(
            &RunReport { broken, ..red },
            Exit::Unwell,
            "broken on purpose: skip-sync",
        );
        check(
            &RunReport {
                broken,
                ..verdict()
            },
            Exit::Unproven,
            "did not find",
        );
        let cut_short = Some("a signal".to_owned());
        check(
            &RunReport {
                cut_short,
                ..verdict()
            },
            Exit::Unproven,
            "ended early: a signal",
        );
    }

    #[test]
    fn skipped_faults_are_named() {
        let mut tally = Tally::default();
        tally.add(Fault::Kill, 5);
        let skipped = vec![(Fault::PowerCut, "not root".to_owned())];
        let verdict = RunReport {
            tally,
            skipped,
            ..verdict()
        };
        check(&verdict, Exit::Unproven, "skipped: power cuts: not root");
        check(
            &verdict,
            Exit::Unproven,
            "skipped: full disks: the run ended before it",
        );
    }
}
