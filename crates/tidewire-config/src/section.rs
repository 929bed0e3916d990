//! The table of options: every section with its documented fields and defaults.
//!
//! An option that is added here appears in the file, the environment, the flags, `config print` and the reference page.

use std::time::Duration;

use tidewire_core::limits::Limits as CoreLimits;
use tidewire_core::rate::Rate;

use super::address_range::AddressRange;
use super::collections::Collections;
use super::history::HistoryRule;
use super::option::{Traits, section};
use super::rate::OptionalRate;
use super::ratio::Ratio;
pub use super::store_section::{Durability, Store, StoreKind, StoreServer};
use super::stores::NamedStores;
use super::value::{
    Auto, ByteCount, Limited, List, OptionalBytes, OptionalPath, Rules, Secret, choice,
};

/// Enough for a person who retries a few times, too slow for a program that searches for taken names.
const SIGN_UP_RATE: Rate = Rate {
    interval: Duration::from_secs(10),
    burst: 10,
};

const fn seconds(count: u64) -> Duration {
    Duration::from_secs(count)
}

fn words(list: &[&str]) -> List<String> {
    List(list.iter().map(|word| (*word).to_owned()).collect())
}

fn bytes(count: usize) -> ByteCount {
    ByteCount(count as u64)
}

section! {
    /// Options of Tidewire.
    Config {
        /// Development mode: demo, documentation, admin page, and reasons of denials in the log. Browser pages of loopback
        /// hosts may connect on any port. It does not open logins: `auth.chain` decides about these, and every login succeeds
        /// while that is empty. `auto` turns it on if `auth.chain` is empty and all addresses are loopback addresses.
        dev: Auto<bool> = Auto::Auto;
        /// Number of shards, one thread each. `auto` follows the processors and the CPU quota of the container.
        shards: Auto<u16> = Auto::Auto;
        /// Maximum duration of a stop, from the signal to the last closed connection. If the server is not done by then, it
        /// exits with code 5.
        drain_timeout: Duration = seconds(20), Traits::NONE.reload();
        /// Time after the stop signal in which the server still accepts connections. In this time `/ready` answers 503, so
        /// that load balancers choose another node first. `auto` is 0s if all addresses are loopback addresses, else 5s.
        drain_delay: Auto<Duration> = Auto::Auto, Traits::NONE.reload();
        /// Addresses and paths of the server, and the web pages, hosts and proxies that it accepts.
        network: Network = Network::default();
        /// Compression of WebSocket messages.
        compression: Compression = Compression::default();
        /// Encryption: `https://` and `wss://`.
        tls: Tls = Tls::default();
        /// Limits of HTTP connections and requests.
        http: Http = Http::default();
        /// Web pages that are in the binary.
        pages: Pages = Pages::default();
        /// Parts of health and metrics that other machines may read.
        health: Health = Health::default();
        /// The default store of records.
        store: Store = Store::default();
        /// Additional stores, up to 15, each with a separate name of lowercase letters, digits and `_`. A store keeps the
        /// records whose names begin with one of its `prefixes`, a list; if the prefixes of several stores match, the longest
        /// one decides. Its other options have the names of the options of `store`, without `cache`. Without `path` its data
        /// folder is `stores/NAME` in the data folder of the node. Only the file can add a store; the environment can set the
        /// options of a store in the file: `stores.logs.kind` is `TIDEWIRE_STORES__LOGS__KIND`. See `docs/stores.md`.
        stores: NamedStores = NamedStores::default(), Traits::NONE.described();
        /// Several nodes that share one store.
        cluster: Cluster = Cluster::default();
        /// Collections of records, up to 256. The collection `X` contains the names that begin with `X/`. Its option `slot_by` is
        /// the part of a name that selects its slot, and so its owner: `name`, the default, is the whole name; with `prefix`
        /// the names `X/ID` and `X/ID/...` have one slot for each ID. This also holds for events, rpcs and user ids with such
        /// names. Only records with one slot can be changed in one transaction (`docs/transactions.md`). Its option `indexes` is a
        /// list of paths and of lists of paths, such as `[board, [board, position]]`, up to 16: queries of the records `X/ID` then
        /// read a part of an index instead of the whole collection. A new index is built in the background; the store must be
        /// `sqlite`, `postgres` or `redis`. See `docs/queries.md`. Only the file can add a collection; the environment can set the
        /// options of one in the file: `collections.orders.slot_by` is `TIDEWIRE_COLLECTIONS__ORDERS__SLOT_BY`, and in
        /// `TIDEWIRE_COLLECTIONS__ORDERS__INDEXES` the paths of an index are joined with `+`. See `spec/cluster.md`.
        collections: Collections = Collections::default(), Traits::NONE.described();
        /// Authentication of clients.
        auth: Auth = Auth::default();
        /// File of permission rules, or `allow_all`, which allows every logged-in user everything. The file has the format of
        /// deepstream's `permissions.yml`. `none` allows everything as well; the server refuses to start with it if
        /// `auth.chain` has a type other than `open`.
        permissions: Rules = Rules::None;
        /// Records.
        record: Record = Record::default();
        /// Remote procedure calls.
        rpc: Rpc = Rpc::default();
        /// Events.
        event: Event = Event::default();
        /// Providers that listen for patterns of names.
        listen: Listen = Listen::default();
        /// Limits on everything that a client can make grow.
        limits: Limits = Limits::default();
        /// Rates of clients.
        rates: Rates = Rates::default();
        /// Reconnect back-off.
        backoff: Backoff = Backoff::default();
        /// Traces of published events for an OpenTelemetry collector.
        traces: Traces = Traces::default();
        /// Backends: programs with application logic.
        backend: Backend = Backend::default();
        /// The admin API and the admin page.
        admin: Admin = Admin::default();
        /// The log on standard error.
        log: Log = Log::default();
    }
}

section! {
    /// Several nodes that share one store, and each serves all clients. See `docs/cluster.md`.
    Cluster {
        /// Whether this server is a member of the cluster of all servers that use its store. The store must be `postgres` or
        /// `redis`.
        enabled: bool = false;
        /// Host or address at which the other nodes reach this one, with or without a port. `auto` is the address from which
        /// this machine reaches the store, with the port of `cluster.port`.
        advertise: Auto<String> = Auto::Auto;
        /// Address on which the node listens for the links of other nodes. They use TLS, and each side knows the certificate
        /// of the other from the store, so there is no secret to configure. If it is a single address, the links to other
        /// nodes begin at it, too.
        host: String = "0.0.0.0".to_owned();
        /// Port for the links of other nodes; 0 takes a free one.
        port: u16 = 6022;
        /// URL of a message broker that carries the links, instead of direct connections: `nats://`, `redis://`, `amqp://` or
        /// `kafka://`, as the page of each broker in `docs/carriers` says. All nodes have the same one. If it has a password,
        /// prefer to set it by the environment.
        link: Secret = Secret::default(), Traits::NONE.secret();
        /// How long the users of a node that was lost stay online. If their clients connect to another node in this time, their
        /// presence does not change. With `0s` they go offline when the node is lost.
        presence_grace: Duration = seconds(5);
        /// Maximum bytes of requests that wait at this node while names pass to it from another node. More are refused with
        /// RECORD_LOAD_ERROR, RECORD_UPDATE_ERROR or NO_RPC_PROVIDER, and clients may repeat them.
        handover_bytes_max: ByteCount = ByteCount(64 << 20);
    }
}

section! {
    /// Backends: programs with application logic, which serve the sessions of namespaces. See `docs/backends.md`.
    Backend {
        /// Key with which backends log in, at least 32 characters. Without it there are no backends. Prefer to set it by the
        /// environment.
        key: Secret = Secret::default(), Traits::NONE.secret();
        /// File with the key, instead of `backend.key`. It may have several, one on each line, so that keys can be replaced
        /// while backends run. The server reads it again at SIGHUP.
        key_file: OptionalPath = OptionalPath(None);
        /// Namespaces whose sessions backends serve, such as `/` and `/chat`. A `*` at the end matches any text, so `/*` means all.
        /// Their clients need no login of `auth.chain`, and the rules do not apply to them: the backend decides.
        namespaces: List<String> = words(&[]);
        /// How long the sessions of such a namespace wait without a backend, at the start of the server or after the end of a
        /// backend. After it the server closes their connections, so that clients connect again.
        grace: Duration = seconds(10);
    }
}

section! {
    /// The admin API and the admin page. Without a key both are off, except for the page in development mode. See
    /// `docs/admin-api.md` and `docs/admin-page.md`.
    Admin {
        /// Key of the admin API and page, at least 32 characters. Prefer to set it by the environment.
        key: Secret = Secret::default(), Traits::NONE.secret();
        /// File with the key, instead of `admin.key`. The server ignores white space around it.
        key_file: OptionalPath = OptionalPath(None);
        /// Whether the page is served at `/admin` of the addresses of `network`. It requires the key; in development mode
        /// without a key the server creates one at each start and prints it on the first screen only.
        page: bool = true;
        /// Time after which a session of the page ends.
        session_lifetime: Duration = seconds(12 * 60 * 60);
        /// Maximum number of open sessions of the page. A further one ends the oldest.
        sessions_max: usize = 100;
        /// Wrong keys that one address may send to the page within a minute. After that the page answers 429 to every key,
        /// even the right one, until the minute has passed.
        wrong_keys_max: u32 = 10;
        /// Loopback address that the API listens on. Other machines reach it through a proxy that encrypts.
        host: String = "127.0.0.1".to_owned();
        /// Port of the API; 0 takes a free one.
        port: u16 = 6021;
    }
}

choice! {
    /// How a shard submits its sends to the kernel.
    SendsKind {
        /// Many sends in one `io_uring` submission, if the kernel has one that works.
        Auto = "auto",
        /// One system call for each send.
        Plain = "plain",
    }
}

section! {
    /// Addresses and paths of the server, and the web pages, hosts and proxies that it accepts.
    Network {
        /// Addresses or host names to listen on. If other machines can reach an address and every login succeeds, the server
        /// refuses to start unless `auth.open_on_public_address` is set.
        host: List<String> = words(&["127.0.0.1", "::1"]), Traits::NONE.flag("host");
        /// Port to listen on; 0 takes a free one.
        port: u16 = 6020, Traits::NONE.flag("port");
        /// Paths that accept WebSocket clients with deepstream's binary protocol. The server ignores a query string.
        paths: List<String> = words(&["/deepstream"]);
        /// Paths that accept WebSocket clients with JSON in text messages. Without a path the server does not offer this
        /// protocol.
        json_paths: List<String> = words(&["/deepstream-json"]);
        /// Origins of web pages that may connect, as `https://app.example.com`, in addition to the server's own. `*` allows
        /// every page. In development mode pages of loopback hosts may connect on any port. The server refuses other pages
        /// with 403.
        origins: List<String> = words(&[]), Traits::NONE.reload();
        /// Host names of the server, in addition to loopback names. In development mode, and on loopback addresses if
        /// `auth.chain` has `open`, the server refuses other names with 403, because a web page could point its own name to
        /// this machine. Otherwise an empty list allows all names.
        hosts: List<String> = words(&[]), Traits::NONE.reload();
        /// Addresses and networks of trusted proxies, as `10.0.0.0/8`. The server reads the list of addresses in a trusted
        /// proxy's header from its end, and takes the first address that is not in a trusted network as the client's. By
        /// default the server trusts no proxy.
        trusted_proxies: List<AddressRange> = List(Vec::new()), Traits::NONE.reload();
        /// Header in which trusted proxies send the client's address. The server ignores the other one, because a proxy may
        /// forward it as a client wrote it.
        forwarded_header: ForwardedHeader = ForwardedHeader::XForwardedFor, Traits::NONE.reload();
        /// Whether each connection begins with a PROXY protocol header, version 1 or 2. Load balancers that forward bytes
        /// send such a header. The server then closes connections of other machines that are not in
        /// `network.trusted_proxies`.
        proxy_protocol: bool = false;
        /// Namespaces that Socket.IO clients may join in addition to `/`, as `/chat`. A `*` at the end matches any text, as in
        /// `/room/*`. The server refuses other namespaces.
        namespaces: List<String> = words(&[]);
        /// Interval of heartbeats. Clients of deepstream's protocol send them, the server sends them to Socket.IO clients. At most a
        /// day.
        heartbeat_interval: Duration = seconds(30);
        /// Time for the answer to a heartbeat. The server closes a connection of deepstream's protocol that was silent for the sum
        /// of interval and timeout, and one of Socket.IO that has not answered a heartbeat of the server for the timeout. `auto` is
        /// the interval. At most a day.
        heartbeat_timeout: Auto<Duration> = Auto::Auto;
        /// Time for which a session continues without a connection, so that its client can resume it on another one. After it the
        /// server closes the session. It applies to protocols that resume sessions; deepstream's do not.
        detached_timeout: Duration = seconds(120);
        /// How sends reach the kernel. `auto` submits many sends at once through an `io_uring`, or makes one system call for
        /// each if it is missing or forbidden, as in many containers. `plain` always makes one system call for each.
        sends: SendsKind = SendsKind::Auto;
    }
}

choice! {
    /// Headers in which proxies send the client's address.
    ForwardedHeader {
        /// `X-Forwarded-For`.
        XForwardedFor = "x-forwarded-for",
        /// `Forwarded`, the standard one (RFC 7239).
        Forwarded = "forwarded",
    }
}

choice! {
    /// Versions of TLS.
    TlsVersion {
        /// TLS 1.2.
        V1_2 = "1.2",
        /// TLS 1.3.
        V1_3 = "1.3",
    }
}

choice! {
    /// Whether clients must present a certificate.
    ClientCertificates {
        /// A client without a certificate may connect.
        Optional = "optional",
        /// Handshakes without a certificate fail, also for health checks.
        Required = "required",
    }
}

section! {
    /// Encryption: `https://` and `wss://`.
    Tls {
        /// File with the certificate chain as PEM, the server's own certificate first. TLS is on if this and `tls.key` are
        /// set. The server reads the files again when they change and at SIGHUP.
        certificate: OptionalPath = OptionalPath(None);
        /// File with the private key of the certificate as PEM, without a passphrase.
        key: OptionalPath = OptionalPath(None);
        /// Port of TLS; 0 takes a free one. With `auto` TLS is on `network.port`; with a separate port `network.port` stays
        /// unencrypted.
        port: Auto<u16> = Auto::Auto;
        /// Whether the port of TLS also serves unencrypted connections. The server distinguishes them by their first byte.
        allow_clear: bool = false;
        /// Oldest version of TLS that the server accepts.
        min_version: TlsVersion = TlsVersion::V1_2;
        /// File with the certificates (PEM) of the authorities that issue client certificates. If it is set, the server
        /// requests a certificate in the handshake. The server reads the file again together with `tls.certificate`; open
        /// connections stay.
        client_ca: OptionalPath = OptionalPath(None);
        /// Whether a client without a certificate may connect. `auth.chain` decides about its login.
        client_certificates: ClientCertificates = ClientCertificates::Optional;
        /// Whether the server offers HTTP/2 in addition to HTTP/1.1. Browsers use it for requests and server-sent events, for
        /// which HTTP/1.1 allows six connections at a time. WebSockets always use HTTP/1.1.
        http2: bool = true;
        /// How often the server checks whether the files have changed; with `never` it checks at SIGHUP only.
        reload_interval: Limited = Limited::After(seconds(10));
        /// Time for which browsers use only TLS for this host (`Strict-Transport-Security`), as `8760h`. It applies to all
        /// ports, and to browsers that have connected with TLS. With `never` the server does not send the header.
        hsts_max_age: Limited = Limited::Never;
    }
}

section! {
    /// Compression of WebSocket messages (permessage-deflate) for clients that offer it. The server compresses a message once
    /// for all recipients.
    Compression {
        /// Whether the server accepts offers of compression. Off by default, because it uses processor time of the server and
        /// of clients to save bytes.
        enabled: bool = false;
        /// Size from which messages are compressed. Smaller ones are sent uncompressed.
        bytes_min: ByteCount = ByteCount(512);
        /// Bytes that a shard compresses in one turn, so that large messages do not delay others. Above it the shard sends
        /// messages uncompressed.
        turn_bytes_max: ByteCount = ByteCount(1 << 20);
    }
}

section! {
    /// HTTP connections that are not upgraded to WebSockets, and the limits of their requests.
    Http {
        /// Whether the server has the HTTP API (`docs/http-api.md`).
        api: bool = true;
        /// Whether the server has `/api/auth`.
        auth_endpoint: bool = true;
        /// Whether a POST to `/api` may log in with `authData`. Otherwise it needs a token.
        allow_auth_data: bool = true;
        /// Maximum bytes of a request body. The server refuses a larger one with 413.
        body_bytes_max: ByteCount = ByteCount(1 << 20);
        /// Time for a request body to arrive. After it the server answers 408.
        body_timeout: Duration = seconds(10);
        /// Maximum bytes of all request bodies in memory. If a request has no room, the server refuses it with 503. Callers
        /// (an address, after the login a user) share this limit, `http.requests_max` and `http.streams_max`: each may hold
        /// as much as is still free for all others, and gets 429 above that. See `docs/http-api.md`.
        bodies_bytes_max: ByteCount = ByteCount(64 << 20);
        /// Maximum number of requests in progress. The server refuses further ones with 503.
        requests_max: usize = 1_000;
        /// Time for the engine to answer a request. After it the request fails, and its outcome is unknown.
        request_timeout: Duration = seconds(20);
        /// Maximum bytes of the answer to one request. If the answer to a batch is full, its further commands do not run and
        /// fail with `ANSWER_TOO_LARGE`. The server does not send a single larger result, and ends a session for which more
        /// bytes wait.
        answer_bytes_max: ByteCount = ByteCount(16 << 20);
        /// Maximum number of open streams of server-sent events. The server refuses further ones with 503.
        streams_max: usize = 10_000;
        /// Maximum number of unused tickets for streams, which `/api/auth` issues; one address may have a tenth of them.
        /// Above its share an address loses its oldest ticket. At the limit the address with the most bytes loses its oldest
        /// one.
        tickets_max: usize = 10_000;
        /// Maximum bytes of the logins of these tickets, shared as `http.tickets_max`. They count in
        /// `limits.memory_bytes_max`.
        tickets_bytes_max: ByteCount = ByteCount(16 << 20);
        /// Maximum number of streams of one HTTP/2 connection, requests and server-sent events together. Further ones wait at
        /// the client.
        connection_streams_max: u32 = 100;
        /// Maximum number of requests of one HTTP/2 connection in progress, including those whose answer the client has not
        /// read. Further ones wait.
        connection_requests_max: usize = 32;
        /// Maximum number of commands of one POST to `/api`. The server refuses more with 400.
        batch_commands_max: usize = 10_000;
        /// Time for the head of a request to arrive, and before it for a TLS handshake. After it the server closes the
        /// connection.
        head_timeout: Duration = seconds(10);
        /// Maximum bytes of the head of a request, at least 8KiB. The server refuses a larger one with 431.
        head_bytes_max: ByteCount = ByteCount(16 << 10);
        /// Time after which the server closes a connection that is not upgraded. A request in progress gets the same time
        /// again, and a stream of server-sent events stays open.
        connection_timeout: Duration = seconds(60);
    }
}

choice! {
    /// When the server serves the documentation.
    DocsWhen {
        /// In development mode.
        Development = "development",
        /// Always.
        Always = "always",
        /// Never.
        Never = "never",
    }
}

section! {
    /// Web pages that are in the binary.
    Pages {
        /// When the documentation of this version is served at `/docs/`. Every client that reaches the server can read it.
        docs: DocsWhen = DocsWhen::Development;
        /// Whether the demo is served at `/` in development mode. It also requires that `auth.chain` is empty or has `open`,
        /// and that `network.paths` has `/deepstream`. The names of its events and records begin with `tidewire-demo/`; if
        /// `permissions` is `none`, separate rules apply to these names.
        demo: bool = true;
        /// Whether the client is served at `/tidewire.js`, a module for pages without a build, and its types at
        /// `/tidewire.d.ts`. Every client that reaches the server can read both.
        client: bool = true;
    }
}

section! {
    /// Health and metrics. This machine may read all of them; these options allow other machines to read them.
    Health {
        /// Whether other machines may read `/metrics`.
        metrics_public: bool = false, Traits::NONE.reload();
        /// Whether other machines may read the reasons of `/ready`. All machines get its status code.
        reasons_public: bool = false, Traits::NONE.reload();
    }
}

choice! {
    /// Authentication types.
    AuthKind {
        /// Accepts every login, under the given name.
        Open = "open",
        /// The users of a file.
        File = "file",
        /// Signed tokens.
        Jwt = "jwt",
        /// A server of the operator that decides about logins.
        Webhook = "webhook",
        /// The users of the record store.
        Store = "store",
        /// Client certificates.
        Tls = "tls",
        /// Keys of back ends.
        Keys = "keys",
    }
}

choice! {
    /// Algorithms of signed tokens.
    JwtAlgorithm {
        /// HMAC with SHA-256.
        Hs256 = "HS256",
        /// HMAC with SHA-384.
        Hs384 = "HS384",
        /// HMAC with SHA-512.
        Hs512 = "HS512",
        /// RSA, PKCS #1, with SHA-256.
        Rs256 = "RS256",
        /// RSA, PKCS #1, with SHA-384.
        Rs384 = "RS384",
        /// RSA, PKCS #1, with SHA-512.
        Rs512 = "RS512",
        /// RSA, PSS, with SHA-256.
        Ps256 = "PS256",
        /// RSA, PSS, with SHA-384.
        Ps384 = "PS384",
        /// RSA, PSS, with SHA-512.
        Ps512 = "PS512",
        /// ECDSA on P-256.
        Es256 = "ES256",
        /// ECDSA on P-384.
        Es384 = "ES384",
        /// Ed25519.
        EdDsa = "EdDSA",
    }
}

section! {
    /// Authentication of clients.
    Auth {
        /// Authentication types in the order in which the server asks them; the first that accepts a login decides. `open`
        /// accepts every login, `file` the users of a file, `jwt` signed tokens, `webhook` the logins that your server
        /// accepts, `store` the users that this server keeps, `tls` client certificates, `keys` back ends with a key. An
        /// empty list is `open` by default. As with deepstream, the next type checks a login with a wrong password unless
        /// `auth.file.report_invalid_parameters` is set, so `open` behind `file` accepts every login under any name.
        chain: List<AuthKind> = List(Vec::new());
        /// Whether every login may succeed although other machines can reach the server.
        open_on_public_address: bool = false;
        /// Refused logins after which the server closes a connection. Over HTTP as many refused logins of an address count as
        /// one closed connection for the reconnect back-off.
        attempts_max: u32 = 3;
        /// Time for the first decision about a login of a connection. After it the server closes the connection. A refused
        /// login starts `auth.retry_timeout`.
        login_timeout: Limited = Limited::After(seconds(180));
        /// Time after a refused login in which the connection must log in successfully, counted from the last refusal. After
        /// it the server closes the connection. It is long, because a user may have to look for a password;
        /// `auth.attempts_max` limits the refusals.
        retry_timeout: Limited = Limited::After(seconds(600));
        /// Maximum bytes of a login. This limits each message before the login is accepted, the login object in a request,
        /// and the body of a POST to `/api/auth`. A larger message closes the connection with 1009; a larger body gets 413.
        /// Passwords and tokens are smaller, and every client can send messages before a login.
        login_bytes_max: ByteCount = bytes(CoreLimits::default().login_bytes_max);
        /// Maximum number of waiting logins: for a password hash, for a server that decides, or for their delay after
        /// refusals. The server cannot decide further ones: after `auth.retry_delay` it closes their connections with 1013,
        /// and it answers requests with 503.
        waiting_max: usize = 10_000;
        /// Maximum bytes of the waiting logins, with the heads of their requests and 2 KiB for each. They count in
        /// `limits.memory_bytes_max`.
        waiting_bytes_max: ByteCount = ByteCount(32 << 20);
        /// Maximum number of waiting logins of one address, or of one /64 of IPv6 addresses.
        waiting_per_address_max: usize = 1_000;
        /// Maximum bytes of the waiting logins of one address, or of one /64 of IPv6 addresses.
        waiting_bytes_per_address_max: ByteCount = ByteCount(8 << 20);
        /// Time after which every login ends at the latest, whatever its authentication type. Clients of deepstream reconnect
        /// and log in again; other clients may renew the login on the open session.
        session_lifetime: Limited = Limited::Never;
        /// How long a login waits that cannot be decided because a required server is down. After it the server closes the
        /// connection with 1013, and the client reconnects. Some logins wait up to twice as long, so that the clients do not
        /// all reconnect at once.
        retry_delay: Duration = seconds(5);
        /// File with the certificates (PEM) of the authorities to trust, instead of those that this machine trusts. It
        /// applies to connections to webhooks and issuers of tokens.
        ca: OptionalPath = OptionalPath(None);
        /// Users of a file.
        file: AuthFile = AuthFile::default();
        /// Signed tokens.
        jwt: AuthJwt = AuthJwt::default();
        /// A server that decides about logins.
        webhook: AuthWebhook = AuthWebhook::default();
        /// Users of the record store.
        store: AuthStore = AuthStore::default();
        /// Client certificates.
        tls: AuthTls = AuthTls::default();
        /// Keys of back ends.
        keys: AuthKeys = AuthKeys::default();
    }
}

choice! {
    /// Digests of deepstream's password hashes.
    HashKind {
        /// Passwords are argon2id hashes or plain text.
        None = "none",
        /// MD5.
        Md5 = "md5",
        /// SHA-1.
        Sha1 = "sha1",
        /// SHA-256.
        Sha256 = "sha256",
        /// SHA-512.
        Sha512 = "sha512",
    }
}

section! {
    /// Users in a file, in the format of deepstream's `users.yml`.
    AuthFile {
        /// File with the users. Password hashes that begin with `$argon2id$` (from `tidewire hash`) need no other option.
        path: OptionalPath = OptionalPath(None);
        /// Digest of deepstream's password hashes (PBKDF2). With `none` passwords that are not argon2id hashes are plain
        /// text.
        hash: HashKind = HashKind::None;
        /// Iterations of deepstream's password hashes.
        iterations: u32 = 100;
        /// Bytes of deepstream's password hashes, before the encoding.
        key_length: usize = 32;
        /// Whether `file` refuses a login without user name or password, or with a wrong password. Otherwise the next type of
        /// `auth.chain` decides. `auto` is true if `file` is the only type.
        report_invalid_parameters: Auto<bool> = Auto::Auto;
    }
}

section! {
    /// Signed tokens (JSON Web Tokens), which clients send with `login({ token })`. `exp` is required; clocks may differ by
    /// 30 s. See `docs/authentication.md`.
    AuthJwt {
        /// Secret of the tokens' signatures (HMAC), at least 32 bytes. Prefer to set it by the environment.
        secret: Secret = Secret::default(), Traits::NONE.secret();
        /// File with the secret, instead of `auth.jwt.secret`. White space at its end is ignored. The server reads it again
        /// at SIGHUP.
        secret_file: OptionalPath = OptionalPath(None);
        /// File with public keys as PEM, or with a JSON Web Key or a set of them. The server reads it again at SIGHUP.
        key_file: OptionalPath = OptionalPath(None);
        /// Algorithm of the secret and of keys as PEM. `auto` is HS256 for the secret, RS256 for an RSA key, and the
        /// algorithm of its curve for another key. A JSON Web Key has its own algorithm.
        algorithm: Auto<JwtAlgorithm> = Auto::Auto;
        /// Address of the issuer's key set. It is `https://`, or `http://` for this machine.
        jwks_url: String = String::new();
        /// Required `iss` of tokens; if empty, it is not checked.
        issuer: String = String::new();
        /// Whether the server finds the issuer's keys by OpenID Connect Discovery, from `auth.jwt.issuer`.
        discover: bool = false;
        /// Accepted values of a token's `aud`, which must have one of them. An empty list is not checked. If keys come from
        /// an issuer, a value is required; `*` accepts every audience.
        audience: List<String> = words(&[]);
        /// Field of the object passed to `login()` that contains the token. Without it the server uses the header
        /// `Authorization: Bearer` of the connection.
        token_field: String = "token".to_owned();
        /// Claim that becomes the user id.
        user_claim: String = "sub".to_owned();
        /// Claims that rules see as `user.data`: `role`, `roles=realm_access.roles` under another name, or `*` for all except
        /// the registered ones.
        server_data_claims: List<String> = words(&["*"]);
        /// Claims that the server sends to the client with its login.
        client_data_claims: List<String> = words(&[]);
        /// Maximum bytes of a token. The server refuses a larger one without decoding it.
        token_bytes_max: ByteCount = ByteCount(16 << 10);
        /// How often the server fetches the issuer's keys again.
        keys_refresh_interval: Duration = seconds(300);
        /// Minimum time between two fetches of the keys. It applies however many tokens name an unknown key, and however long
        /// the issuer is down.
        keys_refresh_pause: Duration = seconds(10);
        /// How long the server uses fetched keys while the issuer is down.
        keys_age_max: Duration = seconds(24 * 3600);
        /// Time for the issuer to answer. After it the fetch has failed.
        keys_timeout: Duration = seconds(5);
    }
}

section! {
    /// A server that decides about logins: deepstream's HTTP authentication. It gets a POST with `connectionData` and
    /// `authData`.
    AuthWebhook {
        /// Address of the server. It is `https://`, or `http://` for this machine.
        url: String = String::new();
        /// Statuses of an answer that accept the login. All others, except `auth.webhook.retry_statuses`, refuse it.
        permitted_statuses: List<u16> = List(vec![200]);
        /// Statuses after which Tidewire sends the request again, as after no answer.
        retry_statuses: List<u16> = List(vec![404, 429, 500, 502, 503, 504]);
        /// How often Tidewire sends the request again. After that the login cannot be decided.
        retry_attempts: u32 = 3;
        /// Time before Tidewire sends the request again.
        retry_interval: Duration = seconds(1);
        /// Time for an answer, and before it for a free place among `auth.webhook.requests_max`.
        timeout: Duration = seconds(2);
        /// Fields of the object passed to `login()` that are also sent as headers.
        promote_to_header: List<String> = words(&[]);
        /// Maximum number of requests at the same time. Further logins wait, and addresses take turns.
        requests_max: usize = 100;
        /// Whether a refusal of the webhook is final. Otherwise the next type of `auth.chain` decides. `auto` is true if
        /// `webhook` is the only type.
        report_invalid_parameters: Auto<bool> = Auto::Auto;
    }
}

section! {
    /// Users that the server keeps in its record store, where no client can read or write them. Operators create them with
    /// the admin API or `tidewire user`; clients may sign up if `auth.store.sign_up` is set.
    AuthStore {
        /// Prefix of the user ids, before the name. Without it a user of the store has the same id as a user of this name of
        /// another authentication type.
        user_prefix: String = String::new();
        /// Whether every client that reaches the server may create a user: `POST /api/auth/sign-up`.
        sign_up: bool = false;
        /// Rate of these requests from one address, or from one /64 of IPv6 addresses. The server answers a request that
        /// comes too early with 429.
        sign_up_rate: OptionalRate = OptionalRate(Some(SIGN_UP_RATE));
    }
}

choice! {
    /// Names in a certificate.
    CertificateName {
        /// The common name of its subject.
        CommonName = "common_name",
        /// The DNS name among its alternative names.
        Dns = "dns",
        /// The mail address among its alternative names.
        Email = "email",
        /// The URI among its alternative names.
        Uri = "uri",
    }
}

section! {
    /// Client certificates. They need `tls.client_ca`.
    AuthTls {
        /// Name in the certificate that becomes the user id. The server refuses a certificate that has no such name, or
        /// several.
        user: CertificateName = CertificateName::CommonName;
    }
}

section! {
    /// Keys of back ends: `login({ key })`, or `Authorization: Bearer`.
    AuthKeys {
        /// File with the ids and hashes of the keys; `tidewire key` writes its entries. The server reads it again at SIGHUP.
        path: OptionalPath = OptionalPath(None);
    }
}

section! {
    /// Records.
    Record {
        /// Time for the store to load a record. After it the request fails.
        load_timeout: Duration = seconds(30);
        /// Time for an acknowledged write to become durable. After it the outcome of the write is unknown.
        write_timeout: Duration = seconds(30);
        /// Prefixes of records that are whole values with version 0 if `setData` writes them.
        hot_path_prefixes: List<String> = words(&[]);
        /// How long the server remembers the key of a write that clients may repeat, in memory. Each record also keeps its
        /// last 8 keys, over restarts (`spec/deepstream.md`, "Repeating a write").
        write_key_age: Duration = Duration::from_secs(600);
        /// Prefixes of records that are kept in memory only, not in a store.
        memory_only_prefixes: List<String> = words(&[]);
    }
}

section! {
    /// Remote procedure calls.
    Rpc {
        /// Time for a provider to accept a call. After it the call fails with `ACCEPT_TIMEOUT`.
        accept_timeout: Duration = seconds(1);
        /// Time for a provider to respond, from the moment it gets the call. After it the call fails with `RESPONSE_TIMEOUT`.
        response_timeout: Duration = seconds(10);
        /// Whether a provider gets the user id of the requestor.
        requestor_name: bool = false;
        /// Whether a provider gets the client data of the requestor.
        requestor_data: bool = false;
    }
}

section! {
    /// Events.
    Event {
        /// Events that the server keeps for a while, so that a subscriber that reconnects gets the events it missed. Each
        /// entry is a pattern of names, in which `*` matches any text, and the limits for each name: `news/* count=1000
        /// bytes=1MiB age=1h`, which are also the defaults. The first matching pattern decides. The events are in memory, and
        /// a restart makes a gap; with `keep=store` they are also in the store, the server delivers an event when it is
        /// durable, and a restart makes no gap. See `spec/deepstream.md`, "History".
        history: List<HistoryRule> = List(Vec::new());
        /// Time between the end of one sweep and the next. A sweep reads the store for events of `keep=store` that are too
        /// old and belong to names that the server no longer has in memory, and removes them in small steps.
        history_sweep_interval: Limited = Limited::After(Duration::from_secs(600));
    }
}

section! {
    /// Providers that listen for patterns of names.
    Listen {
        /// Time for a provider to accept or reject a name. After it the server asks the next provider.
        response_timeout: Duration = Duration::from_millis(500);
        /// How often the server offers names without a provider again.
        rematch_interval: Limited = Limited::After(seconds(30));
        /// Whether the server asks providers in random order. Otherwise it asks them in the order of their registration.
        shuffle: bool = true;
    }
}

choice! {
    /// Policies for events of a lagging client that has announced `jumps`.
    EventLagKind {
        /// It skips them. When the client has read the waiting messages, it gets the number of skipped events for each name.
        Gap = "gap",
        /// It sends all of them, and disconnects the client at `limits.outbox_bytes_max`.
        Disconnect = "disconnect",
    }
}

section! {
    /// Limits on everything that a client can make grow.
    Limits {
        /// Maximum number of connections. The server answers further ones with 503. `auto` follows the limit of open files.
        connections_max: Auto<usize> = Auto::Auto;
        /// Maximum number of connections of one address, or of one /64 of IPv6 addresses. The server answers further ones
        /// with 429. `auto` is half of `limits.connections_max`. Connections from this machine do not count with `auto`,
        /// because a proxy may run here.
        connections_per_address_max: Auto<usize> = Auto::Auto;
        /// Maximum bytes of one message of a client. A larger frame closes the connection with 1009.
        message_bytes_max: ByteCount = bytes(CoreLimits::default().message_bytes_max);
        /// Maximum bytes of a name, pattern or user id. The server refuses longer ones with `INVALID_MESSAGE_DATA`.
        name_bytes_max: ByteCount = bytes(CoreLimits::default().name_bytes_max);
        /// Maximum depth of a JSON payload or a path, in nested containers. The server refuses deeper ones.
        nesting_max: usize = CoreLimits::default().nesting_max;
        /// Maximum bytes of one record's JSON. The server refuses a write or patch with a larger result.
        record_bytes_max: ByteCount = bytes(CoreLimits::default().record_bytes_max);
        /// Maximum number of array elements that one write may fill with null. A write does so if its path names an index
        /// behind the end of an array, as `x[99]` if `x` is empty. The server refuses a wider gap, because a short path would
        /// make a large record. Raise the limit for data that use numbers as indices of sparse arrays.
        array_gap_max: usize = CoreLimits::default().array_gap_max;
        /// Maximum number of names in one bulk message. The server refuses more.
        bulk_names_max: usize = CoreLimits::default().bulk_names_max;
        /// Maximum number of names, patterns and providers of one session. The server denies further ones.
        subscriptions_max: usize = CoreLimits::default().subscriptions_max;
        /// Maximum number of patterns that one session may listen with. The server denies further ones. All shards keep each
        /// pattern in compiled form and match it with each new name.
        patterns_max: usize = CoreLimits::default().patterns_max;
        /// Maximum number of patterns of events that one session may subscribe to. The server denies further ones.
        event_patterns_max: usize = CoreLimits::default().event_patterns_max;
        /// Maximum number of segments of a pattern of events. The server refuses a pattern with more with `INVALID_PATTERN`.
        event_pattern_segments_max: usize = CoreLimits::default().event_pattern_segments_max;
        /// Maximum number of events that wait for one session because a rule first needs a record to decide about an event of a
        /// pattern. At the limit the server closes the connection.
        event_waiting_max: usize = CoreLimits::default().event_waiting_max;
        /// Maximum number of pending questions to one listening session. Above it the server asks other sessions, or the name
        /// waits until the session has answered.
        listen_questions_max: usize = CoreLimits::default().listen_questions_max;
        /// Maximum number of pending calls of one session. The server answers further ones with `NO_RPC_PROVIDER`.
        calls_max: usize = CoreLimits::default().calls_max;
        /// Maximum number of operations that wait for one record. The server refuses further ones with a retryable error.
        record_waiting_max: usize = CoreLimits::default().record_waiting_max;
        /// Maximum number of records of a shard that are written but not yet committed. At the limit the server refuses
        /// writes.
        dirty_records_max: usize = CoreLimits::default().dirty_records_max;
        /// Maximum bytes of these records. At the limit the server refuses writes.
        dirty_bytes_max: ByteCount = bytes(CoreLimits::default().dirty_bytes_max);
        /// Maximum bytes that each store of the kind `sqlite` may use in its data folder. At the limit the server refuses
        /// writes that make a record larger with `RECORD_UPDATE_ERROR` or `RECORD_CREATE_ERROR`, accepts deletes, and
        /// `/ready` has the warning `store_full`. Writes that are not yet committed, and the log of 16 MiB, need more space
        /// in addition.
        store_bytes_max: OptionalBytes = OptionalBytes(None);
        /// Maximum bytes of names and values of the records that one user has written last, in each store of the kind
        /// `sqlite`. At the limit the server refuses writes of this user that make a record larger, as above; other users are
        /// not affected. The limit does not apply to users without a name.
        user_store_bytes_max: OptionalBytes = OptionalBytes(None);
        /// Maximum number of queries of one session without an answer. The server refuses further ones with `TOO_MANY_QUERIES`.
        queries_max: usize = CoreLimits::default().queries_max;
        /// Maximum number of live queries of one session. The server refuses further ones with `TOO_MANY_QUERIES`.
        live_queries_max: usize = CoreLimits::default().live_queries_max;
        /// Maximum number of records that one query may read, in its collection and below it. The server refuses a query that
        /// reads more with `QUERY_TOO_LARGE`.
        query_reads_max: usize = CoreLimits::default().query_reads_max;
        /// Maximum bytes of the result of one query. The server refuses a query with a larger result with `QUERY_TOO_LARGE`. A result
        /// larger than `limits.outbox_bytes_max` disconnects its client, so the limit should be below that. Before the offset, a query
        /// keeps up to 32 times this many bytes.
        query_result_bytes_max: ByteCount = bytes(CoreLimits::default().query_result_bytes_max);
        /// Maximum bytes of the state of a member of a scope of presence. The server refuses a larger one with `STATE_TOO_LARGE`.
        presence_state_bytes_max: ByteCount = bytes(CoreLimits::default().presence_state_bytes_max);
        /// Maximum number of scopes of presence that one session may use, as a member or as a subscriber. The server refuses further
        /// ones with `TOO_MANY_SCOPES`.
        presence_scopes_max: usize = CoreLimits::default().presence_scopes_max;
        /// Maximum number of members of one scope of presence. The server refuses further ones with `SCOPE_FULL`. A subscriber gets the
        /// states of all members in one message, so this number times `limits.presence_state_bytes_max` should be below
        /// `limits.outbox_bytes_max`.
        presence_members_max: usize = CoreLimits::default().presence_members_max;
        /// Maximum number of messages of the sessions of one shard that a backend has not confirmed. Beyond it the server does not
        /// read the connections of the sessions that this backend serves, until the backend has confirmed some.
        backend_messages_max: usize = CoreLimits::default().backend_messages_max;
        /// Maximum bytes of these messages; one message may be larger. All shards together should stay below
        /// `limits.outbox_bytes_max`, because a backend with more unread bytes is disconnected.
        backend_bytes_max: ByteCount = bytes(CoreLimits::default().backend_bytes_max);
        /// Maximum number of broadcasts, and messages to other backends, of one backend that wait for acknowledgements. The server refuses
        /// further ones.
        backend_asks_max: usize = CoreLimits::default().backend_asks_max;
        /// Maximum bytes of acknowledgements, and messages of other backends, that a backend has not confirmed. A broadcast or message that
        /// would exceed it fails, with the acknowledgements that have arrived. A shard also awaits at most one acknowledgement for each 16 bytes.
        backend_answers_bytes_max: ByteCount = bytes(CoreLimits::default().backend_answers_bytes_max);
        /// Maximum bytes of the data of one session, such as `socket.data`, that the server keeps for the next backend. The server refuses
        /// larger data, and keeps the earlier ones.
        backend_data_bytes_max: ByteCount = bytes(CoreLimits::default().backend_data_bytes_max);
        /// Maximum bytes of written records that all shards together give a store for one commit, but at least 256 KiB for
        /// each shard. Further records wait for the next commit, in which users take turns. If full commits take longer than
        /// 8 ms, and more than twice as long as the quickest ones, shards give the store less, down to 256 KiB each.
        batch_bytes_max: ByteCount = bytes(CoreLimits::default().batch_bytes_max);
        /// Maximum number of records that one permission decision may read. A rule that needs more fails.
        rule_reads_max: usize = CoreLimits::default().rule_reads_max;
        /// Maximum bytes that one connection has sent and that its shard has not handled yet. Above it the server stops
        /// reading from the connection.
        inflight_bytes_max: ByteCount = ByteCount(4 << 20);
        /// Maximum number of sessions on one connection, for clients that join several namespaces (`network.namespaces`). The server
        /// refuses further ones with `TOO_MANY_NAMESPACES`.
        connection_sessions_max: usize = 16;
        /// Maximum bytes that wait for one client to read them. Above it the server disconnects the client.
        outbox_bytes_max: ByteCount = ByteCount(1 << 20);
        /// Maximum bytes of messages that the server keeps for one session that can be resumed (`network.detached_timeout`), until its
        /// client has confirmed them. Above it the server forgets the oldest messages that it has sent. If more than this waits
        /// for a session without a connection, the server closes the session.
        retained_bytes_max: ByteCount = ByteCount(256 << 10);
        /// Waiting bytes from which a client that has announced `jumps` is lagging. The server then skips its messages until
        /// at most `limits.outbox_drained_bytes` wait, and then sends it the newest value of each record that changed. `auto`
        /// is a quarter of `limits.outbox_bytes_max`.
        outbox_lagging_bytes: Auto<ByteCount> = Auto::Auto;
        /// Waiting bytes at which a client no longer lags. `auto` is a quarter of `limits.outbox_lagging_bytes`.
        outbox_drained_bytes: Auto<ByteCount> = Auto::Auto;
        /// Maximum bytes that a shard touches for one connection in a turn: parsed, scanned, copied and encoded. If a
        /// connection has cost more, its next message waits until later turns have paid off the rest, in turn with other
        /// users. While no other connection costs anything, the limit is `limits.turn_work_max`. 0 means no limit.
        connection_work_max: ByteCount = bytes(CoreLimits::default().connection_work_max);
        /// Bytes that a shard touches before it polls its sockets and its mailbox again. It is also the cost that a turn pays
        /// off for all waiting connections together.
        turn_work_max: ByteCount = bytes(CoreLimits::default().turn_work_max);
        /// Maximum bytes of requests for records that wait because their connections have cost too much. The server refuses
        /// further ones with a retryable error.
        deferred_bytes_max: ByteCount = bytes(CoreLimits::default().deferred_bytes_max);
        /// Maximum number of records of one transaction. The server refuses a larger one.
        transaction_names_max: usize = CoreLimits::default().transaction_names_max;
        /// Maximum bytes of the key of a write that clients may repeat. The server refuses a longer one.
        write_key_bytes_max: usize = CoreLimits::default().write_key_bytes_max;
        /// Maximum number of these keys that the server remembers in memory. At the limit the user with most keys loses its
        /// oldest one. Each session without a user name counts as a user.
        write_keys_max: usize = 100_000;
        /// Maximum number of names with history (`event.history`) that the server keeps without a subscriber. At the limit it
        /// forgets the least recently used ones with their events.
        history_names_max: usize = 10_000;
        /// Maximum bytes of all histories. At the limit the server first forgets names without a subscriber, then the events
        /// that would become too old soonest.
        history_bytes_max: ByteCount = ByteCount(64 << 20);
        /// Policy for events of a lagging client that has announced `jumps`. `gap` skips them and then sends the number of
        /// skipped events for each name; `disconnect` sends all of them, and disconnects the client at
        /// `limits.outbox_bytes_max`.
        event_lag_policy: EventLagKind = EventLagKind::Gap;
        /// Maximum bytes of connections and records of the node. They include outboxes, partly received and waiting messages,
        /// turn logs, mailboxes, histories, records in use, the cache of `store.cache`, and the state of sessions
        /// (subscriptions, registrations, patterns, calls with their payloads, waiting requests). Above it the server first
        /// shrinks the cache, then closes the sessions that hold most. While there is no room, it refuses calls, and writes
        /// of 64 KiB and more. `auto` is `store.cache`, plus an eighth of the memory of the container or machine, plus
        /// `limits.history_bytes_max` if `event.history` is set.
        memory_bytes_max: Auto<ByteCount> = Auto::Auto;
        /// Maximum number of addresses, and of users, that the server remembers for the reconnect back-off. At the limit it
        /// forgets those that were disconnected longest ago.
        backoff_entries_max: usize = 10_000;
        /// Maximum number of users, tokens and keys that are revoked at a time, each until it would have expired. The server
        /// refuses further revocations.
        revocations_max: usize = 100_000;
    }
}

section! {
    /// Rates of clients, as `100/s`, `600/m` or `100/s burst 500`. The burst is the number of messages that may come at once
    /// after a pause; by default it is the number before the slash. The server does not refuse a message that comes too
    /// early: the message waits, and so do the later ones of its connection.
    Rates {
        /// Rates of each connection.
        connection: OperationRates = OperationRates::default(), Traits::NONE.described();
        /// Rates of each user, over all connections of the node. They do not apply to sessions without a user name.
        user: OperationRates = OperationRates::default(), Traits::NONE.described();
    }
}

section! {
    /// Rates by operation, for each connection or each user.
    OperationRates {
        /// All messages except heartbeats.
        messages: OptionalRate = OptionalRate(None);
        /// Published events.
        publish: OptionalRate = OptionalRate(None);
        /// Created, changed or deleted records.
        write: OptionalRate = OptionalRate(None);
        /// Reads of records, and presence queries. A message with several names counts once per name.
        read: OptionalRate = OptionalRate(None);
        /// Subscriptions, listen patterns and rpc providers. A message with several names counts once per name.
        subscribe: OptionalRate = OptionalRate(None);
        /// Rpc calls.
        call: OptionalRate = OptionalRate(None);
    }
}

section! {
    /// Reconnect back-off for clients that were disconnected for exceeding a limit. Such clients reconnect at once and do not
    /// give up, so the server delays the answer to their challenge or login.
    Backoff {
        /// Delay after the first disconnect. Each further disconnect makes it five times as long.
        wait_min: Duration = Duration::from_secs(1);
        /// Maximum delay. With the defaults a client that is disconnected after every login connects at most five times a
        /// minute. 0s turns off all delays, also after refused logins.
        wait_max: Duration = Duration::from_secs(30);
        /// Time without a disconnect that cancels one earlier disconnect.
        forgive_interval: Duration = Duration::from_secs(60);
        /// Disconnects for a client's own fault after which the server refuses the client for good. It refuses the user, or
        /// an address without a successful login, in a way that deepstream's clients do not retry. Faults are frames that
        /// break the protocol, too large messages, malformed logins and too many refused logins; slow reading is not a fault.
        faults_max: u32 = 5;
        /// Refused logins per minute of one user from one address that have no effect, if passwords or a webhook decide.
        /// Three times as many per address, and per user, have no effect either. Each further one doubles the delay of the
        /// next login, from `backoff.wait_min` to `backoff.wait_max`. See `docs/authentication.md`, "Guessing".
        login_refusals_max: u32 = 10;
    }
}

section! {
    /// Traces of published events for an OpenTelemetry collector. Without `traces.endpoint` tracing is off. See
    /// `docs/operations.md`.
    Traces {
        /// Address that receives the spans as OTLP over HTTP with JSON, as `http://127.0.0.1:4318/v1/traces`. It is
        /// `https://`, or `http://` for this machine.
        endpoint: String = String::new();
        /// Share of the published events that start a trace, from 0 to 1. It does not apply to events that belong to a trace
        /// of their publisher: the server records them if the publisher's trace is sampled.
        sample_ratio: Ratio = Ratio::NONE;
        /// Service name of the spans (`service.name`).
        service_name: String = "tidewire".to_owned();
        /// Maximum number of spans that wait for the collector. The server drops further ones and counts them in
        /// `tidewire_trace_dropped_spans_total`.
        queue_max: usize = 4_096;
        /// Time for which the server collects spans for one request. It sends the request earlier when it has 512 spans.
        interval: Duration = seconds(1);
        /// Time for the collector to answer. After it the server sends the request again.
        timeout: Duration = seconds(10);
    }
}

choice! {
    /// Log levels.
    LogLevel {
        /// An operator must act.
        Error = "error",
        /// Unexpected but handled.
        Warn = "warn",
        /// Lifecycle: start, stop, and the meaning of the configuration.
        Info = "info",
        /// Per connection.
        Debug = "debug",
        /// Per message.
        Trace = "trace",
    }
}

choice! {
    /// Formats of the log.
    LogFormat {
        /// Text on a terminal, else JSON.
        Auto = "auto",
        /// Lines for people.
        Text = "text",
        /// One JSON object per line.
        Json = "json",
    }
}

section! {
    /// The log on standard error.
    Log {
        /// Least important level that is logged. `error`: an operator must act; `warn`: unexpected but handled; `info`:
        /// lifecycle; `debug`: per connection; `trace`: per message.
        level: LogLevel = LogLevel::Info, Traits::NONE.reload();
        /// Format of the log. `auto` is text on a terminal, else one JSON object per line.
        format: LogFormat = LogFormat::Auto;
    }
}
