//! The client that the tests of the server use.

#[path = "../../../tidewire-server/tests/client/mod.rs"]
mod server_client;

#[allow(unused_imports, reason = "each test program uses a part of it")]
pub use server_client::*;
