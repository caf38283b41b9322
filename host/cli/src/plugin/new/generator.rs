//! The folder of a new generator of ApplicationSets.

use super::Template;

pub(super) const TEMPLATE: Template = Template {
    sdk: "sdk/generator",
    sdk_manifest: include_str!("../../../../../plugins/sdk/generator/Cargo.toml"),
    files: &[
        // Files that the SDKs share keep their paths.
        sdk!("src/arena.rs"),
        sdk!("provider/src/classify.rs"),
        sdk!("provider/src/encoding.rs"),
        sdk!("provider/src/error.rs"),
        sdk!("provider/src/json.rs"),
        sdk!("provider/src/request.rs"),
        sdk!("provider/src/secret.rs"),
        sdk!("generator/src/adapter.rs"),
        sdk!("generator/src/lib.rs"),
        ("src/lib.rs", include_str!("generator/lib.rs.txt")),
    ],
    templated: &[
        ("Cargo.toml", include_str!("generator/Cargo.toml.txt")),
        ("manifest.yaml", include_str!("generator/manifest.yaml")),
        ("README.md", include_str!("generator/README.md")),
    ],
};
