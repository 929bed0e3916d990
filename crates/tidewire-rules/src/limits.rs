//! Limits of a rules file and of the evaluation of one rule. Each field names the effect at the limit.

/// The limits of a rule set.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RuleLimits {
    /// Bytes of the file. A longer one is refused. Default 1 MiB.
    pub file_bytes_max: usize,
    /// Paths of the file, over all sections. More are refused. Default 10,000.
    pub paths_max: usize,
    /// Bytes of one path. Longer ones are refused. Default 1,024.
    pub path_bytes_max: usize,
    /// Stars and variables of one path. More are refused. Default 32.
    pub path_wildcards_max: usize,
    /// Bytes of one expression. A longer one is refused. Default 16 KiB.
    pub expression_bytes_max: usize,
    /// Nesting of brackets, prefixes and branches. Deeper expressions are refused, because parser and evaluator
    /// recurse for each level. Default 64.
    pub nesting_max: usize,
    /// Chained operators in a parsed expression: `a + b + c` has two. A row of `&&` or `||` counts once. Higher
    /// expressions are refused. Default 200.
    pub height_max: usize,
    /// Bytes of a compiled regular expression. A larger one is refused. Default 1 MiB.
    pub regular_bytes_max: usize,
    /// Runs of a rule with references to other records. A rule that needs more
    /// fails. Default 3.
    pub iterations_max: usize,
    /// Steps of one evaluation: parts of the expression, scanned bytes of documents, created bytes of texts. A rule
    /// that needs more fails. Default 64 Mi.
    pub steps_max: u64,
}

impl Default for RuleLimits {
    fn default() -> Self {
        Self {
            file_bytes_max: 1 << 20,
            paths_max: 10_000,
            path_bytes_max: 1024,
            path_wildcards_max: 32,
            expression_bytes_max: 16 << 10,
            nesting_max: 64,
            height_max: 200,
            regular_bytes_max: 1 << 20,
            iterations_max: 3,
            steps_max: 64 << 20,
        }
    }
}

/// Nested arrays that are still joined to text; deeper ones fail the rule. A constant, because its only purpose is to
/// bound the stack, whatever `limits.nesting_max` is.
pub(crate) const JOIN_NESTING_MAX: usize = 500;
