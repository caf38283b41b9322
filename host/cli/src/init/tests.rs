use std::net::SocketAddr;
use std::path::PathBuf;

use url::Url;

use super::found::Found;
use super::{objects, require_new, settings};
use tollgate_objects::decode;

const ARGOCD: &str = r#"
apiVersion: v1
kind: ConfigMap
metadata: {name: argocd-cm, namespace: argocd}
data:
  url: https://argocd.example.com
  accounts.alice: apiKey, login
  accounts.ci: apiKey
  accounts.bob: login
  accounts.bob.enabled: "false"
  oidc.config: |
    issuer: https://idp.example.com
    clientID: argocd
---
apiVersion: v1
kind: Secret
metadata: {name: argocd-secret, namespace: argocd}
stringData: {server.secretkey: only-for-tests-0123456789abcdef, tls.crt: CERTIFICATE}
---
apiVersion: v1
kind: Secret
metadata:
  name: cluster-prod
  namespace: argocd
  labels: {argocd.argoproj.io/secret-type: cluster}
stringData:
  name: prod "eu"
  server: https://10.0.0.1:6443
  config: '{"bearerToken": "secret-of-the-cluster", "tlsClientConfig": {"insecure": true}}'
"#;

fn found(server: Option<&str>) -> Found {
    let loaded = decode::load_text(ARGOCD, "argocd.yaml", "argocd");
    let resources = loaded.value.unwrap_or_else(|| panic!("{:?}", loaded.diagnostics));
    let server = server.map(|url| Url::parse(url).unwrap());
    Found::of(&resources, "argocd", server.as_ref()).unwrap()
}

fn text(found: &Found, listen: &str) -> String {
    settings::Settings {
        found,
        listen: listen.parse::<SocketAddr>().unwrap(),
        admin: "127.0.0.1:8082".parse().unwrap(),
        source: settings::Source::Folder(PathBuf::from("/objects")),
    }
    .text()
}

/// Reads settings as the gateway does. Panics if anything is wrong with them.
fn config(text: &str) -> tollgate_config::Config {
    let loaded = tollgate_config::raw::parse(text, "tollgate.yaml", std::path::Path::new("/gate"));
    assert!(loaded.diagnostics.is_empty(), "{text}\n{:?}", loaded.diagnostics);
    loaded.value.unwrap()
}

#[test]
fn only_accounts_that_can_sign_in_become_people() {
    let found = found(None);
    assert_eq!(found.accounts, ["admin", "alice"]);
    let objects = objects::agents(&found).unwrap();
    let state = decode::load_text(&format!("{ARGOCD}---\n{objects}"), "all.yaml", "argocd");
    let state = state.value.unwrap_or_else(|| panic!("{:?}", state.diagnostics));
    assert!(state.agents.contains_key("prod--eu"), "{:?}", state.agents.keys());
    let people = state.people.group("people").unwrap();
    assert_eq!(&*people.path, "people");
    assert!(state.people.person_by_username("alice").is_some());
    assert!(state.people.person_by_username("ci").is_none());
}

/// The agents and people of an installation that has some already.
const PEOPLE: &str = r#"
---
apiVersion: tollgate.dev/v1alpha1
kind: UserDirectory
metadata: {name: people, namespace: argocd}
spec:
  users: [{id: 101, username: alice}, {id: 7, username: bob}]
  groups: [{id: 1, path: people, members: [{username: alice, role: developer}]}]
  projects: [{id: 1, path: people-2, members: []}]
---
apiVersion: tollgate.dev/v1alpha1
kind: Agent
metadata: {name: prod--eu, namespace: argocd}
spec:
  id: 1
  configProject: {id: 1}
  cluster: prod "eu"
  config: {user_access: {access_as: {user: {}}, groups: [{id: people}]}}
"#;

#[test]
fn what_is_there_keeps_its_names_and_numbers() {
    let load = |text: &str| {
        let loaded = decode::load_text(text, "all.yaml", "argocd");
        assert!(
            !loaded
                .diagnostics
                .iter()
                .any(|finding| finding.to_string().contains("closed")),
            "{:?}",
            loaded.diagnostics
        );
        loaded.value.unwrap_or_else(|| panic!("{:?}", loaded.diagnostics))
    };
    // Twice, as a second `init` reads what the first one wrote.
    let mut all = format!("{ARGOCD}{PEOPLE}");
    for round in 2..4 {
        let before = load(&all);
        let found = Found::of(&before, "argocd", None).unwrap();
        all.push_str("---\n");
        all.push_str(&objects::agents(&found).unwrap());
        let after = load(&all);
        assert_eq!(after.agents.len(), round, "{:?}", after.agents.keys());
        assert_eq!(after.user_directories.len(), round, "{:?}", after.user_directories);
        let ids: std::collections::BTreeSet<_> = after
            .agents
            .values()
            .filter_map(|agent| agent.binding.as_ref())
            .map(|binding| binding.id.get())
            .collect();
        assert_eq!(ids.len(), round, "{ids:?}");
        assert_eq!(before.people.group("people"), after.people.group("people"));
        assert_eq!(before.agents["prod--eu"], after.agents["prod--eu"]);
        assert!(after.people.person_by_username("admin").is_some());
    }
}

#[test]
fn settings_can_be_read_back_and_hold_no_secret() {
    let found = found(None);
    let text = text(&found, "127.0.0.1:9000");
    let config = config(&text);
    assert_eq!(config.argocd.unwrap().server.as_str(), "https://argocd.example.com/");
    assert_eq!(
        config.authentication.console.unwrap().url.as_str(),
        "https://localhost:9000/"
    );
    let kubernetes = config.kubernetes.unwrap();
    let issuers: Vec<&str> = kubernetes.users.iter().map(|user| &*user.issuer).collect();
    assert_eq!(issuers, ["argocd"]);
    assert!(
        text.contains("# - {issuer: \"https://idp.example.com\", claim: preferred_username"),
        "{text}"
    );
    let objects = objects::agents(&found).unwrap();
    for secret in ["only-for-tests", "secret-of-the-cluster"] {
        assert!(!text.contains(secret) && !objects.contains(secret));
    }
}

#[test]
fn a_server_of_its_own_address_is_trusted_by_its_own_certificate() {
    let own = found(Some("https://localhost:8443"));
    assert_eq!(own.argocd_certificate.as_deref(), Some("CERTIFICATE"));
    assert!(text(&own, "127.0.0.1:9000").contains("ca: argocd-server-ca.pem"));
    assert_eq!(found(None).argocd_certificate, None);
    assert_eq!(found(Some("http://127.0.0.1:8080")).argocd_certificate, None);
}

#[test]
fn a_gateway_for_others_needs_a_console_of_a_real_name() {
    let text = text(&found(None), "0.0.0.0:8443");
    assert!(
        text.contains("# console: {url: \"https://tollgate.example.com\"}"),
        "{text}"
    );
    assert_eq!(config(&text).authentication.console, None);
}

#[test]
fn without_argocd_nothing_is_written() {
    let resources = decode::load_text("", "empty.yaml", "argocd").value.unwrap();
    let failure = Found::of(&resources, "argo", None).err().unwrap().to_string();
    assert_eq!(
        failure,
        "init.no_argocd: there is no ConfigMap `argocd-cm` in the namespace `argo` (name the namespace of Argo CD with \
         `--namespace`; nothing was written)"
    );
}

#[test]
fn a_folder_with_something_in_it_is_left_alone() {
    let folder = tempfile::tempdir().unwrap();
    assert!(require_new(folder.path()).is_ok());
    assert!(require_new(&folder.path().join("new")).is_ok());
    std::fs::write(folder.path().join("tollgate.yaml"), "").unwrap();
    let failure = require_new(folder.path()).unwrap_err().to_string();
    assert!(
        failure.contains("is not empty, and nothing in it is overwritten (name a new folder"),
        "{failure}"
    );
}
