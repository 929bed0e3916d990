//! The state and settings of a decoder in addition to the bytes: the limits, the node's rules, and the last pattern that it has compiled.

use std::cell::RefCell;
use std::sync::Arc;

use tidewire_core::listen_pattern::ListenPattern;
use tidewire_core::permission::Permission;
use tidewire_core::text::Name;

use super::DecodeError;

/// The rules after a change of rights with this number, `None` if the node does not have them yet.
pub type RulesOf<'a> = dyn Fn(u64) -> Option<Arc<dyn Permission>> + 'a;

pub(super) struct Context<'a> {
    pub(super) rules: &'a RulesOf<'a>,
    /// Limit of the text of a listening provider's pattern. A text may compile to a thousand times its length.
    pub(super) pattern_bytes_max: usize,
    pub(super) patterns: &'a RefCell<LastPattern>,
}

/// The last pattern that was compiled. A session's shard posts a new pattern to all shards of a node in succession, and these entries then
/// share one compiled pattern, as they do within one node.
#[derive(Debug, Default)]
pub(super) struct LastPattern(Option<ListenPattern>);

impl Context<'_> {
    /// The compiled pattern.
    pub(super) fn pattern(&self, text: &str) -> Result<ListenPattern, DecodeError> {
        let last = &mut self.patterns.borrow_mut().0;
        if let Some(pattern) = last
            && pattern.text().as_str() == text
        {
            return Ok(pattern.clone());
        }
        if text.len() > self.pattern_bytes_max {
            return Err(DecodeError::Pattern);
        }
        let pattern = ListenPattern::compile(Name::from(text)).ok_or(DecodeError::Pattern)?;
        Ok(last.insert(pattern).clone())
    }
}
