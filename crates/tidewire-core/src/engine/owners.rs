//! Which shards own the names of a message, for a driver that delays messages to some shards.

use std::slice;

use super::Shard;
use crate::address::Address;
use crate::message::{Event, Listen, Message, Record, Rpc};

impl Shard {
    /// Calls `visit` with the shard of each name that a session's message sends to the owner of the name. A registered pattern goes to
    /// all shards. Messages can go to further shards, such as those with subscribers.
    pub fn visit_owners(&self, message: &Message<'_>, mut visit: impl FnMut(Address)) {
        let context = &self.state.context;
        let names = match message {
            Message::Event(Event::Listen(listen)) | Message::Record(Record::Listen(listen)) => {
                match listen {
                    Listen::Accept { subscription, .. } | Listen::Reject { subscription, .. } => {
                        visit(context.owner(subscription));
                    }
                    _ => context.shards().for_each(visit),
                }
                return;
            }
            Message::Event(event) => event_names(event),
            Message::Record(record) => record_names(record),
            Message::Rpc(rpc) => rpc_names(rpc),
            _ => &[],
        };
        let history = &context.settings.history;
        for name in names {
            // Events without history have no owner.
            let is_owned = !matches!(message, Message::Event(_)) || history.find(name).is_some();
            if is_owned {
                visit(context.owner(name));
            }
        }
    }
}

fn event_names<'m, 'a>(event: &'m Event<'a>) -> &'m [&'a str] {
    match event {
        Event::Publication(publication) | Event::Publish { publication, .. } => {
            slice::from_ref(&publication.name)
        }
        Event::Subscribe { names, .. } | Event::Unsubscribe { names, .. } => names,
        _ => &[],
    }
}

fn record_names<'m, 'a>(record: &'m Record<'a>) -> &'m [&'a str] {
    match record {
        Record::Bulk { names, .. } | Record::Commit { names, .. } => names,
        Record::Write(write, _) => slice::from_ref(&write.name),
        Record::Read { name }
        | Record::Head { name }
        | Record::Delete { name }
        | Record::Fetch { name, .. }
        | Record::Put { name, .. } => slice::from_ref(name),
        _ => &[],
    }
}

fn rpc_names<'m, 'a>(rpc: &'m Rpc<'a>) -> &'m [&'a str] {
    match rpc {
        Rpc::Provide { names, .. } | Rpc::Unprovide { names, .. } => names,
        Rpc::Request { call, .. }
        | Rpc::Accept(call)
        | Rpc::Reject(call)
        | Rpc::Response { call, .. }
        | Rpc::RequestError { call, .. } => slice::from_ref(&call.name),
        _ => &[],
    }
}
