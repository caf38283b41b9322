//! Our decisions beside those of the programs we follow: Argo CD's RBAC enforcer and
//! globs, its reading of YAML, and kube-apiserver's of a request.
//!
//! `TOLLGATE_DIFFERENTIAL_PAIRS` and `TOLLGATE_DIFFERENTIAL_SEED` say how many pairs of
//! answers each test compares and from which seed; `cargo xtask differential` sets them.
//!
//! Needs the judge of Argo CD: `cargo xtask argocd`.

#![expect(
    clippy::unwrap_used,
    clippy::panic,
    clippy::indexing_slicing,
    reason = "helpers of tests fail like tests"
)]

mod attributes;
#[expect(dead_code, unreachable_pub, reason = "other tests use the rest; shared with a crate")]
#[path = "../../xtask/src/cache.rs"]
mod cache;
mod corpus;
mod exception;
mod glob;
mod harness;
#[expect(dead_code, reason = "the other test asks more")]
#[path = "../applicationsets/judge.rs"]
mod judge;
mod policy_csv;
mod random;
mod rbac;
mod shrink;
mod yaml;
