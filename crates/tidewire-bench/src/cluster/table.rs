//! The table of a run, and the comparison with the goals.

use super::NODE_SHARE_MAX;
use super::workload::Workload;
use crate::failure::Failure;
use crate::report::figures::{DELIVERIES, short};
use crate::run_results::{MeasuredCell, MeasuredContender, Role};

/// The share of a processor that the busiest node used.
const SHARE: &str = "busiest_node_share";

/// One line for each contender in each cell: deliveries per processor second, as a share of the single node's, load and latencies.
#[must_use]
pub fn text(cells: &[MeasuredCell]) -> String {
    let mut text = String::new();
    for cell in cells {
        text += &format!("{}\n", cell.title);
        // The contenders are in pairs: one node, several nodes.
        for pair in cell.contenders.chunks(2) {
            for one in pair {
                text += &format!("  {:<30} {}\n", one.title, line(one, &pair[0]));
            }
        }
    }
    text
}

fn line(one: &MeasuredContender, single: &MeasuredContender) -> String {
    if let Some(failure) = &one.failure {
        return format!("failed: {failure}");
    }
    let figure = |name| one.figure(name).map(|figure| figure.value);
    let mut parts = vec![
        format!(
            "{:>8} deliveries/CPU-s",
            short(figure(DELIVERIES).unwrap_or(f64::NAN))
        ),
        format!(
            "{:.2} of one node",
            one.ratio(single, DELIVERIES).unwrap_or(f64::NAN)
        ),
    ];
    parts.extend(figure("deliveries_per_second").map(|rate| format!("{}/s", short(rate))));
    parts.extend(figure(SHARE).map(|share| format!("busiest node {:.0} %", 100.0 * share)));
    for (name, title) in [("latency_ms_p50", "p50"), ("latency_ms_p99", "p99")] {
        parts.extend(figure(name).map(|latency| format!("{title} {latency:.2} ms")));
    }
    parts.join("  ")
}

/// Compares Tidewire's cluster with its single node.
///
/// # Errors
/// One of them has failed, or the cluster is below a goal that counts.
pub fn check(
    workloads: &[Workload],
    cells: &[MeasuredCell],
    tolerance: f64,
) -> Result<(), Failure> {
    let mut failures = Vec::new();
    for (workload, cell) in workloads.iter().zip(cells) {
        let goal = workload.goal().map(|goal| goal * (1.0 - tolerance));
        match compare(cell, goal) {
            Ok(remark) => println!("{}: {remark}", cell.title),
            Err(why) => failures.push(format!("{}: {why}", cell.title)),
        }
    }
    match failures.is_empty() {
        true => Ok(()),
        false => Err(Failure::Threshold(failures.join("; "))),
    }
}

fn compare(cell: &MeasuredCell, goal: Option<f64>) -> Result<String, String> {
    let (Some(single), Some(cluster)) = (cell.one(Role::Tidewire), cell.one(Role::Variant)) else {
        return Err("not measured".to_owned());
    };
    if let Some(failure) = [single, cluster]
        .into_iter()
        .find_map(|one| one.failure.as_ref())
    {
        return Err(failure.clone());
    }
    let ratio = cluster.ratio(single, DELIVERIES).ok_or("not measured")?;
    let shares = [single, cluster].map(|one| one.figure(SHARE).map_or(0.0, |figure| figure.value));
    let share = shares.into_iter().fold(0.0, f64::max);
    let percent = 100.0 * share;
    match goal {
        None => Ok(format!("{ratio:.2} of one node")),
        Some(_) if share >= NODE_SHARE_MAX => Ok(format!(
            "{ratio:.2} of one node; without a goal, because a node used {percent:.0} % of a processor"
        )),
        Some(goal) if ratio >= goal => Ok(format!("{ratio:.2} of one node, at least {goal:.2}")),
        Some(goal) => Err(format!("{ratio:.2} of one node, less than {goal:.2}")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::report::fixture::contender;

    fn cell(single: f64, cluster: f64, share: f64) -> MeasuredCell {
        let figures = |deliveries| [(DELIVERIES, deliveries), (SHARE, share)];
        MeasuredCell {
            key: String::new(),
            id: "cluster-rooms-50".to_owned(),
            group: super::super::GROUP.to_owned(),
            title: "rooms".to_owned(),
            contenders: vec![
                contender("one", Role::Tidewire, &figures(single)),
                contender("several", Role::Variant, &figures(cluster)),
            ],
        }
    }

    #[test]
    fn a_cluster_below_its_goal_fails_unless_the_load_was_too_high() {
        let outcome = |cell: &MeasuredCell| compare(cell, Some(0.9));
        assert_eq!(
            outcome(&cell(100.0, 90.0, 0.3)),
            Ok("0.90 of one node, at least 0.90".to_owned())
        );
        assert_eq!(
            outcome(&cell(100.0, 89.0, 0.3)),
            Err("0.89 of one node, less than 0.90".to_owned())
        );
        assert!(
            outcome(&cell(100.0, 50.0, 0.8))
                .unwrap()
                .contains("without a goal")
        );
        let without_goal = compare(&cell(100.0, 50.0, 0.3), None);
        assert_eq!(without_goal, Ok("0.50 of one node".to_owned()));
        let mut failed = cell(100.0, 100.0, 0.3);
        failed.contenders[1].failure = Some("lost".to_owned());
        assert_eq!(outcome(&failed), Err("lost".to_owned()));
        failed.contenders.pop();
        assert!(outcome(&failed).is_err());
    }

    #[test]
    fn the_table_compares_each_contender_with_its_single_node() {
        let text = text(&[cell(100.0, 90.0, 0.3)]);
        assert!(text.contains("0.90 of one node"), "{text}");
        assert!(text.contains("1.00 of one node"), "{text}");
        assert!(text.contains("busiest node 30 %"), "{text}");
    }
}
