//! The promises about nodes whose links to the other members are cut.

use tidewire_membership::EVICTION_WAIT_MS;
use tidewire_message::view::{MemberId, MemberState, StoredView};

use super::{PING_MS, Violation, World};
use crate::promises::Silences;

/// A node that was cut off from all members for this long does not take them for reached.
const ISOLATED_MS: u64 = 1_000;
/// A majority that was undisturbed for this long has evicted a node without links to it.
const HEALTHY_MS: u64 = 15_000;

/// The active members of a view.
fn active(view: &StoredView) -> impl Iterator<Item = MemberId> {
    let members = view.members.iter();
    let active = members.filter(|member| member.state == MemberState::Active);
    active.map(|member| member.id)
}

impl World {
    /// A node that is cut off from more than half of the active members, all of them connected and with the registry, evicts none of them.
    pub(super) fn check_isolated(
        &self,
        before: &StoredView,
        evicted: MemberId,
        by: MemberId,
    ) -> Result<(), Violation> {
        let is_steady = |changed: u64| self.now - changed >= HEALTHY_MS;
        let link = |a: MemberId, b: MemberId| {
            let (a, b) = (usize::from(a.node), usize::from(b.node));
            (self.cut[a][b], is_steady(self.link_changed[a][b]))
        };
        let active: Vec<MemberId> = active(before).collect();
        let is_healthy = |id: &MemberId| {
            let node = usize::from(id.node);
            let runs = self.lives[node]
                .as_ref()
                .is_some_and(|life| life.id == *id && !life.is_paused);
            *id != by && runs && is_steady(self.node_changed[node]) && !self.without_registry[node]
        };
        let healthy: Vec<MemberId> = active.iter().copied().filter(is_healthy).collect();
        let is_isolated = healthy
            .iter()
            .all(|id| link(by, *id) == (true, true) && link(*id, by) == (true, true));
        let are_connected = healthy.iter().all(|a| {
            healthy
                .iter()
                .all(|b| a == b || link(*a, *b) == (false, true))
        });
        if is_isolated
            && are_connected
            && 2 * healthy.len() > active.len()
            && healthy.contains(&evicted)
        {
            return Err(format!("{by:?} is cut off and has evicted {evicted:?}"));
        }
        Ok(())
    }

    /// A node whose links were all cut at one time, more than [`ISOLATED_MS`] ago, evicts at once no member that it heard until then. It may
    /// be the first one to suspect another member, but it reaches none.
    pub(super) fn check_just_isolated(
        &self,
        before: &StoredView,
        evicted: MemberId,
        by: MemberId,
        sent: u64,
        silences: &Silences,
    ) -> Result<(), Violation> {
        let active: Vec<MemberId> = active(before).filter(|id| *id != by).collect();
        let node = usize::from(by.node);
        let cut_at = |other: &MemberId| {
            let other = usize::from(other.node);
            let is_cut = self.cut[node][other] && self.cut[other][node];
            let [to, from] = [
                self.link_changed[node][other],
                self.link_changed[other][node],
            ];
            (is_cut && to == from).then_some(to)
        };
        let Some(at) = active.first().and_then(cut_at) else {
            return Ok(());
        };
        let is_isolated = active.iter().all(|other| cut_at(other) == Some(at));
        let since = sent.saturating_sub(at);
        let is_early = (ISOLATED_MS..EVICTION_WAIT_MS).contains(&since);
        let is_half = active.len() == 1;
        let silence = silences.get(&evicted).map_or(u64::MAX, |it| it.ms);
        let was_heard = silence <= since + PING_MS + 100;
        match is_isolated && is_early && was_heard && !is_half {
            true => Err(format!(
                "{by:?} was cut off {since} ms ago and has evicted {evicted:?} at once"
            )),
            false => Ok(()),
        }
    }
}
