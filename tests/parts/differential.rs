//! Compares our decisions with those of the programs we follow: Argo CD's RBAC enforcer, globs, sync
//! windows and YAML reader, and kube-apiserver's parser of requests.
//!
//! `TOLLGATE_DIFFERENTIAL_PAIRS` and `TOLLGATE_DIFFERENTIAL_SEED` set how many pairs of answers
//! each test compares, and the seed. `cargo xtask differential` sets them.
//!
//! Needs the judge of Argo CD (`cargo xtask argocd`).

mod attributes;
mod cel;
mod corpus;
mod exception;
mod glob;
mod harness;
mod policy_csv;
pub(crate) mod random;
mod rbac;
mod rego;
mod shrink;
mod sync_windows;
mod yaml;
