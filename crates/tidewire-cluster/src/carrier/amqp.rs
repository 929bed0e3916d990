//! The carrier over an AMQP 0.9.1 broker: the inbox is an exclusive queue, bound to a direct exchange by its name.
//!
//! Each connection declares a new queue. If the broker has not noticed the end of the earlier connection yet, the queue of that connection
//! still exists, and an exclusive queue can't be taken over.

use futures_util::StreamExt as _;
use lapin::options::{
    BasicConsumeOptions, BasicPublishOptions, ExchangeDeclareOptions, QueueBindOptions,
    QueueDeclareOptions,
};
use lapin::types::{AMQPValue, FieldTable};
use lapin::uri::AMQPUri;
use lapin::{BasicProperties, Channel, Connection, ConnectionProperties, Consumer, ExchangeKind};

use super::bus::{Broker, BrokerError, Inbox, Message, Publish, Subscribe};
use super::settings::UrlError;

/// The exchange of all links of a virtual host. It is not durable, so a broker that restarts has neither the exchange nor messages.
const EXCHANGE: &str = "tidewire.links";
/// The broker drops the oldest messages of a queue beyond this, for example of a connection whose end it has not noticed.
const QUEUE_BYTES_MAX: i32 = 64 << 20;
/// Seconds, of the library. The messages to the own inbox find a dead connection earlier.
const HEARTBEAT_SECONDS: u16 = 10;

/// The address of the broker.
#[derive(Clone)]
pub struct Amqp(AMQPUri);

impl Amqp {
    pub(super) fn from_url(url: &str) -> Result<Self, UrlError> {
        let mut uri: AMQPUri = url
            .parse()
            .map_err(|_| UrlError::Refused("not a URL of an AMQP broker".to_owned()))?;
        uri.query.heartbeat.get_or_insert(HEARTBEAT_SECONDS);
        Ok(Self(uri))
    }
}

impl Broker for Amqp {
    type Publisher = Publisher;
    type Subscriber = Subscriber;

    async fn connect(&self, inbox: Inbox) -> Result<(Publisher, Subscriber), BrokerError> {
        let properties = ConnectionProperties::default().with_connection_name("tidewire".into());
        let connection = Connection::connect_uri(self.0.clone(), properties).await?;
        // Two channels, because a broker may block the one that publishes.
        let publishing = connection.create_channel().await?;
        let consuming = connection.create_channel().await?;
        consuming
            .exchange_declare(
                EXCHANGE.into(),
                ExchangeKind::Direct,
                ExchangeDeclareOptions::default(),
                FieldTable::default(),
            )
            .await?;
        let mut arguments = FieldTable::default();
        arguments.insert(
            "x-max-length-bytes".into(),
            AMQPValue::LongInt(QUEUE_BYTES_MAX),
        );
        let options = QueueDeclareOptions {
            exclusive: true,
            auto_delete: true,
            ..QueueDeclareOptions::default()
        };
        // The broker chooses the name.
        let queue = consuming.queue_declare("".into(), options, arguments);
        let queue = queue.await?.name().clone();
        consuming
            .queue_bind(
                queue.clone(),
                EXCHANGE.into(),
                inbox.name_of(inbox.process).into(),
                QueueBindOptions::default(),
                FieldTable::default(),
            )
            .await?;
        let options = BasicConsumeOptions {
            no_ack: true,
            exclusive: true,
            ..BasicConsumeOptions::default()
        };
        let consumer = consuming
            .basic_consume(queue, "".into(), options, FieldTable::default())
            .await?;
        let publisher = Publisher {
            inbox,
            channel: publishing,
        };
        let subscriber = Subscriber {
            consumer,
            _channel: consuming,
            _connection: connection,
        };
        Ok((publisher, subscriber))
    }
}

pub(super) struct Publisher {
    inbox: Inbox,
    channel: Channel,
}

impl Publish for Publisher {
    async fn publish(&mut self, messages: Vec<Message>) -> Result<(), BrokerError> {
        for message in messages {
            // A message without a queue is dropped: the peer can be reconnecting.
            self.channel
                .basic_publish(
                    EXCHANGE.into(),
                    self.inbox.name_of(message.to).into(),
                    BasicPublishOptions::default(),
                    &message.bytes,
                    BasicProperties::default(),
                )
                .await?;
        }
        Ok(())
    }
}

pub(super) struct Subscriber {
    consumer: Consumer,
    /// The connection and the channel end with these.
    _channel: Channel,
    _connection: Connection,
}

impl Subscribe for Subscriber {
    async fn receive(&mut self, take: &mut (dyn FnMut(&[u8]) + Send)) -> Result<(), BrokerError> {
        match self.consumer.next().await {
            Some(delivery) => {
                take(&delivery?.data);
                Ok(())
            }
            None => Err("the broker has closed the queue".into()),
        }
    }
}
