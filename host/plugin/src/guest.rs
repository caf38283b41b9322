//! What every loaded plugin has, regardless of its world.

use std::sync::Arc;

use super::compilation_cache::CodeOrigin;
use super::manifest::Manifest;
use super::sandbox::Sandbox;

/// A loaded plugin. `W` is what its world adds.
#[derive(derive_more::Debug)]
#[debug("Guest {{ label: {label:?}, .. }}")]
pub struct Guest<W> {
    pub(crate) manifest: Manifest,
    /// `name@sha256:digest`, for records.
    pub label: Arc<str>,
    /// Whether its code was compiled for this load or came from the cache.
    pub origin: CodeOrigin,
    pub(super) sandbox: Sandbox,
    pub(super) world: W,
}

impl<W> Guest<W> {
    pub(super) fn new(manifest: Manifest, origin: CodeOrigin, sandbox: Sandbox, world: W) -> Self {
        Self {
            label: Arc::from(format!("{}@sha256:{}", manifest.name, manifest.sha256)),
            manifest,
            origin,
            sandbox,
            world,
        }
    }

    /// Plugin name.
    pub fn name(&self) -> &str {
        &self.manifest.name
    }
}
