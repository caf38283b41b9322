//! Compares what our ApplicationSet generators and templates make with what Argo CD's own code
//! makes.
//!
//! Needs the judge and the examples of Argo CD (`cargo xtask argocd`), and `git`.

mod compare;
mod differential;
mod examples;
mod functions;
mod random;
mod repositories;
mod schema;
