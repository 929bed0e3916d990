//! Tickets in the store of a cluster, so that each node redeems the tickets of all nodes, once. Format: `spec/tickets.md`.
//!
//! The ticket is the key to its login: the record has a hash of the ticket as its name, and the login encrypted with another hash of it. A
//! copy of the store reveals neither.

use std::sync::{Arc, OnceLock, Weak};
use std::time::Duration;

use aws_lc_rs::aead::{AES_256_GCM, Aad, LessSafeKey, NONCE_LEN, Nonce, UnboundKey};
use base64::Engine;
use base64::prelude::BASE64_STANDARD;
use serde::{Deserialize, Serialize};
use sha2::{Digest, Sha256};
use tidewire_core::hex::hex;
use tidewire_core::store::{
    Expected, Incarnation, Loaded, StoreChange, StoreError, StoreWrite, StoredRecord, Version,
    Written,
};
use tidewire_core::text::{Name, Payload, RESERVED};
use tidewire_core::time::WallTime;
use tidewire_store::awaited::AwaitedStore;
use tidewire_store::thread::{Scan, StoreClient};
use tokio::runtime::Handle;

use super::credentials::Credentials;
use super::jwt::now;
use super::ticket::LIFE;

/// The part of a record's name that follows [`RESERVED`]. The hash of the ticket follows.
const KIND: &str = "ticket/";
/// The time between two deletions of expired tickets.
const SWEEP_INTERVAL: Duration = Duration::from_secs(60);
/// Records that one step of a deletion reads.
const PAGE: usize = 1_000;

/// The tickets of a cluster.
#[derive(Debug, Default)]
pub struct SharedTickets {
    /// Set once the store is open.
    store: OnceLock<AwaitedStore>,
}

/// The data of a record, as JSON.
#[derive(Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
struct StoredTicket {
    /// When it expires, in milliseconds since 1970.
    expires: u64,
    #[serde(flatten)]
    state: TicketState,
}

#[derive(Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
enum TicketState {
    /// The encrypted login, as base64.
    Login(String),
    /// The number of the request that has redeemed the ticket. It is random: two nodes that redeem a ticket at once write different records,
    /// so the store takes one of them.
    Redeemed(u64),
}

impl SharedTickets {
    /// Sets the store, and begins to delete expired tickets. Before this call every request fails.
    pub fn open(self: &Arc<Self>, store: StoreClient, runtime: &Handle) {
        let _ = self.store.set(AwaitedStore::new(store));
        runtime.spawn(sweep(Arc::downgrade(self)));
    }

    /// Keeps the login of a ticket, until it is redeemed or expires, and makes the tickets invalid that it has displaced.
    ///
    /// # Errors
    /// The store does not take it now.
    pub async fn keep(
        &self,
        ticket: &str,
        login: &Credentials,
        displaced: &[String],
    ) -> Result<(), StoreError> {
        let name = record_name(ticket);
        let encrypted = encrypt(ticket, &name, login.as_json());
        let record = StoredRecord {
            incarnation: Incarnation(random()?),
            version: Version::CREATED,
            data: data_of(end_of(now()), TicketState::Login(encrypted)),
            write_keys: None,
        };
        let put = write_of(name, Expected::Missing, StoreChange::Put(record));
        let delete = |ticket: &String| {
            write_of(record_name(ticket), Expected::Anything, StoreChange::Delete)
        };
        let writes = displaced.iter().map(delete).chain([put]).collect();
        self.store()?.commit(writes).await.map(drop)
    }

    /// Redeems a ticket, once. Returns its login.
    ///
    /// # Errors
    /// The store does not answer now. The ticket may be redeemed.
    pub async fn redeem(&self, ticket: &str) -> Result<Option<Credentials>, StoreError> {
        let name = record_name(ticket);
        let Loaded::Found(record) = self.store()?.load(name.clone()).await? else {
            return Ok(None);
        };
        let Some((expires, login)) = login_of(&record, ticket, &name) else {
            return Ok(None);
        };
        if expires <= now() {
            return Ok(None);
        }
        let redeemed = StoredRecord {
            incarnation: record.incarnation,
            version: record.version.next(),
            data: data_of(expires, TicketState::Redeemed(random()?)),
            write_keys: None,
        };
        let change = StoreChange::Put(redeemed);
        let writes = [write_of(name, Expected::of(&record), change)].into();
        let written = self.store()?.commit(writes).await?;
        let is_first = matches!(written.as_slice(), [Written::Done]);
        Ok(is_first.then_some(login))
    }

    /// Deletes the tickets that have expired. Returns their number.
    ///
    /// # Errors
    /// The store does not answer now.
    pub async fn delete_expired(&self, now: WallTime) -> Result<usize, StoreError> {
        let (mut after, mut count) = (None, 0);
        loop {
            let scan = Scan {
                prefix: format!("{RESERVED}{KIND}"),
                after,
                count_max: PAGE,
            };
            let page = self.store()?.page(scan).await?;
            after = page.records.last().map(|(name, _)| name.clone());
            let expired = page.records.into_iter().filter_map(|(name, loaded)| {
                let Loaded::Found(record) = loaded else {
                    return None;
                };
                let ticket: StoredTicket = serde_json::from_str(record.data.as_str()).ok()?;
                let is_expired = WallTime(ticket.expires) <= now;
                let expected = Expected::of(&record);
                is_expired.then(|| write_of(name, expected, StoreChange::Delete))
            });
            let writes: Arc<[StoreWrite]> = expired.collect();
            if !writes.is_empty() {
                count += writes.len();
                self.store()?.commit(writes).await?;
            }
            if !page.more || after.is_none() {
                return Ok(count);
            }
        }
    }

    fn store(&self) -> Result<&AwaitedStore, StoreError> {
        let closed = || StoreError::unavailable("the store is not open yet");
        self.store.get().ok_or_else(closed)
    }
}

/// Deletes expired tickets until the server ends. Each node does it for all nodes: the one that has issued a ticket may have ended.
async fn sweep(tickets: Weak<SharedTickets>) {
    loop {
        let Some(shared) = tickets.upgrade() else {
            return;
        };
        if let Err(error) = shared.delete_expired(now()).await {
            tracing::debug!(%error, "expired tickets are not deleted now");
        }
        drop(shared);
        tokio::time::sleep(SWEEP_INTERVAL).await;
    }
}

/// When a ticket expires that is issued now.
fn end_of(now: WallTime) -> WallTime {
    WallTime(now.0 + LIFE.as_millis() as u64)
}

fn write_of(name: Name, expected: Expected, change: StoreChange) -> StoreWrite {
    StoreWrite {
        writer: None,
        name,
        expected,
        change,
    }
}

fn data_of(expires: WallTime, state: TicketState) -> Payload {
    let ticket = StoredTicket {
        expires: expires.0,
        state,
    };
    Payload::from(serde_json::to_string(&ticket).expect("texts and numbers are JSON"))
}

/// The login of a ticket that is not redeemed, and when the ticket expires.
fn login_of(record: &StoredRecord, ticket: &str, name: &Name) -> Option<(WallTime, Credentials)> {
    let stored: StoredTicket = serde_json::from_str(record.data.as_str()).ok()?;
    let TicketState::Login(encrypted) = stored.state else {
        return None;
    };
    let login = decrypt(ticket, name, &encrypted)?;
    Some((WallTime(stored.expires), Credentials::from_json(login)))
}

fn record_name(ticket: &str) -> Name {
    let hash = hash("tidewire ticket name", ticket);
    Name::from(format!("{RESERVED}{KIND}{}", hex(&hash)).as_str())
}

/// A hash of the ticket for one purpose. A ticket has 192 random bits, so a hash of it is a key without further work.
fn hash(purpose: &str, ticket: &str) -> [u8; 32] {
    let digest = Sha256::new().chain_update(purpose).chain_update([0]);
    digest.chain_update(ticket).finalize().into()
}

/// The key of a ticket encrypts one text, so its nonce is zero.
fn key_of(ticket: &str) -> (LessSafeKey, Nonce) {
    let key = hash("tidewire ticket key", ticket);
    let key = UnboundKey::new(&AES_256_GCM, &key).expect("the key has 256 bits");
    let nonce = Nonce::assume_unique_for_key([0; NONCE_LEN]);
    (LessSafeKey::new(key), nonce)
}

fn encrypt(ticket: &str, name: &Name, login: &str) -> String {
    let (key, nonce) = key_of(ticket);
    let mut bytes = login.as_bytes().to_vec();
    key.seal_in_place_append_tag(nonce, Aad::from(name.as_bytes()), &mut bytes)
        .expect("a login is shorter than the longest text of the cipher");
    BASE64_STANDARD.encode(bytes)
}

fn decrypt(ticket: &str, name: &Name, encrypted: &str) -> Option<String> {
    let (key, nonce) = key_of(ticket);
    let mut bytes = BASE64_STANDARD.decode(encrypted).ok()?;
    let login = key
        .open_in_place(nonce, Aad::from(name.as_bytes()), &mut bytes)
        .ok()?;
    String::from_utf8(login.to_vec()).ok()
}

fn random() -> Result<u64, StoreError> {
    getrandom::u64().map_err(|error| StoreError::unavailable(error.to_string()))
}
