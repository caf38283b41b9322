//! Whether the caller may do what the request asks.
//!
//! In: principal, attributes. Out: a permit, which only this stage can make.
//! Refuses: 403. Never: an allow by default.

pub mod cel;
pub mod rego;
