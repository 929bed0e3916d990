//! Permission rules: the Valve language with JavaScript's semantics, rule sets, and their file format.
//!
//! This crate decides and does nothing else: no files, no clock, no threads. The text of a file becomes a
//! [`set::RuleSet`], which is a [`tidewire_core::permission::Permission`]. Loading refuses every invalid rule;
//! evaluation never panics and is bounded in depth and steps.

mod action;
mod coerce;
pub mod decide;
mod evaluate;
mod expression;
mod fields;
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
mod steps;
mod text;
pub mod tree;
mod value;
