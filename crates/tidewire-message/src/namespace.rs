//! Namespaces of sessions: which of them a pattern covers, and the events of their rooms.

/// Whether a pattern of namespaces covers a namespace, or all that match another pattern. A `*` at the end matches any text.
#[must_use]
pub fn covers(pattern: &str, other: &str) -> bool {
    match pattern.strip_suffix('*') {
        Some(prefix) => other.starts_with(prefix),
        None => pattern == other,
    }
}

/// The event of a room. Without a room, the event for all sessions of the namespace. The names of rules can't begin with `/`.
#[must_use]
pub fn event_of(namespace: &str, room: &str) -> String {
    match namespace {
        "/" if room.is_empty() => "#".into(),
        "/" => room.into(),
        _ => format!(
            "{}#{room}",
            namespace.strip_prefix('/').unwrap_or(namespace)
        ),
    }
}

/// The room of an event, in a namespace; `None` for the event of all its sessions.
#[must_use]
pub fn room_of<'e>(namespace: &str, event: &'e str) -> Option<&'e str> {
    let all = event_of(namespace, "");
    match namespace {
        "/" => (event != all).then_some(event),
        _ => event.strip_prefix(&all).filter(|room| !room.is_empty()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_pattern_covers_names_and_narrower_patterns() {
        for (pattern, other) in [
            ("/chat", "/chat"),
            ("/room/*", "/room/1"),
            ("/room/*", "/room/*"),
            ("/*", "/"),
        ] {
            assert!(covers(pattern, other), "{pattern} {other}");
        }
        for (pattern, other) in [("/chat", "/chat2"), ("/chat", "/*"), ("/room/*", "/room")] {
            assert!(!covers(pattern, other), "{pattern} {other}");
        }
    }

    #[test]
    fn rooms_have_the_names_of_events() {
        for (namespace, room, event) in [
            ("/", "kitchen", "kitchen"),
            ("/chat", "kitchen", "chat#kitchen"),
            ("/chat", "a#b", "chat#a#b"),
        ] {
            assert_eq!(event_of(namespace, room), event);
            assert_eq!(room_of(namespace, event), Some(room));
        }
        for (namespace, event) in [("/", "#"), ("/chat", "chat#")] {
            assert_eq!(event_of(namespace, ""), event);
            assert_eq!(room_of(namespace, event), None);
        }
    }
}
