//! Fuzz targets for every parser of bytes that come from outside.
//!
//! A target takes any bytes and must neither panic nor break the properties it asserts. `cargo
//! xtask fuzz` runs targets under libFuzzer, with the libraries instrumented. Unit tests run each
//! target on its seeds, on the finds of earlier runs and on seeded mutations of both. No other
//! build contains this module.

use tollgate_fuzz::Target;

mod http;
mod kubernetes;
mod policy;

#[cfg(test)]
mod tests;

/// All targets, including those of the crates this one uses.
#[cfg(feature = "fuzz")]
pub fn targets() -> Vec<Target> {
    [
        own(),
        tollgate_agent::fuzz::targets(),
        tollgate_applicationset::fuzz::targets(),
        tollgate_applicationset_front::fuzz::targets(),
        tollgate_argocd_fronts::fuzz::targets(),
        tollgate_cluster_fronts::fuzz::targets(),
        tollgate_identity::fuzz::targets(),
        tollgate_plugin::fuzz::targets(),
        tollgate_proxy::fuzz::targets(),
        tollgate_repository::fuzz::targets(),
    ]
    .concat()
}

fn own() -> Vec<Target> {
    [http::TARGETS, policy::TARGETS, kubernetes::TARGETS].concat()
}
