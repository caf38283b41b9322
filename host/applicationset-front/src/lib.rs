//! The API of ApplicationSets, and the admission webhook that judges what is written past it.
//!
//! Invariant: rights are those of [`tollgate_applicationset_rights`], for both.

pub mod admission;
mod admission_probe;
mod applicationsets;
#[cfg(any(test, feature = "fuzz"))]
pub mod fuzz;
mod set_author;

pub use applicationsets::{ApplicationSetsFront, ApplicationSetsFrontState, SetSummariesFront};
