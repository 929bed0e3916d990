//! The way of the links: direct connections, or a broker that all members share.

use std::io;
use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;
use std::time::Duration;

use tidewire_core::store::MemberId;
use tidewire_core::view::Profile;
use tidewire_link::frame::Process;
use tokio::sync::mpsc;
use tokio::time::sleep;

use super::Settings;
use super::task::Event;
#[cfg(feature = "bus")]
use crate::carrier::bus::Bus;
use crate::carrier::direct::{Endpoint, Fingerprint, Identity, PeerAddress};
use crate::carrier::{self, Carrier};

/// The pause after the name of a host could not be resolved.
const RESOLVE_PAUSE: Duration = Duration::from_millis(500);

/// See the documentation of this module.
pub(super) enum Route {
    Direct(Arc<Endpoint>, Fingerprint),
    Broker {
        settings: Box<carrier::Settings>,
        /// Started with the first view, which has the key of the cluster.
        #[cfg(feature = "bus")]
        bus: Option<Arc<Bus>>,
    },
}

/// How one member is reached.
pub(super) enum Target {
    Direct {
        endpoint: Arc<Endpoint>,
        /// Its address, which may have the name of a host.
        address: String,
        fingerprint: Fingerprint,
    },
    #[cfg(feature = "bus")]
    Broker(Arc<Bus>),
}

impl Route {
    /// Opens the address for links, unless a broker carries them.
    pub(super) async fn open(settings: &Settings) -> io::Result<Self> {
        if let Some(broker) = &settings.link {
            tracing::info!(broker = broker.kind(), "links of the cluster");
            return Ok(Self::Broker {
                settings: Box::new(broker.clone()),
                #[cfg(feature = "bus")]
                bus: None,
            });
        }
        let identity = Identity::generate().map_err(io::Error::other)?;
        let fingerprint = identity.fingerprint();
        let endpoint = Endpoint::bind(settings.listen, identity).await;
        let endpoint = endpoint.map_err(|error| {
            let address = settings.listen;
            io::Error::new(
                error.kind(),
                format!("the address {address} for links: {error}"),
            )
        })?;
        let advertise = with_port(&settings.advertise, endpoint.local_address().port());
        tracing::info!(listen = %endpoint.local_address(), advertise, "links of the cluster");
        Ok(Self::Direct(Arc::new(endpoint), fingerprint))
    }

    /// The address of this node in the view: with a broker, its kind.
    pub(super) fn address(&self, advertise: &str) -> String {
        match self {
            Self::Direct(endpoint, _) => with_port(advertise, endpoint.local_address().port()),
            Self::Broker { settings, .. } => settings.kind().to_owned(),
        }
    }

    /// The fingerprint of this node in the view.
    pub(super) fn fingerprint(&self) -> Option<[u8; 32]> {
        match self {
            Self::Direct(_, fingerprint) => Some(fingerprint.0),
            Self::Broker { .. } => None,
        }
    }

    /// Connects to the broker, if there is one. Later calls have no effect.
    #[cfg_attr(
        not(feature = "bus"),
        expect(unused_variables, reason = "there is no broker")
    )]
    pub(super) fn start(
        &mut self,
        cluster: u64,
        local: Process,
        events: &mpsc::UnboundedSender<Event>,
    ) {
        #[cfg(feature = "bus")]
        if let Self::Broker { settings, bus } = self
            && bus.is_none()
        {
            let started = Bus::start((**settings).clone(), cluster, local);
            let (mut answers, events) = (started.answers(), events.clone());
            tokio::spawn(async move {
                // It does not answer yet.
                let mut is_sent = events.send(Event::Broker(false)).is_ok();
                while is_sent && answers.changed().await.is_ok() {
                    let answers = *answers.borrow_and_update();
                    is_sent = events.send(Event::Broker(answers)).is_ok();
                }
            });
            *bus = Some(Arc::new(started));
        }
    }

    /// How a member is reached.
    ///
    /// # Errors
    /// It uses another way. The text is for the operator.
    pub(super) fn target(&self, profile: &Profile) -> Result<Target, String> {
        let address = profile.addresses.first();
        match (self, profile.fingerprint, address) {
            (Self::Direct(endpoint, _), Some(fingerprint), Some(address)) => Ok(Target::Direct {
                endpoint: Arc::clone(endpoint),
                address: address.clone(),
                fingerprint: Fingerprint(fingerprint),
            }),
            #[cfg(feature = "bus")]
            (
                Self::Broker {
                    settings,
                    bus: Some(bus),
                },
                None,
                Some(kind),
            ) if kind == settings.kind() => Ok(Target::Broker(Arc::clone(bus))),
            (_, fingerprint, address) => {
                let own = match self {
                    Self::Direct(..) => "directly",
                    Self::Broker { settings, .. } => settings.kind(),
                };
                let other = match fingerprint {
                    Some(_) => "directly",
                    None => address.map_or("nothing", String::as_str),
                };
                Err(format!(
                    "its links use another way ({other}) than the links of this node ({own}); set cluster.link to the same broker on all nodes"
                ))
            }
        }
    }
}

impl Target {
    /// The carrier to the member.
    #[cfg_attr(
        not(feature = "bus"),
        expect(unused_variables, reason = "there is no broker")
    )]
    pub(super) async fn carrier(self, id: MemberId) -> io::Result<Box<dyn Carrier>> {
        match self {
            Self::Direct {
                endpoint,
                address,
                fingerprint,
            } => {
                let address = resolve(&address).await;
                let carrier = endpoint.carrier(PeerAddress {
                    address,
                    fingerprint,
                })?;
                Ok(Box::new(carrier))
            }
            #[cfg(feature = "bus")]
            Self::Broker(bus) => Ok(Box::new(bus.carrier(Process {
                node: id.node,
                birth: id.birth,
            }))),
        }
    }
}

/// The address behind a host and port. Tries until the name is known: a peer that starts may not be in the DNS yet.
async fn resolve(address: &str) -> SocketAddr {
    loop {
        let found = tokio::net::lookup_host(address).await;
        match found.map(|mut found| found.next()) {
            Ok(Some(found)) => return found,
            Ok(None) => tracing::warn!(address, "the host of a member has no address"),
            Err(error) => tracing::warn!(address, %error, "the host of a member is not known"),
        }
        sleep(RESOLVE_PAUSE).await;
    }
}

/// The address with this port, if it has none.
fn with_port(address: &str, port: u16) -> String {
    if let Ok(address) = address.parse::<SocketAddr>() {
        return address.to_string();
    }
    if let Ok(address) = address.parse::<IpAddr>() {
        return SocketAddr::new(address, port).to_string();
    }
    let has_port = address
        .rsplit_once(':')
        .is_some_and(|(_, port)| port.parse::<u16>().is_ok());
    match has_port {
        true => address.to_owned(),
        false => format!("{address}:{port}"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[cfg(all(feature = "nats", feature = "redis"))]
    #[tokio::test]
    async fn a_member_with_another_way_is_not_linked() {
        let settings = carrier::from_url("nats://host").expect("a URL");
        let mut route = Route::Broker {
            settings: Box::new(settings),
            bus: None,
        };
        let local = Process { node: 1, birth: 1 };
        route.start(7, local, &mpsc::unbounded_channel().0);
        let check = |fingerprint, address: &str, expected: Result<(), &str>| {
            let profile = Profile {
                fingerprint,
                addresses: vec![address.to_owned()],
                ..Profile::default()
            };
            match (route.target(&profile), expected) {
                (Ok(Target::Broker(_)), Ok(())) => {}
                (Err(why), Err(expected)) => assert!(why.contains(expected), "{why}"),
                _ => panic!("{address}: {expected:?} was expected"),
            }
        };
        check(None, "nats", Ok(()));
        check(
            None,
            "redis",
            Err("(redis) than the links of this node (nats)"),
        );
        check(Some([7; 32]), "10.0.0.1:6022", Err("(directly)"));
    }

    #[test]
    fn an_address_gets_the_port_of_the_endpoint_if_it_has_none() {
        let check = |address, expected| assert_eq!(with_port(address, 7), expected);
        check("10.0.0.1", "10.0.0.1:7");
        check("10.0.0.1:8", "10.0.0.1:8");
        check("::1", "[::1]:7");
        check("[::1]:8", "[::1]:8");
        check("node-1.example", "node-1.example:7");
        check("node-1.example:8", "node-1.example:8");
    }
}
