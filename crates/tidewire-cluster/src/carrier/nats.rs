//! The carrier over NATS: the inbox is a subject of core NATS, without JetStream.

use std::time::Duration;

use async_nats::{Client, ConnectOptions, Event, ServerAddr};
use futures_util::StreamExt as _;
use percent_encoding::percent_decode_str;
use tokio::sync::mpsc;

use super::bus::{Broker, BrokerError, Inbox, Message, Publish, Subscribe};
use super::settings::UrlError;

/// The longest message: the longest frame of a link (512 KiB of entries and its head) and the envelope, rounded up.
const MESSAGE_BYTES_MAX: usize = (512 << 10) + 1024;
/// Messages that the library keeps in each direction. Links limit their bytes.
const MESSAGES_MAX: usize = 1024;
/// The library would connect again, but the bus makes a new connection. The rest of the library's task then ends after this time.
const RECONNECT_DELAY: Duration = Duration::from_secs(1);

/// The addresses of the servers, of which one is used.
#[derive(Clone)]
pub struct Nats {
    servers: Vec<ServerAddr>,
    login: Option<Login>,
}

/// The library ignores the user of a URL.
#[derive(Clone)]
enum Login {
    User { name: String, password: String },
    Token(String),
}

impl Login {
    /// The user and the password of a URL, or its token, which is a user without a password.
    fn of(server: &ServerAddr) -> Option<Self> {
        let text = |text: &str| percent_decode_str(text).decode_utf8_lossy().into_owned();
        let name = text(server.username()?);
        Some(match server.password() {
            Some(password) => Self::User {
                name,
                password: text(password),
            },
            None => Self::Token(name),
        })
    }
}

impl Nats {
    /// The servers are separated by commas, as NATS tools accept them; only the first one has the scheme.
    pub(super) fn from_url(url: &str) -> Result<Self, UrlError> {
        let refused = |_| UrlError::Refused("not a URL of a NATS server".to_owned());
        let scheme = url.split_once("://").map_or("nats", |(scheme, _)| scheme);
        let servers = url.split(',').map(|server| match server.contains("://") {
            true => server.parse().map_err(refused),
            false => format!("{scheme}://{server}").parse().map_err(refused),
        });
        let servers = servers.collect::<Result<Vec<ServerAddr>, _>>()?;
        let login = servers.iter().find_map(Login::of);
        Ok(Self { servers, login })
    }
}

impl Broker for Nats {
    type Publisher = Publisher;
    type Subscriber = Subscriber;

    async fn connect(&self, inbox: Inbox) -> Result<(Publisher, Subscriber), BrokerError> {
        let (sender, lost) = mpsc::channel(1);
        let options = match self.login.clone() {
            Some(Login::User { name, password }) => {
                ConnectOptions::with_user_and_password(name, password)
            }
            Some(Login::Token(token)) => ConnectOptions::with_token(token),
            None => ConnectOptions::new(),
        };
        let options = options
            .name("tidewire")
            .client_capacity(MESSAGES_MAX)
            .subscription_capacity(MESSAGES_MAX)
            .max_reconnects(self.servers.len())
            .reconnect_delay_callback(|attempts| match attempts {
                0 | 1 => Duration::ZERO,
                _ => RECONNECT_DELAY,
            })
            .event_callback(move |event| {
                let sender = sender.clone();
                async move {
                    match event {
                        Event::Disconnected | Event::Closed | Event::LameDuckMode => {
                            let _ = sender.try_send(event);
                        }
                        Event::SlowConsumer(_) => {
                            tracing::debug!("messages of links were lost, which the links repeat");
                        }
                        _ => {}
                    }
                }
            });
        let client = options.connect(&self.servers[..]).await?;
        let allowed = client.server_info().max_payload;
        if allowed < MESSAGE_BYTES_MAX {
            return Err(format!(
                "the NATS server accepts messages of {allowed} bytes, links need {MESSAGE_BYTES_MAX}: raise max_payload"
            )
            .into());
        }
        let subscription = client.subscribe(inbox.name_of(inbox.process)).await?;
        let subscriber = Subscriber { subscription, lost };
        Ok((Publisher { inbox, client }, subscriber))
    }
}

pub(super) struct Publisher {
    inbox: Inbox,
    client: Client,
}

impl Publish for Publisher {
    async fn publish(&mut self, messages: Vec<Message>) -> Result<(), BrokerError> {
        for message in messages {
            let subject = self.inbox.name_of(message.to);
            self.client.publish(subject, message.bytes.into()).await?;
        }
        Ok(())
    }
}

pub(super) struct Subscriber {
    subscription: async_nats::Subscriber,
    /// The connection is lost, or the server ends soon.
    lost: mpsc::Receiver<Event>,
}

impl Subscribe for Subscriber {
    async fn receive(&mut self, take: &mut (dyn FnMut(&[u8]) + Send)) -> Result<(), BrokerError> {
        tokio::select! {
            message = self.subscription.next() => match message {
                Some(message) => {
                    take(&message.payload);
                    Ok(())
                }
                None => Err("the subscription has ended".into()),
            },
            Some(event) = self.lost.recv() => Err(event.to_string().into()),
        }
    }
}
