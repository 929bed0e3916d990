//! Users and tickets of a cluster: two nodes with one store.

use std::sync::{Arc, Mutex};
use std::time::Duration;

use tidewire_auth::credentials::Credentials;
use tidewire_auth::hashing::Hashing;
use tidewire_auth::shared_ticket::SharedTickets;
use tidewire_auth::users::{Change, Counts, UserError, Users};
use tidewire_config::section::AuthStore;
use tidewire_core::store::{
    Loaded, MemberId, Store, StoreError, StoreReader, StoreWrite, View, Written,
};
use tidewire_core::text::Name;
use tidewire_core::time::WallTime;
use tidewire_store::awaited::AwaitedStore;
use tidewire_store::memory::{MemoryDisk, MemoryStore};
use tidewire_store::thread::{Scan, StoreThreads};
use tokio::runtime::Handle;

/// The store of several nodes in one view.
#[derive(Clone)]
struct SharedStore(Arc<Mutex<MemoryStore>>);

impl Store for SharedStore {
    fn reader(&mut self) -> Result<Box<dyn StoreReader>, StoreError> {
        self.0.lock().expect("no panic").reader()
    }

    fn commit(
        &mut self,
        view: View,
        member: MemberId,
        writes: &[StoreWrite],
    ) -> Result<Vec<Written>, StoreError> {
        self.0
            .lock()
            .expect("no panic")
            .commit(view, member, writes)
    }

    fn close(&mut self) -> Result<(), StoreError> {
        Ok(())
    }
}

/// The threads of two nodes in front of one store.
fn nodes() -> [StoreThreads; 2] {
    let (store, opened) = MemoryDisk::default().open(None);
    let shared = SharedStore(Arc::new(Mutex::new(store)));
    let node = || {
        let store = Box::new(shared.clone());
        StoreThreads::start(store, opened, Arc::new(|_, _| {})).expect("threads")
    };
    [node(), node()]
}

#[tokio::test(flavor = "multi_thread")]
async fn changes_of_two_nodes_at_once_are_all_made() {
    let nodes = nodes();
    let [one, other] = nodes.each_ref().map(|node| {
        let users = Users::new(&AuthStore::default(), Hashing::new(2), Counts::default());
        users.open(node.client());
        users
    });
    for round in 0..20 {
        let name = format!("anna-{round}");
        let password = "the same password";
        let (first, second) =
            tokio::join!(one.create(&name, password), other.create(&name, password));
        assert!(
            [(&first, &second), (&second, &first)].contains(&(&Ok(()), &Err(UserError::Taken))),
            "{first:?} and {second:?}"
        );
        let server_data = |data: u32| Change {
            server_data: Some(data.into()),
            ..Change::default()
        };
        let client_data = Change {
            client_data: Some(2.into()),
            ..Change::default()
        };
        let (first, second) = tokio::join!(
            one.put(&name, server_data(1)),
            other.put(&name, client_data)
        );
        first.expect("changed");
        second.expect("changed");
        let user = one.read(&name).await.expect("read").expect("it exists");
        assert_eq!((user.server_data, user.client_data), (1.into(), 2.into()));
        let (deleted, changed) = tokio::join!(one.delete(&name), other.put(&name, server_data(3)));
        assert!(deleted.is_ok() && (changed.is_ok() || changed == Err(UserError::Missing)));
        assert_eq!(other.read(&name).await, Ok(None));
    }
}

fn tickets(node: &StoreThreads) -> Arc<SharedTickets> {
    let tickets = Arc::new(SharedTickets::default());
    tickets.open(node.client(), &Handle::current());
    tickets
}

/// The records of all tickets in the store.
async fn records(node: &StoreThreads) -> Vec<(String, String)> {
    let scan = Scan {
        prefix: "\u{1}ticket/".to_owned(),
        after: None,
        count_max: 100,
    };
    let page = AwaitedStore::new(node.client()).page(scan).await;
    let records = page.expect("a page").records.into_iter();
    let text = |(name, loaded): (Name, Loaded)| match loaded {
        Loaded::Found(record) => Some((name.as_str().to_owned(), record.data.as_str().to_owned())),
        _ => None,
    };
    records.filter_map(text).collect()
}

#[tokio::test(flavor = "multi_thread")]
async fn a_ticket_of_one_node_is_redeemed_once_on_all_nodes() {
    let nodes = nodes();
    let [one, other] = nodes.each_ref().map(tickets);
    let login = Credentials::token("a secret token");
    for round in 0..50 {
        let ticket = format!("ticket {round}");
        one.keep(&ticket, &login, &[]).await.expect("kept");
        let redeem = |tickets: &Arc<SharedTickets>| {
            let (tickets, ticket) = (Arc::clone(tickets), ticket.clone());
            tokio::spawn(async move { tickets.redeem(&ticket).await.expect("an answer") })
        };
        let (first, second) = tokio::join!(redeem(&one), redeem(&other));
        let logins = [first.expect("no panic"), second.expect("no panic")];
        assert_eq!(logins.iter().flatten().collect::<Vec<_>>(), [&login]);
        assert_eq!(other.redeem(&ticket).await, Ok(None), "it is used");
    }
    assert_eq!(other.redeem("another ticket").await, Ok(None));
}

#[tokio::test(flavor = "multi_thread")]
async fn the_store_reveals_neither_a_ticket_nor_its_login() {
    let nodes = nodes();
    let [one, other] = nodes.each_ref().map(tickets);
    let login = Credentials::token("a secret token");
    one.keep("a-ticket", &login, &[]).await.expect("kept");
    let records = records(&nodes[0]).await;
    let [(name, data)] = &records[..] else {
        panic!("{records:?}")
    };
    for text in [name, data] {
        assert!(
            !text.contains("a-ticket") && !text.contains("token"),
            "{text}"
        );
    }
    // The record of another ticket does not fit.
    let displaced = ["a-ticket".to_owned()];
    other
        .keep("another", &login, &displaced)
        .await
        .expect("kept");
    assert_eq!(other.redeem("a-ticket").await, Ok(None), "it is displaced");
    assert_eq!(one.redeem("another").await, Ok(Some(login)));
}

#[tokio::test(flavor = "multi_thread")]
async fn expired_tickets_are_deleted_by_every_node() {
    let nodes = nodes();
    let [one, other] = nodes.each_ref().map(tickets);
    one.keep("used", &Credentials::none(), &[])
        .await
        .expect("kept");
    one.keep("unused", &Credentials::none(), &[])
        .await
        .expect("kept");
    one.redeem("used").await.expect("an answer");
    let now = tidewire_auth::jwt::now().0;
    let after = |time: Duration| WallTime(now + time.as_millis() as u64);
    assert_eq!(
        other.delete_expired(after(Duration::from_secs(25))).await,
        Ok(0)
    );
    assert_eq!(
        other.delete_expired(after(Duration::from_secs(31))).await,
        Ok(2)
    );
    assert_eq!(records(&nodes[0]).await, []);
}
