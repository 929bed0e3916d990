//! Metrics of the cluster, as this node sees it.

use std::fmt;
use std::time::Duration;

use prometheus_client::collector::Collector;
use prometheus_client::encoding::{DescriptorEncoder, EncodeMetric};
use prometheus_client::metrics::MetricType;
use prometheus_client::metrics::counter::ConstCounter;
use prometheus_client::metrics::gauge::ConstGauge;
use prometheus_client::registry::Unit;

/// The cluster at one moment.
#[derive(Clone, Debug, Default)]
pub struct ClusterSample {
    /// The number of the view.
    pub view: u64,
    /// Members that were evicted while this node was a member.
    pub evicted_count: u64,
    /// The rules of the cluster that apply on this node, if the cluster has some.
    pub rules: Option<RulesSample>,
    /// The fingerprints of the keys and files of users that this node uses, by the section of the configuration.
    pub keys: Vec<(&'static str, String)>,
    /// The members of the view.
    pub members: Vec<MemberSample>,
}

/// The rules of the cluster at one moment.
#[derive(Clone, Debug, Default)]
pub struct RulesSample {
    /// The number of the change that made them.
    pub change: u64,
    /// The SHA-256 of their text, in hexadecimal.
    pub sha256: String,
}

/// A member of the cluster at one moment.
#[derive(Clone, Debug, Default)]
pub struct MemberSample {
    /// The number of its node.
    pub node: u16,
    /// Its state.
    pub state: &'static str,
    /// The number of its slots.
    pub slot_count: usize,
    /// The link to it; `None` for this node.
    pub link: Option<LinkSample>,
}

/// A link at one moment.
#[derive(Clone, Copy, Debug, Default)]
pub struct LinkSample {
    /// Whether it is open.
    pub is_open: bool,
    /// The smoothed round-trip time.
    pub round_trip: Option<Duration>,
    /// Bytes that wait for their acknowledgement.
    pub waiting_bytes: usize,
    /// Frames that were sent again.
    pub resent_count: u64,
}

/// The states of members.
pub const STATES: [&str; 3] = ["joining", "active", "leaving"];

/// Reads the cluster for each request.
pub struct ClusterNumbers(pub Box<dyn Fn() -> ClusterSample + Send + Sync>);

impl fmt::Debug for ClusterNumbers {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("ClusterNumbers(..)")
    }
}

impl Collector for ClusterNumbers {
    fn encode(&self, mut encoder: DescriptorEncoder<'_>) -> Result<(), fmt::Error> {
        let sample = (self.0)();
        let gauge = |number: u64| ConstGauge::new(i64::try_from(number).unwrap_or(i64::MAX));
        let help = "The number of the view of the cluster";
        let kind = MetricType::Gauge;
        gauge(sample.view).encode(encoder.encode_descriptor(
            "cluster_view",
            help,
            None,
            kind,
        )?)?;
        let help = "Members that the cluster has evicted while this node was a member";
        let evicted = ConstCounter::new(sample.evicted_count);
        let kind = MetricType::Counter;
        evicted.encode(encoder.encode_descriptor("cluster_evictions", help, None, kind)?)?;
        if let Some(rules) = &sample.rules {
            let help = "The number of the change of rights that made the rules of this node, with the SHA-256 of their text";
            let kind = MetricType::Gauge;
            let mut family = encoder.encode_descriptor("cluster_rules_change", help, None, kind)?;
            let labels = [("sha256", rules.sha256.as_str())];
            gauge(rules.change).encode(family.encode_family(&labels)?)?;
        }
        let help = "Always 1, with a fingerprint of the keys or users of each section that this node uses: nodes with different ones decide logins differently";
        let kind = MetricType::Gauge;
        let mut family = encoder.encode_descriptor("cluster_keys", help, None, kind)?;
        for (section, fingerprint) in &sample.keys {
            let labels = [("section", *section), ("fingerprint", fingerprint.as_str())];
            gauge(1).encode(family.encode_family(&labels)?)?;
        }
        let help = "Members of the view, by state";
        let kind = MetricType::Gauge;
        let mut family = encoder.encode_descriptor("cluster_members", help, None, kind)?;
        for state in STATES {
            let members = sample.members.iter();
            let count = members.filter(|member| member.state == state).count();
            gauge(count as u64).encode(family.encode_family(&[("state", state)])?)?;
        }
        let members: Vec<(String, &MemberSample)> = sample
            .members
            .iter()
            .map(|member| (member.node.to_string(), member))
            .collect();
        let help = "Slots of each member";
        let mut family = encoder.encode_descriptor("cluster_slots", help, None, kind)?;
        for (node, member) in &members {
            let count = gauge(member.slot_count as u64);
            count.encode(family.encode_family(&[("node", node.as_str())])?)?;
        }
        let links = || {
            members
                .iter()
                .filter_map(|(node, member)| Some((node.as_str(), member.link?)))
        };
        let help = "Whether the link to each other member is open";
        let mut family = encoder.encode_descriptor("cluster_link_open", help, None, kind)?;
        for (node, link) in links() {
            gauge(link.is_open.into()).encode(family.encode_family(&[("node", node)])?)?;
        }
        let help = "Smoothed round-trip time of the link to each other member";
        let unit = Some(&Unit::Seconds);
        let name = "cluster_link_round_trip";
        let mut family = encoder.encode_descriptor(name, help, unit, kind)?;
        for (node, link) in links() {
            if let Some(round_trip) = link.round_trip {
                let seconds = ConstGauge::new(round_trip.as_secs_f64());
                seconds.encode(family.encode_family(&[("node", node)])?)?;
            }
        }
        let help = "Bytes that wait for the acknowledgement of each other member";
        let unit = Some(&Unit::Bytes);
        let mut family = encoder.encode_descriptor("cluster_link_waiting", help, unit, kind)?;
        for (node, link) in links() {
            gauge(link.waiting_bytes as u64).encode(family.encode_family(&[("node", node)])?)?;
        }
        let help = "Frames that were sent to each other member again";
        let kind = MetricType::Counter;
        let mut family =
            encoder.encode_descriptor("cluster_link_resent_frames", help, None, kind)?;
        for (node, link) in links() {
            let count = ConstCounter::new(link.resent_count);
            count.encode(family.encode_family(&[("node", node)])?)?;
        }
        Ok(())
    }
}
