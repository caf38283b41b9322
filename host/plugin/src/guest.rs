//! What every loaded plugin has, whatever its world.

use std::sync::Arc;

use super::compilation_cache::CodeOrigin;
use super::manifest::Manifest;
use super::sandbox::Sandbox;

/// A loaded plugin. `W` is what its world adds.
#[derive(derive_more::Debug)]
#[debug("Guest {{ label: {label:?}, .. }}")]
pub struct Guest<W> {
    manifest: Manifest,
    label: Arc<str>,
    origin: CodeOrigin,
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

    /// `name@sha256:digest`, for records.
    pub fn label(&self) -> &Arc<str> {
        &self.label
    }

    pub(crate) fn manifest(&self) -> &Manifest {
        &self.manifest
    }

    /// Whether its code was compiled for this load or came from the cache.
    pub fn origin(&self) -> CodeOrigin {
        self.origin
    }
}
