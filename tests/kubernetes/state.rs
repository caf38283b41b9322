//! Compares the two sources of objects, a folder and an API server.
//!
//! Needs the programs of Kubernetes (`cargo xtask kubernetes`).

mod backend;
mod both;
mod client;
mod cluster;
mod tcp_proxy;
