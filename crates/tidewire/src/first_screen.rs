//! The first screen: a summary of the server that has started.
//!
//! The server prints it on standard output, for people and for programs that wait for its last line.

use std::fmt::Write as _;
use std::net::{IpAddr, SocketAddr};
use std::path::Path;

use tidewire_config::plan::Plan;
use tidewire_config::plan::Speaks;
use tidewire_config::section::{AuthKind, Store, StoreKind};
use tidewire_config::value::{Auto, Choice, Rules};
use tidewire_http::admin::page::PATH;
use tidewire_net::send_batch::Path as SendPath;

/// Content of the screen.
#[derive(Clone, Copy, Debug)]
pub struct Screen<'a> {
    /// Settings of the server.
    pub plan: &'a Plan,
    /// Configuration file, if the server read one.
    pub file: Option<&'a Path>,
    /// Addresses on which the server listens, with the ports that it got.
    pub addresses: &'a [SocketAddr],
    /// Addresses of TLS, if it has a separate port.
    pub tls_addresses: &'a [SocketAddr],
    /// Connections that the limit of open files allows.
    pub descriptors: u64,
    /// Guarantee of an acknowledged write in the default store, then in the other stores in the order of their names.
    pub promises: &'a [&'a str],
    /// Key of the admin page, if the server created it at this start.
    pub admin_key: Option<&'a str>,
    /// How the sends of each shard reach the kernel.
    pub send_paths: &'a [SendPath],
}

/// The screen as text. Its last line is `ready on http://ADDRESS`, or `ready on https://ADDRESS` with TLS.
#[must_use]
pub fn first_screen(of: &Screen<'_>) -> String {
    let Screen {
        plan,
        addresses,
        tls_addresses,
        descriptors,
        ..
    } = *of;
    let mut screen = format!("tidewire {}\n\n", env!("CARGO_PKG_VERSION"));
    let mut row = |name: &str, text: &str| {
        let _ = writeln!(screen, "  {name:<13} {text}");
    };
    let config = &plan.config;
    let (web_sockets, pages) = match plan.speaks {
        Speaks::Clear => ("ws", "http"),
        Speaks::Tls | Speaks::Both => ("wss", "https"),
    };
    let of_main = addresses.iter().map(|address| (web_sockets, address));
    let of_tls = tls_addresses.iter().map(|address| ("wss", address));
    for (scheme, address) in of_main.chain(of_tls) {
        for path in config.network.paths.iter() {
            row("clients", &format!("{scheme}://{}{path}", shown(*address)));
        }
        for path in config.network.json_paths.iter() {
            let url = format!("{scheme}://{}{path}", shown(*address));
            row("json clients", &url);
        }
    }
    if let Some(first) = addresses.first() {
        let host = format!("{pages}://{}", shown(*first));
        row(
            "health",
            &format!("{host}/health, {host}/ready, {host}/metrics"),
        );
        if plan.is_development {
            let name = if plan.has_demo { "demo" } else { "page" };
            row(name, &format!("{host}/"));
        }
        if plan.has_docs {
            row("docs", &format!("{host}/docs/"));
        }
        if plan.admin_page.is_on() {
            // Browsers send a fragment to no server, so no log contains it.
            let key = of.admin_key.map(|key| format!("#key={key}"));
            let key = key.unwrap_or_default();
            row("admin page", &format!("{host}{PATH}/{key}"));
        }
    }
    if let Some(certificate) = &config.tls.certificate.0 {
        row("certificate", &certificate.display().to_string());
    }
    if let Some(file) = of.file {
        row("options", &file.display().to_string());
    }
    let mut promises = of.promises.iter();
    if let Some((kind, location)) = store_location(&config.store) {
        row(kind, &location);
    }
    row("written", promises.next().unwrap_or(&""));
    for ((name, named), promise) in config.stores.iter().zip(promises) {
        let location = match store_location(&named.store) {
            Some((kind, location)) => format!(", {kind} {location}"),
            None => String::new(),
        };
        let prefixes = named.prefixes.join(", ");
        row("store", &format!("{name} for {prefixes}{location}"));
        row("written", promise);
    }
    row("login", &login(plan));
    row(
        "permission",
        &match &config.permissions {
            Rules::None if plan.has_demo => {
                "none: every session may do everything, except for the demo's names, which have rules".to_owned()
            }
            Rules::None => "none: every session may do everything".to_owned(),
            Rules::AllowAll => "allow_all: every logged-in user may do everything".to_owned(),
            Rules::File(path) => path.display().to_string(),
        },
    );
    row("shards", &plan.shards.to_string());
    row("connections", &connections(plan, descriptors));
    row("sends", &sends(of.send_paths));
    if plan.is_development {
        row(
            "mode",
            "development: pages from loopback hosts may connect, denials are logged with their rule",
        );
    }
    let ready = addresses
        .first()
        .map(|address| shown(*address))
        .unwrap_or_default();
    let _ = write!(screen, "\nready on {pages}://{ready}\n");
    screen
}

/// Kind and place of a store; `None` for a store in memory.
fn store_location(store: &Store) -> Option<(&'static str, String)> {
    Some(match store.kind {
        StoreKind::Sqlite => ("data folder", store.path.display().to_string()),
        StoreKind::Memory => return None,
        StoreKind::Mongodb => ("database", store.mongodb.url.clone()),
        StoreKind::Postgres => ("database", store.postgres.url.clone()),
        StoreKind::Redis => ("database", store.redis.url.clone()),
    })
}

/// Maximum number of connections, by the lower one of two limits.
fn connections(plan: &Plan, descriptors: u64) -> String {
    match plan.config.limits.connections_max {
        Auto::Set(count) if (count as u64) < descriptors => {
            format!("up to {count}, by limits.connections_max")
        }
        _ => format!("up to {descriptors}, by the limit of open files"),
    }
}

/// How sends reach the kernel. Shards differ if descriptors or memory were sufficient for some rings only.
fn sends(paths: &[SendPath]) -> String {
    let with_ring = paths.iter().filter(|path| **path == SendPath::Ring).count();
    let other = paths.iter().find(|path| **path != SendPath::Ring);
    let plain = match other {
        None => return "io_uring".to_owned(),
        Some(SendPath::WithoutRing(cause)) => format!("plain, because {cause}"),
        Some(_) => "plain, by network.sends".to_owned(),
    };
    match with_ring {
        0 => plain,
        _ => format!(
            "io_uring for {with_ring} of {} shards, others {plain}",
            paths.len()
        ),
    }
}

fn login(plan: &Plan) -> String {
    let names: Vec<&str> = plan.auth_chain.iter().map(|kind| kind.word()).collect();
    let names = names.join(", ");
    if plan.auth_chain.contains(&AuthKind::Open) {
        format!("{names}: every login succeeds")
    } else {
        names
    }
}

/// An address as a user types it. For an unspecified address it is the loopback address.
fn shown(address: SocketAddr) -> String {
    match address.ip() {
        IpAddr::V4(ip) if ip.is_unspecified() => format!("127.0.0.1:{}", address.port()),
        IpAddr::V6(ip) if ip.is_unspecified() => format!("[::1]:{}", address.port()),
        _ => address.to_string(),
    }
}

#[cfg(test)]
mod tests {
    use tidewire_config::layer::{Sources, load, load_text};
    use tidewire_config::machine::Machine;
    use tidewire_config::plan::plan;
    use tidewire_net::send_batch::RingFault;

    use super::*;

    #[test]
    fn says_what_there_is_and_ends_with_the_address() {
        let machine = Machine {
            processors: 2,
            memory_bytes: 1 << 30,
        };
        let plan = plan(&load(&Sources::default()).expect("defaults"), &machine).expect("a plan");
        let addresses =
            ["127.0.0.1:6020", "[::1]:6020"].map(|text| text.parse().expect("an address"));
        let screen = first_screen(&Screen {
            plan: &plan,
            file: Some(Path::new("tidewire.yml")),
            addresses: &addresses,
            tls_addresses: &[],
            descriptors: 936,
            admin_key: Some("a key"),
            promises: &["on disk, synced: SQLite"],
            send_paths: &[SendPath::Ring; 2],
        });
        for part in [
            "ws://127.0.0.1:6020/deepstream",
            "ws://[::1]:6020/deepstream",
            "json clients  ws://127.0.0.1:6020/deepstream-json",
            "tidewire.yml",
            "./tidewire-data",
            "open: every login succeeds",
            "up to 936",
            "on disk, synced: SQLite",
            "io_uring",
            "admin page    http://127.0.0.1:6020/admin/#key=a key\n",
            "development",
        ] {
            assert!(screen.contains(part), "{part} in {screen}");
        }
        assert_eq!(
            screen.lines().last(),
            Some("ready on http://127.0.0.1:6020")
        );
    }

    #[test]
    fn names_each_store_with_its_promise() {
        let text = "stores:\n  a: {kind: memory, prefixes: [a/, b/]}\n  c: {prefixes: [c/]}\n";
        let loaded = load_text(text, Path::new("f.yml"), &[].into()).expect("all is right");
        let machine = Machine {
            processors: 2,
            memory_bytes: 1 << 30,
        };
        let screen = first_screen(&Screen {
            plan: &plan(&loaded, &machine).expect("a plan"),
            file: None,
            addresses: &[],
            tls_addresses: &[],
            descriptors: 936,
            admin_key: None,
            promises: &["on disk", "in memory", "on another disk"],
            send_paths: &[SendPath::Ring],
        });
        let expected = "  data folder   ./tidewire-data
  written       on disk
  store         a for a/, b/
  written       in memory
  store         c for c/, data folder ./tidewire-data/stores/c
  written       on another disk
";
        assert!(screen.contains(expected), "{screen}");
    }

    #[test]
    fn names_the_way_of_the_sends() {
        let refused = SendPath::WithoutRing(RingFault {
            action: "io_uring_setup",
            errno: 1,
        });
        assert_eq!(sends(&[SendPath::Ring]), "io_uring");
        assert_eq!(sends(&[SendPath::Plain]), "plain, by network.sends");
        let plain = sends(&[refused, refused]);
        assert!(
            plain.starts_with("plain, because io_uring_setup failed: "),
            "{plain}"
        );
        let mixed = sends(&[SendPath::Ring, refused]);
        assert!(
            mixed.starts_with("io_uring for 1 of 2 shards, others plain"),
            "{mixed}"
        );
    }
}
