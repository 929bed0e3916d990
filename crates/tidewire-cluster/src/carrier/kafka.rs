//! The carrier over Kafka: the inbox is a partition of one topic, which the number of the node chooses.
//!
//! Several nodes can share a partition; each takes its own messages. A process reads from the end of the partition, so messages of an earlier
//! life of its node, or from before a break, do not arrive. The topic must exist, because the carrier can't set how long Kafka keeps messages.

use std::collections::HashMap;
use std::collections::hash_map::Entry;
use std::sync::Arc;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use rskafka::BackoffConfig;
use rskafka::chrono::{DateTime, Utc};
use rskafka::client::partition::{Compression, OffsetAt, PartitionClient, UnknownTopicHandling};
use rskafka::client::{Client, ClientBuilder};
use rskafka::record::Record;
use tokio::task::JoinSet;

use super::bus::{Broker, BrokerError, Inbox, Message, Publish, Subscribe};
use super::settings::UrlError;

/// The topic, unless the URL has another one.
const TOPIC: &str = "tidewire-links";
/// A request for messages waits this long for the first one.
const FETCH_WAIT_MS: i32 = 500;
/// Bytes that a fetch returns at most; one message may be longer.
const FETCH_BYTES_MAX: i32 = 1 << 20;
/// The longest answer that the library accepts. It exceeds a fetch by the batch that is begun.
const ANSWER_BYTES_MAX: usize = 16 << 20;

/// The addresses of the brokers, and the topic.
#[derive(Clone)]
pub struct Kafka {
    brokers: Vec<String>,
    topic: String,
}

impl Kafka {
    /// `kafka://HOST:PORT[,HOST:PORT...][/TOPIC]`, without user and password.
    pub(super) fn from_url(url: &str) -> Result<Self, UrlError> {
        let refused = |text: &str| Err(UrlError::Refused(text.to_owned()));
        let rest = url.split_once("://").map_or(url, |(_, rest)| rest);
        let (brokers, topic) = rest.split_once('/').unwrap_or((rest, ""));
        if brokers.contains('@') {
            return refused(
                "the carrier over Kafka supports neither users nor TLS; remove user and password",
            );
        }
        let is_broker = |broker: &str| {
            broker
                .rsplit_once(':')
                .is_some_and(|(host, port)| !host.is_empty() && port.parse::<u16>().is_ok())
        };
        if !brokers.split(',').all(is_broker) {
            return refused("the URL must have the form kafka://HOST:PORT,HOST:PORT/TOPIC");
        }
        let is_word = |byte: u8| byte.is_ascii_alphanumeric() || b"._-".contains(&byte);
        if !topic.bytes().all(is_word) {
            return refused(
                "the name of a Kafka topic has letters, digits, dots, hyphens and underscores",
            );
        }
        Ok(Self {
            brokers: brokers.split(',').map(str::to_owned).collect(),
            topic: match topic {
                "" => TOPIC.to_owned(),
                topic => topic.to_owned(),
            },
        })
    }

    async fn client(&self, inbox: Inbox) -> Result<Client, BrokerError> {
        // The bus repeats, so that a break is known at once.
        let once = BackoffConfig {
            init_backoff: Duration::from_millis(1),
            max_backoff: Duration::from_millis(1),
            base: 2.0,
            deadline: Some(Duration::ZERO),
        };
        let client = ClientBuilder::new(self.brokers.clone())
            .client_id(inbox.name_of(inbox.process))
            .max_message_size(ANSWER_BYTES_MAX)
            .backoff_config(once);
        Ok(client.build().await?)
    }
}

/// The time of a message, from which Kafka decides how long it keeps the message.
fn now() -> DateTime<Utc> {
    let since = SystemTime::now()
        .duration_since(UNIX_EPOCH)
        .unwrap_or_default();
    let milliseconds = i64::try_from(since.as_millis()).unwrap_or(i64::MAX);
    DateTime::from_timestamp_millis(milliseconds).unwrap_or_default()
}

/// The partition of a node.
fn partition_of(node: u16, count: i32) -> i32 {
    i32::from(node) % count
}

impl Broker for Kafka {
    type Publisher = Publisher;
    type Subscriber = Subscriber;

    async fn connect(&self, inbox: Inbox) -> Result<(Publisher, Subscriber), BrokerError> {
        let topic = &self.topic;
        let client = self.client(inbox).await?;
        let topics = client.list_topics().await?;
        let count = topics.iter().find(|found| found.name == *topic);
        let count = count.map_or(0, |found| found.partitions.len());
        let count = i32::try_from(count)?;
        if count == 0 {
            let missing = format!("the Kafka topic {topic:?} does not exist: create it");
            return Err(missing.into());
        }
        // Each partition that is used has its own connection: a broker handles the requests of a connection in order, and a fetch waits.
        let partition = client
            .partition_client(
                topic,
                partition_of(inbox.process.node, count),
                UnknownTopicHandling::Error,
            )
            .await?;
        let subscriber = Subscriber {
            offset: partition.get_offset(OffsetAt::Latest).await?,
            partition,
        };
        let publisher = Publisher {
            client,
            topic: topic.clone(),
            count,
            partitions: HashMap::new(),
        };
        Ok((publisher, subscriber))
    }
}

pub(super) struct Publisher {
    client: Client,
    topic: String,
    /// The partitions of the topic.
    count: i32,
    /// The partitions that were used.
    partitions: HashMap<i32, Arc<PartitionClient>>,
}

impl Publisher {
    async fn partition(&mut self, number: i32) -> Result<Arc<PartitionClient>, BrokerError> {
        let entry = match self.partitions.entry(number) {
            Entry::Occupied(entry) => return Ok(Arc::clone(entry.get())),
            Entry::Vacant(entry) => entry,
        };
        let partition =
            self.client
                .partition_client(&self.topic, number, UnknownTopicHandling::Error);
        Ok(Arc::clone(entry.insert(Arc::new(partition.await?))))
    }
}

impl Publish for Publisher {
    async fn publish(&mut self, messages: Vec<Message>) -> Result<(), BrokerError> {
        let mut records: HashMap<i32, Vec<Record>> = HashMap::new();
        for message in messages {
            let number = partition_of(message.to.node, self.count);
            records.entry(number).or_default().push(Record {
                key: None,
                value: Some(message.bytes),
                headers: Default::default(),
                timestamp: now(),
            });
        }
        let mut producing = JoinSet::new();
        for (number, records) in records {
            let partition = self.partition(number).await?;
            producing
                .spawn(async move { partition.produce(records, Compression::NoCompression).await });
        }
        while let Some(produced) = producing.join_next().await {
            produced??;
        }
        Ok(())
    }
}

pub(super) struct Subscriber {
    partition: PartitionClient,
    /// Of the next message.
    offset: i64,
}

impl Subscribe for Subscriber {
    async fn receive(&mut self, take: &mut (dyn FnMut(&[u8]) + Send)) -> Result<(), BrokerError> {
        let fetch = self
            .partition
            .fetch_records(self.offset, 1..FETCH_BYTES_MAX, FETCH_WAIT_MS);
        let (records, _) = fetch.await?;
        for fetched in records {
            self.offset = self.offset.max(fetched.offset + 1);
            if let Some(message) = fetched.record.value {
                take(&message);
            }
        }
        Ok(())
    }
}
