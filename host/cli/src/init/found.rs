//! What an Argo CD has that settings are written from. None of it is secret.

use std::collections::BTreeSet;

use secrecy::ExposeSecret as _;
use serde_json::Value;
use url::Url;

use tollgate_client::failure::Failure;
use tollgate_objects::{ClusterAuth, Resources};

/// Name of the Secret with argocd-server's own certificate.
const ARGOCD_SECRET: &str = "argocd-secret";
/// Most clusters that agents are written for.
const MAX_AGENTS: usize = 100;
/// Name of the directory that is written, and path of its group, unless they are taken.
const GROUP: &str = "people";
/// Longest name of an object (a DNS label).
const LABEL_BYTES: usize = 63;

pub(super) struct Found {
    /// The namespace of Argo CD.
    pub(super) namespace: String,
    /// Where this machine reaches argocd-server.
    pub(super) server: Option<Url>,
    /// Certificate of argocd-server, if it is the one that it made for itself.
    pub(super) argocd_certificate: Option<String>,
    /// Accounts of Argo CD that can sign in.
    pub(super) accounts: Vec<String>,
    /// The issuer of Argo CD's single sign-on.
    pub(super) issuer: Option<String>,
    /// Clusters that can be entered from here.
    pub(super) clusters: Vec<FoundCluster>,
    /// The directory that is written.
    pub(super) directory: NewDirectory,
    /// Clusters that cannot, with the reason.
    pub(super) unusable: Vec<(String, String)>,
    applications: usize,
    projects: usize,
    has_extensions: bool,
}

/// A cluster, and the name of the agent that is written for it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct FoundCluster {
    pub(super) name: String,
    pub(super) agent: String,
    /// A number that no agent has.
    pub(super) id: i64,
}

/// A user directory beside those that are there. Nothing in it is in one of those.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct NewDirectory {
    pub(super) name: String,
    /// Accounts that no directory has, with numbers for them.
    pub(super) users: Vec<(i64, String)>,
    /// The members of the group: those accounts, and those that a directory has by the same name.
    pub(super) members: Vec<String>,
    /// Number and path of the one group.
    pub(super) group: (i64, String),
}

impl NewDirectory {
    fn beside(resources: &Resources, accounts: &[String]) -> Self {
        let people = &resources.people;
        let is_known = |name: &&String| people.usernames().any(|known| known.eq_ignore_ascii_case(name));
        let unknown = accounts.iter().filter(|name| !is_known(name));
        let free_ids = (101..).filter(|id| people.person(*id).is_none());
        let mut names: BTreeSet<String> = resources.user_directories.clone();
        let is_path_taken = |path: &str| people.group(path).is_some() || people.project(path).is_some();
        let paths = std::iter::once(GROUP.to_owned()).chain((2..).map(|number| format!("{GROUP}-{number}")));
        let path = paths.into_iter().find(|path| !is_path_taken(path));
        let is_member = |name: &&String| !is_known(name) || people.person_by_username(name).is_some();
        Self {
            members: accounts.iter().filter(is_member).cloned().collect(),
            name: label(GROUP, &mut names),
            users: free_ids.zip(unknown.cloned()).collect(),
            group: (
                (1..).find(|id| people.group_by_id(*id).is_none()).unwrap_or_default(),
                path.unwrap_or_default(),
            ),
        }
    }
}

impl Found {
    /// - `server`: where argocd-server is, as the person says.
    ///
    /// # Errors
    /// There is no Argo CD in the namespace.
    pub(super) fn of(resources: &Resources, namespace: &str, server: Option<&Url>) -> Result<Self, Failure> {
        if resources.argocd_cm_location.is_none() {
            return Err(Failure::new(
                "init.no_argocd",
                format_args!("there is no ConfigMap `argocd-cm` in the namespace `{namespace}`"),
            )
            .with_hint("name the namespace of Argo CD with `--namespace`; nothing was written"));
        }
        let cm = |key: &str| resources.argocd_cm.data.get(key).map(|text| &*text.value);
        let public_url = cm("url").and_then(|url| Url::parse(url.trim()).ok());
        let (server, is_public) = match server {
            Some(server) => (Some(server.clone()), public_url.as_ref() == Some(server)),
            None => (public_url.clone().filter(|url| url.scheme() == "https"), true),
        };
        let needs_certificate = !is_public && server.as_ref().is_some_and(|url| url.scheme() == "https");
        let certificate = resources.secrets.get(ARGOCD_SECRET).filter(|_| needs_certificate);
        let certificate = certificate.and_then(|secret| secret.values.get("tls.crt"));
        let (clusters, unusable) = clusters(resources);
        let accounts = accounts(&cm, resources.argocd_cm.data.keys().map(String::as_str));
        Ok(Self {
            namespace: namespace.to_owned(),
            server,
            argocd_certificate: certificate.map(|pem| pem.expose_secret().to_owned()),
            issuer: issuer(cm("oidc.config"), cm("dex.config"), public_url.as_ref()),
            directory: NewDirectory::beside(resources, &accounts),
            accounts,
            clusters,
            unusable,
            applications: resources.applications.len(),
            projects: resources.projects.len(),
            has_extensions: cm("extension.config").is_some() || !resources.extensions.is_empty(),
        })
    }

    /// One sentence without its end.
    pub(super) fn describe(&self) -> String {
        let counted = |count: usize, one: &str, many: &str| match count {
            1 => format!("1 {one}"),
            count => format!("{count} {many}"),
        };
        let mut parts = vec![
            counted(self.projects, "project", "projects"),
            counted(self.applications, "application", "applications"),
            counted(
                self.accounts.len(),
                "account that can sign in",
                "accounts that can sign in",
            ),
            counted(
                self.clusters.len(),
                "cluster that can be entered",
                "clusters that can be entered",
            ),
        ];
        if self.has_extensions {
            parts.push("extensions".to_owned());
        }
        if let Some(issuer) = &self.issuer {
            parts.push(format!("single sign-on at `{issuer}`"));
        }
        let unusable = self.unusable.iter();
        parts.extend(unusable.map(|(name, reason)| format!("cluster `{name}`, which cannot be entered ({reason})")));
        parts.join(", ")
    }
}

/// The accounts that can sign in (Argo CD, `util/settings/accounts.go`).
fn accounts<'a>(cm: &impl Fn(&str) -> Option<&'a str>, keys: impl Iterator<Item = &'a str>) -> Vec<String> {
    let is_enabled = |key: &str| cm(key).is_none_or(|value| value.trim() == "true");
    let mut names = BTreeSet::new();
    if is_enabled("admin.enabled") {
        names.insert("admin".to_owned());
    }
    for key in keys {
        let Some(name) = key.strip_prefix("accounts.").filter(|name| !name.contains('.')) else {
            continue;
        };
        let capabilities = cm(key).unwrap_or_default();
        let can_sign_in = capabilities.split(',').any(|word| word.trim() == "login");
        if can_sign_in && is_enabled(&format!("{key}.enabled")) {
            names.insert(name.to_owned());
        }
    }
    names.into_iter().collect()
}

fn issuer(oidc: Option<&str>, dex: Option<&str>, public_url: Option<&Url>) -> Option<String> {
    if let Some(oidc) = oidc {
        let settings: Value = serde_saphyr::from_str(oidc).ok()?;
        return settings.get("issuer").and_then(Value::as_str).map(str::to_owned);
    }
    let (_, url) = (dex?, public_url?);
    Some(format!("{}/api/dex", url.as_str().trim_end_matches('/')))
}

fn clusters(resources: &Resources) -> (Vec<FoundCluster>, Vec<(String, String)>) {
    let (mut usable, mut unusable) = (Vec::new(), Vec::new());
    let mut agents: BTreeSet<String> = resources.agents.keys().cloned().collect();
    let bindings = resources.agents.values().filter_map(|agent| agent.binding.as_ref());
    let taken: BTreeSet<i64> = bindings.map(|binding| binding.id.get()).collect();
    let mut ids = (1..).filter(|id| !taken.contains(id));
    for cluster in &resources.clusters {
        let auth = resources
            .cluster_configs
            .get(&cluster.server)
            .map(|config| &config.auth);
        match auth {
            Some(ClusterAuth::InCluster) => unusable.push((
                cluster.name.clone(),
                "only a gateway in a pod of it can, with the pod's own account".to_owned(),
            )),
            Some(ClusterAuth::Unusable { reason }) => unusable.push((cluster.name.clone(), reason.clone())),
            Some(ClusterAuth::Anonymous) | None => {
                unusable.push((cluster.name.clone(), "its Secret has no credential".to_owned()));
            }
            Some(_) if usable.len() < MAX_AGENTS => {
                let agent = label(&cluster.name, &mut agents);
                usable.push(FoundCluster {
                    name: cluster.name.clone(),
                    agent,
                    id: ids.next().unwrap_or_default(),
                });
            }
            Some(_) => {}
        }
    }
    (usable, unusable)
}

/// A name as a DNS label that is not among `taken`, to which it is added.
fn label(name: &str, taken: &mut BTreeSet<String>) -> String {
    let plain = |c: char| {
        if c.is_ascii_alphanumeric() {
            c.to_ascii_lowercase()
        } else {
            '-'
        }
    };
    let text: String = name.chars().map(plain).take(LABEL_BYTES - 4).collect();
    let text = text.trim_matches('-');
    let text = if text.is_empty() { "cluster" } else { text };
    let mut unique = text.to_owned();
    let mut number = 2;
    while !taken.insert(unique.clone()) {
        unique = format!("{text}-{number}");
        number += 1;
    }
    unique
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::label;

    #[test]
    fn agents_have_names_of_their_own() {
        let mut taken = BTreeSet::new();
        let names = [
            "Prod EU",
            "prod-eu",
            "https://10.0.0.1:6443",
            "§",
            "x".repeat(80).as_str(),
        ]
        .map(|name| label(name, &mut taken));
        assert_eq!(
            names.iter().take(4).collect::<Vec<_>>(),
            ["prod-eu", "prod-eu-2", "https---10-0-0-1-6443", "cluster"]
        );
        assert!(names.iter().all(|name| name.len() <= super::LABEL_BYTES));
    }
}
