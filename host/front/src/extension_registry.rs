//! The extensions of one snapshot, each with its backends.
//!
//! Invariant: a reload keeps every backend that did not change, with its pools, limits and
//! streams.

use std::collections::HashMap;
use std::sync::Arc;

use tollgate_config::Compatibility;
use tollgate_core::diagnostic::{Diagnostic, Loaded};
use tollgate_objects::extensions::ExtensionSpec;
use tollgate_objects::{Cluster, Destination};
use tollgate_proxy::forward::{Backend, Limiter};
use tollgate_runtime::certificates;

/// One registered extension.
#[derive(Debug)]
pub struct Extension {
    name: Arc<str>,
    spec: ExtensionSpec,
    /// In the order of the spec's services.
    backends: Vec<Arc<Backend>>,
    limiter: Arc<Limiter>,
    /// The last second of validity of the certificate that the services see, since the Unix epoch.
    certificate_end: Option<u64>,
}

/// Every registered extension, by name.
#[derive(Debug, Default)]
pub struct Registry {
    extensions: HashMap<Arc<str>, Arc<Extension>>,
}

impl Registry {
    /// Builds backends for `specs`. Everything that did not change since `previous` is reused as it
    /// runs: backends that differ only in their position in the file, and counts of open requests
    /// if the limits are the same.
    ///
    /// # Errors
    /// A finding for each backend that cannot be built, such as a certificate that does not parse.
    pub fn build(specs: Vec<ExtensionSpec>, previous: Option<&Self>) -> Loaded<Self> {
        let mut findings = Vec::new();
        let mut extensions = HashMap::with_capacity(specs.len());
        for spec in specs {
            let previous_extension = previous.and_then(|previous| previous.find(&spec.name));
            match Extension::build(spec, previous_extension.as_deref()) {
                Ok(extension) => drop(extensions.insert(Arc::clone(&extension.name), Arc::new(extension))),
                Err(found) => findings.extend(found),
            }
        }
        Loaded::new(Self { extensions }, findings)
    }

    /// The extension of a name.
    pub fn find(&self, name: &str) -> Option<Arc<Extension>> {
        self.extensions.get(name).cloned()
    }

    /// Names in alphabetical order.
    pub fn names(&self) -> Vec<&str> {
        let mut names: Vec<&str> = self.extensions.keys().map(|name| &**name).collect();
        names.sort_unstable();
        names
    }

    /// When the certificates end that the services of each extension see, in seconds since the Unix epoch.
    pub fn certificate_ends(&self) -> impl Iterator<Item = (&str, u64)> {
        let extensions = self.extensions.values();
        extensions.filter_map(|extension| Some((&*extension.name, extension.certificate_end?)))
    }
}

impl Extension {
    fn build(spec: ExtensionSpec, previous: Option<&Self>) -> Result<Self, Vec<Diagnostic>> {
        let backends = match previous.filter(|previous| differs_only_in_location(&previous.spec, &spec)) {
            Some(previous) => previous.backends.clone(),
            None => backends(&spec)?,
        };
        let limiter = match previous.filter(|previous| previous.spec.limits == spec.limits) {
            // Requests that are open still count, so a reload gives nobody a second allowance.
            Some(previous) => Arc::clone(&previous.limiter),
            None => Limiter::new(&spec.limits),
        };
        let certificate = spec.tls.client_certificate_pem.as_deref();
        Ok(Self {
            certificate_end: certificate.and_then(|pem| certificates::end_of_pem(pem.as_bytes())),
            name: Arc::from(spec.name.as_str()),
            limiter,
            backends,
            spec,
        })
    }

    /// Its name in paths.
    pub fn name(&self) -> &Arc<str> {
        &self.name
    }

    /// Its settings.
    pub fn spec(&self) -> &ExtensionSpec {
        &self.spec
    }

    /// Bounds its requests at once.
    pub fn limiter(&self) -> &Arc<Limiter> {
        &self.limiter
    }

    /// The backend for an application's cluster. A single service serves every cluster. Of
    /// several, [`ExtensionSpec::service_for`] chooses by the canonical cluster. Argo CD compares
    /// the literal text of the application's spec; in its compatibility mode that comparison comes
    /// first.
    pub fn backend(
        &self,
        literal: Option<&Destination>,
        canonical: Option<&Cluster>,
        compatibility: Compatibility,
    ) -> Option<&Arc<Backend>> {
        if let [only] = self.backends.as_slice() {
            return Some(only);
        }
        let literal = match compatibility {
            // Argo CD registers a service under the texts of its cluster, without looking the cluster up.
            Compatibility::Argocd => literal.and_then(|to| self.position_by_destination(to)),
            Compatibility::None => None,
        };
        let at = literal.or_else(|| {
            let service = self.spec.service_for(canonical?)?;
            self.spec.services.iter().position(|other| std::ptr::eq(other, service))
        })?;
        self.backends.get(at)
    }

    /// The position of the service that is registered under the literal text of a destination: its
    /// name and server, or whichever of the two the destination has.
    fn position_by_destination(&self, to: &Destination) -> Option<usize> {
        let same = |wanted: &str, known: &str| wanted.is_empty() || wanted == known;
        // An empty destination would match every service.
        let is_named = !to.name.is_empty() || !to.server.is_empty();
        self.spec.services.iter().position(|service| {
            let mut cluster = service.cluster.iter().filter(|_| is_named);
            cluster.any(|cluster| same(&to.name, &cluster.name) && same(&to.server, &cluster.server))
        })
    }
}

/// Whether two specs differ only in their positions in the files.
fn differs_only_in_location(old: &ExtensionSpec, new: &ExtensionSpec) -> bool {
    let mut moved = new.clone();
    moved.location = old.location.clone();
    for (service, old) in moved.services.iter_mut().zip(&old.services) {
        service.location = old.location.clone();
    }
    // `zip` stops at the shorter list; a different number of services shows here.
    moved == *old
}

fn backends(spec: &ExtensionSpec) -> Result<Vec<Arc<Backend>>, Vec<Diagnostic>> {
    let mut findings = Vec::new();
    let mut backends = Vec::with_capacity(spec.services.len());
    for service in &spec.services {
        match Backend::build(spec, service) {
            Ok(backend) => backends.push(Arc::new(backend)),
            Err(error) => findings.push(
                Diagnostic::error(service.location.clone(), format!("extension `{}`: {error}", spec.name))
                    .with_hint("docs/extension-config.md shows a backend with TLS"),
            ),
        }
    }
    findings.is_empty().then_some(backends).ok_or(findings)
}
