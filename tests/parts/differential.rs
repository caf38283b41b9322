//! Our decisions beside those of the programs we follow: Argo CD's RBAC enforcer and
//! globs, its reading of YAML, and kube-apiserver's of a request.
//!
//! `TOLLGATE_DIFFERENTIAL_PAIRS` and `TOLLGATE_DIFFERENTIAL_SEED` say how many pairs of
//! answers each test compares and from which seed; `cargo xtask differential` sets them.
//!
//! Needs the judge of Argo CD: `cargo xtask argocd`.

mod attributes;
mod corpus;
mod exception;
mod glob;
mod harness;
mod policy_csv;
mod random;
mod rbac;
mod shrink;
mod yaml;
