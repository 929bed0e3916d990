//! Collections: sections whose names the file chooses. The collection `X` contains the names that begin with `X/`.

use std::collections::BTreeMap;

use tidewire_core::slot::TagRules;

use super::option::{Field, OptionRow, Visitor, section, visit_members};
use super::value::choice;

/// The section that contains the collections.
pub const SECTION: &str = "collections";
/// Maximum number of collections. Each name that the server routes is compared with about the logarithm of their number.
const COUNT_MAX: usize = 256;
/// Maximum bytes of a collection's name.
const NAME_BYTES_MAX: usize = 64;

choice! {
    /// The part of a name that selects its slot.
    SlotBy {
        /// The whole name.
        Name = "name",
        /// The first two segments: all names `X/ID/…` have one slot.
        Prefix = "prefix",
    }
}

section! {
    /// A collection.
    Collection {
        /// The part of a name that selects its slot.
        slot_by: SlotBy = SlotBy::Name;
    }
}

/// The collections, by name.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Collections(BTreeMap<String, Collection>);

impl Collections {
    /// Adds a collection with default options.
    ///
    /// # Errors
    /// Problem with its name, or with the number of collections.
    pub(super) fn add(&mut self, name: &str) -> Result<(), String> {
        let is_word = name.starts_with(|first: char| first.is_ascii_alphabetic())
            && name
                .bytes()
                .all(|byte| byte.is_ascii_alphanumeric() || matches!(byte, b'_' | b'-'));
        if !is_word || name.len() > NAME_BYTES_MAX {
            return Err(format!(
                "{name:?} is not a valid name of a collection; write the part of the names before the first slash, at most {NAME_BYTES_MAX} letters, digits, _ and -, a letter first"
            ));
        }
        if let Some(other) = self.0.keys().find(|other| other.eq_ignore_ascii_case(name)) {
            return Err(format!(
                "{name:?} and {other:?} differ in case only, so their options would have the same variables; remove one of the two"
            ));
        }
        if self.0.len() == COUNT_MAX {
            return Err(format!(
                "more than {COUNT_MAX} collections; remove those with default options, because they have no effect"
            ));
        }
        self.0.insert(name.to_owned(), Collection::default());
        Ok(())
    }

    /// The rules for tags in the engine's form.
    #[must_use]
    pub fn tags(&self) -> TagRules {
        let by_prefix = self
            .0
            .iter()
            .filter(|(_, collection)| collection.slot_by == SlotBy::Prefix);
        TagRules::new(by_prefix.map(|(name, _)| name.as_str()))
    }
}

impl Field for Collections {
    fn visit(&mut self, row: OptionRow, visitor: &mut dyn Visitor) {
        visit_members(&row, visitor, &mut self.0);
    }
}
