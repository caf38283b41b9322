//! ApplicationSets, judged by Argo CD's own code: what our generators and templates
//! make is what Argo CD makes.
//!
//! Needs its judge and examples: `cargo xtask argocd`; and `git`.

mod compare;
mod differential;
mod examples;
mod functions;
mod random;
mod repositories;
