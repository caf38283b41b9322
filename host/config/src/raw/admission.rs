//! The section `admission` of the settings file: its written shape, and the checks that turn it into
//! [`Admission`].

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use serde::Deserialize;

use super::SettingsValidator;
use crate::{Admission, AdmissionMode, AdmissionTls, AdmissionWriters, ManagedCertificate, StateSource, Tls};
use tollgate_core::dns;
use tollgate_core::glob::Pattern;

#[derive(Debug, Deserialize, schemars::JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub(super) struct RawAdmission {
    /// Address and port of the webhook's listener, for API servers only.
    listen: String,
    /// Certificate of that listener: either `secret`, or `certificate` and `key`.
    tls: RawTls,
    /// PEM file with the authority of the API servers' client certificates. Then nobody else can connect, and
    /// `/admission/author` signs who wrote a set with kubectl. Without it, every client can connect, and
    /// nothing is signed. Read again when it changes.
    client_certificate_authority: Option<PathBuf>,
    /// What happens to a write that is not permitted.
    #[serde(default)]
    #[schemars(extend("default" = "enforce"))]
    mode: AdmissionMode,
    /// Usernames, in the cluster, of the programs that write for others. None may be empty.
    #[serde(default)]
    writers: RawWriters,
    /// For each project: patterns of the projects in which its Applications may deploy Applications and
    /// ApplicationSets, and of the AppProjects that they may deploy. `*` and `?` match any characters. By
    /// default, only the project itself, and no AppProject.
    #[serde(default)]
    children: BTreeMap<String, Vec<String>>,
}

/// The files, or the Secret with the names that go with it.
#[derive(Debug, Deserialize, schemars::JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
struct RawTls {
    /// PEM file with the certificate chain. Together with `key`; in place of `secret`.
    certificate: Option<PathBuf>,
    /// PEM file with the private key.
    key: Option<PathBuf>,
    /// Secret in `state.namespace` with a certificate that Tollgate creates, renews, and makes known to API
    /// servers. Needs `state.kubernetes`. See docs/admission.md#the-certificate.
    secret: Option<String>,
    /// Service by which API servers call the webhook. Only with `secret`.
    #[schemars(extend("default" = "tollgate-admission"))]
    service: Option<String>,
    /// Name of the webhook configurations whose `caBundle` Tollgate writes. Only with `secret`.
    #[schemars(extend("default" = "tollgate-admission"))]
    webhook_configuration: Option<String>,
}

#[derive(Debug, Default, Deserialize, schemars::JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields, default)]
struct RawWriters {
    /// Username of this gateway. Defaults to `system:serviceaccount:<state.namespace>:tollgate`.
    gateway: Option<String>,
    /// Username of argocd-server. Defaults to `system:serviceaccount:<state.namespace>:argocd-server`.
    server: Option<String>,
    /// Username of the application controller. Defaults to
    /// `system:serviceaccount:<state.namespace>:argocd-application-controller`.
    controller: Option<String>,
    /// Username of the ApplicationSet controller. Defaults to
    /// `system:serviceaccount:<state.namespace>:argocd-applicationset-controller`.
    application_set_controller: Option<String>,
}

/// The settings outside of the section that it depends on.
pub(super) struct Surroundings<'a> {
    pub(super) base: &'a Path,
    pub(super) namespace: &'a str,
    pub(super) state: &'a StateSource,
    pub(super) has_applications: bool,
    pub(super) has_application_sets: bool,
    pub(super) has_argocd_sessions: bool,
}

impl RawAdmission {
    pub(super) fn check(self, surroundings: &Surroundings<'_>, validator: &mut SettingsValidator<'_>) -> Admission {
        if let StateSource::Directory(_) = surroundings.state {
            let message = "judges writes to an API server by the objects of `state.directory`, which may be others";
            validator.warning_in("admission", message);
        }
        if !surroundings.has_applications || !surroundings.has_application_sets {
            let message = "needs the sections `applications` and `applicationSets`, by which it judges";
            validator.error("admission", message);
        }
        if !surroundings.has_argocd_sessions {
            let message = "needs `authentication.argocdSessions`: authors of ApplicationSets are signed with a key \
                           that is made of Argo CD's";
            validator.error("admission", message);
        }
        let listen = validator.address("admission.listen", &self.listen);
        let account = |name: &str| format!("system:serviceaccount:{}:{name}", surroundings.namespace);
        let mut writer = |key: &str, given: Option<String>, name: &str| {
            if given.as_ref().is_some_and(String::is_empty) {
                validator.error(&format!("admission.writers.{key}"), "is empty");
            }
            given.unwrap_or_else(|| account(name))
        };
        let raw = self.writers;
        let writers = AdmissionWriters {
            gateway: writer("gateway", raw.gateway, "tollgate"),
            server: writer("server", raw.server, "argocd-server"),
            controller: writer("controller", raw.controller, "argocd-application-controller"),
            application_set_controller: writer(
                "applicationSetController",
                raw.application_set_controller,
                "argocd-applicationset-controller",
            ),
        };
        let children = self.children.into_iter().map(|(project, patterns)| {
            let compiled = patterns.iter().filter_map(|pattern| {
                let compiled = Pattern::compile_exact(pattern, &[]);
                let key = format!("admission.children.{project}");
                compiled
                    .inspect_err(|error| validator.error(&key, &format!("has `{pattern}`: {error}")))
                    .ok()
            });
            let compiled = compiled.collect();
            (project, compiled)
        });
        let children = children.collect();
        Admission {
            listen,
            tls: self.tls.check(surroundings, validator),
            client_certificate_authority: self
                .client_certificate_authority
                .map(|authority| surroundings.base.join(authority)),
            mode: self.mode,
            writers,
            children,
        }
    }
}

impl RawTls {
    fn check(self, surroundings: &Surroundings<'_>, validator: &mut SettingsValidator<'_>) -> AdmissionTls {
        const KEY: &str = "admission.tls";
        let has_names = self.service.is_some() || self.webhook_configuration.is_some();
        match (self.certificate, self.key, self.secret) {
            (Some(certificate), Some(key), None) => {
                if has_names {
                    let message = "has files: `service` and `webhookConfiguration` belong to `secret`";
                    validator.error(KEY, message);
                }
                AdmissionTls::Files(Tls {
                    certificate: surroundings.base.join(certificate),
                    key: surroundings.base.join(key),
                })
            }
            (None, None, Some(secret)) => {
                if let StateSource::Directory(_) = surroundings.state {
                    let message = "needs `state.kubernetes`: the Secret is in that cluster";
                    validator.error("admission.tls.secret", message);
                }
                let mut name = |key: &str, name: String, is_valid: fn(&str) -> bool| {
                    if !is_valid(&name) {
                        let message = format!("is `{name}`, which no object of Kubernetes is named");
                        validator.error(&format!("{KEY}.{key}"), &message);
                    }
                    name
                };
                let service = self.service.unwrap_or_else(|| "tollgate-admission".to_owned());
                let configuration = self
                    .webhook_configuration
                    .unwrap_or_else(|| "tollgate-admission".to_owned());
                AdmissionTls::Managed(ManagedCertificate {
                    secret: name("secret", secret, dns::is_subdomain),
                    service: name("service", service, dns::is_label),
                    webhook_configuration: name("webhookConfiguration", configuration, dns::is_subdomain),
                })
            }
            (certificate, key, _) => {
                let message = "needs either `certificate` and `key`, or `secret`";
                validator.error(KEY, message);
                AdmissionTls::Files(Tls {
                    certificate: certificate.unwrap_or_default(),
                    key: key.unwrap_or_default(),
                })
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use crate::raw::parse;
    use crate::{Admission, AdmissionMode, AdmissionTls, ManagedCertificate};

    const NEEDED: &str = "authentication: {argocdSessions: true}\napplications: {}\napplicationSets: {}";
    const KUBERNETES: &str = "state: {kubernetes: {}, namespace: cd}";
    const VALID: &str = "{listen: '127.0.0.1:8444', tls: {certificate: c, key: k}";

    fn read(section: &str, others: &str) -> (Option<Admission>, Vec<String>) {
        let text = format!("policies: {{directory: p}}\nadmission: {section}\n{others}\n");
        let loaded = parse(&text, "t.yaml", Path::new("/etc/tollgate"));
        let findings = loaded.diagnostics.iter().map(ToString::to_string).collect();
        (loaded.value.and_then(|config| config.admission), findings)
    }

    #[test]
    fn writers_are_the_accounts_of_the_control_plane_unless_others_are_named() {
        let section = format!("{VALID}, mode: audit, writers: {{controller: me}}, children: {{apps: ['team-*']}}}}");
        let (admission, findings) = read(&section, &format!("{KUBERNETES}\n{NEEDED}"));
        assert_eq!(findings, [""; 0]);
        let admission = admission.unwrap();
        assert_eq!(admission.mode, AdmissionMode::Audit);
        let AdmissionTls::Files(files) = &admission.tls else {
            panic!("{:?}", admission.tls);
        };
        assert_eq!(files.certificate, Path::new("/etc/tollgate/c"));
        let patterns = &admission.children["apps"];
        assert!(patterns[0].matches("team-a") && !patterns[0].matches("apps") && patterns.len() == 1);
        let writers = admission.writers;
        assert_eq!(
            [&writers.gateway, &writers.server, &writers.controller],
            [
                "system:serviceaccount:cd:tollgate",
                "system:serviceaccount:cd:argocd-server",
                "me"
            ]
        );
        assert_eq!(
            writers.application_set_controller,
            "system:serviceaccount:cd:argocd-applicationset-controller"
        );
    }

    #[test]
    fn the_certificate_is_in_files_or_in_a_secret() {
        let all = format!("{KUBERNETES}\n{NEEDED}");
        let managed = |tls: &str| {
            let (admission, findings) = read(&format!("{{listen: '127.0.0.1:8444', tls: {tls}}}"), &all);
            assert_eq!(findings, [""; 0], "{tls}");
            let Some(AdmissionTls::Managed(managed)) = admission.map(|admission| admission.tls) else {
                panic!("{tls}");
            };
            managed
        };
        let names = |secret: &str, service: &str, configuration: &str| ManagedCertificate {
            secret: secret.to_owned(),
            service: service.to_owned(),
            webhook_configuration: configuration.to_owned(),
        };
        assert_eq!(
            managed("{secret: a}"),
            names("a", "tollgate-admission", "tollgate-admission")
        );
        let others = managed("{secret: a, service: b, webhookConfiguration: c.d}");
        assert_eq!(others, names("a", "b", "c.d"));
    }

    #[test]
    fn objects_of_a_folder_are_warned_about() {
        let (admission, findings) = read(&format!("{VALID}}}"), &format!("state: {{directory: s}}\n{NEEDED}"));
        assert!(admission.is_some());
        assert!(
            matches!(findings.as_slice(), [one] if one.contains("warning") && one.contains("may be others")),
            "{findings:?}"
        );
    }

    #[test]
    fn what_would_judge_nothing_is_refused() {
        let valid = format!("{VALID}}}");
        let empty_writer = format!("{VALID}, writers: {{server: ''}}}}");
        let bad_pattern = format!("{VALID}, children: {{apps: ['[']}}}}");
        let all = format!("{KUBERNETES}\n{NEEDED}");
        for (section, others, expected) in [
            (
                &*valid,
                format!("{KUBERNETES}\nauthentication: {{argocdSessions: true}}\napplications: {{}}"),
                "needs the sections",
            ),
            (
                &*valid,
                format!("{KUBERNETES}\nauthentication: {{argocdSessions: true}}\napplicationSets: {{}}"),
                "needs the sections",
            ),
            (
                &*valid,
                format!("{KUBERNETES}\napplications: {{}}\napplicationSets: {{}}"),
                "argocdSessions",
            ),
            (&*empty_writer, all.clone(), "`admission.writers.server` is empty"),
            (&*bad_pattern, all.clone(), "`admission.children.apps` has `[`"),
            ("{listen: '127.0.0.1:8444'}", all.clone(), "`admission.tls` is missing"),
            (
                "{listen: '127.0.0.1:8444', tls: {}}",
                all.clone(),
                "either `certificate` and `key`, or `secret`",
            ),
            (
                "{listen: '127.0.0.1:8444', tls: {certificate: c}}",
                all.clone(),
                "either `certificate` and `key`, or `secret`",
            ),
            (
                "{listen: '127.0.0.1:8444', tls: {certificate: c, key: k, secret: s}}",
                all.clone(),
                "either `certificate` and `key`, or `secret`",
            ),
            (
                "{listen: '127.0.0.1:8444', tls: {certificate: c, key: k, service: s}}",
                all.clone(),
                "belong to `secret`",
            ),
            (
                "{listen: '127.0.0.1:8444', tls: {secret: a, service: a.b}}",
                all.clone(),
                "`admission.tls.service` is `a.b`",
            ),
            (
                "{listen: '127.0.0.1:8444', tls: {secret: ../a}}",
                all.clone(),
                "`admission.tls.secret` is `../a`",
            ),
            (
                "{listen: '127.0.0.1:8444', tls: {secret: a}}",
                format!("state: {{directory: s}}\n{NEEDED}"),
                "needs `state.kubernetes`",
            ),
            (
                "{listen: nowhere, tls: {certificate: c, key: k}}",
                all,
                "admission.listen",
            ),
        ] {
            let (admission, findings) = read(section, &others);
            assert!(admission.is_none(), "{section}");
            assert!(
                findings.iter().any(|one| one.contains(expected)),
                "{section}: {findings:?}"
            );
        }
    }
}
