//! The carrier over Redis or Valkey: the inbox is a pub/sub channel. One connection subscribes, the other one publishes.

use futures_util::StreamExt as _;
use redis::aio::{MultiplexedConnection, PubSubSink, PubSubStream};
use redis::{AsyncConnectionConfig, Client, Pipeline};

use super::bus::{Broker, BrokerError, Inbox, Message, Publish, Subscribe};
use super::settings::UrlError;

/// The address of the server.
#[derive(Clone)]
pub struct Redis(Client);

impl Redis {
    pub(super) fn from_url(url: &str) -> Result<Self, UrlError> {
        let client = Client::open(url);
        // The text of the library can repeat a part of the URL.
        let refused = |_| UrlError::Refused("not a URL of a Redis server".to_owned());
        client.map(Self).map_err(refused)
    }
}

impl Broker for Redis {
    type Publisher = Publisher;
    type Subscriber = Subscriber;

    async fn connect(&self, inbox: Inbox) -> Result<(Publisher, Subscriber), BrokerError> {
        let mut subscription = self.0.get_async_pubsub().await?;
        subscription.subscribe(inbox.name_of(inbox.process)).await?;
        // The messages to the own inbox find a dead connection.
        let config = AsyncConnectionConfig::new().set_response_timeout(None);
        let connection = self
            .0
            .get_multiplexed_async_connection_with_config(&config)
            .await?;
        let (sink, stream) = subscription.split();
        let subscriber = Subscriber {
            stream,
            _sink: sink,
        };
        Ok((Publisher { inbox, connection }, subscriber))
    }
}

pub(super) struct Publisher {
    inbox: Inbox,
    connection: MultiplexedConnection,
}

impl Publish for Publisher {
    async fn publish(&mut self, messages: Vec<Message>) -> Result<(), BrokerError> {
        let mut pipeline = Pipeline::with_capacity(messages.len());
        for message in messages {
            let channel = self.inbox.name_of(message.to);
            // The answer is the number of subscribers, which may be 0: the peer can be reconnecting.
            pipeline.cmd("PUBLISH").arg(channel).arg(message.bytes);
            pipeline.ignore();
        }
        Ok(pipeline.exec_async(&mut self.connection).await?)
    }
}

pub(super) struct Subscriber {
    stream: PubSubStream,
    /// Without it the subscription ends.
    _sink: PubSubSink,
}

impl Subscribe for Subscriber {
    async fn receive(&mut self, take: &mut (dyn FnMut(&[u8]) + Send)) -> Result<(), BrokerError> {
        match self.stream.next().await {
            Some(message) => {
                take(message.get_payload_bytes());
                Ok(())
            }
            None => Err("the server has closed the subscription".into()),
        }
    }
}
