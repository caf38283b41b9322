//! The extensions of one snapshot, each with its backends.
//!
//! In: checked specs. Out: [`Registry`]. Never: a backend rebuilt when nothing
//! of it changed, so that a reload keeps pools, limits and streams.

use std::collections::HashMap;
use std::fmt;
use std::sync::Arc;

use super::config::{ExtensionSpec, ServiceSpec};
use crate::config::Compatibility;
use crate::diagnostic::{Diagnostic, Loaded};
use crate::forward::{Backend, Limiter};
use crate::state::{Cluster, Destination};

/// One registered extension.
pub struct Extension {
    name: Arc<str>,
    spec: ExtensionSpec,
    services: Vec<Service>,
    limiter: Limiter,
}

struct Service {
    name: String,
    server: String,
    backend: Arc<Backend>,
}

/// Every registered extension, by name.
#[derive(Debug, Default)]
pub struct Registry {
    extensions: HashMap<Arc<str>, Arc<Extension>>,
}

impl Registry {
    /// Builds backends for `specs`; an extension whose spec did not change
    /// since `previous` is taken over as it runs.
    ///
    /// # Errors
    /// A finding for each backend that cannot be built, such as a certificate
    /// that does not parse.
    pub fn build(specs: Vec<ExtensionSpec>, previous: Option<&Self>) -> Loaded<Self> {
        let mut findings = Vec::new();
        let mut extensions = HashMap::with_capacity(specs.len());
        for spec in specs {
            let kept = previous.and_then(|previous| previous.find(&spec.name)).filter(|kept| kept.spec == spec);
            let extension = match kept {
                Some(kept) => kept,
                None => match Extension::build(spec) {
                    Ok(extension) => Arc::new(extension),
                    Err(mut found) => {
                        findings.append(&mut found);
                        continue;
                    }
                },
            };
            extensions.insert(Arc::clone(&extension.name), extension);
        }
        Loaded::new(Self { extensions }, findings)
    }

    /// The extension of this name.
    pub fn find(&self, name: &str) -> Option<Arc<Extension>> {
        self.extensions.get(name).cloned()
    }

    /// Names in alphabetical order.
    pub fn names(&self) -> Vec<&str> {
        let mut names: Vec<&str> = self.extensions.keys().map(|name| &**name).collect();
        names.sort_unstable();
        names
    }

    /// Every extension, in no order.
    pub fn iter(&self) -> impl Iterator<Item = &Arc<Extension>> {
        self.extensions.values()
    }
}

impl Extension {
    fn build(spec: ExtensionSpec) -> Result<Self, Vec<Diagnostic>> {
        let mut findings = Vec::new();
        let mut services = Vec::with_capacity(spec.services.len());
        for service in &spec.services {
            match Backend::build(&spec, service) {
                Ok(backend) => services.push(Service::new(service, backend)),
                Err(error) => findings.push(
                    Diagnostic::error(service.location.clone(), format!("extension `{}`: {error}", spec.name))
                        .with_hint("docs/configuration.md shows a backend with TLS"),
                ),
            }
        }
        if !findings.is_empty() {
            return Err(findings);
        }
        Ok(Self { name: Arc::from(spec.name.as_str()), limiter: Limiter::new(&spec.limits), services, spec })
    }

    /// Name in path and policy.
    pub fn name(&self) -> &Arc<str> {
        &self.name
    }

    /// What the operator configured.
    pub fn spec(&self) -> &ExtensionSpec {
        &self.spec
    }

    /// Rate and concurrency limits, shared by all its callers.
    pub fn limiter(&self) -> &Limiter {
        &self.limiter
    }

    /// The backend for an application's cluster. One service serves every
    /// cluster. Of several, the one that names the canonical cluster: by name
    /// and server, else by name, else by server. Argo CD compares what the
    /// application's spec says literally; in its compatibility mode that comes first.
    pub fn backend(
        &self,
        literal: Option<&Destination>,
        canonical: Option<&Cluster>,
        compatibility: Compatibility,
    ) -> Option<&Arc<Backend>> {
        if let [only] = self.services.as_slice() {
            return Some(&only.backend);
        }
        let literal = match compatibility {
            Compatibility::Argocd => literal.and_then(|to| self.lookup(&to.name, &to.server)),
            Compatibility::None => None,
        };
        literal.or_else(|| canonical.and_then(|cluster| self.lookup(&cluster.name, &cluster.server)))
    }

    fn lookup(&self, name: &str, server: &str) -> Option<&Arc<Backend>> {
        let by = |wanted: &dyn Fn(&Service) -> bool| self.services.iter().find(|service| wanted(service));
        let service = by(&|service| service.is_named(name) && service.is_at(server))
            .or_else(|| by(&|service| service.is_named(name)))
            .or_else(|| by(&|service| service.is_at(server)))?;
        Some(&service.backend)
    }
}

impl Service {
    fn new(spec: &ServiceSpec, backend: Backend) -> Self {
        let (name, server) = match &spec.cluster {
            Some(cluster) => (cluster.name.clone(), cluster.server.clone()),
            None => (String::new(), String::new()),
        };
        Self { name, server, backend: Arc::new(backend) }
    }

    fn is_named(&self, name: &str) -> bool {
        !name.is_empty() && self.name == name
    }

    fn is_at(&self, server: &str) -> bool {
        !server.is_empty() && self.server == server
    }
}

impl fmt::Debug for Extension {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Extension").field("spec", &self.spec).finish_non_exhaustive()
    }
}
