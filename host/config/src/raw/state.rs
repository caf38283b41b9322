//! The section `state` of the settings file: its written shape, and the checks that turn it into a
//! [`StateSource`]. Exactly one source must be set.

use std::collections::BTreeSet;
use std::path::PathBuf;

use serde::Deserialize;

use super::SettingsValidator;
use crate::{ApplicationNamespaces, KubernetesState, StateSource};
use tollgate_core::dns::is_label;

/// Most namespaces that may be listed: each needs a watch.
const MAX_NAMESPACES: usize = 100;

#[derive(Debug, Deserialize, schemars::JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub(super) struct RawState {
    /// Folder with the Kubernetes objects.
    directory: Option<PathBuf>,
    /// Reads the objects from the API server of the control plane's cluster. `{}` uses the service account of
    /// the gateway's pod.
    kubernetes: Option<RawKubernetesState>,
    /// Namespace of the Argo CD control plane. Must be a DNS label.
    #[serde(default = "default_namespace")]
    pub(super) namespace: String,
}

#[derive(Debug, Default, Deserialize, schemars::JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
struct RawKubernetesState {
    /// kubeconfig file with the address of the API server and the credential to use. It and the files it
    /// names are read again when they change; a change that cannot be used is ignored. Defaults to the pod's
    /// service account.
    kubeconfig: Option<PathBuf>,
    /// Context of `kubeconfig`. Defaults to its current context.
    context: Option<String>,
    /// Namespaces, besides the control plane's, from which Applications are read, like Argo CD's
    /// `application.namespaces`. Each name takes one watch; `['*']` reads all namespaces with a single
    /// cluster-wide watch, and no other pattern is allowed. At most 100.
    #[schemars(extend("default" = []))]
    application_namespaces: Option<Vec<String>>,
}

fn default_namespace() -> String {
    "argocd".to_owned()
}

impl RawState {
    pub(super) fn check(self, validator: &mut SettingsValidator<'_>) -> StateSource {
        let namespace = &self.namespace;
        if namespace.is_empty() {
            validator.error("state.namespace", "is empty");
        } else if !is_label(namespace) {
            validator.error(
                "state.namespace",
                &format!("is `{namespace}`, which is not a valid namespace"),
            );
        }
        match (&self.directory, &self.kubernetes) {
            (Some(_), Some(_)) => {
                let message = "has `directory` and `kubernetes`, exactly one of them is allowed";
                validator.error("state", message);
            }
            (None, None) => validator.error("state", "has neither `directory` nor `kubernetes`"),
            (Some(_), None) | (None, Some(_)) => {}
        }
        match self.kubernetes {
            Some(raw) => StateSource::Kubernetes(raw.check(validator)),
            None => StateSource::Directory(validator.base.join(self.directory.unwrap_or_default())),
        }
    }
}

impl RawKubernetesState {
    fn check(self, validator: &mut SettingsValidator<'_>) -> KubernetesState {
        if self.context.is_some() && self.kubeconfig.is_none() {
            let message = "needs `kubeconfig`: a pod's service account has no contexts";
            validator.error("state.kubernetes.context", message);
        }
        KubernetesState {
            kubeconfig: self.kubeconfig.map(|file| validator.base.join(file)),
            context: self.context,
            applications: namespaces(self.application_namespaces.unwrap_or_default(), validator),
            credentials_namespace: None,
        }
    }
}

/// Argo CD's `application.namespaces` may contain patterns. A watch covers one namespace or all, so
/// `*` is the only pattern possible here.
fn namespaces(names: Vec<String>, validator: &mut SettingsValidator<'_>) -> ApplicationNamespaces {
    let mut mistake = |message: &str| validator.error("state.kubernetes.applicationNamespaces", message);
    if names.iter().any(|name| name == "*") {
        if names.len() > 1 {
            mistake("has other names beside `*`");
        }
        return ApplicationNamespaces::All;
    }
    if names.len() > MAX_NAMESPACES {
        let found = names.len();
        let allowed = format!("at most {MAX_NAMESPACES} are allowed; `*` is one watch for all");
        mistake(&format!("has {found} names, {allowed}"));
    }
    for name in names.iter().filter(|name| !is_label(name)) {
        mistake(&format!("has `{name}`, which is neither a namespace nor `*`"));
    }
    match names.is_empty() {
        true => ApplicationNamespaces::ControlPlane,
        false => ApplicationNamespaces::Listed(names.into_iter().collect::<BTreeSet<String>>()),
    }
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use crate::raw::parse;
    use crate::{ApplicationNamespaces, Config, KubernetesState, StateSource};
    use tollgate_core::diagnostic::Loaded;

    fn read(state: &str) -> Loaded<Config> {
        let text = format!("state: {state}\npolicies: {{directory: p}}\n");
        parse(&text, "t.yaml", Path::new("/etc"))
    }

    #[track_caller]
    fn check(state: &str, expected: &StateSource) {
        let loaded = read(state);
        assert!(loaded.diagnostics.is_empty(), "{state}: {:?}", loaded.diagnostics);
        assert_eq!(loaded.value.unwrap().state, *expected, "{state}");
    }

    #[track_caller]
    fn refused(state: &str, expected: &str) {
        let loaded = read(state);
        let found: Vec<String> = loaded.diagnostics.iter().map(ToString::to_string).collect();
        assert!(loaded.value.is_none(), "{state}");
        assert_eq!(found.len(), 1, "{state}: {found:?}");
        assert!(found[0].contains(expected), "{state}: {found:?}");
    }

    fn kubernetes(state: KubernetesState) -> StateSource {
        StateSource::Kubernetes(state)
    }

    #[test]
    fn exactly_one_source_is_required() {
        check("{directory: s}", &StateSource::Directory("/etc/s".into()));
        check("{kubernetes: {}}", &kubernetes(KubernetesState::default()));
        refused("{}", "`state` has neither `directory` nor `kubernetes`");
        refused("{kubernetes: {}, directory: s}", "exactly one of them is allowed");
    }

    #[test]
    fn server_and_namespaces_can_be_configured() {
        let of_file = KubernetesState {
            kubeconfig: Some("/etc/k".into()),
            context: Some("c".to_owned()),
            ..KubernetesState::default()
        };
        check("{kubernetes: {kubeconfig: k, context: c}}", &kubernetes(of_file));
        refused("{kubernetes: {context: c}}", "needs `kubeconfig`");
        let applications = |applications| {
            kubernetes(KubernetesState {
                applications,
                ..KubernetesState::default()
            })
        };
        check(
            "{kubernetes: {applicationNamespaces: ['*']}}",
            &applications(ApplicationNamespaces::All),
        );
        let listed = ApplicationNamespaces::Listed(["a".to_owned(), "b".to_owned()].into());
        check(
            "{kubernetes: {applicationNamespaces: [b, a, b]}}",
            &applications(listed),
        );
        let none = applications(ApplicationNamespaces::ControlPlane);
        check("{kubernetes: {applicationNamespaces: []}}", &none);
        refused("{kubernetes: {applicationNamespaces: ['*', a]}}", "beside `*`");
        refused("{kubernetes: {applicationNamespaces: ['team-*']}}", "has `team-*`");
        refused("{kubernetes: {}, namespace: 'a/b'}", "which is not a valid namespace");
        refused("{directory: s, namespace: ''}", "`state.namespace` is empty");
    }
}
