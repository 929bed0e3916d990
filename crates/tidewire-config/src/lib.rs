//! The configuration: one table of options, read from flags, environment and file, and what follows from it.
//!
//! `section` is the table, `stores` its part whose names the file chooses, `routes` what is refused there, `option`, `value`, `address_range`, `rate`, `ratio` and `history` say what an option is, `document` reads YAML with places, `layer` lays
//! the sources over each other, `print` writes them, `plan` works out what the values mean on the `machine`, and `engine` hands
//! them to engine and shards.

pub mod address_range;
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
pub mod stores;
pub mod value;

pub use layer::{Loaded, Origin, Problem, Sources, load};
pub use section::Config;
