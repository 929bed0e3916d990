//! The report of a run on a cluster: its figures and its verdict.

use std::collections::BTreeMap;
use std::fmt;
use std::time::Duration;

use tidewire_server::exit::Exit;

use super::super::broken_store::Break;
use super::super::events::Figures as EventFigures;
use super::client::Figures;

/// A kind of fault.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Fault {
    /// SIGKILL of a node.
    Kill,
    /// SIGKILL of a node that SIGSTOP has stopped.
    KillStopped,
    /// SIGSTOP for less than the time after which the others evict a node, then SIGCONT.
    ShortStop,
    /// SIGSTOP until the others have taken over the names of the node, then SIGCONT.
    LongStop,
    /// SIGTERM.
    Drain,
    /// One direction between a node and another one, or the broker.
    CutOneWay,
    /// Both directions between a node and all others, or the broker.
    CutFromNodes,
    CutFromStore,
    /// From the other nodes and from the store, until the others have taken over the names of the node.
    CutFromAll,
    /// All connections to the store are closed.
    ResetStore,
    RestartStore,
    RestartLink,
}

impl Fault {
    /// All faults in the order of the report.
    pub(super) const ALL: [Self; 12] = [
        Self::Kill,
        Self::KillStopped,
        Self::ShortStop,
        Self::LongStop,
        Self::Drain,
        Self::CutOneWay,
        Self::CutFromNodes,
        Self::CutFromStore,
        Self::CutFromAll,
        Self::ResetStore,
        Self::RestartStore,
        Self::RestartLink,
    ];

    /// The name in the report.
    pub(super) fn name(self) -> &'static str {
        match self {
            Self::Kill => "kill",
            Self::KillStopped => "kill while stopped",
            Self::ShortStop => "short stop",
            Self::LongStop => "long stop",
            Self::Drain => "drain",
            Self::CutOneWay => "one-way cut",
            Self::CutFromNodes => "cut from nodes",
            Self::CutFromStore => "cut from store",
            Self::CutFromAll => "cut from all",
            Self::ResetStore => "store connections",
            Self::RestartStore => "store restart",
            Self::RestartLink => "broker restart",
        }
    }

    /// Whether one node has the fault. The others concern all nodes.
    pub(super) fn has_node(self) -> bool {
        !matches!(
            self,
            Self::ResetStore | Self::RestartStore | Self::RestartLink
        )
    }
}

/// The results of a run.
#[derive(Debug, Default)]
pub(super) struct Report {
    seed: u64,
    pub(super) time: Duration,
    broken: Option<Break>,
    counts: BTreeMap<Fault, u64>,
    after_kill: Vec<Duration>,
    after_silence: Vec<Duration>,
    pub(super) clients: Figures,
    pub(super) events: EventFigures,
    pub(super) rejoins: u64,
    /// Operations whose order was checked.
    pub(super) checked: u64,
    /// Records that were read from the store at the end.
    pub(super) stored: u64,
    /// The promise that the cluster broke.
    pub(super) loss: Option<String>,
    /// The faults that the run can't inject, with the reason.
    skipped: Vec<(Fault, &'static str)>,
    /// Why the run ended early.
    pub(super) cut_short: Option<&'static str>,
}

impl Report {
    pub(super) fn new(
        seed: u64,
        broken: Option<Break>,
        skipped: Vec<(Fault, &'static str)>,
    ) -> Self {
        Self {
            seed,
            broken,
            skipped,
            ..Self::default()
        }
    }

    /// Whether a run injects this fault.
    pub(super) fn is_possible(&self, fault: Fault) -> bool {
        self.skipped.iter().all(|(skipped, _)| *skipped != fault)
    }

    pub(super) fn add(&mut self, fault: Fault) {
        *self.counts.entry(fault).or_default() += 1;
    }

    /// How many faults were injected.
    pub(super) fn count(&self) -> u64 {
        self.counts.values().sum()
    }

    pub(super) fn writable_after_kill(&mut self, time: Duration) {
        self.after_kill.push(time);
    }

    pub(super) fn writable_after_silence(&mut self, time: Duration) {
        self.after_silence.push(time);
    }

    /// The faults that the run did not inject, with the reason.
    fn missing(&self) -> Vec<(Fault, &'static str)> {
        let missing = Fault::ALL
            .into_iter()
            .filter(|fault| !self.counts.contains_key(fault));
        let reason = |fault: Fault| {
            let known = self.skipped.iter().find(|(skipped, _)| *skipped == fault);
            known.map_or("the run ended before it", |(_, reason)| reason)
        };
        missing.map(|fault| (fault, reason(fault))).collect()
    }

    /// The exit code of the command. A run passes without the faults that need a command of the operator or a broker.
    pub(super) fn exit(&self) -> Exit {
        let is_complete = self
            .missing()
            .iter()
            .all(|missing| self.skipped.contains(missing));
        match (&self.loss, self.broken) {
            (Some(_), _) => Exit::Unwell,
            (None, None) if self.cut_short.is_none() && is_complete => Exit::Stopped,
            (None, _) => Exit::Unproven,
        }
    }
}

/// The median and the maximum of some times.
fn times(times: &[Duration]) -> String {
    let mut sorted = times.to_vec();
    sorted.sort();
    match (sorted.get(sorted.len() / 2), sorted.last()) {
        (Some(median), Some(most)) => format!(
            "median {:.2} s, maximum {:.2} s of {}",
            median.as_secs_f64(),
            most.as_secs_f64(),
            sorted.len()
        ),
        _ => "not measured".to_owned(),
    }
}

impl fmt::Display for Report {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut line = |name: &str, count: u64| writeln!(f, "{name:<18}{count:>10}");
        line("faults", self.count())?;
        for fault in Fault::ALL {
            line(fault.name(), self.counts.get(&fault).copied().unwrap_or(0))?;
        }
        line("rejoins", self.rejoins)?;
        line("acked writes", self.clients.written)?;
        line("acked replacements", self.clients.replaced)?;
        line("repeated writes", self.clients.repeated)?;
        line("unknown outcomes", self.clients.unknown)?;
        line("reads", self.clients.read)?;
        line("checked operations", self.checked)?;
        line("stored records", self.stored)?;
        line("delivered events", self.events.delivered)?;
        line("resumed readers", self.events.resumed)?;
        line("reported gaps", self.events.gaps)?;
        line("seconds", self.time.as_secs())?;
        line("seed", self.seed)?;
        writeln!(
            f,
            "all names writable after a kill: {}",
            times(&self.after_kill)
        )?;
        writeln!(
            f,
            "all names writable after silence: {}",
            times(&self.after_silence)
        )?;
        if let Some(broken) = self.broken {
            writeln!(f, "the servers were broken on purpose: {}", broken.name())?;
        }
        if let Some(loss) = &self.loss {
            return writeln!(f, "verdict: RED: {loss}");
        }
        for (fault, reason) in self.missing() {
            writeln!(f, "skipped: {}: {reason}", fault.name())?;
        }
        if let Some(reason) = self.cut_short {
            writeln!(f, "ended early: {reason}")?;
        }
        let verdict = match (self.exit(), self.broken) {
            (Exit::Stopped, _) => {
                "green: no acknowledged write or delivered event was lost, and each record has one order"
            }
            (_, Some(_)) => "unproven: the test did not find the loss of the broken servers",
            (_, None) => "unproven: nothing was lost, but the run skipped faults or ended early",
        };
        writeln!(f, "verdict: {verdict}")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn complete() -> Report {
        let mut report = Report::default();
        Fault::ALL.into_iter().for_each(|fault| report.add(fault));
        report
    }

    fn check(report: &Report, exit: Exit, part: &str) {
        assert_eq!(report.exit(), exit);
        let text = report.to_string();
        assert!(text.contains(part), "{text}");
    }

    #[test]
    fn only_a_complete_run_without_a_loss_passes() {
        check(&complete(), Exit::Stopped, "verdict: green");
        let loss = Some("r: is missing".to_owned());
        check(
            &Report { loss, ..complete() },
            Exit::Unwell,
            "verdict: RED: r: is missing",
        );
        let broken = Some(Break::AckBeforeSync);
        check(
            &Report {
                broken,
                ..complete()
            },
            Exit::Unproven,
            "did not find",
        );
        let cut_short = Some("a signal stopped it");
        check(
            &Report {
                cut_short,
                ..complete()
            },
            Exit::Unproven,
            "ended early: a signal",
        );
        check(
            &Report::default(),
            Exit::Unproven,
            "skipped: kill: the run ended before it",
        );
    }

    #[test]
    fn a_fault_that_can_not_be_injected_is_named_and_does_not_fail_the_run() {
        let mut report = complete();
        report.counts.remove(&Fault::RestartLink);
        assert_eq!(report.exit(), Exit::Unproven);
        report.skipped.push((Fault::RestartLink, "no broker"));
        check(&report, Exit::Stopped, "skipped: broker restart: no broker");
    }

    #[test]
    fn times_have_a_median_and_a_maximum() {
        let mut report = complete();
        for ms in [900, 300, 500] {
            report.writable_after_kill(Duration::from_millis(ms));
        }
        check(
            &report,
            Exit::Stopped,
            "after a kill: median 0.50 s, maximum 0.90 s of 3",
        );
        check(&report, Exit::Stopped, "after silence: not measured");
    }
}
