//! The configuration: one table of options, their values from flags, environment and file, and the settings derived from them.
//!
//! `section` is the table of options, `store_section` the part for one store. `stores` has the stores that the file names, and `routes` checks their prefixes. `collections` has the collections that the file names. `option`, `value`,
//! `address_range`, `rate`, `ratio` and `history` define options and their values. `document` reads YAML with places, `layer` combines the
//! sources, and `print` writes configurations. `plan` derives the settings of the server on this `machine`, and `engine` the settings of
//! engine and shards.

pub mod address_range;
pub mod collections;
pub mod document;
pub mod engine;
pub mod history;
pub mod layer;
pub mod machine;
pub mod nearest;
pub mod option;
pub mod outbound_url;
pub mod plan;
pub mod print;
pub mod rate;
pub mod ratio;
mod routes;
pub mod section;
pub mod store_section;
pub mod stores;
pub mod value;

pub use layer::{Loaded, Origin, Problem, Sources, load, without_error_numbers};
pub use section::Config;
