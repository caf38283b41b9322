//! What gateway tests share.

pub(crate) mod backend;
pub(crate) mod client;
pub mod token;
pub(crate) mod wire;
pub mod world;
