//! Both sources of the objects: what one gives, the other gives too.
//!
//! Needs the programs of a real Kubernetes: `cargo xtask kubernetes`.

mod both;
mod cluster;
mod line;
mod world;
