//! The table of options: every section with its documented fields and defaults.
//!
//! Whatever is added here appears in the file, the environment, the flags, `config print` and the reference page.

use std::path::PathBuf;
use std::time::Duration;

use tidewire_core::limits::Limits as CoreLimits;
use tidewire_core::rate::Rate;

use super::address_range::AddressRange;
use super::history::HistoryRule;
use super::option::{Traits, section};
use super::rate::OptionalRate;
use super::ratio::Ratio;
use super::stores::NamedStores;
use super::value::{
    Auto, ByteCount, Limited, List, OptionalBytes, OptionalPath, Rules, Secret, choice,
};

/// A person who errs a few times, not somebody who looks for names that are taken.
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
        /// Development mode: demo, documentation, admin page, reasons of denials in the log, browser pages of loopback hosts
        /// on any port. It opens no logins: these follow `auth.chain`, and every login succeeds while that is empty. `auto` is on
        /// when `auth.chain` is empty and all addresses are loopback addresses.
        dev: Auto<bool> = Auto::Auto;
        /// Shards, one thread each. `auto` follows the processors and the CPU quota of the container.
        shards: Auto<u16> = Auto::Auto;
        /// How long a stop may take, from the signal to the last closed connection.
        drain_timeout: Duration = seconds(20), Traits::NONE.reload();
        /// How long connections are still accepted after the signal while `/ready` answers 503, so that load
        /// balancers go elsewhere first. `auto` is 0 when all addresses are loopback addresses, else 5s.
        drain_delay: Auto<Duration> = Auto::Auto, Traits::NONE.reload();
        /// Where and for whom the server listens.
        network: Network = Network::default();
        /// Compression of WebSocket messages.
        compression: Compression = Compression::default();
        /// Encryption: `https://` and `wss://`.
        tls: Tls = Tls::default();
        /// What waits on HTTP connections that are not upgraded.
        http: Http = Http::default();
        /// Web pages that are in the binary.
        pages: Pages = Pages::default();
        /// Who may see what of health and metrics from other machines.
        health: Health = Health::default();
        /// Where records are kept.
        store: Store = Store::default();
        /// Stores beside that of `store`, each below a name of its own (lowercase letters, digits and `_`), up to 15. Each has
        /// `prefixes`, a list: records whose names begin with one of them are kept in it and nowhere else, and where several
        /// fit the longest counts. Its other options are those of `store` but for `cache`; `path` is `stores/NAME` in the
        /// data folder where it is not given. Only the file names stores; what it names can be set by the environment, too:
        /// `stores.logs.kind` is `TIDEWIRE_STORES__LOGS__KIND`. See `docs/stores.md`.
        stores: NamedStores = NamedStores::default(), Traits::NONE.described();
        /// Who may log in.
        auth: Auth = Auth::default();
        /// Who may do what: a file of rules, as deepstream's `permissions.yml`, or `allow_all`, with which whoever is
        /// logged in may do everything. `none` allows everything while everybody may log in; beside any other
        /// authentication the start is refused with it.
        permissions: Rules = Rules::None;
        /// Records.
        record: Record = Record::default();
        /// Remote procedure calls.
        rpc: Rpc = Rpc::default();
        /// Events.
        event: Event = Event::default();
        /// Listening for patterns of names.
        listen: Listen = Listen::default();
        /// Bounds of everything that a peer can make grow.
        limits: Limits = Limits::default();
        /// How much clients may do in a time.
        rates: Rates = Rates::default();
        /// How whoever was closed for a limit is let in again.
        backoff: Backoff = Backoff::default();
        /// Traces of publications for a collector of OpenTelemetry.
        traces: Traces = Traces::default();
        /// The admin API.
        admin: Admin = Admin::default();
        /// The log on standard error.
        log: Log = Log::default();
    }
}

section! {
    /// The admin API and the admin page. Both are off without a key, but for the page in development mode. See `docs/admin-api.md` and
    /// `docs/admin-page.md`.
    Admin {
        /// The key, at least 32 characters. Best given by the environment.
        key: Secret = Secret::default(), Traits::NONE.secret();
        /// A file with the key instead; white space around it does not count.
        key_file: OptionalPath = OptionalPath(None);
        /// Whether the page is at `/admin` of the addresses of `network`: with the key or, in development mode without one, with a key
        /// that is made at each start and stands on the first screen only.
        page: bool = true;
        /// How long somebody stays signed in on the page.
        session_lifetime: Duration = seconds(12 * 60 * 60);
        /// How many may be signed in at a time; one more ends the oldest.
        sessions_max: usize = 100;
        /// Wrong keys that an address may give to the page in a minute. More, and then the right one too, are answered 429.
        wrong_keys_max: u32 = 10;
        /// The loopback address that the API listens on. Other machines reach it through a proxy that encrypts.
        host: String = "127.0.0.1".to_owned();
        /// Its port; 0 takes a free one.
        port: u16 = 6021;
    }
}

choice! {
    /// Ways in which sends reach the kernel.
    SendsKind {
        /// Many at once through an `io_uring`, where the kernel gives one that works.
        Auto = "auto",
        /// One system call for each.
        Plain = "plain",
    }
}

section! {
    /// Where and for whom the server listens.
    Network {
        /// Addresses or host names to listen on. Addresses that other machines can reach are refused while
        /// everybody may log in, unless `auth.open_on_public_address` is set.
        host: List<String> = words(&["127.0.0.1", "::1"]), Traits::NONE.flag("host");
        /// The port; 0 takes a free one.
        port: u16 = 6020, Traits::NONE.flag("port");
        /// Paths on which WebSocket clients connect. A query string is ignored.
        paths: List<String> = words(&["/deepstream"]);
        /// Paths on which WebSocket clients connect that speak JSON in text messages; with none of them nobody can.
        json_paths: List<String> = words(&["/deepstream-json"]);
        /// Origins of web pages that may connect, as `https://app.example.com`, besides the server's own. In
        /// development mode pages from loopback hosts may, on any port. `*` is every page.
        origins: List<String> = words(&[]), Traits::NONE.reload();
        /// Host names under which the server is reached, besides loopback names. In development mode, and on loopback addresses
        /// where everybody may log in (`auth.chain` has `open`), other names are refused with 403: a web page could point a name of its own
        /// to this machine. Elsewhere an empty list is all names.
        hosts: List<String> = words(&[]), Traits::NONE.reload();
        /// Addresses and networks of proxies that are believed when they tell a client's address, as `10.0.0.0/8`. Their
        /// list is read from its end up to the first address that is none of these. Nobody is by default.
        trusted_proxies: List<AddressRange> = List(Vec::new()), Traits::NONE.reload();
        /// The header in which they tell it. The other one is left alone, because a proxy may pass on what a client wrote.
        forwarded_header: ForwardedHeader = ForwardedHeader::XForwardedFor, Traits::NONE.reload();
        /// Whether each connection begins with a head of the PROXY protocol, version 1 or 2, as load balancers send it that
        /// pass bytes on. Connections from others than `network.trusted_proxies` are closed then.
        proxy_protocol: bool = false;
        /// A client says something at least this often; silence of twice as long ends its connection.
        heartbeat_interval: Duration = seconds(30);
        /// How messages reach the kernel. `auto` submits many at once through an `io_uring`, and makes one system call
        /// for each where that is missing or refused, as in many containers. `plain` always does the latter.
        sends: SendsKind = SendsKind::Auto;
    }
}

choice! {
    /// Headers in which proxies tell whom they ask for.
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
    /// Whether clients must show a certificate.
    ClientCertificates {
        /// They may.
        Optional = "optional",
        /// Handshakes without one fail, those of health checks, too.
        Required = "required",
    }
}

section! {
    /// Encryption: `https://` and `wss://`.
    Tls {
        /// The file with the certificate chain as PEM, the server's own certificate first. TLS is spoken when this and
        /// `tls.key` are given. The files are read again when they change and at SIGHUP.
        certificate: OptionalPath = OptionalPath(None);
        /// The file with the private key of the certificate as PEM, without a passphrase.
        key: OptionalPath = OptionalPath(None);
        /// The port of TLS; 0 takes a free one. With `auto` `network.port` speaks TLS; with a port of its own
        /// `network.port` stays in the clear.
        port: Auto<u16> = Auto::Auto;
        /// Whether the port of TLS serves connections in the clear too; their first byte tells which they are.
        allow_clear: bool = false;
        /// The oldest version that is spoken.
        min_version: TlsVersion = TlsVersion::V1_2;
        /// A file with the certificates (PEM) of the authorities whose client certificates are taken. With it clients are
        /// asked for one in the handshake. Read again with the others; whoever is connected stays.
        client_ca: OptionalPath = OptionalPath(None);
        /// Whether a client without a certificate may connect. Who gets in is decided by `auth.chain`.
        client_certificates: ClientCertificates = ClientCertificates::Optional;
        /// Whether HTTP/2 is offered beside HTTP/1.1. Browsers take it for requests and server-sent events, of which
        /// HTTP/1.1 gives them six at a time; WebSockets stay with HTTP/1.1.
        http2: bool = true;
        /// How often it is looked whether the files have changed; `never` leaves it to SIGHUP.
        reload_interval: Limited = Limited::After(seconds(10));
        /// For how long browsers that were here with TLS come back with TLS only, to all ports of this host
        /// (`Strict-Transport-Security`), such as `8760h`; `never` does not tell them.
        hsts_max_age: Limited = Limited::Never;
    }
}

section! {
    /// Compression of WebSocket messages (permessage-deflate) for clients that offer it. Each message is compressed once
    /// for all of them.
    Compression {
        /// Whether offers are taken. Off by default: it trades processor time of server and clients for bytes.
        enabled: bool = false;
        /// Messages below this size are sent plain.
        bytes_min: ByteCount = ByteCount(512);
        /// Bytes that a shard compresses in one turn, so that large messages do not hold up others; what is over
        /// leaves plain.
        turn_bytes_max: ByteCount = ByteCount(1 << 20);
    }
}

section! {
    /// HTTP connections that are not upgraded, and what they may ask for.
    Http {
        /// Whether the HTTP API is there (`docs/http-api.md`).
        api: bool = true;
        /// Whether `/api/auth` is there.
        auth_endpoint: bool = true;
        /// Whether a POST to `/api` may log in with `authData`, else only with a token.
        allow_auth_data: bool = true;
        /// Bytes of a request's body. A larger one is refused with 413.
        body_bytes_max: ByteCount = ByteCount(1 << 20);
        /// Time for a request's body to arrive; afterwards 408.
        body_timeout: Duration = seconds(10);
        /// Bytes of all bodies that are held at a time. A request that has no room is refused with 503. Here and in `requests_max` and
        /// `streams_max` a caller (an address, after the login a user) may hold as much as is left free for others, and nothing
        /// else keeps it from its first; what is over is refused with 429.
        bodies_bytes_max: ByteCount = ByteCount(64 << 20);
        /// Requests that are worked on at a time. More are refused with 503.
        requests_max: usize = 1_000;
        /// Time for a request to be answered by the engine; what has no answer then has failed, and its outcome is unknown.
        request_timeout: Duration = seconds(20);
        /// Bytes of the answer to one request. Commands of a batch for which it has no room are not run and fail with
        /// `ANSWER_TOO_LARGE`; what is larger by itself is not sent, and a session for which more waits is ended.
        answer_bytes_max: ByteCount = ByteCount(16 << 20);
        /// Streams of server-sent events that may be open at a time. More are refused with 503.
        streams_max: usize = 10_000;
        /// Tickets for streams that `/api/auth` has given and that were not used; one address may have a tenth of them. Beyond it
        /// loses its oldest one; at the limit of all addresses, the address with the most bytes loses one.
        tickets_max: usize = 10_000;
        /// Bytes of the logins that these tickets stand for, with the same bounds. They count in `limits.memory_bytes_max`.
        tickets_bytes_max: ByteCount = ByteCount(16 << 20);
        /// Streams of one HTTP/2 connection, requests and server-sent events together. More wait at the client.
        connection_streams_max: u32 = 100;
        /// Requests of one HTTP/2 connection that are worked on, or whose answers are being taken, at a time. More wait.
        connection_requests_max: usize = 32;
        /// Commands of one POST to `/api`. More are refused with 400.
        batch_commands_max: usize = 10_000;
        /// Time for a request's head to arrive, and before it for a TLS handshake.
        head_timeout: Duration = seconds(10);
        /// Bytes of a request's head. Larger ones are refused with 431.
        head_bytes_max: ByteCount = ByteCount(16 << 10);
        /// A connection that is not upgraded is closed after this time. A request that runs then has as long again.
        connection_timeout: Duration = seconds(60);
    }
}

choice! {
    /// When the documentation is served.
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
        /// When the documentation of this version is at `/docs/`. Whoever reaches the server can read it.
        docs: DocsWhen = DocsWhen::Development;
        /// Whether the demo is at `/` in development mode, where everybody may log in and `network.paths` has `/deepstream`. The names of
        /// what it shares begin with `tidewire-demo/`; where `permissions` is `none`, rules of its own hold for these.
        demo: bool = true;
    }
}

section! {
    /// Health and metrics. They are open to this machine and, where it says so here, to others.
    Health {
        /// Whether other machines may read `/metrics`.
        metrics_public: bool = false, Traits::NONE.reload();
        /// Whether other machines may read the reasons of `/ready`. The status code is open to all.
        reasons_public: bool = false, Traits::NONE.reload();
    }
}

choice! {
    /// Where records are kept.
    StoreKind {
        /// An SQLite database in the data folder.
        Sqlite = "sqlite",
        /// Memory; nothing survives a stop.
        Memory = "memory",
        /// A MongoDB database.
        Mongodb = "mongodb",
        /// A PostgreSQL database.
        Postgres = "postgres",
        /// Redis or Valkey.
        Redis = "redis",
    }
}

choice! {
    /// What an acknowledged write means at least.
    Durability {
        /// On disk and synced.
        Synced = "synced",
        /// Whatever the store's server makes of it.
        Relaxed = "relaxed",
    }
}

section! {
    /// Where records are kept.
    Store {
        /// `sqlite` keeps records on disk; an acknowledged write is synced. `memory` loses everything at a stop. `mongodb`,
        /// `postgres` and `redis` (or Valkey) keep them on a server of their own. See `docs/stores.md`.
        kind: StoreKind = StoreKind::Sqlite;
        /// What an acknowledged write means at least. With `synced` a server that may acknowledge what it has not
        /// synced, or does not say whether it does, is refused with the setting to change; with `relaxed` it is
        /// taken, and `/ready`, the metrics, the first screen and the log say so.
        durability: Durability = Durability::Synced;
        /// Time for one request to a server of records; afterwards its connection is given up and made anew.
        timeout: Duration = seconds(10);
        /// How often all stored records are read and compared with their checksums while the server runs; `never` leaves it to
        /// `tidewire store check`. The store in memory has no need of it.
        scrub_interval: Limited = Limited::After(seconds(86_400));
        /// Bytes of names and values that this reads in a second.
        scrub_bytes_per_second: ByteCount = ByteCount(4 << 20);
        /// The MongoDB database of `mongodb`.
        mongodb: StoreServer = StoreServer::default(), Traits::NONE.described();
        /// The PostgreSQL database of `postgres`.
        postgres: StoreServer = StoreServer::default(), Traits::NONE.described();
        /// The Redis or Valkey server of `redis`.
        redis: StoreServer = StoreServer::default(), Traits::NONE.described();
        /// The data folder.
        path: PathBuf = PathBuf::from("./tidewire-data"), Traits::NONE.flag("data");
        /// Bytes of records kept in memory beyond those in use, for the whole node. `auto` is an eighth of the
        /// memory that the container or machine has, at most 64MiB for each shard and a sixteenth of a given
        /// `limits.memory_bytes_max`.
        cache: Auto<ByteCount> = Auto::Auto;
    }
}

section! {
    /// A server that keeps records.
    StoreServer {
        /// Its address, without a password: `mongodb://user@host:27017/database`, `postgresql://user@host:5432/database`,
        /// `redis://host:6379/0`, or `rediss://` for TLS. With MongoDB and PostgreSQL TLS is spoken with other machines unless
        /// the address has `?tls=false` or `?sslmode=disable`.
        url: String = String::new();
        /// The password. Best given by the environment.
        password: Secret = Secret::default(), Traits::NONE.secret();
        /// A file with the password instead; white space at its end does not count.
        password_file: OptionalPath = OptionalPath(None);
        /// A file with the certificates (PEM) of the authorities that are trusted, instead of the system's; with MongoDB instead
        /// of those that Mozilla trusts.
        ca: OptionalPath = OptionalPath(None);
    }
}

choice! {
    /// Ways to authenticate.
    AuthKind {
        /// Everybody, under the name given.
        Open = "open",
        /// The users of a file.
        File = "file",
        /// Signed tokens.
        Jwt = "jwt",
        /// A server that decides.
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
    /// Who may log in.
    Auth {
        /// Ways to authenticate, asked in this order until one decides: `open` lets everybody in, `file` the users of a
        /// file, `jwt` whoever has a signed token, `webhook` whom a server of yours lets in, `store` the
        /// users that this server keeps, `tls` whoever has shown a client certificate, `keys` back ends with a key. None at all is `open` without having been asked for. As
        /// with deepstream, wrong passwords are passed on to the next one unless `auth.file.report_invalid_parameters` is set, so
        /// `open` behind `file` lets everybody in under any name.
        chain: List<AuthKind> = List(Vec::new());
        /// Whether everybody may log in although other machines can reach the server.
        open_on_public_address: bool = false;
        /// Refused logins after which a connection is closed, and after which an address whose requests are refused has to
        /// wait like one whose connection was closed.
        attempts_max: u32 = 3;
        /// A connection on which no login was decided is closed after this time. A refused one begins `auth.retry_timeout`.
        login_timeout: Limited = Limited::After(seconds(180));
        /// A connection whose login was refused is closed after this time without an accepted one, counted from the last
        /// refusal. `auth.attempts_max` bounds the refusals. Long, because a person looks for a password meanwhile.
        retry_timeout: Limited = Limited::After(seconds(600));
        /// Bytes of a login: of each message before it is accepted, of the object in a request, and of the body of a POST to
        /// `/api/auth`. A larger message closes the connection with 1009, a larger body is refused with 413. No password or
        /// token needs more, and any peer can send what comes before a login.
        login_bytes_max: ByteCount = bytes(CoreLimits::default().login_bytes_max);
        /// Logins that may wait at a time: for their hash, for a server that decides, or for their delay after refused ones. More
        /// are put off: after `auth.retry_delay` their connections are closed with 1013, and requests are answered with 503.
        waiting_max: usize = 10_000;
        /// Bytes of these logins, of the heads of their requests, and of 2 KiB for each. They count in
        /// `limits.memory_bytes_max`.
        waiting_bytes_max: ByteCount = ByteCount(32 << 20);
        /// Logins from one address, or from one /64 of IPv6 addresses, that may wait at a time.
        waiting_per_address_max: usize = 1_000;
        /// Their bytes.
        waiting_bytes_per_address_max: ByteCount = ByteCount(8 << 20);
        /// A login ends after this time at the latest, whatever it was made with. Clients of deepstream come back by themselves and
        /// log in anew; others may renew it in place.
        session_lifetime: Limited = Limited::Never;
        /// How long a login waits that can't be decided because a server that must be asked is down. Then its connection is
        /// closed with 1013, and the client comes back by itself; some wait up to twice as long, so that they don't all come
        /// back at once.
        retry_delay: Duration = seconds(5);
        /// A file with the certificates (PEM) that other servers are trusted by when they are asked, instead of those that
        /// this machine trusts.
        ca: OptionalPath = OptionalPath(None);
        /// The users of a file.
        file: AuthFile = AuthFile::default();
        /// Signed tokens.
        jwt: AuthJwt = AuthJwt::default();
        /// A server that decides.
        webhook: AuthWebhook = AuthWebhook::default();
        /// The users of the record store.
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
        /// Passwords are argon2id, or plain where they are nothing else.
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
    /// Users in a file: deepstream's `users.yml` as it is.
    AuthFile {
        /// The file. Passwords that begin with `$argon2id$` (from `tidewire hash`) need no other option.
        path: OptionalPath = OptionalPath(None);
        /// The digest of deepstream's password hashes (PBKDF2). With `none` the others are plain text.
        hash: HashKind = HashKind::None;
        /// Iterations of that hash.
        iterations: u32 = 100;
        /// Bytes of that hash, before the encoding.
        key_length: usize = 32;
        /// Whether a login without user name or password is told so. `auto` does when `file` is the only way to
        /// authenticate; else the next one is asked.
        report_invalid_parameters: Auto<bool> = Auto::Auto;
    }
}

section! {
    /// Signed tokens (JSON Web Tokens), as clients give them: `login({ token })`. `exp` is required; 30 s of difference between
    /// clocks are allowed for. See `docs/authentication.md`.
    AuthJwt {
        /// A secret that tokens are signed with (HMAC), at least 32 bytes. Best given by the environment.
        secret: Secret = Secret::default(), Traits::NONE.secret();
        /// A file with that secret; white space at its end does not count. Read again at SIGHUP.
        secret_file: OptionalPath = OptionalPath(None);
        /// A file with public keys as PEM, or with a JSON Web Key or a set of them. Read again at SIGHUP.
        key_file: OptionalPath = OptionalPath(None);
        /// The one algorithm of the secret and of keys as PEM. `auto` is HS256, RS256, or what the curve of the key says. A
        /// JSON Web Key says it itself.
        algorithm: Auto<JwtAlgorithm> = Auto::Auto;
        /// The address of the issuer's key set. `https://`, or `http://` for this machine.
        jwks_url: String = String::new();
        /// The `iss` that tokens must have; empty is not checked.
        issuer: String = String::new();
        /// Whether the issuer's keys are found by OpenID Connect Discovery, from `auth.jwt.issuer`.
        discover: bool = false;
        /// Values of which one must be in a token's `aud`; none is not checked, but must be given as `*` when keys come from an
        /// issuer.
        audience: List<String> = words(&[]);
        /// The field of the object given to `login()` that has the token. Without it the header `Authorization: Bearer` of the
        /// connection counts.
        token_field: String = "token".to_owned();
        /// The claim that becomes the user id.
        user_claim: String = "sub".to_owned();
        /// Claims that rules see as `user.data`: `role`, `roles=realm_access.roles` under another name, or `*` for all but the
        /// registered ones.
        server_data_claims: List<String> = words(&["*"]);
        /// Claims that the client gets with its login.
        client_data_claims: List<String> = words(&[]);
        /// Bytes of a token. Larger ones are refused unread.
        token_bytes_max: ByteCount = ByteCount(16 << 10);
        /// How often the issuer's keys are read again.
        keys_refresh_interval: Duration = seconds(300);
        /// The time between two readings at least, however many tokens name an unknown key or however long the issuer is down.
        keys_refresh_pause: Duration = seconds(10);
        /// How long keys are used after they were read, while the issuer is down.
        keys_age_max: Duration = seconds(24 * 3600);
        /// Time for the issuer to answer.
        keys_timeout: Duration = seconds(5);
    }
}

section! {
    /// A server that decides logins: deepstream's HTTP authentication. It gets a POST with `connectionData` and `authData`.
    AuthWebhook {
        /// Its address. `https://`, or `http://` for this machine.
        url: String = String::new();
        /// Statuses of an answer that lets the user in; all others but `auth.webhook.retry_statuses` keep him out.
        permitted_statuses: List<u16> = List(vec![200]);
        /// Statuses after which it is asked again, as after no answer at all.
        retry_statuses: List<u16> = List(vec![404, 429, 500, 502, 503, 504]);
        /// How often it is asked again before the login is put off.
        retry_attempts: u32 = 3;
        /// The time before it is asked again.
        retry_interval: Duration = seconds(1);
        /// Time for an answer, and for a place among the requests.
        timeout: Duration = seconds(2);
        /// Fields of the object given to `login()` that are sent as headers, too.
        promote_to_header: List<String> = words(&[]);
        /// Requests at the same time. Logins beyond wait for a place.
        requests_max: usize = 100;
        /// Whether a login that it refuses is over. `auto` is when it is the only way to authenticate; else the next one is
        /// asked.
        report_invalid_parameters: Auto<bool> = Auto::Auto;
    }
}

section! {
    /// Users that the server keeps in its record store, where no client can read or write them. They are made by the admin API
    /// and, where that is on, by sign-up.
    AuthStore {
        /// What user ids begin with, before the name. Without it a user has the id of a user of the same name that another way
        /// to authenticate lets in.
        user_prefix: String = String::new();
        /// Whether everybody who can reach the server may become a user: `POST /api/auth/sign-up`.
        sign_up: bool = false;
        /// How often that may be asked from one address, or from one /64 of IPv6 addresses. What comes too early is answered
        /// with 429.
        sign_up_rate: OptionalRate = OptionalRate(Some(SIGN_UP_RATE));
    }
}

choice! {
    /// Names that a certificate may have.
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
        /// The name in the certificate that becomes the user id. One that has none of these, or several, is refused.
        user: CertificateName = CertificateName::CommonName;
    }
}

section! {
    /// Keys of back ends: `login({ key })`, or `Authorization: Bearer`.
    AuthKeys {
        /// The file with their ids and hashes; `tidewire key` writes its entries. Read again at SIGHUP.
        path: OptionalPath = OptionalPath(None);
    }
}

section! {
    /// Records.
    Record {
        /// Time for the store to load a record.
        load_timeout: Duration = seconds(30);
        /// Time for an acknowledged write to become durable; afterwards its outcome is unknown.
        write_timeout: Duration = seconds(30);
        /// Records with these prefixes are whole values with version 0 when written by `setData`.
        hot_path_prefixes: List<String> = words(&[]);
        /// How long the key of a write that clients may repeat is remembered (`spec/deepstream.md`, "Repeating a write").
        write_key_age: Duration = Duration::from_secs(600);
        /// Records with these prefixes are kept in memory only.
        memory_only_prefixes: List<String> = words(&[]);
    }
}

section! {
    /// Remote procedure calls.
    Rpc {
        /// Time for a provider to accept a call.
        accept_timeout: Duration = seconds(1);
        /// Time for a provider to respond, from the hand-over on.
        response_timeout: Duration = seconds(10);
        /// Whether a provider learns the requestor's user id.
        requestor_name: bool = false;
        /// Whether a provider learns the requestor's client data.
        requestor_data: bool = false;
    }
}

section! {
    /// Events.
    Event {
        /// Events that are kept for a while, so that a subscriber who comes back gets what it missed: patterns of names, in
        /// which `*` stands for any text, each with what is kept of one name, as `news/* count=1000 bytes=1MiB age=1h`,
        /// which are the bounds where none is given. The first pattern that fits counts. They are kept in memory, so that after a
        /// restart a subscriber is told of a gap, or with `keep=store` in the store as well: then an event is delivered when it is
        /// durable, and a restart makes no gap. See `spec/deepstream.md`, "History".
        history: List<HistoryRule> = List(Vec::new());
        /// How long after the end of one pass the store is looked through again for events of `keep=store` that are too old, of names that the
        /// server has forgotten. They are removed in small steps.
        history_sweep_interval: Limited = Limited::After(Duration::from_secs(600));
    }
}

section! {
    /// Listening for patterns of names.
    Listen {
        /// Time for a provider to accept or reject a name.
        response_timeout: Duration = Duration::from_millis(500);
        /// How often names without a provider are offered again.
        rematch_interval: Limited = Limited::After(seconds(30));
        /// Whether providers are asked in random order, else in that of their registration.
        shuffle: bool = true;
    }
}

choice! {
    /// What becomes of the events of a client that lags and follows jumps.
    EventLagKind {
        /// They are left out; when it has drained it is told of each event how many were.
        Gap = "gap",
        /// It gets all of them, and is disconnected at `limits.outbox_bytes_max`.
        Disconnect = "disconnect",
    }
}

section! {
    /// Bounds of everything that a peer can make grow.
    Limits {
        /// Connections. More are answered with 503. `auto` is what the limit of open files allows.
        connections_max: Auto<usize> = Auto::Auto;
        /// Connections from one address, or from one /64 of IPv6 addresses. More are answered with 429. `auto` is half of
        /// all connections, and does not count those of this machine, where a proxy may stand.
        connections_per_address_max: Auto<usize> = Auto::Auto;
        /// Bytes of one message of a client. A larger frame closes the connection with 1009.
        message_bytes_max: ByteCount = bytes(CoreLimits::default().message_bytes_max);
        /// Bytes of a name, pattern or user id.
        name_bytes_max: ByteCount = bytes(CoreLimits::default().name_bytes_max);
        /// Containers that a JSON payload or a path may nest.
        nesting_max: usize = CoreLimits::default().nesting_max;
        /// Bytes of one record's JSON, also after a patch.
        record_bytes_max: ByteCount = bytes(CoreLimits::default().record_bytes_max);
        /// Elements of arrays that one write may fill with null, because it names an index behind the end of an array, as `x[99]`
        /// does where `x` is empty. A wider gap is refused: a short path would make a large record. Raise it for data
        /// that use numbers as indices of sparse arrays.
        array_gap_max: usize = CoreLimits::default().array_gap_max;
        /// Names in one bulk message.
        bulk_names_max: usize = CoreLimits::default().bulk_names_max;
        /// Names, patterns and providers that one session may hold.
        subscriptions_max: usize = CoreLimits::default().subscriptions_max;
        /// Patterns that one session may listen with. Each is compiled, kept by all shards, and tried with each new name.
        patterns_max: usize = CoreLimits::default().patterns_max;
        /// Names that one listening session may be asked for at a time. Beyond it other sessions are asked, or the name
        /// waits until the session has answered.
        listen_questions_max: usize = CoreLimits::default().listen_questions_max;
        /// Running calls of one session.
        calls_max: usize = CoreLimits::default().calls_max;
        /// Operations that wait for one record.
        record_waiting_max: usize = CoreLimits::default().record_waiting_max;
        /// Records of a shard that are written but not yet committed. At the limit writes are refused.
        dirty_records_max: usize = CoreLimits::default().dirty_records_max;
        /// Bytes of those records.
        dirty_bytes_max: ByteCount = bytes(CoreLimits::default().dirty_bytes_max);
        /// Bytes that each store of the kind `sqlite` may use in its data folder. At the limit writes that make a record larger are refused with
        /// `RECORD_UPDATE_ERROR` or `RECORD_CREATE_ERROR`, `/ready` has the warning `store_full`, and deletes are taken. What is written and
        /// not yet committed comes on top, as does the log of 16 MiB.
        store_bytes_max: OptionalBytes = OptionalBytes(None);
        /// Bytes of names and values of the records that one user has written last, in each store of the kind `sqlite`. At the limit the user's
        /// writes that make a record larger are refused as above; others are not. Users without a name have no such limit.
        user_store_bytes_max: OptionalBytes = OptionalBytes(None);
        /// Bytes of written records that all shards together give a store for one commit, at least 256 KiB of each shard. What is more
        /// waits for the next commit, where users take turns. If full commits take longer than 8 ms, and more than twice as long as the
        /// quickest ones, shards make smaller ones, down to 256 KiB each.
        batch_bytes_max: ByteCount = bytes(CoreLimits::default().batch_bytes_max);
        /// Records that one permission decision may read. A rule that needs more has failed.
        rule_reads_max: usize = CoreLimits::default().rule_reads_max;
        /// Bytes that one connection may have handed over and that are not yet handled. Beyond it the connection
        /// is not read.
        inflight_bytes_max: ByteCount = ByteCount(4 << 20);
        /// Bytes that wait for one connection to read them. A slower reader is disconnected with a reason.
        outbox_bytes_max: ByteCount = ByteCount(1 << 20);
        /// Bytes that wait for one connection from which on a client that follows jumps lags: nothing more is
        /// published to it until it has drained; then it gets the newest value of each record that changed. `auto` is
        /// a quarter of `limits.outbox_bytes_max`.
        outbox_lagging_bytes: Auto<ByteCount> = Auto::Auto;
        /// Bytes that may still wait for a client that has drained. `auto` is a quarter of
        /// `limits.outbox_lagging_bytes`.
        outbox_drained_bytes: Auto<ByteCount> = Auto::Auto;
        /// Bytes that a shard may touch for one connection in a turn: parse, scan, copy and encode. If a connection has cost more, its
        /// next message waits until later turns have made up for the rest, in turn with other users. 0 for no bound.
        connection_work_max: ByteCount = bytes(CoreLimits::default().connection_work_max);
        /// Bytes that a shard touches before it looks at its sockets and its mailbox again. A turn makes up for as much of what
        /// all waiting connections have cost.
        turn_work_max: ByteCount = bytes(CoreLimits::default().turn_work_max);
        /// Bytes of requests for records that wait because their connections have cost too much. More are refused with a
        /// retryable error.
        deferred_bytes_max: ByteCount = bytes(CoreLimits::default().deferred_bytes_max);
        /// Bytes of the key of a write that clients may repeat. A longer one is refused.
        write_key_bytes_max: usize = CoreLimits::default().write_key_bytes_max;
        /// Keys of such writes that are remembered. At the limit the user with most keys loses its oldest one; each session that logged
        /// in without a name counts as a user.
        write_keys_max: usize = 100_000;
        /// Names with history (`event.history`) that are kept while nobody is subscribed to them. At the limit those used
        /// least lately are forgotten with their events.
        history_names_max: usize = 10_000;
        /// Bytes of all histories. At the limit names that nobody is subscribed to are forgotten first, then the events that
        /// would be too old soonest.
        history_bytes_max: ByteCount = ByteCount(64 << 20);
        /// What becomes of the events of a client that lags and follows jumps.
        event_lag_policy: EventLagKind = EventLagKind::Gap;
        /// Bytes that the node holds in outboxes, in messages that are half received or have to wait, in the logs of its turns,
        /// in mailboxes, in histories, in records, those in use and the cache of `store.cache`, and in what sessions have it keep:
        /// names of subscriptions, registrations, patterns, calls with their payloads, requests that wait. Beyond it the cache
        /// shrinks, then the sessions that hold most are ended; while there is no room, calls and writes of 64 KiB and more are
        /// refused. `auto` is `store.cache`, an eighth of the memory that the container or machine has and, with
        /// `event.history`, `limits.history_bytes_max`.
        memory_bytes_max: Auto<ByteCount> = Auto::Auto;
        /// Addresses, and as many users, that were closed for a limit and are remembered for that. At the limit those
        /// closed longest ago are forgotten.
        backoff_entries_max: usize = 10_000;
        /// Users, tokens and keys that may be revoked at a time, until they would have ended by themselves. More revocations are
        /// refused.
        revocations_max: usize = 100_000;
    }
}

section! {
    /// How much clients may do in a time, as `100/s`, `600/m` or `100/s burst 500`: so many at once after a pause, without
    /// it as many as the number before the slash. A message that comes too early waits, with everything behind it on its
    /// connection; nothing is refused or lost.
    Rates {
        /// Rates of each connection.
        connection: OperationRates = OperationRates::default(), Traits::NONE.described();
        /// Rates of each user, over all connections of the node. Whoever logs in without a name has none.
        user: OperationRates = OperationRates::default(), Traits::NONE.described();
    }
}

section! {
    /// Rates by operation, of whatever the field is about.
    OperationRates {
        /// All messages but heartbeats.
        messages: OptionalRate = OptionalRate(None);
        /// Events published.
        publish: OptionalRate = OptionalRate(None);
        /// Records created, changed or deleted.
        write: OptionalRate = OptionalRate(None);
        /// Reads of records, questions who is online. One for several names counts as so many.
        read: OptionalRate = OptionalRate(None);
        /// Names subscribed to, listened for or provided. One message for several names counts as so many.
        subscribe: OptionalRate = OptionalRate(None);
        /// Rpc calls.
        call: OptionalRate = OptionalRate(None);
    }
}

section! {
    /// How whoever was closed for a limit is let in again. Clients come back at once and for ever; here they wait before
    /// their challenge or login is answered.
    Backoff {
        /// The wait after the first closing. Each further one makes it five times as long.
        wait_min: Duration = Duration::from_secs(1);
        /// No wait is longer. With the defaults a client that is closed whenever it comes in connects at most five
        /// times a minute. 0s turns the waiting off, that of refused logins too.
        wait_max: Duration = Duration::from_secs(30);
        /// So much time without a closing makes up for one.
        forgive_interval: Duration = Duration::from_secs(60);
        /// Closings through own fault (frames that break the protocol, messages that are too large, logins that can't
        /// be read or were refused too often) after which a user, or an address from which nobody logs in, is refused in
        /// a way that keeps clients of deepstream away. Slow readers never are.
        faults_max: u32 = 5;
        /// Refused logins a minute of one user from one address that cost nothing, where passwords or a webhook decide. Three
        /// times as many of one address, and of one user, cost nothing either. Each one beyond doubles the wait of the next
        /// login, from `backoff.wait_min` to `backoff.wait_max`. See `docs/authentication.md`, "Guessing".
        login_refusals_max: u32 = 10;
    }
}

section! {
    /// Traces of publications for a collector of OpenTelemetry, off without its address. See `docs/operations.md`.
    Traces {
        /// Where spans are sent as OTLP over HTTP with JSON, as `http://127.0.0.1:4318/v1/traces`. `https://`, or `http://` for this
        /// machine.
        endpoint: String = String::new();
        /// The part of the published events that begins a trace, from 0 to 1. Events that belong to a trace of their publisher are
        /// recorded if it is, whatever this says.
        sample_ratio: Ratio = Ratio::NONE;
        /// What the spans say that they are of (`service.name`).
        service_name: String = "tidewire".to_owned();
        /// Spans that wait for the collector at most; more are dropped, and counted by `tidewire_trace_dropped_spans_total`.
        queue_max: usize = 4_096;
        /// How long spans are gathered for one request, unless there are 512 of them before.
        interval: Duration = seconds(1);
        /// Time for the collector to answer.
        timeout: Duration = seconds(10);
    }
}

choice! {
    /// How much is logged.
    LogLevel {
        /// Someone must act.
        Error = "error",
        /// Unexpected but handled.
        Warn = "warn",
        /// Start, stop and what the configuration means.
        Info = "info",
        /// Per connection.
        Debug = "debug",
        /// Per message.
        Trace = "trace",
    }
}

choice! {
    /// How the log is written.
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
        /// `error`: someone must act; `warn`: unexpected but handled; `info`: start and stop; `debug`: per
        /// connection; `trace`: per message.
        level: LogLevel = LogLevel::Info, Traits::NONE.reload();
        /// `auto` is text on a terminal, else one JSON object per line.
        format: LogFormat = LogFormat::Auto;
    }
}
