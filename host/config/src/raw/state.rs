//! The section `state` of the settings file: its written shape, and the checks that turn it into a
//! [`StateSource`]. Exactly one source must be set.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};

use serde::Deserialize;

use crate::{ApplicationNamespaces, KubernetesState, StateSource};
use tollgate_core::diagnostic::Diagnostic;
use tollgate_core::dns::is_label;

/// Most namespaces that may be listed: each needs a watch.
const MAX_NAMESPACES: usize = 100;

/// The mapping `state`.
#[derive(Debug, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub(super) struct RawState {
    directory: Option<PathBuf>,
    kubernetes: Option<RawKubernetesState>,
    #[serde(default = "default_namespace")]
    pub(super) namespace: String,
}

#[derive(Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
struct RawKubernetesState {
    kubeconfig: Option<PathBuf>,
    context: Option<String>,
    application_namespaces: Option<Vec<String>>,
}

fn default_namespace() -> String {
    "argocd".to_owned()
}

impl RawState {
    /// Checks the settings; `base` is where relative paths start.
    pub(super) fn check(self, base: &Path) -> (StateSource, Vec<Diagnostic>) {
        let mut findings = Vec::new();
        let mut mistake = |message: String| findings.push(Diagnostic::error(None, message));
        if self.namespace.is_empty() {
            mistake("`state.namespace` is empty".to_owned());
        } else if !is_label(&self.namespace) {
            mistake(format!(
                "`state.namespace` is `{}`, which is no namespace",
                self.namespace
            ));
        }
        let source = match (self.directory, self.kubernetes) {
            (Some(folder), None) => StateSource::Directory(base.join(folder)),
            (None, Some(raw)) => StateSource::Kubernetes(raw.check(base, &mut mistake)),
            (Some(folder), Some(_)) => {
                mistake("`state` has `directory` and `kubernetes`, exactly one of them is allowed".to_owned());
                StateSource::Directory(base.join(folder))
            }
            (None, None) => {
                mistake("`state` has neither `directory` nor `kubernetes`".to_owned());
                StateSource::Directory(base.to_owned())
            }
        };
        (source, findings)
    }
}

impl RawKubernetesState {
    fn check(self, base: &Path, mistake: &mut dyn FnMut(String)) -> KubernetesState {
        if self.context.is_some() && self.kubeconfig.is_none() {
            mistake(
                "`state.kubernetes.context` needs `kubeconfig`: a pod's service account has no contexts".to_owned(),
            );
        }
        KubernetesState {
            kubeconfig: self.kubeconfig.map(|file| base.join(file)),
            context: self.context,
            applications: namespaces(self.application_namespaces.unwrap_or_default(), mistake),
        }
    }
}

/// Argo CD's `application.namespaces` may contain patterns. A watch covers one namespace or all, so
/// `*` is the only pattern possible here.
fn namespaces(names: Vec<String>, mistake: &mut dyn FnMut(String)) -> ApplicationNamespaces {
    const KEY: &str = "state.kubernetes.applicationNamespaces";
    if names.iter().any(|name| name == "*") {
        if names.len() > 1 {
            mistake(format!("`{KEY}` has other names beside `*`"));
        }
        return ApplicationNamespaces::All;
    }
    if names.len() > MAX_NAMESPACES {
        mistake(format!(
            "`{KEY}` has {} names, at most {MAX_NAMESPACES} are allowed; `*` is one watch for all",
            names.len()
        ));
    }
    for name in names.iter().filter(|name| !is_label(name)) {
        mistake(format!("`{KEY}` has `{name}`, which is neither a namespace nor `*`"));
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
    fn exactly_one_source_is_taken() {
        check("{directory: s}", &StateSource::Directory("/etc/s".into()));
        check("{kubernetes: {}}", &kubernetes(KubernetesState::default()));
        refused("{}", "`state` has neither `directory` nor `kubernetes`");
        refused("{kubernetes: {}, directory: s}", "exactly one of them is allowed");
    }

    #[test]
    fn the_server_and_the_namespaces_are_chosen() {
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
        refused("{kubernetes: {}, namespace: 'a/b'}", "which is no namespace");
        refused("{directory: s, namespace: ''}", "`state.namespace` is empty");
    }
}
