//! Fixtures that tests and benches share: servers and clients on loopback, certificates, a whole
//! gateway over a temporary folder, a real Kubernetes, databases, and Argo CD's own code.
//!
//! The modules behind the feature `gateway` depend on Tollgate's own crates. The unit tests of
//! those crates use the other modules.

#![expect(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    clippy::indexing_slicing,
    clippy::missing_panics_doc,
    missing_docs,
    missing_debug_implementations,
    reason = "test helpers panic on failure, as tests do, and are not a public API"
)]

use std::path::{Path, PathBuf};

pub use xtask::cache as programs;

pub mod api_server;
pub mod attack;
pub mod authority;
pub mod backend;
pub mod balancer;
pub mod chromium;
pub mod client;
pub mod issuer;
pub mod judge;
pub mod kubernetes;
#[cfg(feature = "gateway")]
pub mod metrics;
pub mod nginx;
pub mod oidc;
#[cfg(feature = "gateway")]
pub mod policy_input;
pub mod port;
pub mod postgres;
#[cfg(feature = "gateway")]
pub mod providers;
pub mod record;
pub mod redis;
#[cfg(feature = "gateway")]
pub mod reference;
pub mod relay;
pub mod token;
#[cfg(feature = "gateway")]
pub mod world;

/// The root of the checkout.
pub fn checkout() -> &'static Path {
    Path::new(concat!(env!("CARGO_MANIFEST_DIR"), "/../.."))
}

/// The program `tollgate`: the one that `TOLLGATE_PROGRAM` names, such as an optimized build that is
/// measured, or else the one that Cargo built for the running tests.
pub fn tollgate() -> PathBuf {
    std::env::var_os("TOLLGATE_PROGRAM")
        .or_else(|| std::env::var_os("CARGO_BIN_EXE_tollgate"))
        .expect("Cargo sets the variable for the tests and benches that it runs")
        .into()
}

/// The program `tollgate-connector`, which Cargo builds for the tests of its package.
pub fn connector() -> PathBuf {
    let gateway =
        std::env::var_os("CARGO_BIN_EXE_tollgate").expect("Cargo sets the variable for the tests that it runs");
    let program = PathBuf::from(gateway).with_file_name("tollgate-connector");
    assert!(
        program.is_file(),
        "{} is missing: `cargo build -p tollgate-connector` builds it",
        program.display()
    );
    program
}
