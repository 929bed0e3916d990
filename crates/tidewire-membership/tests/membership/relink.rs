//! After the broker has answered again, members reconnect at different times. Those that are late are not evicted.

use tidewire_membership::{Input, Membership, Output, RELINK_MS, Settings};
use tidewire_message::slot::ClusterKey;
use tidewire_message::view::{
    Heartbeat, MemberId, Profile, Proposal, StoredView, View, ViewMember,
};

const STEP_MS: u64 = 100;
/// A dead connection to a broker is replaced within 2.5 s, and the next one takes up to 3 s.
const LATE_MS: u64 = 5_500;

fn member(number: u16) -> MemberId {
    MemberId {
        node: number,
        birth: u64::from(number),
    }
}

/// The first of three active members, with the view that the others read, and its time.
struct Node {
    machine: Membership,
    view: StoredView,
    now: u64,
    /// Whether the second member answers.
    hears_second: bool,
}

impl Node {
    fn new() -> Self {
        let mut view = StoredView::of_one_node(Default::default(), member(1));
        view.number = View(3);
        view.members = [1, 2, 3]
            .map(|number| ViewMember::active(member(number), Profile::default()))
            .to_vec();
        let settings = Settings {
            id: member(1),
            profile: Profile::default(),
            key: ClusterKey([1; 16]),
            evictions: 0,
        };
        let mut node = Self {
            machine: Membership::new(settings, 0),
            view,
            now: 0,
            hears_second: false,
        };
        assert_eq!(node.pass(STEP_MS), None);
        assert!(node.machine.view().is_some());
        node
    }

    fn input(&mut self, input: Input) -> Option<Proposal> {
        let outputs = self.machine.step(self.now, input);
        self.answer(outputs)
    }

    /// Answers the requests to the registry at once, up to the first proposal.
    fn answer(&mut self, mut outputs: Vec<Output>) -> Option<Proposal> {
        while let Some(output) = outputs.pop() {
            let answer = match output {
                Output::Propose { proposal, .. } => return Some(proposal),
                Output::ReadView => Input::View(self.view.clone()),
                Output::Heartbeat => Input::Heartbeat(Heartbeat {
                    view: self.view.number,
                    generation: self.view.generation.clone(),
                }),
                _ => continue,
            };
            outputs.extend(self.machine.step(self.now, answer));
        }
        None
    }

    /// Time passes, until the node proposes a view.
    fn pass(&mut self, ms: u64) -> Option<Proposal> {
        let end = self.now + ms;
        while self.now < end {
            self.now += STEP_MS;
            let input = match self.hears_second {
                true => Input::Heard {
                    member: member(2),
                    asked: self.now,
                },
                false => Input::Tick,
            };
            if let Some(proposal) = self.input(input) {
                return Some(proposal);
            }
        }
        None
    }

    /// The broker is down for long and answers again, and the second member is linked. Returns what the node proposes up to then.
    fn lose_and_regain_broker(&mut self) -> Option<Proposal> {
        let inputs = [
            Input::BrokerSilent,
            Input::Suspect(member(2)),
            Input::Suspect(member(3)),
        ];
        for input in inputs {
            assert_eq!(self.input(input), None);
        }
        assert_eq!(self.pass(60_000), None);
        self.hears_second = true;
        let proposed = self.input(Input::BrokerAnswers);
        proposed.or(self.input(Input::Trusted(member(2))))
    }
}

#[test]
fn a_member_that_reaches_the_broker_later_is_not_evicted() {
    let mut node = Node::new();
    assert_eq!(node.lose_and_regain_broker(), None);
    assert_eq!(node.pass(LATE_MS), None);
    assert_eq!(node.input(Input::Trusted(member(3))), None);
    assert_eq!(node.pass(60_000), None);
}

#[test]
fn a_member_that_never_reaches_the_broker_again_is_evicted() {
    let mut node = Node::new();
    assert_eq!(node.lose_and_regain_broker(), None);
    let proposal = node.pass(RELINK_MS).expect("a proposal");
    let kept: Vec<MemberId> = proposal.members.iter().map(|member| member.id).collect();
    assert_eq!(kept, [member(1), member(2)]);
}
