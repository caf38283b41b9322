//! Fuzz targets: every parser of bytes that come from outside.
//!
//! A target takes any bytes and must neither panic nor break the properties it asserts.
//! `cargo xtask fuzz` runs targets under libFuzzer, with the libraries instrumented; unit
//! tests run each on its seeds, on the finds of earlier runs and on seeded mutations of
//! both. The module is part of no other build.

use tollgate_fuzz::Target;

mod http;
mod kubernetes;
mod policy;

#[cfg(test)]
mod tests;

/// Every target, those of the crates below among them.
#[cfg(feature = "fuzz")]
pub fn targets() -> Vec<Target> {
    [own(), tollgate_applicationset::fuzz::targets()].concat()
}

fn own() -> Vec<Target> {
    [
        crate::server::fuzz::TARGETS,
        http::TARGETS,
        crate::authenticate::fuzz::TARGETS,
        policy::TARGETS,
        kubernetes::TARGETS,
        crate::plugin::fuzz::TARGETS,
    ]
    .concat()
}
