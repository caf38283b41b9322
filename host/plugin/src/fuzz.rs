//! The fuzz targets of this crate: manifests of plugins.

use super::manifest;
use tollgate_fuzz::{Target, files, text};

const TARGETS: &[Target] = &[Target {
    name: "plugin_manifest",
    run: plugin_manifest,
    seeds,
}];

/// Every target of this crate.
pub fn targets() -> Vec<Target> {
    TARGETS.to_vec()
}

fn seeds() -> Vec<Vec<u8>> {
    let mut seeds = files("plugins", &["plugin.yaml", "manifest.yaml", ".plugin.yaml"]);
    seeds.push(
        b"name: a\nversion: 1.0.0\nsha256: 0000000000000000000000000000000000000000000000000000000000000000\nworld: header-filter\n"
            .to_vec(),
    );
    seeds
}

/// An accepted manifest is the named plugin's, and a refused one has findings.
fn plugin_manifest(data: &[u8]) {
    let Some(text) = text(data) else { return };
    let loaded = manifest::parse(text, "a.yaml", "a");
    match loaded.value {
        Some(_) => assert!(
            !loaded
                .diagnostics
                .iter()
                .any(tollgate_core::diagnostic::Diagnostic::is_error)
        ),
        None => assert!(!loaded.diagnostics.is_empty()),
    }
}

#[cfg(test)]
mod tests {
    #[test]
    fn every_target_holds_on_its_seeds_earlier_finds_and_mutations() {
        tollgate_fuzz::check(&super::targets());
    }
}
