//! Permission rules: deepstream's Valve language with JavaScript's semantics, sets of rules, and the file they stand in.
//!
//! The crate decides and does nothing else: no files, no clock, no threads. Text of a file comes in, a [`set::RuleSet`]
//! comes out, and that is a [`tidewire_core::permission::Permission`]. Everything that a rule may not be is refused
//! when the file is loaded; evaluating never panics and is bounded in depth and steps.

mod action;
mod coerce;
pub mod decide;
mod evaluate;
mod expression;
mod lexer;
pub mod limits;
pub mod load;
mod method;
mod number;
mod parser;
pub mod pattern;
mod regular;
pub mod rule;
pub mod set;
mod shape;
mod text;
pub mod tree;
mod value;
