//! The real brokers as child processes: each has its own folder and free ports, can be killed and restarted, and ends with the test.

use std::net::{Ipv4Addr, SocketAddr, TcpListener};
use std::os::unix::process::CommandExt as _;
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use rskafka::client::ClientBuilder;
use rustix::process::{Pid, Signal, kill_process_group};
use tempfile::TempDir;
use tokio::net::TcpStream;
use tokio::time::{Instant, sleep};

/// A broker accepts connections within this time, on a busy machine too.
const START_DEADLINE: Duration = Duration::from_secs(120);
const POLL_INTERVAL: Duration = Duration::from_millis(20);
/// Partitions of the topics.
const PARTITIONS: i32 = 4;
/// The user of the carriers, who has exactly the permissions that `docs/carriers` names. Kafka has no users here.
pub const USER: &str = "links";
pub const PASSWORD: &str = "secret";
const RABBITMQ_NAMES: &str = r"^(tidewire\.links|amq\.gen-.*)$";

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    Amqp,
    Kafka,
    Nats,
    Redis,
    Valkey,
}

pub struct Broker {
    kind: Kind,
    folder: TempDir,
    /// The addresses for the two sides and for tools. Only Kafka's differ.
    pub addresses: [SocketAddr; 3],
    /// Other ports of the broker.
    more: [u16; 2],
    /// The addresses that Kafka's clients connect to.
    advertised: [SocketAddr; 3],
    /// A folder with `certificate.pem` and `key.pem`, if the broker accepts TLS only.
    certificate: Option<PathBuf>,
    child: Option<Child>,
}

pub fn free_port() -> u16 {
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).expect("a free port");
    listener.local_addr().expect("an address").port()
}

impl Broker {
    /// A broker that does not run yet.
    pub fn new(kind: Kind) -> Self {
        let address = || SocketAddr::from((Ipv4Addr::LOCALHOST, free_port()));
        let addresses = match kind {
            Kind::Kafka => [address(), address(), address()],
            _ => [address(); 3],
        };
        Self {
            kind,
            folder: tempfile::tempdir().expect("a folder"),
            addresses,
            more: [free_port(), free_port()],
            advertised: addresses,
            certificate: None,
            child: None,
        }
    }

    /// The two sides connect through these addresses.
    pub fn advertise(&mut self, sides: [SocketAddr; 2]) {
        self.advertised = [sides[0], sides[1], self.addresses[2]];
    }

    /// The broker accepts TLS only, with the certificate of a folder.
    pub fn encrypt(&mut self, folder: PathBuf) {
        self.certificate = Some(folder);
    }

    /// The URL of the broker at an address.
    pub fn url(&self, address: SocketAddr, topic: &str) -> String {
        match self.kind {
            Kind::Amqp if self.certificate.is_some() => {
                format!("amqps://{USER}:{PASSWORD}@{address}/%2f")
            }
            Kind::Nats if self.certificate.is_some() => {
                format!("tls://{USER}:{PASSWORD}@{address}")
            }
            Kind::Redis | Kind::Valkey if self.certificate.is_some() => {
                format!("rediss://{USER}:{PASSWORD}@{address}")
            }
            Kind::Amqp => format!("amqp://{USER}:{PASSWORD}@{address}/%2f"),
            Kind::Kafka => format!("kafka://{address}/{topic}"),
            Kind::Nats => format!("nats://{USER}:{PASSWORD}@{address}"),
            Kind::Redis | Kind::Valkey => format!("redis://{USER}:{PASSWORD}@{address}"),
        }
    }

    /// Starts the broker, again after `kill`, and waits until it accepts connections.
    pub async fn start(&mut self) {
        assert!(self.child.is_none());
        let mut command = self.command();
        let log = std::fs::File::create(self.folder.path().join("log")).expect("a log");
        command.stdout(log.try_clone().expect("a log")).stderr(log);
        command.stdin(Stdio::null()).process_group(0);
        self.child = Some(command.spawn().expect("setpriv of util-linux"));
        let deadline = Instant::now() + START_DEADLINE;
        while TcpStream::connect(self.addresses[2]).await.is_err() {
            let exited = self.child.as_mut().map(Child::try_wait);
            let has_exited = matches!(exited, Some(Ok(Some(_))));
            if has_exited || Instant::now() > deadline {
                let log = std::fs::read_to_string(self.folder.path().join("log"));
                let (kind, install) = (self.kind, self.install());
                panic!("{kind:?} does not run. To install it: {install}\n{log:?}");
            }
            sleep(POLL_INTERVAL).await;
        }
    }

    /// Kills the broker with all its processes.
    pub fn kill(&mut self) {
        if let Some(mut child) = self.child.take() {
            let id = i32::try_from(child.id()).expect("a process id");
            let _ = kill_process_group(Pid::from_raw(id).expect("a process id"), Signal::KILL);
            let _ = child.wait();
        }
    }

    /// Makes a topic, which only Kafka needs.
    pub async fn make_topic(&self, topic: &str) {
        if self.kind != Kind::Kafka {
            return;
        }
        let client = ClientBuilder::new(vec![self.addresses[2].to_string()]).build();
        let client = client.await.expect("a client");
        let controller = client.controller_client().expect("a controller");
        let made = controller.create_topic(topic, PARTITIONS, 1, 10_000).await;
        made.expect("a topic");
    }

    fn install(&self) -> &'static str {
        match self.kind {
            Kind::Amqp => "apt-get install -y --no-install-recommends rabbitmq-server",
            Kind::Kafka => {
                "apt-get install -y --no-install-recommends default-jdk-headless maven, then npm --prefix e2e run carriers"
            }
            Kind::Nats => "apt-get install -y --no-install-recommends nats-server",
            Kind::Redis => "apt-get install -y --no-install-recommends redis-server",
            Kind::Valkey => {
                "apt-get install -y --no-install-recommends -t bookworm-backports valkey-server"
            }
        }
    }

    fn command(&self) -> Command {
        // The broker ends with this thread, even if the test is killed.
        let mut command = Command::new("setpriv");
        command.args(["--pdeathsig", "KILL", "--"]);
        let port = self.addresses[2].port().to_string();
        let folder = self.folder.path();
        let certificate = self.certificate.as_ref();
        let files = certificate.map(|folder| {
            ["certificate.pem", "key.pem"].map(|name| folder.join(name).display().to_string())
        });
        match self.kind {
            Kind::Nats => {
                let user = format!(
                    r#"authorization {{ users = [{{ user: {USER}, password: {PASSWORD}, permissions: {{ publish: "tidewire.>", subscribe: "tidewire.>" }} }}] }}"#
                );
                let file = folder.join("nats.conf");
                std::fs::write(&file, user).expect("written");
                command.args(["nats-server", "-a", "127.0.0.1", "-p", &port, "-c"]);
                command.arg(file);
                if let Some([certificate, key]) = &files {
                    command.args(["--tls", "--tlscert", certificate, "--tlskey", key]);
                }
            }
            Kind::Redis | Kind::Valkey => {
                let program = match self.kind {
                    Kind::Redis => "redis-server",
                    _ => "valkey-server",
                };
                command.args([program, "--bind", "127.0.0.1"]);
                match &files {
                    Some([certificate, key]) => command
                        .args([
                            "--port",
                            "0",
                            "--tls-port",
                            &port,
                            "--tls-auth-clients",
                            "no",
                        ])
                        .args(["--tls-cert-file", certificate, "--tls-key-file", key]),
                    None => command.args(["--port", &port]),
                };
                let rights = "resetkeys resetchannels &tidewire.* -@all +publish +subscribe +unsubscribe +ping +client";
                let password = format!(">{PASSWORD}");
                command.args(["--user", USER, "on", &password]);
                command.args(rights.split(' '));
                command.args(["--save", "", "--appendonly", "no", "--dir"]);
                command.arg(folder);
            }
            Kind::Amqp => {
                let erlang_ports = self.more.map(|port| port.to_string());
                command.arg("/usr/lib/rabbitmq/bin/rabbitmq-server");
                command.env("RABBITMQ_NODENAME", format!("links{port}@localhost"));
                let listener = match &files {
                    Some([certificate, key]) => format!(
                        "listeners.tcp = none\nlisteners.ssl.1 = 127.0.0.1:{port}\nssl_options.verify = verify_none\n\
                        ssl_options.cacertfile = {certificate}\nssl_options.certfile = {certificate}\nssl_options.keyfile = {key}\n"
                    ),
                    None => format!("listeners.tcp.1 = 127.0.0.1:{port}\n"),
                };
                let user = format!(
                    "default_user = {USER}\ndefault_pass = {PASSWORD}\ndefault_permissions.configure = {RABBITMQ_NAMES}\n\
                    default_permissions.write = {RABBITMQ_NAMES}\ndefault_permissions.read = {RABBITMQ_NAMES}\n"
                );
                let text = listener + &user;
                std::fs::write(folder.join("rabbitmq.conf"), text).expect("written");
                command.env("RABBITMQ_CONFIG_FILE", folder.join("rabbitmq.conf"));
                command.env("RABBITMQ_DIST_PORT", &erlang_ports[0]);
                command.env("ERL_EPMD_PORT", &erlang_ports[1]);
                // Without it the daemon that knows the ports of Erlang programs does not end while it knows a killed one.
                command.env("ERL_EPMD_RELAXED_COMMAND_CHECK", "1");
                command.env("RABBITMQ_MNESIA_BASE", folder.join("data"));
                command.env("RABBITMQ_LOG_BASE", folder.join("logs"));
                command.env("RABBITMQ_ENABLED_PLUGINS_FILE", folder.join("plugins"));
                command.env("HOME", folder);
            }
            Kind::Kafka => {
                let properties = folder.join("server.properties");
                if !properties.exists() {
                    std::fs::write(&properties, self.kafka_properties()).expect("written");
                    let formatted = kafka("kafka.tools.StorageTool")
                        .args(["format", "-t", "MkU3OEVBNTcwNTJENDM2Qg", "-c"])
                        .arg(&properties)
                        .stdout(Stdio::null())
                        .status();
                    assert!(
                        formatted.is_ok_and(|status| status.success()),
                        "{}",
                        self.install()
                    );
                }
                command.arg("java").args(kafka_arguments("kafka.Kafka"));
                command.arg(properties);
            }
        }
        command
    }

    fn kafka_properties(&self) -> String {
        let controller = self.more[0];
        let list = |addresses: [SocketAddr; 3]| {
            let [first, second, tools] = addresses;
            format!("FIRST://{first},SECOND://{second},TOOLS://{tools}")
        };
        let (listeners, advertised) = (list(self.addresses), list(self.advertised));
        let data = self.folder.path().join("data");
        format!(
            "process.roles=broker,controller\n\
            node.id=1\n\
            controller.quorum.voters=1@127.0.0.1:{controller}\n\
            controller.listener.names=CONTROLLER\n\
            listeners=CONTROLLER://127.0.0.1:{controller},{listeners}\n\
            advertised.listeners={advertised}\n\
            listener.security.protocol.map=CONTROLLER:PLAINTEXT,FIRST:PLAINTEXT,SECOND:PLAINTEXT,TOOLS:PLAINTEXT\n\
            inter.broker.listener.name=TOOLS\n\
            offsets.topic.replication.factor=1\n\
            log.dirs={}\n",
            data.display()
        )
    }
}

impl Drop for Broker {
    fn drop(&mut self) {
        self.kill();
        if self.kind == Kind::Amqp {
            // The daemon that knows the ports of Erlang programs leaves the process group.
            let port = self.more[1].to_string();
            let _ = Command::new("epmd")
                .args(["-port", &port, "-kill"])
                .output();
        }
    }
}

/// The libraries of Kafka, which `npm --prefix e2e run carriers` fetches.
fn kafka_libraries() -> PathBuf {
    PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../../e2e/carriers/target/lib")
}

fn kafka_arguments(class: &str) -> Vec<String> {
    let libraries = kafka_libraries().join("*").display().to_string();
    let options = [
        "-Xmx512m",
        "-XX:TieredStopAtLevel=1",
        "-cp",
        &libraries,
        class,
    ];
    options.map(str::to_owned).to_vec()
}

fn kafka(class: &str) -> Command {
    let mut command = Command::new("java");
    command.args(kafka_arguments(class));
    command
}
