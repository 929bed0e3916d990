//! The names of a collection's records.

use crate::text::Name;

/// The prefix of the names of a collection's records. `None` if the text can't be a collection.
pub(crate) fn prefix_of(collection: &str) -> Option<Name> {
    let is_collection = !collection.is_empty() && !collection.ends_with('/');
    is_collection.then(|| Name::from(&*format!("{collection}/")))
}

/// The prefix of the record's collection, and the record's id. `None` if the record belongs to none.
pub(crate) fn split(name: &str) -> Option<(&str, &str)> {
    let slash = name.rfind('/')?;
    let (prefix, id) = name.split_at(slash + 1);
    (!id.is_empty()).then_some((prefix, id))
}

/// The id of a record in the collection of this prefix. `None` if the record belongs to another collection.
pub(crate) fn id_of<'n>(prefix: &str, name: &'n str) -> Option<&'n str> {
    let (found, id) = split(name)?;
    (found == prefix).then_some(id)
}

/// Whether the name, or the prefix of a collection, begins with one of the prefixes.
pub(crate) fn is_under(prefixes: &[String], name: &str) -> bool {
    prefixes
        .iter()
        .any(|prefix| name.starts_with(prefix.as_str()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_collection_is_a_name_without_its_last_segment() {
        assert_eq!(prefix_of("board/1/card").as_deref(), Some("board/1/card/"));
        assert_eq!(prefix_of(""), None);
        assert_eq!(prefix_of("cards/"), None);
        assert_eq!(id_of("cards/", "cards/7"), Some("7"));
        for other in ["cards/", "cards/7/x", "cards", "card/7", "cards2/7"] {
            assert_eq!(id_of("cards/", other), None, "{other}");
        }
    }
}
