//! JSON as text: checking what enters, patching by path, looking up by path, writing strings.
//!
//! Records and payloads stay bytes from the wire to the store and back. Nothing here builds a tree: a patch splices
//! the document's text and keeps everything outside the changed place byte for byte. What a text means is what
//! JavaScript makes of it (`JSON.parse`, then the client's `setValue`), because every peer reads it that way.

mod check;
mod entries;
mod literal;
mod patch;
mod patch_list;
mod path;
mod scan;

pub use check::{JsonError, JsonLimits, Kind, check};
pub use entries::{Entries, Literal, entries};
pub use literal::{Escaped, escaped, string};
pub use patch::{PatchError, lookup, patch, patch_many};
pub use patch_list::{PatchListError, parse_patches};
pub use path::{Path, PathError, Token};
