//! The rules of the front: who acts when no entry matches, and which `extra` values are sent.

use crate::impersonate::service_account::{Fallback, ImpersonationRules, PrincipalInfo};
use tollgate_config::ServiceAccountSemantics;
use tollgate_core::diagnostic::Location;
use tollgate_objects::{Application, Destination, ObjectName};

fn parse(text: &str, semantics: ServiceAccountSemantics) -> Result<ImpersonationRules, Vec<String>> {
    let loaded = ImpersonationRules::parse("impersonation.cel.yaml", text, semantics);
    let findings = loaded.diagnostics.iter().map(ToString::to_string).collect();
    loaded.value.ok_or(findings)
}

fn application() -> Application {
    Application {
        name: ObjectName {
            namespace: "argocd".to_owned(),
            name: "guestbook".to_owned(),
        },
        project: "team".to_owned(),
        destination: Destination::default(),
        application_set: None,
        repositories: Vec::new(),
        labels: std::collections::BTreeMap::new(),
        location: Location::default(),
    }
}

const ANN: PrincipalInfo<'static> = PrincipalInfo {
    username: "ann@example.org",
    groups: &[],
    issuer: "https://issuer.example.org",
    kind: "oidc",
};

#[test]
fn fallbacks_are_read_and_have_defaults() {
    let fallback = |text: &str, semantics| parse(text, semantics).unwrap().fallback;
    for semantics in [ServiceAccountSemantics::Strict, ServiceAccountSemantics::Argocd] {
        assert_eq!(fallback("fallback: deny", semantics), Fallback::Deny);
        assert_eq!(fallback("fallback: controller", semantics), Fallback::Controller);
        let default = Fallback::DefaultServiceAccount;
        assert_eq!(fallback("fallback: default-service-account", semantics), default);
    }
    assert_eq!(
        fallback("extra: {}", ServiceAccountSemantics::Strict),
        Fallback::DefaultServiceAccount
    );
    assert_eq!(fallback("extra: {}", ServiceAccountSemantics::Argocd), Fallback::Deny);
    assert_eq!(
        ImpersonationRules::new(ServiceAccountSemantics::Argocd).fallback,
        Fallback::Deny
    );
    assert_eq!(
        ImpersonationRules::default().fallback,
        ImpersonationRules::new(ServiceAccountSemantics::Strict).fallback
    );
}

#[test]
fn invalid_rules_are_reported_with_their_line() {
    let check = |text: &str, expected: &str| {
        let found = parse(text, ServiceAccountSemantics::Strict).unwrap_err();
        assert!(found.iter().any(|finding| finding.contains(expected)), "{found:?}");
    };
    check("fallback: admin", "admin");
    check("fallbak: deny", "fallbak");
    check(
        "extra:\n  tollgate.dev/user: nobody.name",
        "impersonation.cel.yaml:2: error: `extra.tollgate.dev/user`",
    );
    check(
        "extra:\n  tollgate.dev/user: principal.",
        "impersonation.cel.yaml:2: error:",
    );
    check(
        "extra:\n  authentication.kubernetes.io/x: principal.username",
        "a domain of Kubernetes' own",
    );
    check("extra:\n  Tollgate.dev/user: principal.username", "is not lower case");
}

#[test]
fn extra_values_carry_the_caller_and_the_application() {
    let text = "extra:
  tollgate.dev/user: principal.username
  tollgate.dev/via: \"[principal.kind, principal.issuer]\"
  tollgate.dev/groups: principal.groups
  tollgate.dev/application: application.namespace + '/' + application.name + '@' + application.project
";
    let rules = parse(text, ServiceAccountSemantics::Strict).unwrap();
    assert_eq!(rules.extra_keys().count(), 4);
    let extra = rules.extra(&ANN, &application()).unwrap();
    let value = |key: &str| {
        let found = extra.iter().find(|(existing, _)| existing == key);
        found.map(|(_, values)| values.iter().map(String::as_str).collect::<Vec<_>>())
    };
    assert_eq!(value("tollgate.dev/user"), Some(vec!["ann@example.org"]));
    assert_eq!(
        value("tollgate.dev/via"),
        Some(vec!["oidc", "https://issuer.example.org"])
    );
    assert_eq!(value("tollgate.dev/application"), Some(vec!["argocd/guestbook@team"]));
    // Without groups there is no header.
    assert_eq!(value("tollgate.dev/groups"), None);
    assert_eq!(
        ImpersonationRules::default().extra(&ANN, &application()),
        Ok(Vec::new())
    );
}

#[test]
fn values_http_would_change_are_refused() {
    let rules = parse(
        "extra:\n  tollgate.dev/user: principal.username",
        ServiceAccountSemantics::Strict,
    )
    .unwrap();
    for username in ["ann ", "ann\nbob", ""] {
        let principal = PrincipalInfo { username, ..ANN };
        assert!(rules.extra(&principal, &application()).is_err(), "{username:?}");
    }
}

#[test]
fn rules_of_a_folder_are_optional() {
    let folder = tempfile::tempdir().unwrap();
    let rules = ImpersonationRules::load(folder.path(), ServiceAccountSemantics::Argocd)
        .value
        .unwrap();
    assert_eq!(rules.fallback, Fallback::Deny);
    std::fs::write(folder.path().join("impersonation.cel.yaml"), "fallback: controller").unwrap();
    let rules = ImpersonationRules::load(folder.path(), ServiceAccountSemantics::Argocd)
        .value
        .unwrap();
    assert_eq!(rules.fallback, Fallback::Controller);
    std::fs::write(folder.path().join("impersonation.cel.yaml"), "a".repeat(70_000)).unwrap();
    assert!(
        ImpersonationRules::load(folder.path(), ServiceAccountSemantics::Argocd)
            .value
            .is_none()
    );
}
