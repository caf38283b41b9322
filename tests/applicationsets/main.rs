//! ApplicationSets, judged by Argo CD's own code: what our generators and templates
//! make is what Argo CD makes.
//!
//! Needs its judge and examples: `cargo xtask argocd`; and `git`.

#![expect(
    clippy::unwrap_used,
    clippy::panic,
    clippy::indexing_slicing,
    reason = "helpers of tests fail like tests"
)]

#[expect(dead_code, unreachable_pub, reason = "other tests use the rest; shared with a crate")]
#[path = "../../xtask/src/cache.rs"]
mod cache;
mod compare;
mod differential;
mod examples;
mod functions;
mod judge;
mod random;
mod repositories;
