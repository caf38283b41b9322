//! What a configuration has in it, for people who check it before they use it.
//!
//! Security: it contains no secret.

use secrecy::ExposeSecret as _;
use serde::Serialize;

use super::{inputs, store_url};
use tollgate_config::{ApplicationNamespaces, ClusterFront, Config, RbacSemantics, StateSource, Tls};
use tollgate_front::snapshot::Snapshot;

/// Most names that one line lists.
const MAX_NAMES: usize = 8;

/// One line of the inventory.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct InventoryItem {
    /// What it is about: a section of the settings, or a kind of object.
    pub subject: &'static str,
    /// What the configuration has of it.
    pub content: String,
}

/// Lists what a gateway with this configuration would serve, and from what. Reads certificates.
pub fn inventory(config: &Config, snapshot: &Snapshot) -> Vec<InventoryItem> {
    let mut items = vec![
        item("listen", listen(config)),
        item("admin", config.admin_listen.to_string()),
        item("state", state(config)),
        item("objects", objects(snapshot)),
        item("clusters", clusters(snapshot)),
        item("fronts", fronts(config, snapshot)),
        item("sign-in", callers(config)),
        item("rbac", rbac(config, snapshot)),
        item("policies", config.policies_directory.display().to_string()),
        item("plugins", plugins(snapshot)),
    ];
    if config.needs_store() {
        items.push(item("store", store(config)));
    }
    items
}

fn item(subject: &'static str, content: String) -> InventoryItem {
    InventoryItem { subject, content }
}

fn listen(config: &Config) -> String {
    let address = config.listen;
    match &config.tls {
        Some(tls) => format!("{address}, {}", certificate(tls)),
        None => format!("{address}, without TLS"),
    }
}

fn certificate(tls: &Tls) -> String {
    match inputs::certificate_end(tls) {
        Some(end) => format!("TLS with a certificate until {end}"),
        None => "TLS with a certificate that cannot be read".to_owned(),
    }
}

fn state(config: &Config) -> String {
    let namespace = &config.control_plane_namespace;
    match &config.state {
        StateSource::Directory(folder) => format!("folder `{}`, namespace `{namespace}`", folder.display()),
        StateSource::Kubernetes(settings) => {
            let server = match &settings.kubeconfig {
                Some(file) => format!("the API server of `{}`", file.display()),
                None => "the API server of this pod".to_owned(),
            };
            let others = match &settings.applications {
                ApplicationNamespaces::ControlPlane => String::new(),
                ApplicationNamespaces::All => ", Applications of every namespace".to_owned(),
                ApplicationNamespaces::Listed(listed) => {
                    format!(", Applications also of {}", names(listed.iter().map(String::as_str)))
                }
            };
            format!("{server}, namespace `{namespace}`{others}")
        }
    }
}

fn objects(snapshot: &Snapshot) -> String {
    let resources = &snapshot.policies.resources;
    let counts = [
        (resources.projects.len(), "project"),
        (resources.applications.len(), "application"),
        (resources.application_sets.len(), "application set"),
        (resources.agents.len(), "agent"),
        (resources.invalid_objects.len(), "object with mistakes"),
    ];
    let some = counts.into_iter().filter(|(count, _)| *count > 0);
    let texts: Vec<String> = some.map(|(count, what)| counted(count, what)).collect();
    match texts.is_empty() {
        true => "none".to_owned(),
        false => texts.join(", "),
    }
}

fn counted(count: usize, what: &str) -> String {
    match (count, what.split_once(" with ")) {
        (1, _) => format!("1 {what}"),
        (count, Some((what, with))) => format!("{count} {what}s with {with}"),
        (count, None) => format!("{count} {what}s"),
    }
}

fn clusters(snapshot: &Snapshot) -> String {
    let labels: Vec<&str> = snapshot.clusters.iter().map(|access| &*access.label).collect();
    names(labels.into_iter())
}

fn fronts(config: &Config, snapshot: &Snapshot) -> String {
    let extensions = snapshot.extensions.names();
    let mut open = Vec::new();
    if !extensions.is_empty() {
        open.push(format!("extensions {}", names(extensions.into_iter())));
    }
    let others = [
        (config.argocd.is_some(), "argocd"),
        (config.clusters == ClusterFront::Open, "clusters"),
        (config.kubernetes.is_some(), "kubernetes"),
        (config.applications.is_some(), "applications"),
        (config.application_sets.is_some(), "applicationSets"),
        (config.control_plane.is_some(), "controlPlane"),
        (config.admission.is_some(), "admission"),
        (config.connectors.is_some(), "connectors"),
    ];
    open.extend(
        others
            .into_iter()
            .filter(|(is_open, _)| *is_open)
            .map(|(_, name)| name.to_owned()),
    );
    match open.is_empty() {
        true => "none is open".to_owned(),
        false => open.join(", "),
    }
}

fn callers(config: &Config) -> String {
    let authentication = &config.authentication;
    let mut accepted = Vec::new();
    if authentication.argocd_sessions {
        accepted.push("Argo CD's sessions and tokens".to_owned());
    }
    accepted.extend(authentication.issuers.iter().map(|issuer| issuer.url.clone()));
    if let Some(kubernetes) = &config.kubernetes {
        accepted.push("personal access tokens".to_owned());
        let issuers = kubernetes.issuers.iter().map(|entry| &entry.issuer.url);
        accepted.extend(issuers.map(|url| format!("{url} (for agents)")));
    }
    accepted.extend(
        authentication
            .console
            .as_ref()
            .map(|console| format!("logins at {}console/", console.url)),
    );
    if authentication.anonymous {
        accepted.push("callers without a credential".to_owned());
    }
    match accepted.is_empty() {
        true => "none: all requests get 401".to_owned(),
        false => accepted.join(", "),
    }
}

fn rbac(config: &Config, snapshot: &Snapshot) -> String {
    let rows = counted(snapshot.policies.rbac.rules().count(), "row");
    let semantics = match config.rbac_semantics {
        RbacSemantics::Argocd => "argocd",
        RbacSemantics::Strict => "strict",
    };
    format!("{rows}, semantics `{semantics}`")
}

fn plugins(snapshot: &Snapshot) -> String {
    let loaded: Vec<String> = snapshot
        .plugins
        .list()
        .map(|plugin| format!("{} {}", plugin.name, plugin.version))
        .collect();
    names(loaded.iter().map(String::as_str))
}

fn store(config: &Config) -> String {
    match store_url(&config.store.url) {
        Ok(url) => match url.expose_secret().strip_prefix("sqlite:") {
            Some(path) => format!("SQLite, `{path}`"),
            // The URL may have a password.
            None => "PostgreSQL".to_owned(),
        },
        Err(error) => error,
    }
}

/// The first names, and how many more there are.
fn names<'a>(all: impl Iterator<Item = &'a str>) -> String {
    let all: Vec<&str> = all.collect();
    let shown = all.iter().take(MAX_NAMES).copied().collect::<Vec<_>>().join(", ");
    match all.len().checked_sub(MAX_NAMES) {
        _ if all.is_empty() => "none".to_owned(),
        Some(more) if more > 0 => format!("{shown} and {more} more"),
        Some(_) | None => shown,
    }
}

#[cfg(test)]
mod tests {
    use super::{counted, names};

    #[test]
    fn a_line_stays_short() {
        let many: Vec<String> = (0..10).map(|number| format!("n{number}")).collect();
        let listed = |count: usize| names(many.iter().take(count).map(String::as_str));
        assert_eq!(listed(0), "none");
        assert_eq!(listed(2), "n0, n1");
        assert!(listed(8).ends_with("n7"));
        assert!(listed(10).ends_with("n7 and 2 more"));
        assert_eq!(counted(1, "object with mistakes"), "1 object with mistakes");
        assert_eq!(counted(2, "object with mistakes"), "2 objects with mistakes");
    }
}
