//! The section `controlPlane` of the settings file: its written shape, and the checks that turn it
//! into [`ControlPlane`].

use serde::Deserialize;

use super::SettingsValidator;
use crate::{ControlPlane, ControlPlaneCaller, ControlPlaneMode, ReaderAccount, StateSource};
use tollgate_core::dns::{is_label, is_subdomain};

#[derive(Debug, Deserialize, schemars::JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub(super) struct RawControlPlane {
    /// Components of Argo CD that may use the front; at least one.
    #[serde(default)]
    callers: Vec<ControlPlaneCaller>,
    /// Service account that reads in each cluster, as `NAMESPACE:NAME`.
    reader: String,
    /// Namespace of the Secrets with the label `tollgate.dev/secret-type: cluster`, in which Tollgate needs
    /// `list` and `watch` on `secrets`. Must not be Argo CD's. Required with `state.kubernetes`.
    credentials_namespace: Option<String>,
    /// What happens to a write that fits no Application.
    #[serde(default)]
    #[schemars(extend("default" = "enforce"))]
    mode: ControlPlaneMode,
}

/// The settings outside of the section that it depends on.
pub(super) struct Surroundings<'a> {
    pub(super) has_tls: bool,
    pub(super) has_applications: bool,
    pub(super) namespace: &'a str,
    pub(super) state: &'a mut StateSource,
}

impl RawControlPlane {
    /// `None` if it has a mistake.
    pub(super) fn check(
        self,
        surroundings: Surroundings<'_>,
        validator: &mut SettingsValidator<'_>,
    ) -> Option<ControlPlane> {
        let before = validator.findings.len();
        if !surroundings.has_tls {
            let message = "needs `tls`: Argo CD verifies the gateway inside the tunnel that it opens";
            validator.error("controlPlane", message);
        }
        if !surroundings.has_applications {
            let message = "needs the section `applications`, which says how accounts of projects are read";
            validator.error("controlPlane", message);
        }
        self.check_namespace(surroundings, validator);
        if self.callers.is_empty() {
            let message = "names nobody, so nobody could use the front";
            validator.error("controlPlane.callers", message);
        }
        for (index, caller) in self.callers.iter().enumerate() {
            if caller.issuer.is_empty() || caller.user.is_empty() {
                validator.error(
                    &format!("controlPlane.callers[{index}]"),
                    "has an empty `issuer` or `user`, which would be an anonymous caller",
                );
            }
        }
        let reader = self.reader.split_once(':');
        let reader = reader.filter(|(namespace, name)| is_label(namespace) && is_subdomain(name));
        let Some((namespace, name)) = reader else {
            let message = format!("`{}` is not a service account", self.reader);
            validator.refuse(
                "controlPlane.reader",
                message,
                "such as `tollgate:reader`, NAMESPACE:NAME",
            );
            return None;
        };
        // Counted before the warning below, which is no mistake.
        let is_valid = validator.findings.len() == before;
        match self.mode {
            ControlPlaneMode::Enforce => {}
            ControlPlaneMode::Audit => {
                let message = "is `audit`: Argo CD's components write as the gateway's own identity where they name no \
                               account";
                validator.warning_in("controlPlane.mode", message);
            }
        }
        is_valid.then(|| ControlPlane {
            callers: self.callers.clone(),
            reader: ReaderAccount {
                namespace: namespace.to_owned(),
                name: name.to_owned(),
            },
            mode: self.mode,
        })
    }

    /// Checks where the clusters' own credentials are, and has them watched.
    fn check_namespace(&self, surroundings: Surroundings<'_>, validator: &mut SettingsValidator<'_>) {
        let key = "controlPlane.credentialsNamespace";
        match (surroundings.state, &self.credentials_namespace) {
            (StateSource::Directory(_), Some(_)) => {
                validator.error(
                    key,
                    "has no effect, because `state.directory` has the objects of all namespaces",
                );
            }
            (StateSource::Directory(_), None) => {}
            (StateSource::Kubernetes(_), None) => {
                validator.error(
                    key,
                    "is missing: the namespace of the Secrets by which the gateway reaches clusters",
                );
            }
            (StateSource::Kubernetes(_), Some(namespace)) if !is_label(namespace) => {
                validator.error(key, &format!("is `{namespace}`, which is not a valid namespace"));
            }
            (StateSource::Kubernetes(_), Some(namespace)) if namespace == surroundings.namespace => {
                let message = format!("is `{namespace}`, Argo CD's own namespace, where Argo CD can read Secrets");
                validator.error(key, &message);
            }
            (StateSource::Kubernetes(state), Some(namespace)) => {
                state.credentials_namespace = Some(namespace.clone());
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use crate::raw::parse;
    use crate::{Config, ControlPlaneMode, StateSource};

    const VALID: &str = "{reader: 'tollgate:reader', callers: [{issuer: argocd, user: controller}]";

    fn read(section: &str, others: &str) -> (Option<Config>, Vec<String>) {
        let text = format!("policies: {{directory: p}}\ncontrolPlane: {section}\n{others}\n");
        let loaded = parse(&text, "t.yaml", Path::new("/etc"));
        let findings = loaded.diagnostics.iter().map(ToString::to_string).collect();
        (loaded.value, findings)
    }

    const DIRECTORY: &str = "state: {directory: s}\ntls: {certificate: c, key: k}\napplications: {}";
    const KUBERNETES: &str = "state: {kubernetes: {}}\ntls: {certificate: c, key: k}\napplications: {}";

    #[test]
    fn callers_and_reader_are_read() {
        let (config, findings) = read(&format!("{VALID}}}"), DIRECTORY);
        assert_eq!(findings, [""; 0]);
        let section = config.unwrap().control_plane.unwrap();
        assert_eq!(section.reader.username(), "system:serviceaccount:tollgate:reader");
        assert_eq!(
            (&*section.callers[0].issuer, &*section.callers[0].user),
            ("argocd", "controller")
        );

        let (config, findings) = read(&format!("{VALID}, credentialsNamespace: tollgate}}"), KUBERNETES);
        assert_eq!(findings, [""; 0]);
        let StateSource::Kubernetes(state) = config.unwrap().state else {
            panic!("another source");
        };
        assert_eq!(state.credentials_namespace.as_deref(), Some("tollgate"));
    }

    #[test]
    fn audit_is_warned_about() {
        let (config, findings) = read(&format!("{VALID}, mode: audit}}"), DIRECTORY);
        assert_eq!(config.unwrap().control_plane.unwrap().mode, ControlPlaneMode::Audit);
        assert!(
            matches!(findings.as_slice(), [one] if one.contains("warning") && one.contains("own identity")),
            "{findings:?}"
        );
        let (config, _) = read(&format!("{VALID}}}"), DIRECTORY);
        assert_eq!(config.unwrap().control_plane.unwrap().mode, ControlPlaneMode::Enforce);
        let (config, findings) = read(&format!("{VALID}, mode: 'off'}}"), DIRECTORY);
        assert!(
            config.is_none() && findings[0].contains("is not one of"),
            "{findings:?}"
        );
    }

    #[test]
    fn what_would_be_open_or_without_effect_is_refused() {
        let valid = format!("{VALID}}}");
        let in_namespace = |name: &str| format!("{VALID}, credentialsNamespace: {name}}}");
        for (section, others, expected) in [
            ("{reader: 'a:b', callers: []}", DIRECTORY, "names nobody"),
            (
                "{reader: 'a:b', callers: [{issuer: '', user: x}]}",
                DIRECTORY,
                "an empty `issuer` or `user`",
            ),
            (
                "{reader: 'a:b', callers: [{issuer: argocd, user: ''}]}",
                DIRECTORY,
                "an empty `issuer` or `user`",
            ),
            (
                "{reader: reader, callers: [{issuer: argocd, user: x}]}",
                DIRECTORY,
                "`reader` is not a service account",
            ),
            (
                "{reader: 'a:b:c', callers: [{issuer: argocd, user: x}]}",
                DIRECTORY,
                "`a:b:c` is not a service account",
            ),
            (
                "{callers: [{issuer: argocd, user: x}]}",
                DIRECTORY,
                "`controlPlane.reader` is missing",
            ),
            (&valid, "state: {directory: s}\napplications: {}", "needs `tls`"),
            (
                &valid,
                "state: {directory: s}\ntls: {certificate: c, key: k}",
                "needs the section `applications`",
            ),
            (&in_namespace("tollgate"), DIRECTORY, "has no effect"),
            (&valid, KUBERNETES, "`controlPlane.credentialsNamespace` is missing"),
            (&in_namespace("argocd"), KUBERNETES, "Argo CD's own namespace"),
            (&in_namespace("'A'"), KUBERNETES, "not a valid namespace"),
        ] {
            let (config, findings) = read(section, others);
            assert!(config.is_none(), "{section}");
            assert!(
                matches!(findings.as_slice(), [one] if one.contains(expected)),
                "{section}: {findings:?}"
            );
        }
    }
}
