//! `tidewire import deepstream FOLDER`, run as a program: the settings that it translates, reports and refuses.

mod client;
mod process;

use std::fs;
use std::path::Path;

use process::run;

/// A configuration with nearly every setting that Tidewire has too, and some that it does not have.
const RICH: &str = "\
serverName: one
logLevel: WARN
enabledFeatures: { record: true, presence: false }
rpc: { ackTimeout: 700, responseTimeout: 8000, provideRequestorName: true, provideRequestorData: true }
record:
  cacheRetrievalTimeout: 1000
  storageRetrievalTimeout: 2000
  storageExclusionPrefixes: [no-storage/, 'temporary data/']
  storageHotPathPrefixes: [hot/]
listen: { shuffleProviders: false, responseTimeout: 400, rematchInterval: 1000 }
httpServer:
  type: default
  options:
    host: 127.0.0.1
    port: ${PORT}
    healthCheckPath: /alive
    allowAllOrigins: false
    origins: ['https://app.example.com']
    maxMessageSize: 2097152
connectionEndpoints:
  - type: ws-binary
    options: { urlPath: /live, heartbeatInterval: 20000, unauthenticatedClientTimeout: 60000, maxAuthAttempts: 5, maxMessageSize: 524288, headers: [user-agent] }
  - type: mqtt
    options: { port: 1883 }
auth:
  - type: http
    options:
      endpointUrl: https://app.example.com/login
      permittedStatusCodes: [200, 202]
      requestTimeout: 1500
      promoteToHeader: [token]
      retryStatusCodes: [503]
      retryAttempts: 2
      retryInterval: 300
  - type: file
    options: { users: fileLoad(users.yml), hash: sha256, iterations: 200, keyLength: 64, reportInvalidParameters: false }
permission:
  type: config
  options: { permissions: fileLoad(rules.yml), maxRuleIterations: 5 }
storage: { name: postgres, options: { user: a } }
shoeSize: 43
";

const MOVED: &str = r#"# Made from a deepstream configuration by `tidewire import deepstream`.
auth:
  attempts_max: 5
  chain: [webhook, file]
  file:
    hash: sha256
    iterations: 200
    key_length: 64
    path: users.yml
    report_invalid_parameters: false
  login_timeout: 60000ms
  webhook:
    permitted_statuses: [200, 202]
    promote_to_header: [token]
    retry_attempts: 2
    retry_interval: 300ms
    retry_statuses: [503]
    timeout: 1500ms
    url: "https://app.example.com/login"
http:
  api: false
  body_bytes_max: 2097152
limits:
  message_bytes_max: 524288
listen:
  rematch_interval: never
  response_timeout: 400ms
  shuffle: false
log:
  level: warn
network:
  heartbeat_interval: 20000ms
  host: [127.0.0.1]
  json_paths: []
  origins: ["https://app.example.com"]
  paths: [/live]
  port: "${PORT}"
permissions: permissions.yml
record:
  hot_path_prefixes: [hot/]
  load_timeout: 2000ms
  memory_only_prefixes: [no-storage/, "temporary data/"]
rpc:
  accept_timeout: 700ms
  requestor_data: true
  requestor_name: true
  response_timeout: 8000ms
"#;

/// A folder with a configuration, rules and users of deepstream.
fn deepstream(config: &str) -> tempfile::TempDir {
    let folder = tempfile::tempdir().expect("a temporary folder");
    let write = |name: &str, text: &str| {
        fs::create_dir_all(folder.path().join("old/conf")).expect("a folder");
        fs::write(folder.path().join("old/conf").join(name), text).expect("the file is written");
    };
    write("config.yml", config);
    write("users.yml", "alice:\n  password: any\n");
    let rules = run(folder.path(), &["rules", "init", "old/conf/rules.yml"]);
    assert_eq!(rules.0, 0, "{rules:?}");
    folder
}

fn read(folder: &Path, name: &str) -> String {
    fs::read_to_string(folder.join(name)).unwrap_or_default()
}

#[test]
fn settings_become_options_and_the_others_are_named() {
    let directory = deepstream(RICH);
    let (code, said, error) = run(directory.path(), &["import", "deepstream", "old"]);
    assert_eq!((code, error.as_str()), (0, ""), "{said}");
    assert_eq!(read(directory.path(), "tidewire.yml"), MOVED);
    assert_eq!(
        read(directory.path(), "users.yml"),
        "alice:\n  password: any\n"
    );
    assert_eq!(
        read(directory.path(), "permissions.yml"),
        read(directory.path(), "old/conf/rules.yml")
    );
    let named: Vec<&str> = said
        .lines()
        .skip(1)
        .map(|line| line.split(": ").take(2).last().unwrap_or_default())
        .collect();
    let expected = [
        "enabledFeatures.presence",
        "httpServer.default.healthCheckPath",
        "connectionEndpoints.ws-binary.unauthenticatedClientTimeout",
        "connectionEndpoints.ws-binary.headers",
        "connectionEndpoints.mqtt",
        "permission.config.maxRuleIterations",
        "storage",
        "shoeSize",
    ];
    assert_eq!(named, expected, "{said}");
    assert!(
        said.contains("old/conf/config.yml:3: enabledFeatures.presence: forbid it"),
        "{said}"
    );
}

#[test]
fn the_result_is_a_valid_configuration() {
    // The port is a variable in this configuration, and the hash has the default sizes.
    let text = RICH.replace("${PORT}", "0").replace("password: any", "");
    let directory = deepstream(&text);
    fs::write(
        directory.path().join("old/conf/users.yml"),
        "alice:\n  password: $argon2id$v=19$m=19456,t=2,p=1$c29tZXNhbHRzb21lc2FsdA$4d0fHkvyBWVEeWbGWVvNUZ0RmnVYyRaQX9mAhw3VHkQ\n",
    )
    .expect("the file is written");
    assert_eq!(run(directory.path(), &["import", "deepstream", "old"]).0, 0);
    let checked = run(directory.path(), &["config", "check"]);
    assert_eq!(checked.0, 0, "{checked:?}");
}

#[test]
fn without_logins_only_this_machine_is_served() {
    let directory = deepstream(
        "httpServer: { type: default, options: { host: 0.0.0.0 } }\nauth: [{ type: none }]\n",
    );
    let (code, said, _) = run(directory.path(), &["import", "deepstream", "old"]);
    assert_eq!(code, 0);
    let moved = read(directory.path(), "tidewire.yml");
    assert!(
        moved.contains("chain: [open]") && !moved.contains("host"),
        "{moved}"
    );
    assert!(moved.contains("permissions: allow_all"), "{moved}");
    assert!(
        said.contains("auth.open_on_public_address") && said.contains("network.origins"),
        "{said}"
    );
    assert_eq!(run(directory.path(), &["config", "check"]).0, 0);
}

#[test]
fn nothing_is_overwritten_and_a_dry_run_writes_nothing() {
    let directory = deepstream("logLevel: INFO\n");
    let (code, said, _) = run(
        directory.path(),
        &["import", "deepstream", "old", "--dry-run"],
    );
    assert_eq!(
        (code, said.contains("would write: ./tidewire.yml")),
        (0, true),
        "{said}"
    );
    assert!(!directory.path().join("tidewire.yml").exists());
    fs::write(directory.path().join("tidewire.yml"), "mine").expect("the file is written");
    let (code, _, error) = run(directory.path(), &["import", "deepstream", "old"]);
    assert_eq!(
        (code, error.contains("already exists")),
        (2, true),
        "{error}"
    );
    assert_eq!(read(directory.path(), "tidewire.yml"), "mine");
    assert_eq!(
        run(
            directory.path(),
            &["import", "deepstream", "old", "--into", "new/one"]
        )
        .0,
        0
    );
    assert!(read(directory.path(), "new/one/tidewire.yml").contains("level: info"));
}

#[test]
fn unreadable_files_are_named() {
    let directory = deepstream("auth: [\n");
    let (code, _, error) = run(directory.path(), &["import", "deepstream", "old"]);
    assert_eq!(
        (code, error.contains("old/conf/config.yml:")),
        (2, true),
        "{error}"
    );
    let (code, _, error) = run(directory.path(), &["import", "deepstream", "nowhere"]);
    assert_eq!(
        (
            code,
            error.contains("nowhere: has no config.yml and no conf/config.yml")
        ),
        (2, true),
        "{error}"
    );
    let directory =
        deepstream("permission: { type: config, options: { permissions: fileLoad(none.yml) } }\n");
    let (code, _, error) = run(directory.path(), &["import", "deepstream", "old"]);
    assert_eq!((code, error.contains("none.yml")), (2, true), "{error}");
    assert!(!directory.path().join("tidewire.yml").exists());
    let both = run(
        directory.path(),
        &["import", "deepstream", "old", "--from", "redis://here"],
    );
    assert_eq!(both.0, 2, "{both:?}");
}
