//! User ids that many peers share because they have no name.
//!
//! There are two of them, both visible to rules and to clients. State of a user, such as a rate or a reconnect delay, is not kept for
//! these ids: it would affect all other peers with the same id.

/// The user id that open authentication gives to a login without a name. Presence shows it.
pub const OPEN: &str = "open";

/// The user id of a login whose authentication names no user. Presence never shows it.
pub const NAMELESS: &str = "OPEN";

/// Whether a user id is shared by all peers without a name.
#[must_use]
pub fn is_shared(user_id: &str) -> bool {
    matches!(user_id, OPEN | NAMELESS)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_the_two_ids_of_peers_without_a_name_are_shared() {
        let shared = [OPEN, NAMELESS, "Open", "opened", "anna", ""].map(is_shared);
        assert_eq!(shared, [true, true, false, false, false, false]);
    }
}
