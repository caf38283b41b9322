//! The gateway, composed: decides which front a request is for, and has it serve that.
//! Every request gets one response and one decision record.
//!
//! Security: no request is forwarded without a permit.
//!
//! | module | does |
//! |---|---|
//! | `fronts` | the list of fronts, and which of them serves a request |
//! | `pipeline` | opens the record of a request, has its front serve it, and renders refusals |
//! | [`loader`] | makes snapshots of settings, objects, policies and plugins |
//! | [`running`] | starts and stops everything |
//! | `bypasses` | warns about ways to argocd-server past the gateway |
//! | `admin` | shows the state of the process |

mod admin;
mod bypasses;
mod fronts;
#[cfg(any(test, feature = "fuzz"))]
pub mod fuzz;
pub mod loader;
mod pipeline;
#[cfg(test)]
mod policy_inputs;
mod routes;
pub mod running;

pub use routes::{RouteLine, routes};
