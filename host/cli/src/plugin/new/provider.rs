//! The folder of a new credential provider.

use super::Template;

pub(super) const TEMPLATE: Template = Template {
    sdk: "sdk/provider",
    sdk_manifest: include_str!("../../../../../plugins/sdk/provider/Cargo.toml"),
    files: &[
        // The SDKs share the allocator, which keeps its path.
        sdk!("src/arena.rs"),
        sdk!("provider/src/adapter.rs"),
        sdk!("provider/src/aws.rs"),
        sdk!("provider/src/classify.rs"),
        sdk!("provider/src/encoding.rs"),
        sdk!("provider/src/error.rs"),
        sdk!("provider/src/expiry.rs"),
        sdk!("provider/src/json.rs"),
        sdk!("provider/src/jwt.rs"),
        sdk!("provider/src/kubernetes.rs"),
        sdk!("provider/src/lib.rs"),
        sdk!("provider/src/oauth.rs"),
        sdk!("provider/src/request.rs"),
        sdk!("provider/src/secret.rs"),
        sdk!("provider/src/sigv4.rs"),
        sdk!("provider/src/sigv4/tests.rs"),
        sdk!("provider/src/sigv4/text.rs"),
        ("src/lib.rs", include_str!("provider/lib.rs.txt")),
        ("transcript.yaml", include_str!("provider/transcript.yaml")),
    ],
    templated: &[
        ("Cargo.toml", include_str!("provider/Cargo.toml.txt")),
        ("manifest.yaml", include_str!("provider/manifest.yaml")),
        ("README.md", include_str!("provider/README.md")),
    ],
};
