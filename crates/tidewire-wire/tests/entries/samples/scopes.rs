//! Entries about presence in scopes.

use tidewire_core::entry::{Entry, ScopeEntry};

use super::parts::{json, name, session, shard};

pub fn all() -> Vec<(&'static str, Entry)> {
    vec![
        (
            "scope joined again",
            Entry::Scope(ScopeEntry::Join {
                session: session(1),
                scope: name("board/1"),
                user: name("anna"),
                state: json("{\"x\":1}"),
                is_member: true,
            }),
        ),
        (
            "scope joined by a nameless session",
            Entry::Scope(ScopeEntry::Join {
                session: session(1),
                scope: name("board/1"),
                user: name(""),
                state: json("null"),
                is_member: false,
            }),
        ),
        (
            "state in a scope",
            Entry::Scope(ScopeEntry::Update {
                session: session(1),
                scope: name("board/1"),
                state: json("2"),
            }),
        ),
        (
            "scope left",
            Entry::Scope(ScopeEntry::Leave {
                session: session(1),
                scope: name("board/1"),
            }),
        ),
        (
            "scope subscribed",
            Entry::Scope(ScopeEntry::Subscribe {
                session: session(1),
                serial: 3,
                scope: name("board/1"),
            }),
        ),
        (
            "scope released",
            Entry::Scope(ScopeEntry::Release {
                session: session(1),
                scope: name("board/1"),
            }),
        ),
        (
            "member accepted",
            Entry::Scope(ScopeEntry::Joined {
                session: session(1),
                scope: name("board/1"),
            }),
        ),
        (
            "scope full",
            Entry::Scope(ScopeEntry::Full {
                session: session(1),
                scope: name("board/1"),
            }),
        ),
        (
            "members of a scope",
            Entry::Scope(ScopeEntry::Snapshot {
                session: session(1),
                serial: 3,
                owner: shard(1, 2),
                scope: name("board/1"),
                data: json("{\"members\":[]}"),
            }),
        ),
        (
            "members changed",
            Entry::Scope(ScopeEntry::Changed {
                owner: shard(1, 2),
                scope: name("board/1"),
                data: json("[]"),
            }),
        ),
    ]
}
