//! The rules of a cluster, as two nodes with one store change them. Each node has its own shards, which no link connects.

mod client;
mod shard_support;

use std::sync::Arc;

use shard_support::{Node, Options};
use tidewire_config::Problem;
use tidewire_core::permission::{Decision, Permission, Question};
use tidewire_core::rights::{Revocation, Revoked};
use tidewire_core::time::WallTime;
use tidewire_http::rights::{ChangeError, Rights, RulesChange};
use tidewire_http::rights_log::{LoggedChange, RightsLog};
use tidewire_http::rules_text::RulesText;
use tokio::runtime::{Builder, Runtime};

/// The levels of a view whose members can change rules, and of one with an older member.
const LEVEL: u16 = 3;
const OLDER_LEVEL: u16 = 2;

#[derive(Debug)]
struct AllowsNothing;

impl Permission for AllowsNothing {
    fn decide(&self, _question: &Question<'_>) -> Decision {
        Decision::Deny
    }
}

/// Two members with one store. The second one does not know rules that begin with `new`.
struct Members {
    runtime: Runtime,
    log: RightsLog,
    rights: [Arc<Rights>; 2],
    _nodes: [Node; 2],
}

impl Members {
    fn start(level: u16) -> Self {
        let runtime = Builder::new_multi_thread()
            .worker_threads(1)
            .build()
            .unwrap();
        let nodes = [(); 2].map(|()| Node::start(Options::default()));
        let log = RightsLog::new(nodes[0].store_client());
        let member = |index: usize| {
            let rights = Rights::new(nodes[index].handles().into(), 2);
            let compile = move |rules: &RulesText| -> Result<Arc<dyn Permission>, Problem> {
                match index == 1 && rules.text().starts_with("new") {
                    true => Err(Problem::new("rules.yml:1:1", "an unknown function")),
                    false => Ok(Arc::new(AllowsNothing)),
                }
            };
            let rights = Arc::new(rights.of_member(runtime.handle().clone(), Box::new(compile)));
            rights.open_log(log.clone());
            rights.view_changed(level);
            rights
        };
        let rights = [member(0), member(1)];
        Self {
            runtime,
            log,
            rights,
            _nodes: nodes,
        }
    }

    fn replace(&self, member: usize, text: &str, change: RulesChange) -> Result<(), ChangeError> {
        let rules = RulesText::new("rules.yml", text);
        let replaced = self.rights[member].replace_rules(rules, change);
        self.runtime.block_on(replaced)
    }

    fn read(&self, member: usize) {
        let read = self.runtime.block_on(self.rights[member].read());
        read.expect("the rows are readable");
    }

    /// The number and the text of the rules that a member uses.
    fn in_force(&self, member: usize) -> Option<(u64, String)> {
        let now = self.rights[member].rules()?;
        Some((now.number, now.rules.text().to_owned()))
    }

    /// The numbers of the rows in the store.
    fn rows(&self) -> Vec<u64> {
        let rows = self.runtime.block_on(self.log.after(0)).unwrap();
        rows.iter().map(|row| row.number).collect()
    }
}

fn rules(number: u64, text: &str) -> Option<(u64, String)> {
    Some((number, text.to_owned()))
}

#[test]
fn the_first_rules_are_those_of_one_node() {
    let members = Members::start(LEVEL);
    assert!(members.rights.iter().all(|rights| rights.needs_rules()));
    members.replace(0, "a", RulesChange::First).unwrap();
    // The second one may not know the row yet. Then it tries to add one with the same number.
    members.replace(1, "b", RulesChange::First).unwrap();
    assert_eq!(members.rows(), [1]);
    assert_eq!(
        [0, 1].map(|member| members.in_force(member)),
        [(); 2].map(|()| rules(1, "a"))
    );
    assert!(!members.rights.iter().any(|rights| rights.needs_rules()));
}

#[test]
fn equal_rules_are_no_change_and_other_rules_replace_the_row() {
    let members = Members::start(LEVEL);
    members.replace(0, "a", RulesChange::Replace).unwrap();
    members.replace(1, "a", RulesChange::Replace).unwrap();
    assert_eq!(members.rows(), [1]);
    assert_eq!(members.in_force(1), rules(1, "a"), "it has read them");
    members.replace(1, "b", RulesChange::Replace).unwrap();
    client::wait_until(|| members.rows() == [2]);
    members.replace(0, "b", RulesChange::First).unwrap();
    members.read(0);
    assert_eq!(members.in_force(0), rules(2, "b"));
    assert_eq!(members.rows(), [2]);
}

#[test]
fn rules_do_not_change_while_an_older_member_is_in_the_view() {
    let members = Members::start(OLDER_LEVEL);
    assert!(!members.rights[0].needs_rules());
    let refused = members.replace(0, "a", RulesChange::Replace);
    assert_eq!(refused, Err(ChangeError::OlderMember));
    assert_eq!(members.rows(), [0; 0]);
    members.rights[0].view_changed(LEVEL);
    assert_eq!(members.replace(0, "a", RulesChange::Replace), Ok(()));
}

#[test]
fn rules_with_a_mistake_add_no_row() {
    let members = Members::start(LEVEL);
    let refused = members.replace(1, "new", RulesChange::Replace);
    let problem = "rules.yml:1:1: an unknown function".to_owned();
    assert_eq!(refused, Err(ChangeError::Invalid(problem)));
    assert_eq!(members.rows(), [0; 0]);
}

#[test]
fn a_node_that_can_not_compile_the_rules_applies_no_later_change() {
    let members = Members::start(LEVEL);
    members.replace(0, "a", RulesChange::Replace).unwrap();
    members.read(1);
    assert_eq!(members.rights[1].unusable_rules(), None);
    members.replace(0, "new", RulesChange::Replace).unwrap();
    let what = Revoked::User("mallory".into());
    let revocation = Revocation {
        what: what.clone(),
        until: WallTime(u64::MAX),
    };
    let revoked = members.rights[0].revoke(revocation, WallTime(1));
    assert_eq!(members.runtime.block_on(revoked), Ok(()));
    let read = members.runtime.block_on(members.rights[1].read());
    let error = read.expect_err("it does not know the rules").message;
    assert!(
        error.contains("rules.yml:1:1") && error.contains("change 2"),
        "{error}"
    );
    assert_eq!(members.rights[1].unusable_rules(), Some(error));
    assert_eq!(members.in_force(1), rules(1, "a"));
    assert_eq!(members.rights[1].revoked_until(&what), None);
}

#[test]
fn only_the_newest_of_several_rules_must_compile() {
    let members = Members::start(LEVEL);
    let add = |number, text: &str| {
        let change = LoggedChange::Rules {
            rules: RulesText::new("rules.yml", text),
            since: WallTime(1),
        };
        let row = tidewire_http::rights_log::Row { number, change };
        assert_eq!(members.runtime.block_on(members.log.add(&row)), Ok(true));
    };
    add(1, "new");
    add(2, "a");
    members.read(1);
    assert_eq!(members.in_force(1), rules(2, "a"));
}
