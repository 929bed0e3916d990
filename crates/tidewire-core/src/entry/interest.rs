//! The interest of shards in names, as nodes announce it to each other.

use crate::publication::InterestTopic;
use crate::text::Name;

/// To a shard of another node, about the shard that posts it. The shards of a node share what they learn, and post only publications to
/// another node in which it has interest.
#[derive(Clone, Debug)]
pub enum InterestEntry {
    /// The shard has its first, or has lost its last, subscriber of a name.
    Changed {
        /// Kind of name.
        topic: InterestTopic,
        /// The name, or the pattern.
        name: Name,
        /// Whether the shard wants publications of it.
        wanted: bool,
        /// Counts up from one change of the shard to the next. 0 if no answer is needed.
        number: u64,
    },
    /// The shard has announced all names in which it has interest. It gets all publications before.
    Complete,
    /// The answer: changes up to this number are visible to all shards of the node that answers.
    Visible {
        /// The number.
        number: u64,
    },
}
