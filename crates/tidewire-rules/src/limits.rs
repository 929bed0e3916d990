//! What a file of rules, and the evaluation of one rule, may be at most. Each limit says what happens there.

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
    /// Brackets, prefixes and branches within one another. Deeper ones are refused, because parser and evaluator call
    /// themselves for each. Default 64.
    pub nesting_max: usize,
    /// Operators that stand on one another in a parsed expression: `a + b + c` has two. `&&` and `||` in a row count
    /// once. Higher ones are refused. Default 200.
    pub height_max: usize,
    /// Bytes that a compiled regular expression may take. A larger one is refused. Default 1 MiB.
    pub regular_bytes_max: usize,
    /// Times that a rule with cross references is run, as deepstream's `maxRuleIterations`. A rule that needs more has
    /// failed. Default 3.
    pub iterations_max: usize,
    /// Steps of one evaluation: parts of the expression, bytes of documents that are scanned, bytes of texts that are
    /// made. A rule that needs more has failed. Default 64 Mi.
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

/// Arrays within one another that are still joined to text; deeper ones fail the rule. A constant, because it only keeps
/// the stack bounded whatever `limits.nesting_max` lets in.
pub(crate) const JOIN_NESTING_MAX: usize = 500;
