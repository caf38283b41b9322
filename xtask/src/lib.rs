//! Where programs built from other sources are kept. The tasks build them and the tests run them,
//! so both read it here.

pub mod cache;
pub mod postgres;
