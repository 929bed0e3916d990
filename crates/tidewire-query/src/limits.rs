//! Limits of a query. A query beyond one is refused with the limit's name.

/// Limits of one query.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct QueryLimits {
    /// Bytes of the query's text. A longer text takes longer to parse than a session may use of a turn.
    pub query_bytes_max: usize,
    /// Path entries, operators and logical operators of a selector: each is visited for each candidate record.
    pub nodes_max: usize,
    /// Objects and arrays within one another, in the selector.
    pub nesting_max: usize,
    /// Elements of `$in`, `$nin` and `$all`.
    pub values_max: usize,
    /// Segments of a path.
    pub segments_max: usize,
    /// Bytes of a path.
    pub path_bytes_max: usize,
    /// Keys of a sort specification.
    pub sort_keys_max: usize,
    /// Paths of a projection.
    pub projection_paths_max: usize,
    /// The largest `limit`.
    pub limit_max: u32,
    /// The largest `offset`.
    pub offset_max: u32,
    /// Whether `$regex` is allowed. A collection may refuse it, because no index helps most patterns.
    pub regex_allowed: bool,
    /// Whether the field `id` means the record's id, as `_id` always does. Feathers clients need it.
    pub id_alias: bool,
    /// Bytes of a regular expression.
    pub regex_bytes_max: usize,
    /// Bytes of its compiled form.
    pub regex_compiled_bytes_max: usize,
}

impl Default for QueryLimits {
    /// Section 8 of the reference, and the same 16 KiB for the whole query.
    fn default() -> Self {
        Self {
            query_bytes_max: 16 * 1024,
            nodes_max: 200,
            nesting_max: 12,
            values_max: 1000,
            segments_max: 16,
            path_bytes_max: 256,
            sort_keys_max: 4,
            projection_paths_max: 200,
            limit_max: 1000,
            offset_max: 10_000,
            regex_allowed: true,
            id_alias: false,
            regex_bytes_max: 256,
            regex_compiled_bytes_max: 64 * 1024,
        }
    }
}

/// Bytes of a text that a regular expression tests. A longer text does not match: its cost would be charged to the writer.
pub(crate) const REGEX_TEXT_BYTES_MAX: usize = 64 * 1024;
