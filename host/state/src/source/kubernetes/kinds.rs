//! Lists the watches that the settings need, one [`WatchSpec`] each. Only what is used is watched,
//! and each watch can be granted separately.

use kube::core::ApiResource;
use kube::runtime::watcher;

use crate::kubernetes::WATCH_SECONDS;
use tollgate_config::{ApplicationNamespaces, KubernetesState};
use tollgate_objects::decode::read::ObjectKind;

/// Selects the Secrets by which the gateway reaches clusters.
const CREDENTIALS: &str = "tollgate.dev/secret-type=cluster";

/// Whether the gateway can do without a kind.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum WatchRequirement {
    Required,
    /// The kind's definition need not be installed, nor its objects be readable.
    Optional,
    /// One namespace of several. Without permission only this one is missing.
    OneOfSeveral,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct WatchSpec {
    pub(super) kind: ObjectKind,
    pub(super) namespace: Option<String>,
    /// The one name that is asked for; `None` for all.
    pub(super) name: Option<&'static str>,
    /// The label that is asked for; `None` for all.
    pub(super) label: Option<&'static str>,
    pub(super) requirement: WatchRequirement,
}

/// Every watch that a control plane in `namespace` needs.
pub(super) fn watch_specs(settings: &KubernetesState, namespace: &str) -> Vec<WatchSpec> {
    use WatchRequirement::{OneOfSeveral, Optional, Required};
    let here = |kind, name, requirement| WatchSpec {
        kind,
        namespace: Some(namespace.to_owned()),
        name,
        label: None,
        requirement,
    };
    let mut all = vec![
        here(ObjectKind::ConfigMap, Some("argocd-cm"), Required),
        here(ObjectKind::ConfigMap, Some("argocd-rbac-cm"), Required),
        here(ObjectKind::Secret, None, Required),
        here(ObjectKind::AppProject, None, Required),
        here(ObjectKind::ArgoCDExtension, None, Optional),
        here(ObjectKind::Agent, None, Optional),
        here(ObjectKind::UserDirectory, None, Optional),
        here(ObjectKind::ConfigMap, Some("argocd-cmd-params-cm"), Optional),
        // These three only give warnings about ways past the gateway: no request is decided by them.
        here(ObjectKind::Service, None, Optional),
        here(ObjectKind::Ingress, None, Optional),
        here(ObjectKind::NetworkPolicy, None, Optional),
    ];
    if let Some(namespace) = &settings.credentials_namespace {
        all.push(WatchSpec {
            namespace: Some(namespace.clone()),
            label: Some(CREDENTIALS),
            ..here(ObjectKind::Secret, None, OneOfSeveral)
        });
    }
    let mut applications = |namespace: Option<&str>, requirement| {
        for (kind, requirement) in [
            (ObjectKind::Application, requirement),
            (ObjectKind::ApplicationSet, Optional),
        ] {
            all.push(WatchSpec {
                kind,
                namespace: namespace.map(str::to_owned),
                name: None,
                label: None,
                requirement,
            });
        }
    };
    match &settings.applications {
        ApplicationNamespaces::ControlPlane => applications(Some(namespace), Required),
        ApplicationNamespaces::All => applications(None, Required),
        ApplicationNamespaces::Listed(names) => {
            applications(Some(namespace), Required);
            // The control plane's is watched already, and a second watch would give every object twice.
            for name in names.iter().filter(|name| *name != namespace) {
                applications(Some(name), OneOfSeveral);
            }
        }
    }
    all
}

impl WatchSpec {
    /// The API group; empty for the core group.
    pub(super) fn group(&self) -> &'static str {
        self.kind.version().split_once('/').map_or("", |(group, _)| group)
    }

    /// The name that `kubectl` and RBAC rules use: `applications.argoproj.io`.
    pub(super) fn resource(&self) -> String {
        match self.group() {
            "" => self.kind.plural().to_owned(),
            group => format!("{}.{group}", self.kind.plural()),
        }
    }

    pub(super) fn api(&self) -> ApiResource {
        let version = self.kind.version();
        ApiResource {
            group: self.group().to_owned(),
            version: version.rsplit('/').next().unwrap_or(version).to_owned(),
            api_version: version.to_owned(),
            kind: self.kind.as_str().to_owned(),
            plural: self.kind.plural().to_owned(),
        }
    }

    /// What the watch selects. Helm's releases are left out: they are Secrets of up to a megabyte
    /// that no object of ours refers to.
    pub(super) fn config(&self) -> watcher::Config {
        let config = watcher::Config::default().timeout(WATCH_SECONDS);
        let config = match self.label {
            Some(label) => config.labels(label),
            None => config,
        };
        match (self.name, self.kind) {
            (Some(name), _) => config.fields(&format!("metadata.name={name}")),
            (None, ObjectKind::Secret) => config.fields("type!=helm.sh/release.v1"),
            (None, _) => config,
        }
    }
}
