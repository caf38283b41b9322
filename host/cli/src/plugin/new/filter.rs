//! The folder of a new header filter.

use super::Template;

pub(super) const TEMPLATE: Template = Template {
    sdk: "sdk",
    sdk_manifest: include_str!("../../../../../plugins/sdk/Cargo.toml"),
    files: &[
        sdk!("src/lib.rs"),
        sdk!("src/adapter.rs"),
        sdk!("src/arena.rs"),
        ("src/lib.rs", include_str!("filter/lib.rs.txt")),
        ("request.yaml", include_str!("filter/request.yaml")),
    ],
    templated: &[
        ("Cargo.toml", include_str!("filter/Cargo.toml.txt")),
        ("manifest.yaml", include_str!("filter/manifest.yaml")),
        ("README.md", include_str!("filter/README.md")),
    ],
};
