use std::sync::Arc;

use super::{Deployments, check_impersonation, listed};
use tollgate_config::ServiceAccountSemantics;
use tollgate_core::diagnostic::Location;
use tollgate_objects::{ConfigMap, Text};
use tollgate_policy::applications::ApplicationIndex;
use tollgate_policy::impersonate::service_account::ImpersonationRules;
use tollgate_state::source::{DirectorySource, Source as _};

const SERVER: &str = "https://prod.example";

const OBJECTS: &str = "\
apiVersion: v1
kind: ConfigMap
metadata: {name: argocd-cm, namespace: argocd}
---
apiVersion: v1
kind: Secret
metadata: {name: prod, namespace: argocd, labels: {argocd.argoproj.io/secret-type: cluster}}
stringData: {name: prod, server: 'https://prod.example', config: '{}'}
---
apiVersion: argoproj.io/v1alpha1
kind: AppProject
metadata: {name: shop, namespace: argocd}
spec:
  destinations: [{server: 'https://prod.example', namespace: shop}]
  destinationServiceAccounts: [{server: '*', namespace: shop, defaultServiceAccount: deployer}]
---
apiVersion: argoproj.io/v1alpha1
kind: AppProject
metadata: {name: closed, namespace: argocd}
spec:
  destinations: [{server: 'https://other.example', namespace: '*'}]
  destinationServiceAccounts: [{server: '*', namespace: '*', defaultServiceAccount: other}]
---
";

fn application(name: &str, project: &str, namespace: &str) -> String {
    format!(
        "apiVersion: argoproj.io/v1alpha1\nkind: Application\nmetadata: {{name: {name}, namespace: argocd}}\n\
         spec:\n  project: {project}\n  destination: {{server: '{SERVER}', namespace: {namespace}}}\n---\n"
    )
}

#[test]
fn applications_without_an_account_are_counted() {
    let folder = tempfile::tempdir().unwrap();
    let mut objects = OBJECTS.to_owned();
    objects += &application("good", "shop", "shop");
    objects += &application("elsewhere", "shop", "unknown");
    objects += &application("not-permitted", "closed", "a");
    objects += &application("orphan", "none", "a");
    std::fs::write(folder.path().join("objects.yaml"), objects).unwrap();
    let resources = DirectorySource::new(folder.path(), "argocd").load().value.unwrap();
    let rules = ImpersonationRules::load(folder.path(), ServiceAccountSemantics::Strict)
        .value
        .unwrap();
    let index = ApplicationIndex::build(&resources, &rules, None, None);
    let deployments = Deployments::of(&index, SERVER);
    let accounts: Vec<_> = deployments.accounts.keys().map(|account| account.username()).collect();
    assert_eq!(accounts, ["system:serviceaccount:shop:deployer"]);
    let without: Vec<&str> = deployments
        .without_account
        .iter()
        .map(|(name, _)| name.as_str())
        .collect();
    assert_eq!(without, ["argocd/elsewhere", "argocd/not-permitted", "argocd/orphan"]);
    assert_eq!(
        deployments.without_account[1].1,
        "its project does not permit its destination"
    );
    let warning = deployments.warning().unwrap();
    assert!(
        warning.contains("no account acts for 3 Applications, which will not sync: argocd/elsewhere, "),
        "{warning}"
    );
    assert!(Deployments::of(&index, "https://other.example").warning().is_none());
}

#[test]
fn argo_cd_must_impersonate() {
    let map = |value: Option<&str>| {
        let text = |value: &str| Text {
            value: Arc::from(value),
            location: Location::new("a.yaml", 1),
        };
        let data = value.map(|value| ("application.sync.impersonation.enabled".to_owned(), text(value)));
        ConfigMap {
            data: data.into_iter().collect(),
        }
    };
    assert!(check_impersonation(&map(Some("true"))).is_none());
    for value in [None, Some("false"), Some("audit"), Some("True")] {
        let text = check_impersonation(&map(value)).unwrap().to_string();
        assert!(
            text.contains("set `application.sync.impersonation.enabled: \"true\"` first"),
            "{text}"
        );
    }
}

#[test]
fn a_message_names_a_few_and_counts_the_rest() {
    assert_eq!(listed(["a", "b"].into_iter()), "a, b");
    assert_eq!(
        listed(["a", "b", "c", "d", "e", "f", "g"].into_iter()),
        "a, b, c, d, e and 2 more"
    );
}
