//! Planted faults. Each one breaks one property, which proves that the property's check can fail.

use std::collections::VecDeque;

use tidewire_core::entry::{Answer, Asker, CallNotice, Entry, Listening, Published};
use tidewire_core::store::Version;
use tidewire_core::text::Payload;

use crate::check::Check;
use crate::random::Random;
use crate::right::Holding;

/// The faults that a run can plant.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fault {
    /// A mailbox swaps two neighbouring entries.
    MailboxReordered,
    /// A shard does not receive a change of a record.
    ChangeLost,
    /// A change of a record reaches a shard's mailbox late.
    PostHeldBack,
    /// A shard does not receive an event.
    PublicationLost,
    /// A shard receives an event twice.
    PublicationDoubled,
    /// A shard confirms a subscription before publishers see it.
    VisibleTooEarly,
    /// A shard takes a connection's later message while an earlier one waits.
    WaitIgnored,
    /// The store reports a commit that it did not make.
    CommitForgotten,
    /// A commit goes to the wrong store.
    CommitAstray,
    /// The store does not report that it refused a write.
    RefusalMissed,
    /// The store confirms a commit before it syncs.
    AckBeforeSync,
    /// After a failed sync the store retries only the sync, not the commit.
    OnlySyncedAgain,
    /// The store loads the content from before the last commit.
    StaleLoad,
    /// A mailbox delivers an answer to a session twice.
    AnswerDoubled,
    /// A shard does not learn that a connection is gone.
    CloseForgotten,
    /// A message of a call reaches its session twice.
    CallDoubled,
    /// A message of a call does not reach its session.
    CallLost,
    /// A requestor gets the response to another call.
    CallMisdirected,
    /// A shard does not receive a change of presence.
    NoticeLost,
    /// A session receives the notice that its own user is online.
    OwnNoticeGiven,
    /// The owner of a user does not learn of one of the user's sessions.
    SessionUncounted,
    /// An owner does not learn that a listener is gone.
    EndForgotten,
    /// A provider does not receive a notice.
    ListenNoticeLost,
    /// Subscribers do not learn that their record has a provider.
    ProviderUnknown,
    /// A request reaches its owner's mailbox late.
    RequestHeldBack,
    /// An acknowledgement does not reach its session.
    AckLost,
    /// A new listener does not learn which events already have subscribers.
    CensusLost,
    /// A listener learns late that a name matches its pattern.
    ListenNoticeLate,
    /// A rule reads a value that its record never had.
    RuleMisled,
    /// A rule's read gets no answer.
    RuleReadLost,
    /// A change of a record overtakes the first value of a subscription.
    GrantOvertaken,
    /// A session that lagged does not get a value that the server owes it.
    CatchUpLost,
    /// A change overtakes the value that the server owes to a lagging session.
    CatchUpStale,
    /// A shard does not learn that a session has drained.
    DrainForgotten,
    /// A session does not learn of a gap in its events.
    GapNoticeLost,
    /// The server coalesces for a session that did not request it.
    CoalescedUnasked,
    /// The server holds an answer back for a shorter time than it should.
    DelayShort,
    /// The permits of a rate do not reach the shard that requested them.
    PermitsLost,
    /// An event reaches a shard's mailbox late, so the marker of a change of rights overtakes it.
    MarkerOvertakes,
    /// A call reaches the mailbox of its provider's shard late, so the markers of a change of rights overtake it.
    CallOvertaken,
    /// The marker of a change of rights does not reach a shard.
    MarkerLost,
    /// A session does not learn that one of its holdings has ended.
    EndNoticeLost(Holding),
    /// A session receives the end of a holding that has not ended.
    EndUnjust(Holding),
    /// Shards do not learn that a name is now forbidden, and no shard checks which sessions hold it.
    RightKept(Holding),
    /// Shards do not learn that a session may no longer publish, write or call a name.
    MuteKept(Holding),
    /// A login expires later than it should.
    ExpiryLate,
    /// A revocation ends the sessions of the wrong user.
    RevokedOther,
    /// An entry of a mailbox makes its shard panic.
    ShardPanics,
    /// The deadlines of a shard never arrive.
    TimerLost,
    /// The end of a session overtakes the session's last messages.
    CloseOvertakes,
    /// After a change of rules a shard keeps its old ones.
    ShardForgotten,
}

impl Fault {
    /// All faults. At least one of the listed checks must find each fault.
    pub const ALL: [(Self, &[Check]); 65] = [
        (
            Self::MailboxReordered,
            &[Check::ConnectionOrder, Check::RecordOrder],
        ),
        (Self::ChangeLost, &[Check::RecordOrder]),
        (Self::PostHeldBack, &[Check::AnswerAfterEffects]),
        (Self::PublicationLost, &[Check::EventArrives]),
        (Self::PublicationDoubled, &[Check::EventOnce]),
        (Self::VisibleTooEarly, &[Check::EventArrives]),
        (Self::WaitIgnored, &[Check::EventOrder]),
        (Self::CommitForgotten, &[Check::Durable]),
        (
            Self::CommitAstray,
            &[Check::Durable, Check::StoreContent, Check::Routed],
        ),
        (Self::RefusalMissed, &[Check::Shared]),
        (Self::AckBeforeSync, &[Check::Durable]),
        (Self::OnlySyncedAgain, &[Check::Durable]),
        (Self::StaleLoad, &[Check::StoreContent]),
        (Self::AnswerDoubled, &[Check::RecordOrder]),
        (Self::CloseForgotten, &[Check::NothingLeaks]),
        (Self::CallDoubled, &[Check::RpcAnsweredOnce]),
        (Self::CallLost, &[Check::RpcAnsweredOnce]),
        (Self::CallMisdirected, &[Check::RpcFromProvider]),
        (Self::NoticeLost, &[Check::PresenceNotices]),
        (Self::OwnNoticeGiven, &[Check::PresenceNotices]),
        (Self::SessionUncounted, &[Check::PresenceQuery]),
        (Self::EndForgotten, &[Check::NothingLeaks]),
        (Self::ListenNoticeLost, &[Check::OneProvider]),
        (Self::ProviderUnknown, &[Check::HasProvider]),
        (Self::RequestHeldBack, &[Check::Reaction]),
        (Self::AckLost, &[Check::AnsweredOnce]),
        (Self::CensusLost, &[Check::OneProvider]),
        (Self::ListenNoticeLate, &[Check::ListenEnded]),
        (Self::RuleMisled, &[Check::Ruling]),
        (Self::RuleReadLost, &[Check::Quiet]),
        (Self::GrantOvertaken, &[Check::ReadWithoutGap]),
        (Self::CatchUpLost, &[Check::CaughtUp]),
        (Self::CatchUpStale, &[Check::RecordOrder, Check::CaughtUp]),
        (Self::DrainForgotten, &[Check::CaughtUp]),
        (Self::GapNoticeLost, &[Check::GapCounted]),
        (Self::CoalescedUnasked, &[Check::RecordOrder]),
        (Self::DelayShort, &[Check::Delayed]),
        (Self::PermitsLost, &[Check::Quiet]),
        (Self::MarkerOvertakes, &[Check::OldRules]),
        (Self::CallOvertaken, &[Check::OldRules]),
        (Self::MarkerLost, &[Check::Settled]),
        (Self::EndNoticeLost(Holding::Event), &[Check::RightsEnded]),
        (Self::EndNoticeLost(Holding::Record), &[Check::RightsEnded]),
        (Self::EndNoticeLost(Holding::Rpc), &[Check::RightsEnded]),
        (
            Self::EndNoticeLost(Holding::Presence),
            &[Check::RightsEnded],
        ),
        (
            Self::EndNoticeLost(Holding::Listening),
            &[Check::RightsEnded],
        ),
        (Self::EndUnjust(Holding::Event), &[Check::RightsEnded]),
        (Self::EndUnjust(Holding::Record), &[Check::RightsEnded]),
        (Self::EndUnjust(Holding::Rpc), &[Check::RightsEnded]),
        (Self::EndUnjust(Holding::Presence), &[Check::RightsEnded]),
        (Self::EndUnjust(Holding::Listening), &[Check::RightsEnded]),
        (Self::MuteKept(Holding::Event), &[Check::EventOnce]),
        (Self::MuteKept(Holding::Record), &[Check::OldRules]),
        (Self::MuteKept(Holding::Rpc), &[Check::RpcAnsweredOnce]),
        (Self::RightKept(Holding::Event), &[Check::OldRules]),
        (Self::RightKept(Holding::Record), &[Check::OldRules]),
        (Self::RightKept(Holding::Rpc), &[Check::OldRules]),
        (Self::RightKept(Holding::Presence), &[Check::OldRules]),
        (Self::RightKept(Holding::Listening), &[Check::OldRules]),
        (Self::ExpiryLate, &[Check::Revoked]),
        (Self::RevokedOther, &[Check::RightsEnded]),
        (Self::ShardPanics, &[Check::NoPanic]),
        (
            Self::TimerLost,
            &[
                Check::AnsweredOnce,
                Check::RpcAnsweredOnce,
                Check::OneProvider,
                Check::Quiet,
            ],
        ),
        (
            Self::CloseOvertakes,
            &[
                Check::NothingLeaks,
                Check::OneProvider,
                Check::RpcAnsweredOnce,
            ],
        ),
        (Self::ShardForgotten, &[Check::OldRules]),
    ];

    /// The common name of the mistake, for faults that a developer could really make. `tests/resume` plants two more: it applies
    /// a retry twice, and it resumes a history one event too late.
    pub fn mistake(self) -> Option<&'static str> {
        Some(match self {
            Self::AckBeforeSync => "ack before sync",
            Self::GrantOvertaken => "subscribe after the read",
            Self::MailboxReordered => "mailbox swaps two entries",
            Self::CommitForgotten => "commit fails silently",
            Self::ShardForgotten => "a rule change forgets a shard",
            Self::TimerLost => "a timer never fires",
            Self::CloseOvertakes => "a close overtakes a message",
            _ => return None,
        })
    }
}

/// The fault of a run, and the dice that decide when it strikes.
#[derive(Clone, Debug)]
pub struct Faults {
    fault: Option<Fault>,
    random: Random,
}

impl Faults {
    pub fn new(fault: Option<Fault>, seed: u64) -> Self {
        Self {
            fault,
            random: Random::new(seed),
        }
    }

    pub fn is_on(&self, fault: Fault) -> bool {
        self.fault == Some(fault)
    }

    pub fn on(&self) -> Option<Fault> {
        self.fault
    }

    /// Whether this fault is on and strikes now.
    pub fn hits(&mut self, fault: Fault) -> bool {
        self.fault == Some(fault) && self.strike()
    }

    /// Breaks the order of a mailbox if the fault concerns it.
    pub fn reorder(&mut self, mailbox: &mut VecDeque<Entry>) {
        let index = if self.hits(Fault::MailboxReordered) && mailbox.len() >= 2 {
            Some(self.random.below(mailbox.len() - 1))
        } else if self.fault == Some(Fault::CatchUpStale) {
            mailbox
                .iter()
                .zip(mailbox.iter().skip(1))
                .position(is_value_before_change)
        } else if self.fault == Some(Fault::GrantOvertaken) {
            mailbox
                .iter()
                .zip(mailbox.iter().skip(1))
                .position(is_grant_before_change)
        } else {
            None
        };
        if let Some(index) = index {
            mailbox.swap(index, index + 1);
        }
    }

    /// Drops, doubles or falsifies an entry that a mailbox delivers if the fault concerns it.
    pub fn spoil(&mut self, entry: Entry) -> Vec<Entry> {
        assert!(!self.hits(Fault::ShardPanics), "planted");
        let concerns = match (&self.fault, &entry) {
            (Some(Fault::AnswerDoubled), Entry::RecordAnswer(_)) => true,
            (Some(Fault::AckLost), Entry::RecordAnswer(answer)) => {
                matches!(answer.what, Answer::Written { .. })
            }
            (Some(Fault::CallDoubled | Fault::CallLost), Entry::RpcDelivery(delivery)) => {
                matches!(
                    delivery.what,
                    CallNotice::Response(_) | CallNotice::Error(_) | CallNotice::Failed(_)
                )
            }
            (Some(Fault::CallMisdirected), Entry::RpcDelivery(delivery)) => {
                matches!(delivery.what, CallNotice::Response(_))
            }
            (Some(Fault::RuleMisled | Fault::RuleReadLost), Entry::Value { asker, .. }) => {
                !matches!(asker, Asker::Lagging(..))
            }
            (Some(Fault::CatchUpLost), Entry::Value { asker, .. }) => {
                matches!(asker, Asker::Lagging(..))
            }
            (Some(Fault::MarkerLost), Entry::Rights(_))
            | (Some(Fault::SessionUncounted), Entry::Online { .. })
            | (Some(Fault::EndForgotten), Entry::SessionEnded { .. })
            | (Some(Fault::ListenNoticeLost), Entry::ListenNotice { .. })
            | (Some(Fault::PermitsLost), Entry::RateGranted { .. }) => true,
            (Some(Fault::CensusLost), Entry::Listening(Listening::Present { names, .. })) => {
                !names.is_empty()
            }
            (Some(Fault::ProviderUnknown), Entry::RecordPublished { what, .. }) => {
                matches!(what, Published::Provided(_))
            }
            (Some(Fault::OwnNoticeGiven), Entry::PresenceChanged(_)) => true,
            _ => false,
        };
        if !concerns || !self.strike() {
            return vec![entry];
        }
        match (self.fault, entry) {
            (Some(Fault::AnswerDoubled | Fault::CallDoubled), entry) => vec![entry.clone(), entry],
            (Some(Fault::CallMisdirected), Entry::RpcDelivery(mut delivery)) => {
                delivery.what = CallNotice::Response(Some(Payload::from_checked("0")));
                vec![Entry::RpcDelivery(delivery)]
            }
            (Some(Fault::OwnNoticeGiven), Entry::PresenceChanged(mut change)) => {
                change.except = None;
                vec![Entry::PresenceChanged(change)]
            }
            (Some(Fault::RuleMisled), Entry::Value { name, asker, .. }) => {
                let value = Payload::from_checked(r#"{"open":true}"#);
                let value = Ok(Some((Version::CREATED, value)));
                vec![Entry::Value { name, asker, value }]
            }
            _ => Vec::new(),
        }
    }

    /// True in 20 % of cases. The checks must find a fault that happens only now and then.
    pub fn strike(&mut self) -> bool {
        self.random.chance(20)
    }
}

fn is_value_before_change(pair: (&Entry, &Entry)) -> bool {
    match pair {
        (
            Entry::Value {
                name: read,
                asker: Asker::Lagging(..),
                ..
            },
            Entry::RecordPublished { name, what, .. },
        ) => read == name && matches!(what, Published::Changed { .. }),
        _ => false,
    }
}

fn is_grant_before_change(pair: (&Entry, &Entry)) -> bool {
    match pair {
        (Entry::RecordAnswer(answer), Entry::RecordPublished { name, .. }) => {
            answer.name == *name && matches!(answer.what, Answer::Granted { .. })
        }
        _ => false,
    }
}
