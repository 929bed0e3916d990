//! The regular expression of a pattern, whose size and matching are bounded.
//!
//! A listener may register a thousand patterns, and a new name is tried with each of them. A lazy automaton for each pattern would take tens
//! of kilobytes, and the first match with it 14 microseconds. So a pattern keeps only its states, and all patterns of a shard share
//! the memory that a match needs.

use regex_automata::nfa::thompson::backtrack::{self, BoundedBacktracker};
use regex_automata::nfa::thompson::pikevm::PikeVM;
use regex_automata::nfa::thompson::{self, NFA, WhichCaptures};
use regex_automata::{Input, util::syntax};

use crate::text::Name;

/// Most bytes of a compiled pattern. Larger patterns are refused like malformed ones.
const PATTERN_BYTES_MAX: usize = 64 << 10;

/// Most states of a compiled pattern. A match visits each state at most once for each byte of the name, in nine nanoseconds at most.
const STATES_MAX: usize = 1_024;

/// Visits of states that a search for providers counts as one step. A usual match, such as that of `price/.*`, takes one or two steps.
const STEP_VISITS: usize = 512;

/// A compiled pattern. It is matched anywhere in the name, so it can't have look-around or back-references. Copies share the states.
#[derive(Clone, Debug)]
pub struct Expression(BoundedBacktracker);

impl Expression {
    fn compile(pattern: &str) -> Option<Self> {
        let size = thompson::Config::new()
            .nfa_size_limit(Some(PATTERN_BYTES_MAX))
            .which_captures(WhichCaptures::None);
        let states = NFA::compiler()
            .syntax(syntax::Config::new().nest_limit(64))
            .configure(size)
            .build(pattern)
            .ok()?;
        if states.states().len() > STATES_MAX {
            return None;
        }
        BoundedBacktracker::new_from_nfa(states).ok().map(Self)
    }

    /// Bytes of the compiled pattern.
    pub fn bytes(&self) -> usize {
        self.0.get_nfa().memory_usage()
    }

    /// Steps of a search for providers that a match takes.
    pub fn steps(&self, name: &str) -> usize {
        1 + self.0.get_nfa().states().len() * (name.len() + 1) / STEP_VISITS
    }
}

/// A pattern that compiles, as text and compiled. Copies share both.
#[derive(Clone, Debug)]
pub struct ListenPattern {
    text: Name,
    expression: Expression,
}

impl ListenPattern {
    /// Compiles a pattern; `None` if it is malformed or too large.
    #[must_use]
    pub fn compile(text: Name) -> Option<Self> {
        let expression = Expression::compile(&text)?;
        Some(Self { text, expression })
    }

    /// The pattern as text.
    #[must_use]
    pub fn text(&self) -> &Name {
        &self.text
    }

    /// The compiled pattern.
    pub fn expression(&self) -> &Expression {
        &self.expression
    }

    /// Text and compiled pattern.
    pub fn into_parts(self) -> (Name, Expression) {
        (self.text, self.expression)
    }
}

/// The memory of matches. The patterns of a shard share it.
#[derive(Debug)]
pub struct Matcher(backtrack::Cache);

impl Default for Matcher {
    fn default() -> Self {
        let none = BoundedBacktracker::new("").expect("the empty pattern compiles");
        Self(none.create_cache())
    }
}

impl Matcher {
    /// Whether the pattern matches the name anywhere.
    pub fn is_match(&mut self, expression: &Expression, name: &str) -> bool {
        let (backtracker, input) = (&expression.0, Input::new(name).earliest(true));
        self.0.reset(backtracker);
        match backtracker.try_search_slots(&mut self.0, &input, &mut []) {
            Ok(found) => found.is_some(),
            // The table of visited states would be too large, which takes a long name and a large pattern.
            Err(_) => PikeVM::new_from_nfa(backtracker.get_nfa().clone())
                .is_ok_and(|machine| machine.is_match(&mut machine.create_cache(), input)),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn is_match(pattern: &str, name: &str) -> bool {
        let expression = Expression::compile(pattern).expect("the pattern is valid");
        Matcher::default().is_match(&expression, name)
    }

    #[test]
    fn a_pattern_is_matched_anywhere_in_a_name() {
        for (pattern, name, expected) in [
            ("price/.*", "price/EUR", true),
            ("price/.*", "the price/EUR", true),
            ("^price/", "the price/EUR", false),
            ("EUR$", "price/EUR", true),
            ("[^/]+/[0-9]{2}$", "ä/47", true),
            ("", "", true),
            ("(?i)PRICE", "price", true),
            (r"\d+", "٣", true),
        ] {
            assert_eq!(is_match(pattern, name), expected, "{pattern} {name}");
        }
    }

    #[test]
    fn a_table_that_is_too_large_does_not_prevent_the_match() {
        let pattern = format!("(a?){{300}}{}b", "a".repeat(300));
        for end in ["b", "c"] {
            let name = format!("{}{end}", "a".repeat(4_000));
            assert_eq!(is_match(&pattern, &name), end == "b");
        }
    }

    #[test]
    fn patterns_that_are_malformed_or_too_large_do_not_compile() {
        for pattern in [
            "(",
            r"(a)\1",
            "(?=a)",
            r"\pL{100}",
            "(a{20}){60}",
            &"(".repeat(1_000),
        ] {
            assert!(Expression::compile(pattern).is_none(), "{pattern}");
        }
    }

    #[test]
    fn steps_grow_with_the_name_and_the_states() {
        let steps = |pattern: &str, bytes: usize| {
            let expression = Expression::compile(pattern).expect("the pattern is valid");
            expression.steps(&"n".repeat(bytes))
        };
        assert_eq!(steps("price/.*", 20), 1);
        assert!(steps("price/.*", 1_000) > 20);
        assert!(steps("(a?){300}a{300}", 64) > 100);
    }
}
