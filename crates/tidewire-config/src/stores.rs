//! Stores in addition to the default one: sections whose names the file chooses, each with the options of `store` and the prefixes
//! of the names that lead to it.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use super::option::{Field, OptionRow, Traits, Value, Visitor, join, visit_members};
use super::store_section::Store;
use super::value::List;

/// The section that contains these stores.
pub const SECTION: &str = "stores";
/// Maximum number of stores in addition to the default one. Each has separate threads and is a value of a metric's label.
pub const COUNT_MAX: usize = 15;
/// Maximum bytes of a store's name.
const NAME_BYTES_MAX: usize = 32;
/// Name of the default store in a list of all stores.
pub const DEFAULT_NAME: &str = "default";
/// Options of `store` that apply to the whole node, so that other stores do not have them.
const COMMON_OPTIONS: [&str; 1] = ["cache"];

/// A store in addition to the default one.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct NamedStore {
    /// The store keeps the records whose names begin with one of these.
    pub prefixes: List<String>,
    /// Its options.
    pub store: Store,
}

impl Field for NamedStore {
    fn visit(&mut self, row: OptionRow, visitor: &mut dyn Visitor) {
        visitor.section(&row.name, row.doc);
        let prefixes = OptionRow {
            name: join(&row.name, "prefixes"),
            doc: &[],
            traits: Traits::NONE,
        };
        visitor.option(prefixes, &mut self.prefixes);
        let mut own = Own {
            section: row.name.clone(),
            visitor,
        };
        self.store.visit(row, &mut own);
    }
}

/// Shows the options of `store` as the options of an additional store.
struct Own<'a> {
    section: String,
    visitor: &'a mut dyn Visitor,
}

impl Visitor for Own<'_> {
    fn section(&mut self, name: &str, doc: &'static [&'static str]) {
        if name != self.section {
            self.visitor.section(name, doc);
        }
    }

    fn option(&mut self, row: OptionRow, value: &mut dyn Value) {
        if !COMMON_OPTIONS.contains(&row.key()) {
            let traits = Traits {
                flag: None,
                ..row.traits
            };
            self.visitor.option(OptionRow { traits, ..row }, value);
        }
    }
}

/// The stores in addition to the default one, by name.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct NamedStores(BTreeMap<String, NamedStore>);

impl NamedStores {
    /// The stores in the order of their names, which is also the order of their numbers.
    pub fn iter(&self) -> impl Iterator<Item = (&str, &NamedStore)> {
        self.0.iter().map(|(name, store)| (name.as_str(), store))
    }

    /// Adds a store with default options.
    ///
    /// # Errors
    /// Problem with its name, or with the number of stores.
    pub(super) fn add(&mut self, name: &str) -> Result<(), String> {
        let is_word = name.starts_with(|first: char| first.is_ascii_lowercase())
            && name
                .bytes()
                .all(|byte| byte.is_ascii_lowercase() || byte.is_ascii_digit() || byte == b'_');
        if !is_word || name.len() > NAME_BYTES_MAX {
            return Err(format!(
                "{name:?} is not a valid name of a store; write at most {NAME_BYTES_MAX} lowercase letters, digits and _, a letter first"
            ));
        }
        if name == DEFAULT_NAME {
            return Err(format!(
                "{DEFAULT_NAME:?} is the name of the store of `store`; choose another name"
            ));
        }
        if self.0.len() == COUNT_MAX {
            return Err(format!(
                "more than {COUNT_MAX} stores in addition to the default one; remove some"
            ));
        }
        self.0.insert(name.to_owned(), NamedStore::default());
        Ok(())
    }

    /// Gives each store without `path` a data folder in the data folder of the node.
    pub(super) fn place_in_folder(&mut self, folder: &Path, has_path: impl Fn(&str) -> bool) {
        for (name, named) in &mut self.0 {
            if !has_path(&option(name, "path")) {
                named.store.path = PathBuf::from_iter([folder, SECTION.as_ref(), name.as_ref()]);
            }
        }
    }
}

/// The name of an option of a named store.
#[must_use]
pub fn option(store: &str, key: &str) -> String {
    format!("{SECTION}.{store}.{key}")
}

impl Field for NamedStores {
    fn visit(&mut self, row: OptionRow, visitor: &mut dyn Visitor) {
        visit_members(&row, visitor, &mut self.0);
    }
}
