//! Fixtures shared by the tests of this module.

pub(crate) mod fixture;
pub(crate) mod platform_stub;
