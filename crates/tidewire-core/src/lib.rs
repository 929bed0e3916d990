//! The decisions of the server: primitives, permission, sessions and fan-out.
//!
//! Nothing here opens a socket, reads a clock, starts a thread or draws a random number. Time and seeds are arguments. Everything that
//! the engine needs from outside is requested through [`effect::Effects`].

pub mod address;
pub mod effect;
pub mod engine;
pub mod entry;
pub mod history;
pub mod identity;
pub mod inspect;
pub mod json;
pub mod limits;
pub mod message;
pub mod permission;
#[doc(hidden)]
pub mod rights;
pub mod route;
pub mod settings;
pub mod store;
pub mod text;
pub mod time;
pub mod trace;

mod barrier;
mod bulk;
mod context;
mod event;
mod expiry;
mod footprint;
mod hub;
mod lag;
mod listen;
mod login;
mod presence;
pub mod quota;
pub mod rate;
mod reauthorize;
mod record;
mod rpc;
mod session;
mod sweep;
mod table;
mod timer;
mod work;
