//! Tests of which repositories may be read, at which addresses, and with which credentials.

use std::sync::Arc;

use secrecy::{ExposeSecret as _, SecretString};

use crate::location::{Location, shown};
use crate::permission::allowed_repository;
use crate::{AllowedRepository, Error, address};
use tollgate_core::diagnostic::Location as Place;
use tollgate_objects::{Repository, RepositoryAuth, RepositoryKind, Resources, TlsVerification};

const URL: &str = "https://git.example/team/app";

fn secret(name: &str, kind: RepositoryKind, url: &str, project: &str) -> Repository {
    Repository {
        secret: name.to_owned(),
        kind,
        url: url.to_owned(),
        project: project.to_owned(),
        auth: RepositoryAuth::Anonymous,
        client_certificate: None,
        verification: TlsVerification::On,
        location: Place::default(),
    }
}

fn with_token(secret: Repository, token: &str) -> Repository {
    Repository {
        auth: RepositoryAuth::Bearer(SecretString::from(token)),
        ..secret
    }
}

fn resources(secrets: Vec<Repository>) -> Resources {
    let repositories = secrets
        .into_iter()
        .map(|secret| (secret.secret.clone(), Arc::new(secret)));
    Resources {
        repositories: repositories.collect(),
        ..Resources::default()
    }
}

fn check(resources: &Resources, patterns: &[&str], project: &str, url: &str) -> Result<AllowedRepository, Error> {
    let patterns: Vec<String> = patterns.iter().map(|&pattern| pattern.to_owned()).collect();
    allowed_repository(resources, &patterns, project, url)
}

fn token(permitted: &AllowedRepository) -> &str {
    match permitted.secret.as_ref().map(|secret| &secret.auth) {
        Some(RepositoryAuth::Bearer(token)) => token.expose_secret(),
        _ => "",
    }
}

#[test]
fn unlisted_repositories_are_refused() {
    let none = resources(Vec::new());
    let refused = check(&none, &[], "", URL).unwrap_err();
    assert_eq!(refused, Error::NotListed { url: URL.to_owned() });
    assert!(refused.to_string().contains("`applicationSets.repositories`"));
    let other = [
        "https://git.example/other/*",
        "!https://git.example/team/app",
        "https://git.example/team",
    ];
    assert!(matches!(check(&none, &other, "", URL), Err(Error::NotListed { .. })));
    let permitted = check(&none, &["https://git.example/team/*"], "", URL).unwrap();
    assert_eq!(permitted.rbac_object(), URL);
}

#[test]
fn a_repository_secret_lists_its_url_and_a_credential_template_does_not() {
    let credentials = secret("creds", RepositoryKind::Credentials, "https://git.example/team", "");
    let refused = check(&resources(vec![credentials]), &[], "", URL);
    assert!(matches!(refused, Err(Error::NotListed { .. })), "{refused:?}");
    let declared = secret(
        "repo",
        RepositoryKind::Repository,
        "https://GIT.example/team/app.git",
        "",
    );
    let permitted = check(&resources(vec![declared]), &[], "any", URL).unwrap();
    assert_eq!(
        permitted.rbac_object(),
        "https://GIT.example/team/app.git",
        "as the Secret spells it"
    );
}

#[test]
fn a_project_scoped_secret_applies_only_to_its_project() {
    let secrets = || {
        vec![with_token(
            secret("mine", RepositoryKind::Repository, URL, "shop"),
            "of-shop",
        )]
    };
    let permitted = check(&resources(secrets()), &[], "shop", URL).unwrap();
    assert_eq!(permitted.rbac_object(), format!("shop/{URL}"));
    assert_eq!(token(&permitted), "of-shop");
    for project in ["", "other"] {
        let refused = check(&resources(secrets()), &[], project, URL);
        assert!(matches!(refused, Err(Error::NotListed { .. })), "{project}");
        let permitted = check(&resources(secrets()), &["https://git.example/**"], project, URL).unwrap();
        assert_eq!(token(&permitted), "", "credentials of another project");
        assert_eq!(permitted.rbac_object(), URL);
    }
}

#[test]
fn credentials_come_from_the_longest_matching_prefix() {
    let creds = |name: &str, url: &str| with_token(secret(name, RepositoryKind::Credentials, url, ""), name);
    let secrets = resources(vec![
        creds("host", "https://git.example"),
        creds("team", "https://git.example/team/"),
        creds("near", "https://git.example/tea"),
        creds("app", "https://git.example/team/application"),
    ]);
    let all = ["https://**"];
    assert_eq!(token(&check(&secrets, &all, "", URL).unwrap()), "team");
    assert_eq!(
        token(&check(&secrets, &all, "", "https://git.example/x").unwrap()),
        "host"
    );
    let own = with_token(secret("own", RepositoryKind::Repository, URL, ""), "own");
    let both = resources(vec![creds("host", "https://git.example"), own]);
    assert_eq!(token(&check(&both, &[], "", URL).unwrap()), "own");
}

#[test]
fn credentials_are_not_used_for_other_hosts() {
    let creds = with_token(
        secret("creds", RepositoryKind::Credentials, "https://git.example", ""),
        "t0k3n",
    );
    let secrets = resources(vec![creds]);
    for url in [
        "https://git.example.evil.test/team/app",
        "https://git.example:8443/team/app",
        "https://evil.test/git.example/app",
    ] {
        let permitted = check(&secrets, &["https://**"], "", url).unwrap();
        assert_eq!(token(&permitted), "", "{url}");
    }
}

#[test]
fn local_paths_need_a_pattern_that_is_a_path() {
    let declared = secret("repo", RepositoryKind::Repository, "file:///srv/git/app", "");
    let declared = resources(vec![declared]);
    for patterns in [
        &["*", "**", "https://**", "file:**"][..],
        &["/srv/GIT/*"],
        &["/srv/*"],
        &[],
    ] {
        let refused = check(&declared, patterns, "", "file:///srv/git/app");
        assert!(matches!(refused, Err(Error::NotListed { .. })), "{patterns:?}");
    }
    for patterns in [["/srv/git/*"], ["file:///srv/git/**"], ["file:///srv/git/app"]] {
        for url in ["/srv/git/app", "file:///srv/git/app", "file:///srv/git/app.git/"] {
            assert!(check(&declared, &patterns, "", url).is_ok(), "{patterns:?} {url}");
        }
    }
    let refused = check(&declared, &["/srv/git/**", "!/srv/git/app"], "", "/srv/git/app");
    assert!(matches!(refused, Err(Error::NotListed { .. })));
}

#[test]
fn invalid_and_unsafe_urls_are_refused() {
    let none = resources(Vec::new());
    for (url, reason) in [
        ("", "empty"),
        ("/srv/git/../../etc", "`..`"),
        ("file:///srv//git", "empty part"),
        ("file://srv/git", "absolute"),
        ("https://git.example/team/../other", "`..`"),
        ("https://git.example/team/%2e%2E/other", "`..`"),
        ("https://git.example/team%2Fapp", "encoded"),
        ("https://git.example//app", "empty part"),
        ("https://u:s3cr3t@git.example/app", "names a user"),
        ("https://git.example/app?x=1", "query"),
        ("https://git.example/app#x", "fragment"),
        ("https://git.example\\@evil.test/app", "backslash"),
        ("http://git.example/app", "`https://`"),
        ("git://git.example/app", "only `https://`"),
        ("ext::sh -c id", "by ssh"),
        ("git@git.example:team/app.git", "by ssh"),
        ("ssh://git@git.example/app", "by ssh"),
        ("git.example/app", "no URL"),
    ] {
        let refused = check(&none, &["**", "/**"], "", url).unwrap_err();
        let text = refused.to_string();
        assert!(matches!(refused, Error::Url { .. }), "{url}: {text}");
        assert!(text.contains(reason), "{url}: {text}");
        assert!(!text.contains("s3cr3t"), "{text}");
    }
    assert_eq!(shown("https://u:p@h/x"), "https://h/x");
    assert!(matches!(
        Location::parse("https://git.example/a%20b"),
        Ok(Location::Remote(_))
    ));
}

#[test]
fn special_addresses_need_a_pattern_that_names_them() {
    let none = resources(Vec::new());
    for url in [
        "https://169.254.169.254/latest",
        "https://[fd00:ec2::254]/latest",
        "https://[::ffff:169.254.169.254]/latest",
        "https://2852039166/latest",
        "https://127.0.0.1/app",
        "http://localhost:8080/app",
        "https://0.0.0.0/app",
        "https://[::1]/app",
    ] {
        let refused = check(&none, &["https://**", "http://**"], "", url);
        assert!(matches!(refused, Err(Error::Address { .. })), "{url}: {refused:?}");
    }
    for (pattern, url) in [
        ("https://169.254.169.254/*", "https://169.254.169.254/app"),
        ("http://localhost:8080/**", "http://localhost:8080/team/app"),
        ("http://127.0.0.1:*/*", "http://127.0.0.1:4711/app"),
    ] {
        assert!(check(&none, &[pattern], "", url).is_ok(), "{pattern}");
    }
    let another = check(
        &none,
        &["https://127.0.0.1/*", "https://**"],
        "",
        "https://127.0.0.2/app",
    );
    assert!(
        matches!(another, Err(Error::Address { .. })),
        "the pattern names another address"
    );
}

#[test]
fn addresses_of_names_are_looked_at() {
    for refused in [
        "127.0.0.1",
        "169.254.1.1",
        "fe80::1",
        "::1",
        "64:ff9b::a9fe:a9fe",
        "0.0.0.0",
        "224.0.0.1",
        // As for plugins, from the same table.
        "192.0.0.192",
        "192.0.0.170",
        "192.0.2.1",
        "192.88.99.1",
        "198.18.0.1",
        "203.0.113.1",
        "240.0.0.1",
        "255.255.255.255",
        "100.100.100.200",
        "168.63.129.16",
        "::ffff:140.82.121.4",
        "::ffff:10.0.0.1",
        "2001:db8::1",
        "2001:10::1",
        "100::1",
        "fec0::1",
        "5f00::1",
    ] {
        assert!(address::special(refused.parse().unwrap()).is_some(), "{refused}");
    }
    for allowed in [
        "10.0.0.1",
        "192.168.1.1",
        "140.82.121.4",
        "fd12::1",
        "2606:50c0::1",
        "100.64.0.1",
    ] {
        assert_eq!(address::special(allowed.parse().unwrap()), None, "{allowed}");
    }
}

#[test]
fn fingerprints_depend_on_credentials() {
    let read = |token: &str| {
        let declared = with_token(secret("repo", RepositoryKind::Repository, URL, ""), token);
        check(&resources(vec![declared]), &[], "", URL).unwrap().fingerprint()
    };
    assert_eq!(read("a"), read("a"));
    assert_ne!(read("a"), read("b"));
}

#[test]
fn excluding_patterns_match_every_spelling() {
    let none = resources(Vec::new());
    let patterns = [
        "https://**",
        "!https://git.example/team/app",
        "!https://git.example/secret/*",
    ];
    for url in [
        URL,
        "https://git.example/team/app.git",
        "https://GIT.example:443/Team/%61pp/",
        "https://git.example./team/app",
        "https:///git.example/team/app",
        "https://git.example:443/secret/x",
    ] {
        let refused = check(&none, &patterns, "", url);
        assert!(matches!(refused, Err(Error::NotListed { .. })), "{url}");
    }
    for url in [
        "https://git.example/team/app2",
        "https://git.example:8443/team/app",
        "https://git.example:443/team/other.git",
    ] {
        assert!(check(&none, &patterns, "", url).is_ok(), "{url}");
    }
}

#[test]
fn alternative_rbac_objects_include_other_spellings_and_secrets() {
    let shared = secret("shared", RepositoryKind::Repository, "git@git.example:Team/app.git", "");
    let mine = secret(
        "mine",
        RepositoryKind::Repository,
        "https://git.example/team/app.git",
        "shop",
    );
    let theirs = secret("theirs", RepositoryKind::Repository, URL, "other");
    let all = resources(vec![shared, mine, theirs]);
    let requested = "https://git.example:443/Team/app";
    let without = check(&all, &["https://**"], "", requested).unwrap();
    assert_eq!(without.rbac_object(), requested);
    let has = |permitted: &AllowedRepository, object: &str| {
        permitted.alternative_objects().iter().any(|known| known == object)
    };
    for object in [
        "https://git.example/Team/app",
        "https://git.example/team/app",
        "https://git.example/team/app.git",
        "git@git.example:Team/app.git",
    ] {
        assert!(has(&without, object), "{object}");
    }
    assert!(
        !has(&without, "shop/https://git.example/team/app.git"),
        "the Secret belongs to another project"
    );
    assert!(!has(&without, requested), "the object itself is not an alternative");
    assert_eq!(
        without.urls(),
        [
            requested,
            "https://git.example/Team/app",
            "https://git.example/Team/app.git"
        ]
    );

    let with = check(&all, &[], "shop", URL).unwrap();
    assert_eq!(with.rbac_object(), "shop/https://git.example/team/app.git");
    for object in [format!("shop/{URL}"), "git@git.example:Team/app.git".to_owned()] {
        assert!(has(&with, &object), "{object}");
    }
    assert!(!has(&with, &format!("other/{URL}")));
    assert_eq!(with.urls(), [URL, "https://git.example/team/app.git"]);
}

/// SECURITY: a URL is shortened for display, but never for a decision.
#[test]
fn long_urls_are_compared_in_full() {
    let none = resources(Vec::new());
    let long = |end: &str| format!("https://git.example/{}/{end}", "x".repeat(1_000));
    let look_up = |url: &str| check(&none, &["https://git.example/**"], "", url);
    let (one, other) = (look_up(&long("one")).unwrap(), look_up(&long("other")).unwrap());
    assert_eq!(one.rbac_object(), long("one"));
    assert_ne!(one.fingerprint(), other.fingerprint());
    assert_eq!(one.fingerprint(), look_up(&long("one")).unwrap().fingerprint());
    let refused = look_up(&long(&"y".repeat(2_000))).unwrap_err();
    assert!(
        matches!(refused, Error::Url { .. }) && refused.to_string().len() < 600,
        "{refused}"
    );
    let excluded = check(
        &none,
        &["https://git.example/**", &format!("!{}", long("one"))],
        "",
        &long("one"),
    );
    assert!(matches!(excluded, Err(Error::NotListed { .. })));
}
