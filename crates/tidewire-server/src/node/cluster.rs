//! The node as a member of a cluster: connects its store, its shards and the links to the other members.

use std::collections::BTreeMap;
use std::net::{IpAddr, Ipv4Addr, SocketAddr, ToSocketAddrs, UdpSocket};
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use serde_json::{Value, json};
use tidewire_auth::AuthChain;
use tidewire_cluster::carrier;
use tidewire_cluster::member::{
    Member, MemberSnapshot, MemberThread, Settings, Shards, Snapshot, Stage,
};
use tidewire_config::plan::Plan;
use tidewire_config::section::StoreKind;
use tidewire_config::value::Auto;
use tidewire_core::slot::{ClusterKey, Member as Owner, SlotTable};
use tidewire_core::store::{MemberId, Opened, StoredView, View};
use tidewire_core::view::{MemberState, ViewMember};
use tidewire_http::admin::cluster::ClusterAdmin;
use tidewire_http::metrics::cluster::{
    ClusterSample, LinkSample, MemberSample, RulesSample, STATES,
};
use tidewire_http::rights::Rights;
use tidewire_http::status::Reason;
use tidewire_shard::handle::ShardHandle;
use tidewire_wire::entry::DecodeLimits;
use tokio::time::{Instant, sleep, timeout_at};

use super::stores::NamedOpen;
use crate::exit::{Exit, Failure};

/// A post to a shard of another node is at most as long as everything that may wait for the node.
const POST_BYTES_MAX: usize = 64 << 20;

/// How often a node that leaves checks whether its names are handed over.
const HANDOVER_INTERVAL: Duration = Duration::from_millis(20);

/// The running member.
pub(super) struct Cluster {
    thread: MemberThread,
    /// The first view that has this node.
    pub(super) first_view: StoredView,
}

/// The number of a node. It is another one in each life of a node, so that a late entry of an earlier life finds no session: the low bits of
/// its birth.
pub(super) fn node_number(opened: Opened) -> u16 {
    opened.opening as u16
}

/// The broker of the links, if the configuration has one.
///
/// # Errors
/// Its URL is not valid. The text does not contain it, because it may have a password.
pub(super) fn broker(plan: &Plan) -> Result<Option<carrier::Settings>, Failure> {
    let url = &plan.config.cluster.link.0;
    if url.is_empty() {
        return Ok(None);
    }
    let broker = carrier::from_url(url);
    broker.map(Some).map_err(|error| {
        let line = format!("cluster.link: {error}; docs/carriers has the forms");
        Failure::new(Exit::Configuration, line)
    })
}

impl Cluster {
    /// Joins the cluster of the default store. Waits until the registry has a view with this node.
    ///
    /// # Errors
    /// The node can't be a member, or its address for links is not available.
    pub(super) fn join(
        plan: &Plan,
        store: &mut NamedOpen,
        shards: Arc<dyn Shards>,
        key: ClusterKey,
        evictions: u32,
    ) -> Result<Self, Failure> {
        let opened = store.open.opened;
        let registry = store.open.store.registry().map_err(|error| {
            Failure::new(
                Exit::DataFolder,
                format!("the registry of the cluster: {error}"),
            )
        })?;
        let Some(mut registry) = registry else {
            let line = "the store keeps no list of members; set store.kind to postgres or redis, or cluster.enabled to false";
            return Err(Failure::new(Exit::Configuration, line));
        };
        let id = MemberId {
            node: node_number(opened),
            birth: opened.opening,
        };
        // The numbers of nodes repeat after 65,536 openings. A later start has another one.
        let view = registry.view().map_err(|error| {
            Failure::new(
                Exit::DataFolder,
                format!("the registry of the cluster: {error}"),
            )
        })?;
        if view.ids().any(|other| other.node == id.node) {
            let line = format!(
                "another member has the number {} that this start has drawn; start the server again",
                id.node
            );
            return Err(Failure::new(Exit::Address, line));
        }
        let cluster = &plan.config.cluster;
        // The plan has checked the address.
        let host = cluster
            .host
            .parse()
            .unwrap_or(IpAddr::V4(Ipv4Addr::UNSPECIFIED));
        let settings = Settings {
            id,
            shard_count: plan.shards,
            key,
            evictions,
            listen: SocketAddr::new(host, cluster.port),
            advertise: match &cluster.advertise {
                Auto::Set(address) => address.clone(),
                Auto::Auto => own_address(plan, host).to_string(),
            },
            link: broker(plan)?,
            entries: DecodeLimits {
                post_bytes_max: POST_BYTES_MAX,
                pattern_bytes_max: plan.config.limits.name_bytes_max.as_usize(),
            },
        };
        let (thread, first_view) = MemberThread::start(settings, registry, shards)
            .map_err(|error| Failure::new(Exit::Address, format!("cluster: {error}")))?;
        Ok(Self { thread, first_view })
    }

    /// A handle to the member.
    pub(super) fn member(&self) -> &Member {
        self.thread.member()
    }

    /// The owners with which the shards start. They hold nothing before they have adopted a view, unless the node is alone: another node may
    /// still hold what the first view gives to this one.
    pub(super) fn first_owners(&self) -> Option<Arc<SlotTable>> {
        let view = &self.first_view;
        let own = self.member().snapshot().own;
        let owner = |member: &ViewMember| Owner {
            node: member.id.node,
            shard_count: member.profile.shard_count,
            weight: match member.id == own && view.members.len() > 1 {
                true => 0,
                false => member.profile.weight,
            },
        };
        let key = view.key.as_ref()?;
        let owners = view.members.iter().map(owner).collect();
        Some(Arc::new(SlotTable::new(key, owners)))
    }

    /// Waits until the node owns slots and serves them.
    ///
    /// # Errors
    /// It can't be a member.
    pub(super) async fn until_active(&self, shards: &[ShardHandle]) -> Result<(), Failure> {
        let mut stage = self.member().stage();
        let reached = stage.wait_for(|stage| *stage != Stage::Joining).await;
        match reached.map(|stage| stage.clone()) {
            Ok(Stage::Active) => {
                while settled(shards) < self.member().snapshot().view {
                    sleep(HANDOVER_INTERVAL).await;
                }
                Ok(())
            }
            Ok(Stage::Refused(text)) => Err(Failure::new(Exit::Configuration, text)),
            _ => {
                let line = "the node could not join the cluster; start the server again";
                Err(Failure::new(Exit::DataFolder, line))
            }
        }
    }

    /// Begins to leave. Waits until the other nodes have taken over the names of this one, until the deadline at most. If no other node can,
    /// it waits for those that leave too, because they need the names of this one.
    pub(super) async fn hand_over(&self, shards: &[ShardHandle], deadline: Instant) {
        let member = self.member();
        member.leave();
        let handed_over = async {
            while !has_handed_over(&member.snapshot(), shards) {
                sleep(HANDOVER_INTERVAL).await;
            }
        };
        if timeout_at(deadline, handed_over).await.is_err() {
            tracing::warn!("the other nodes have not taken over all names in time");
        }
    }

    /// Leaves the view: the clients have gone, and everything is committed. Waits for it until the deadline at most.
    pub(super) async fn leave(&self, shards: &[ShardHandle], deadline: Instant) {
        let member = self.member();
        let stage = member.stage();
        let left = async {
            while matches!(
                *stage.borrow(),
                Stage::Joining | Stage::Active | Stage::Leaving
            ) {
                member.settled(settled(shards));
                sleep(HANDOVER_INTERVAL).await;
            }
        };
        if timeout_at(deadline, left).await.is_err() {
            tracing::warn!("the node has not left the cluster in time; the other nodes evict it");
        }
    }

    /// The orders of an operator.
    pub(super) fn admin(&self, rights: &Arc<Rights>, keys: Keys) -> Box<dyn ClusterAdmin> {
        Box::new(Operator {
            member: self.member().clone(),
            rights: Arc::clone(rights),
            keys,
        })
    }

    /// The keys and files that this node uses for logins.
    pub(super) fn keys(&self, auth: &Arc<AuthChain>) -> Keys {
        Keys {
            auth: Arc::clone(auth),
            secret: self.first_view.key,
        }
    }

    /// Ends the links.
    pub(super) fn stop(self) {
        self.thread.stop();
    }
}

/// The keys and files that this node uses for logins, as operators compare them between nodes.
pub(super) struct Keys {
    auth: Arc<AuthChain>,
    /// Only the nodes know it, so a fingerprint does not help to guess a key.
    secret: Option<ClusterKey>,
}

impl Keys {
    /// The fingerprint of each section of the configuration.
    pub(super) fn fingerprints(&self) -> Vec<(&'static str, String)> {
        let Some(ClusterKey(secret)) = &self.secret else {
            return Vec::new();
        };
        let found = self.auth.fingerprints().into_iter();
        found
            .map(|found| (found.section, found.shown(secret)))
            .collect()
    }
}

/// The cluster, for the admin API.
struct Operator {
    member: Member,
    rights: Arc<Rights>,
    keys: Keys,
}

impl ClusterAdmin for Operator {
    fn status(&self) -> Value {
        let snapshot = self.member.snapshot();
        let member = |member: &MemberSnapshot| {
            json!({
                "node": member.id.node,
                "birth": member.id.birth,
                "state": state_name(member.state),
                "this": member.id == snapshot.own,
                "address": member.address,
                "slots": member.slot_count,
                "linked": member.is_linked,
                "suspect": member.is_suspect,
                "round_trip_ms": member.link.round_trip.map(|time| time.as_secs_f64() * 1_000.0),
            })
        };
        let members: Vec<Value> = snapshot.members.iter().map(member).collect();
        let rules = self.rights.rules().map(|now| {
            json!({
                "change": now.number,
                "file": now.rules.file(),
                "sha256": now.rules.sha256(),
                "since": now.since.0 / 1_000,
            })
        });
        let keys: BTreeMap<&str, String> = self.keys.fingerprints().into_iter().collect();
        json!({
            "view": snapshot.view.0,
            "frozen": snapshot.is_frozen,
            "rules": rules,
            "keys": keys,
            "members": members,
        })
    }

    fn leave(&self) -> bool {
        use rustix::process::{Signal, getpid, kill_process};
        kill_process(getpid(), Signal::TERM).is_ok()
    }

    fn evict(&self, node: u16) -> bool {
        let snapshot = self.member.snapshot();
        let others = snapshot.members.iter().map(|member| member.id);
        let found = others
            .filter(|id| *id != snapshot.own)
            .find(|id| id.node == node);
        if let Some(id) = found {
            self.member.evict(id);
        }
        found.is_some()
    }
}

fn state_name(state: MemberState) -> &'static str {
    match state {
        MemberState::Joining => STATES[0],
        MemberState::Active => STATES[1],
        MemberState::Leaving => STATES[2],
    }
}

/// The metrics of the cluster.
pub(super) fn sample(member: &Member, rights: &Rights, keys: &Keys) -> ClusterSample {
    let Snapshot {
        own,
        view,
        evicted_count,
        members,
        ..
    } = member.snapshot();
    let of_member = |member: MemberSnapshot| MemberSample {
        node: member.id.node,
        state: state_name(member.state),
        slot_count: member.slot_count,
        link: (member.id != own).then_some(LinkSample {
            is_open: member.is_linked,
            round_trip: member.link.round_trip,
            waiting_bytes: member.link.waiting_bytes,
            resent_count: member.link.resent_count,
        }),
    };
    ClusterSample {
        view: view.0,
        evicted_count,
        rules: rights.rules().map(|now| RulesSample {
            change: now.number,
            sha256: now.rules.sha256().to_owned(),
        }),
        keys: keys.fingerprints(),
        members: members.into_iter().map(of_member).collect(),
    }
}

/// The problems of the cluster for `/ready`, each with whether the node should get no new connections.
pub(super) fn troubles(member: &Member) -> Vec<(Reason, bool)> {
    let snapshot = member.snapshot();
    let mut troubles = Vec::new();
    let own = snapshot
        .members
        .iter()
        .find(|found| found.id == snapshot.own);
    let is_active = own.is_some_and(|own| own.state == MemberState::Active);
    if !is_active || !snapshot.decides {
        let code = "not_a_member";
        let text = "the node is not an active member of the cluster".to_owned();
        troubles.push((Reason { code, text }, true));
    }
    for other in &snapshot.members {
        if other.is_suspect || !other.is_linked {
            let (node, address) = (other.id.node, &other.address);
            let code = "link_down";
            let text = format!("the link to the node {node} at {address} is down");
            troubles.push((Reason { code, text }, false));
        }
    }
    if snapshot.is_frozen {
        let code = "view_frozen";
        let text = "the registry of the cluster does not answer, so no node can join, leave or be replaced";
        let text = text.to_owned();
        troubles.push((Reason { code, text }, false));
    }
    troubles
}

/// Whether no other node waits for names of this one, which leaves.
fn has_handed_over(snapshot: &Snapshot, shards: &[ShardHandle]) -> bool {
    let own = snapshot.members.iter().find(|it| it.id == snapshot.own);
    match own.map(|own| own.state) {
        Some(MemberState::Active) => snapshot.members.len() == 1,
        Some(MemberState::Leaving) => settled(shards) >= snapshot.view,
        Some(MemberState::Joining) | None => true,
    }
}

/// The newest view whose hand-over is complete at all shards.
fn settled(shards: &[ShardHandle]) -> View {
    let views = shards.iter().map(|shard| {
        let view = &shard.stats().settled_view;
        view.load(Ordering::Relaxed)
    });
    View(views.min().unwrap_or(0))
}

/// The address from which this machine reaches the store, so that other nodes of the same store reach this one.
fn own_address(plan: &Plan, listen: IpAddr) -> IpAddr {
    if !listen.is_unspecified() {
        return listen;
    }
    let store = &plan.config.store;
    let (url, port) = match store.kind {
        StoreKind::Redis => (&store.redis.url, 6379),
        _ => (&store.postgres.url, 5432),
    };
    let found = host_and_port(url, port).to_socket_addrs();
    let target = found.ok().and_then(|mut found| found.next());
    let source = target.and_then(|target| {
        let any: IpAddr = match target {
            SocketAddr::V4(_) => Ipv4Addr::UNSPECIFIED.into(),
            SocketAddr::V6(_) => std::net::Ipv6Addr::UNSPECIFIED.into(),
        };
        // No packet is sent: the kernel only chooses the route.
        let socket = UdpSocket::bind((any, 0)).ok()?;
        socket.connect(target).ok()?;
        socket.local_addr().ok()
    });
    source.map_or(Ipv4Addr::LOCALHOST.into(), |source| source.ip())
}

/// The host and port in the address of a store.
fn host_and_port(url: &str, port: u16) -> String {
    let rest = url.split_once("://").map_or(url, |(_, rest)| rest);
    let authority = rest.split(['/', '?']).next().unwrap_or_default();
    let host = authority
        .rsplit_once('@')
        .map_or(authority, |(_, host)| host);
    let has_port = host
        .rsplit_once(':')
        .is_some_and(|(_, port)| port.parse::<u16>().is_ok());
    match has_port {
        true => host.to_owned(),
        false => format!("{host}:{port}"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_host_of_a_store_is_found_in_its_address() {
        let check = |url, expected| assert_eq!(host_and_port(url, 5432), expected, "{url}");
        check("postgresql://tidewire@db/tidewire", "db:5432");
        check("postgresql://db:5433/tidewire?sslmode=disable", "db:5433");
        check("redis://[::1]:6379/0", "[::1]:6379");
        check("127.0.0.1", "127.0.0.1:5432");
    }
}
