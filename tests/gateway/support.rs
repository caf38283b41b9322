//! What the tests of a whole gateway share. Also part of the case runner, so
//! the paths are written out.
#![expect(unreachable_pub, reason = "each binary is a crate of its own")]

#[path = "support/attack.rs"]
pub mod attack;
#[path = "support/authority.rs"]
pub mod authority;
#[path = "support/backend.rs"]
pub mod backend;
#[path = "support/client.rs"]
pub mod client;
#[path = "support/issuer.rs"]
pub mod issuer;
#[path = "support/token.rs"]
pub mod token;
#[path = "support/world.rs"]
pub mod world;
