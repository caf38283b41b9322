//! Fixtures shared by the tests of this module.

pub(crate) mod platform_stub;
pub(crate) mod world;
