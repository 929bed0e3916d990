//! The promises of the membership, checked from outside of the machine.

use std::collections::BTreeMap;

use tidewire_message::view::{MemberId, MemberState, StoredView};

/// How often the cases of a run occurred.
#[derive(Debug, Default)]
pub struct Met {
    pub evictions_at_once: usize,
    pub evictions_by_half: usize,
    pub evictions_after_waiting: usize,
    pub evicted: usize,
    pub left: usize,
    pub own_lives_replaced: usize,
    pub refused_proposals: usize,
    pub late_proposals: usize,
    pub stops: usize,
    pub stops_after_a_pause: usize,
    pub generations: usize,
    pub long_pauses: usize,
    pub broker_losses: usize,
}

impl Met {
    pub fn add(&mut self, other: &Self) {
        let numbers = |met: &Self| {
            [
                met.evictions_at_once,
                met.evictions_by_half,
                met.evictions_after_waiting,
                met.evicted,
                met.left,
                met.own_lives_replaced,
                met.refused_proposals,
                met.late_proposals,
                met.stops,
                met.stops_after_a_pause,
                met.generations,
                met.long_pauses,
                met.broker_losses,
            ]
        };
        let sums: Vec<usize> = numbers(self)
            .iter()
            .zip(numbers(other))
            .map(|(a, b)| a + b)
            .collect();
        for (own, sum) in self.each().into_iter().zip(sums) {
            *own = sum;
        }
    }

    fn each(&mut self) -> [&mut usize; 13] {
        [
            &mut self.evictions_at_once,
            &mut self.evictions_by_half,
            &mut self.evictions_after_waiting,
            &mut self.evicted,
            &mut self.left,
            &mut self.own_lives_replaced,
            &mut self.refused_proposals,
            &mut self.late_proposals,
            &mut self.stops,
            &mut self.stops_after_a_pause,
            &mut self.generations,
            &mut self.long_pauses,
            &mut self.broker_losses,
        ]
    }

    pub fn has_everything(&mut self) -> bool {
        self.each().iter().all(|count| **count > 0)
    }
}

/// The knowledge of a proposer about another member when it sent the proposal.
#[derive(Clone, Copy, Debug, Default)]
pub struct Silence {
    /// For how long the member had been silent while the proposer ran.
    pub ms: u64,
    /// Whether the connection to it was broken since.
    pub is_broken: bool,
}

/// The same about all other members.
pub type Silences = BTreeMap<MemberId, Silence>;

/// Checks that the proposer of an accepted view was allowed to remove the members that it has removed. Returns them.
pub fn check_removals(
    before: &StoredView,
    after: &StoredView,
    proposer: MemberId,
    silences: &Silences,
    met: &mut Met,
) -> Result<Vec<MemberId>, String> {
    let gone: Vec<MemberId> = before.ids().filter(|id| !after.has(*id)).collect();
    for id in &gone {
        let state = before.member(*id).map(|member| member.state);
        if state == Some(MemberState::Joining) {
            continue;
        }
        // A member that leaves has committed everything.
        let has_lost_writes = *id != proposer;
        if has_lost_writes && let (Some(old), Some(table)) = (before.key, before.table()) {
            assert_eq!(after.key, Some(old), "the key stays");
            let mut slots = (0..4_096).filter(|slot| table.node(*slot) == id.node);
            if let Some(slot) = slots.find(|slot| after.epochs.of(*slot) <= before.epochs.of(*slot))
                && state == Some(MemberState::Active)
            {
                return Err(format!("the epoch of slot {slot} of {id:?} was not raised"));
            }
        }
    }
    let evicted: Vec<MemberId> = gone
        .iter()
        .copied()
        .filter(|id| id.node != proposer.node)
        .collect();
    met.own_lives_replaced += usize::from(
        gone.iter()
            .any(|id| id.node == proposer.node && *id != proposer),
    );
    if evicted.is_empty() {
        return Ok(evicted);
    }
    let state = before.member(proposer).map(|member| member.state);
    if state != Some(MemberState::Active) {
        return Err(format!("{proposer:?} has evicted {evicted:?} as {state:?}"));
    }
    let active: Vec<MemberId> = before
        .members
        .iter()
        .filter(|member| member.state == MemberState::Active)
        .map(|member| member.id)
        .collect();
    let is_reached = |id: &MemberId| {
        *id == proposer
            || (!evicted.contains(id) && silences.get(id).is_some_and(|silence| silence.ms < 2_600))
    };
    let silence = |id: &MemberId| silences.get(id).copied().unwrap_or_default();
    // A pause of the proposer does not count as silence of the others.
    if let Some(heard) = evicted
        .iter()
        .find(|id| silence(id).ms < 1_900 && !silence(id).is_broken)
    {
        let silence = silence(heard);
        return Err(format!(
            "{proposer:?} has evicted {heard:?} with {silence:?}"
        ));
    }
    let reached = active.iter().filter(|id| is_reached(id)).count();
    let has_lowest = active.iter().min().is_some_and(is_reached);
    if 2 * reached > active.len() {
        met.evictions_at_once += 1;
    } else if 2 * reached == active.len() && has_lowest {
        met.evictions_by_half += 1;
    } else {
        if let Some(early) = evicted.iter().find(|id| silence(id).ms < 3_000) {
            return Err(format!(
                "{proposer:?} reaches {reached} of {} members and has evicted {early:?} after {} ms",
                active.len(),
                silence(early).ms
            ));
        }
        met.evictions_after_waiting += 1;
    }
    Ok(evicted)
}
