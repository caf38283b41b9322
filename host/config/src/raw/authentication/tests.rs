//! Tests of every key of `authentication` and of each mistake in it.

use std::path::Path;

use super::{Authentication, RawAuthentication};
use crate::{ClaimMapping, ClaimRule};
use tollgate_core::diagnostic::Loaded;

fn check(yaml: &str) -> Loaded<Authentication> {
    check_at("127.0.0.1:8080", yaml)
}

fn check_at(listen: &str, yaml: &str) -> Loaded<Authentication> {
    let yaml = yaml.trim().replace('\n', "\n  ");
    let others = format!("listen: '{listen}'\nstate: {{directory: s}}\npolicies: {{directory: p}}");
    let text = format!("{others}\nauthentication:\n  {yaml}\n");
    crate::raw::parse(&text, "t.yaml", Path::new("")).map(|config| config.authentication)
}

fn mistakes(yaml: &str) -> Vec<String> {
    let loaded = check(yaml);
    assert_eq!(loaded.value.is_none(), !loaded.diagnostics.is_empty());
    loaded.diagnostics.into_iter().map(|finding| finding.message).collect()
}

const EVERY_KEY: &str = r#"
argocdSessions: true
trustedOrigins: ["https://argocd.example", "http://localhost:4000"]
jwt:
- issuer:
    url: https://login.example/tenant
    discoveryURL: https://inside.example/.well-known/openid-configuration
    audiences: [gate, kubernetes]
    audienceMatchPolicy: MatchAny
    certificateAuthority: PEM
  claimValidationRules:
  - {claim: hd, requiredValue: corp}
  - {expression: claims.email_verified == true, message: verify your e-mail}
  claimMappings:
    username: {expression: claims.email}
    groups: {claim: groups, prefix: "corp:"}
    uid: {claim: oid}
    extra:
    - {key: example.org/tenant, valueExpression: claims.tid}
  userValidationRules:
  - {expression: "!user.username.startsWith('root')", message: no root}
  algorithms: [RS256, ES256]
  jwksMaxAge: 10m
  jwksTokenFile: /run/token
"#;

#[test]
fn every_key_is_read() {
    let authentication = check(EVERY_KEY).value.unwrap();
    assert!(authentication.argocd_sessions && !authentication.anonymous);
    assert_eq!(
        authentication.trusted_origins,
        ["https://argocd.example", "http://localhost:4000"]
    );
    let [issuer] = authentication.issuers.as_slice() else {
        panic!("{authentication:?}")
    };
    assert_eq!(issuer.url, "https://login.example/tenant");
    assert_eq!(
        issuer.discovery_url.as_deref(),
        Some("https://inside.example/.well-known/openid-configuration")
    );
    assert_eq!(issuer.audiences, ["gate", "kubernetes"]);
    assert_eq!(issuer.certificate_authority.as_deref(), Some("PEM"));
    assert_eq!(issuer.algorithms, ["RS256", "ES256"]);
    assert_eq!(issuer.jwks_max_age.as_secs(), 600);
    assert_eq!(issuer.jwks_token_file.as_deref(), Some(Path::new("/run/token")));
    let rules = [
        ClaimRule::Required {
            claim: "hd".to_owned(),
            value: "corp".to_owned(),
        },
        ClaimRule::Expression {
            expression: "claims.email_verified == true".to_owned(),
            message: "verify your e-mail".to_owned(),
        },
    ];
    assert_eq!(issuer.claim_validation, rules);
    assert_eq!(issuer.username, ClaimMapping::Expression("claims.email".to_owned()));
    let claim = |claim: &str, prefix: &str| ClaimMapping::Claim {
        claim: claim.to_owned(),
        prefix: prefix.to_owned(),
    };
    assert_eq!(
        (issuer.groups.clone(), issuer.uid.clone()),
        (Some(claim("groups", "corp:")), Some(claim("oid", "")))
    );
    assert_eq!(
        issuer.extra,
        [("example.org/tenant".to_owned(), "claims.tid".to_owned())]
    );
    assert_eq!(
        issuer.user_validation,
        [("!user.username.startsWith('root')".to_owned(), "no root".to_owned())]
    );
}

#[test]
fn omitted_keys_are_off_or_have_the_default_of_kubernetes() {
    let authentication = check("{}").value.unwrap();
    assert!(!authentication.argocd_sessions && !authentication.anonymous);
    assert!(authentication.issuers.is_empty() && authentication.trusted_origins.is_empty());
    let yaml = "jwt: [{issuer: {url: https://a.example, audiences: [x]}, claimMappings: {username: {claim: sub, prefix: ''}}}]";
    let issuer = check(yaml).value.unwrap().issuers.remove(0);
    assert_eq!(
        (issuer.algorithms.as_slice(), issuer.jwks_max_age.as_secs()),
        (&["RS256".to_owned()][..], 3600)
    );
    assert!(issuer.groups.is_none() && issuer.uid.is_none() && issuer.extra.is_empty());
}

#[test]
fn unknown_keys_are_refused() {
    for yaml in [
        "argoCDSessions: true",
        "disabled: true",
        "jwt: [{issuer: {url: a, audience: [x]}, claimMappings: {username: {claim: a}}}]",
        "jwt: [{issuer: {url: a}, claimMappings: {username: {claim: a}, name: {}}}]",
    ] {
        assert!(serde_saphyr::from_str::<RawAuthentication>(yaml).is_err(), "{yaml}");
    }
}

#[test]
fn every_mistake_is_reported_with_its_key() {
    let yaml = r#"
trustedOrigins: ["https://a.example/", "http://a.example", "https://A.example", "*", "https://a.example:8443"]
jwt:
- issuer: {url: "http://login.example", discoveryURL: "http://login.example", audienceMatchPolicy: MatchAll}
  claimValidationRules: [{}, {claim: a, expression: b}, {requiredValue: a}]
  claimMappings:
    username: {claim: sub}
    groups: {claim: groups, prefix: a, expression: b}
    uid: {}
    extra:
    - {key: tenant, valueExpression: a}
    - {key: A.example/x, valueExpression: a}
    - {key: authentication.kubernetes.io/x, valueExpression: a}
    - {key: k8s.io/x, valueExpression: a}
    - {key: myk8s.io/x, valueExpression: a}
    - {key: myk8s.io/x, valueExpression: a}
  algorithms: []
  jwksMaxAge: 10s
- issuer: {url: "https://user@login.example?x", audiences: [a, a, ""]}
  claimMappings: {username: {}}
  jwksMaxAge: soon
  jwksTokenFile: token
- issuer: {url: "https://user@login.example?x", audiences: [a]}
  claimMappings: {username: {expression: a}}
"#;
    let url = "must be https (http for loopback hosts) without user, query and fragment";
    let extra = "is no lower-case path with a domain outside `kubernetes.io` and `k8s.io`";
    let rule = "needs either `claim` and `requiredValue`, or `expression` and `message`";
    let origin = "is not `https://host[:port]`, or http with a loopback host";
    let expected = [
        format!("jwt[0].issuer.url`: `http://login.example` {url}"),
        format!("jwt[0].issuer.discoveryURL`: `http://login.example` {url}"),
        "jwt[0].issuer.discoveryURL`: is the issuer's URL, it must be the document's".to_owned(),
        "jwt[0].issuer.audiences`: is empty, tokens for anybody would pass".to_owned(),
        "jwt[0].issuer.audienceMatchPolicy`: is `MatchAll`, only `MatchAny` is known".to_owned(),
        "jwt[0].jwksMaxAge`: `10s` is not a duration from `1m` to `24h`".to_owned(),
        "jwt[0].algorithms`: is empty".to_owned(),
        format!("jwt[0].claimValidationRules[0]`: {rule}"),
        format!("jwt[0].claimValidationRules[1]`: {rule}"),
        format!("jwt[0].claimValidationRules[2]`: {rule}"),
        "jwt[0].claimMappings.username`: has `claim` and no `prefix`, write `prefix: \"\"` for none".to_owned(),
        "jwt[0].claimMappings.groups`: needs either `claim` and `prefix`, or `expression`".to_owned(),
        "jwt[0].claimMappings.uid`: needs either `claim` or `expression`".to_owned(),
        format!("jwt[0].claimMappings.extra`: key `tenant` {extra}"),
        format!("jwt[0].claimMappings.extra`: key `A.example/x` {extra}"),
        format!("jwt[0].claimMappings.extra`: key `authentication.kubernetes.io/x` {extra}"),
        format!("jwt[0].claimMappings.extra`: key `k8s.io/x` {extra}"),
        "jwt[0].claimMappings.extra`: key `myk8s.io/x` is listed twice".to_owned(),
        format!("jwt[1].issuer.url`: `…@login.example?x` {url}"),
        "jwt[1].issuer.audiences`: holds `a` twice".to_owned(),
        "jwt[1].issuer.audiences`: holds an empty audience".to_owned(),
        "jwt[1].issuer.audienceMatchPolicy`: must be `MatchAny` with several audiences".to_owned(),
        "jwt[1].jwksMaxAge`: `soon` is not a duration from `1m` to `24h`".to_owned(),
        "jwt[1].jwksTokenFile`: needs `issuer.certificateAuthority`, the only authority whose server may get the token"
            .to_owned(),
        "jwt[1].claimMappings.username`: needs either `claim` and `prefix`, or `expression`".to_owned(),
        "jwt[2].issuer.url`: `…@login.example?x` is listed twice".to_owned(),
        format!("jwt[2].issuer.url`: `…@login.example?x` {url}"),
        format!("trustedOrigins[0]`: `https://a.example/` {origin}"),
        format!("trustedOrigins[1]`: `http://a.example` {origin}"),
        format!("trustedOrigins[2]`: `https://A.example` {origin}"),
        format!("trustedOrigins[3]`: `*` {origin}"),
    ];
    let expected: Vec<String> = expected
        .into_iter()
        .map(|rest| format!("`authentication.{rest}"))
        .collect();
    assert_eq!(mistakes(yaml), expected);
}

#[test]
fn anonymous_callers_need_a_loopback_listener() {
    let check = |listen: &str| check_at(listen, "anonymous: true");
    assert!(check("127.0.0.1:8080").value.unwrap().anonymous);
    assert!(check("[::1]:8080").value.unwrap().anonymous);
    for listen in ["0.0.0.0:8080", "10.0.0.1:8080", "[::]:8080"] {
        let loaded = check(listen);
        assert!(loaded.value.is_none());
        let expected = format!("`authentication.anonymous`: needs a loopback address in `listen`, which is `{listen}`");
        assert_eq!(loaded.diagnostics[0].message, expected);
    }
}
