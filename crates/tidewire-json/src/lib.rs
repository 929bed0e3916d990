//! JSON as text: checking what enters, patching by path, looking up by path, writing strings.
//!
//! Records and payloads stay bytes from the wire to the store and back. No function here builds a tree of the whole document. A
//! patch splices its text, and a list of patches opens the containers that it changes. Every byte outside the changed places stays
//! the same. A text has the meaning that JavaScript gives it (`JSON.parse`, then the client's `setValue`), because every peer reads
//! it that way.

mod check;
mod entries;
mod literal;
mod operation_list;
mod patch;
mod patch_list;
mod patch_many;
mod path;
mod placeholder;
mod scan;

pub use check::{JsonError, JsonKind, JsonLimits, check};
pub use entries::{Entries, Literal, entries};
pub use literal::{Escaped, escaped, string};
pub use operation_list::{NotOperations, Operation, parse_operations};
pub use patch::{PatchError, lookup, patch};
pub use patch_list::{PatchListError, parse_patches};
pub use patch_many::patch_many;
pub use path::{Path, PathError, Token};
pub use placeholder::has_placeholders;
