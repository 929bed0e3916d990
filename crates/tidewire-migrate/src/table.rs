//! Maps each setting of deepstream's configuration, versions 5 to 10.

/// The counterpart of a setting.
#[derive(Clone, Copy, Debug)]
pub(super) enum Becomes {
    /// None is needed.
    Nothing,
    /// None is needed for this value. Other values have no counterpart; the text is the note.
    NothingIf(&'static str, &'static str),
    /// There is no counterpart; the text is advice.
    Missing(&'static str),
    /// This option, with the same value.
    Value(&'static str),
    /// This option, with the unit milliseconds.
    Milliseconds(&'static str),
    /// `auth.login_timeout`, with `never` for `false`. The timeout after a refused login differs.
    LoginTimeout,
    /// This option, as a list.
    List(&'static str),
    /// This option, with other words for its values.
    Words(&'static str, &'static [(&'static str, &'static str)]),
    /// This option, set to this name; the file that the setting loads is copied to it.
    File(&'static str, &'static str),
    /// This option, with the path of the file relative to deepstream's configuration folder.
    Path(&'static str),
}

pub(super) const UNKNOWN: &str = "has no counterpart in Tidewire; see docs/from-deepstream.md";

const LEVELS: &[(&str, &str)] = &[
    ("0", "debug"),
    ("1", "info"),
    ("2", "warn"),
    ("3", "error"),
    ("100", "error"),
    ("DEBUG", "debug"),
    ("INFO", "info"),
    ("WARN", "warn"),
    ("ERROR", "error"),
    ("OFF", "error"),
];
pub(super) const ALL_ORIGINS: &str = "deepstream accepts pages of all origins; Tidewire accepts pages of network.origins and of the server's address";
pub(super) const LOGIN_TIMEOUT: &str = "after a refused login, a connection has auth.retry_timeout (10 min) to log in successfully; deepstream waits forever";
const FEATURE: &str = "forbid it with a rule in permissions.yml";
const STORED: &str = "choose a store (docs/stores.md), and import the records with tidewire import deepstream --from";
const CLUSTER: &str = "clusters are not supported; run one node";

/// The note on a service without a counterpart.
pub(super) fn missing_service(section: &str, kind: &str) -> &'static str {
    match (section, kind) {
        ("connectionEndpoints", "ws-text") => {
            "the protocol of clients before version 4 is not supported"
        }
        ("connectionEndpoints", "mqtt") => "MQTT is not supported",
        ("auth", "storage") => {
            "users can't be imported; create them again with auth.chain: [store] (docs/authentication.md)"
        }
        ("auth", _) => "use your own program as a webhook: auth.webhook",
        ("permission", _) => "use a file of rules, or allow_all: permissions",
        _ => UNKNOWN,
    }
}

/// The counterpart of the setting with this path. Inside a service, the path is section, kind and option, without `options`.
pub(super) fn setting(path: &str) -> Option<Becomes> {
    use Becomes::{
        File, List, LoginTimeout, Milliseconds, Missing, Nothing, NothingIf, Path, Value, Words,
    };
    let first = path.split('.').next().unwrap_or_default();
    let endpoint = [
        "connectionEndpoints.ws-binary.",
        "connectionEndpoints.ws-json.",
    ];
    if let Some(option) = endpoint.iter().find_map(|prefix| path.strip_prefix(prefix)) {
        return Some(match option {
            "urlPath" if path.contains("ws-json") => List("network.json_paths"),
            "urlPath" => List("network.paths"),
            "heartbeatInterval" => Milliseconds("network.heartbeat_interval"),
            "unauthenticatedClientTimeout" => LoginTimeout,
            "maxAuthAttempts" => Value("auth.attempts_max"),
            "maxMessageSize" => Value("limits.message_bytes_max"),
            // The server sends one batch per turn.
            "outgoingBufferTimeout" | "maxBufferByteSize" => Nothing,
            "logInvalidAuthData" => NothingIf("false", "credentials are never logged"),
            _ => return None,
        });
    }
    Some(match path {
        "serverName"
        | "showLogo"
        | "dependencyInitializationTimeout"
        | "exitOnFatalError"
        | "libDir" => Nothing,
        "logLevel" => Words("log.level", LEVELS),
        "enabledFeatures.record"
        | "enabledFeatures.event"
        | "enabledFeatures.rpc"
        | "enabledFeatures.presence" => NothingIf("true", FEATURE),
        "enabledFeatures.monitoring" => NothingIf("false", "metrics are at /metrics"),
        "rpc.ackTimeout" => Milliseconds("rpc.accept_timeout"),
        "rpc.responseTimeout" => Milliseconds("rpc.response_timeout"),
        "rpc.provideRequestorName" => Value("rpc.requestor_name"),
        "rpc.provideRequestorData" => Value("rpc.requestor_data"),
        "record.storageRetrievalTimeout" => Milliseconds("record.load_timeout"),
        // The server has no separate cache.
        "record.cacheRetrievalTimeout" => Nothing,
        "record.storageExclusionPrefixes" => List("record.memory_only_prefixes"),
        "record.storageHotPathPrefixes" => List("record.hot_path_prefixes"),
        "listen.shuffleProviders" => Value("listen.shuffle"),
        "listen.responseTimeout" => Milliseconds("listen.response_timeout"),
        "listen.rematchInterval" => Milliseconds("listen.rematch_interval"),
        "listen.matchCooldown" => Missing("names are offered again every listen.rematch_interval"),
        "httpServer.default.host" | "httpServer.uws.host" => List("network.host"),
        "httpServer.default.port" | "httpServer.uws.port" => Value("network.port"),
        "httpServer.default.healthCheckPath" | "httpServer.uws.healthCheckPath" => {
            NothingIf("/health-check", "it is at /health-check")
        }
        "httpServer.default.allowAllOrigins" | "httpServer.uws.allowAllOrigins" => {
            NothingIf("false", ALL_ORIGINS)
        }
        "httpServer.default.origins" | "httpServer.uws.origins" => List("network.origins"),
        "httpServer.default.maxMessageSize" | "httpServer.uws.maxMessageSize" => {
            Value("http.body_bytes_max")
        }
        "httpServer.uws.maxBackpressure" => Value("limits.outbox_bytes_max"),
        "httpServer.default.ssl.key" | "httpServer.uws.ssl.key" => Path("tls.key"),
        "httpServer.default.ssl.cert" | "httpServer.uws.ssl.cert" => Path("tls.certificate"),
        "httpServer.default.ssl.ca" => {
            Missing("append these certificates to the file of tls.certificate")
        }
        "connectionEndpoints.http.allowAuthData" => Value("http.allow_auth_data"),
        "connectionEndpoints.http.enableAuthEndpoint" => Value("http.auth_endpoint"),
        "connectionEndpoints.http.requestTimeout" => Milliseconds("http.request_timeout"),
        "connectionEndpoints.http.postPath" | "connectionEndpoints.http.getPath" => {
            NothingIf("/api", "it is at /api")
        }
        "connectionEndpoints.http.authPath" => NothingIf("/api/auth", "it is at /api/auth"),
        "connectionEndpoints.http.logInvalidAuthData" => {
            NothingIf("false", "credentials are never logged")
        }
        "auth.file.users" => File("auth.file.path", "users.yml"),
        "auth.file.hash" => Value("auth.file.hash"),
        "auth.file.iterations" => Value("auth.file.iterations"),
        "auth.file.keyLength" => Value("auth.file.key_length"),
        "auth.file.reportInvalidParameters" => Value("auth.file.report_invalid_parameters"),
        "auth.http.endpointUrl" => Value("auth.webhook.url"),
        "auth.http.permittedStatusCodes" => List("auth.webhook.permitted_statuses"),
        "auth.http.requestTimeout" => Milliseconds("auth.webhook.timeout"),
        "auth.http.promoteToHeader" => List("auth.webhook.promote_to_header"),
        "auth.http.retryStatusCodes" => List("auth.webhook.retry_statuses"),
        "auth.http.retryAttempts" => Value("auth.webhook.retry_attempts"),
        "auth.http.retryInterval" => Milliseconds("auth.webhook.retry_interval"),
        "auth.http.reportInvalidParameters" => Value("auth.webhook.report_invalid_parameters"),
        "permission.config.permissions" => File("permissions", "permissions.yml"),
        "permission.config.maxRuleIterations" => {
            NothingIf("3", "a rule is evaluated at most three times")
        }
        "permission.config.cacheEvacuationInterval" => Nothing,
        "monitoring.type" => NothingIf("none", "metrics are at /metrics (docs/operations.md)"),
        "monitoring.options" => Nothing,
        _ => match first {
            "telemetry" | "logger" => Nothing,
            "cache" | "storage" if path == first => Missing(STORED),
            "clusterNode" | "clusterRegistry" | "clusterStates" | "locks" | "subscriptions"
                if path == first =>
            {
                Missing(CLUSTER)
            }
            "plugins" if path == first => {
                Missing("plugins are not supported; write a client that does the same work")
            }
            _ => return None,
        },
    })
}
