use std::path::Path;

use super::checks::{self, AllowedSystemNames};
use super::{AccessInput, Error, ImpersonationMapping, MAX_VALUE_BYTES, PossibleNames};
use crate::cel::{self, ResultLiteral};
use tollgate_core::user::Identity;

fn person() -> Identity {
    Identity {
        username: "corp:ada".into(),
        groups: vec!["dev".into(), "ops".into()],
        uid: Some("7f3c".into()),
        extra: vec![("corp.example/dept".into(), vec!["sre".into()])],
    }
}

fn check(change: impl FnOnce(&mut Identity)) -> Result<Identity, Error> {
    let mut identity = person();
    change(&mut identity);
    checks::check(identity, AllowedSystemNames::default(), 3)
}

fn texts(texts: &[&str]) -> Vec<String> {
    texts.iter().map(|text| (*text).to_owned()).collect()
}

#[test]
fn a_valid_identity_is_not_changed() {
    assert_eq!(check(|_| {}), Ok(person()));
    // UTF-8, blanks within, letters of any case.
    let names = |identity: &mut Identity| identity.username = "Jörg Müller <JM>".into();
    assert_eq!(check(names).unwrap().username, "Jörg Müller <JM>");
    let key = |identity: &mut Identity| identity.extra[0].0 = "k1".into();
    assert_eq!(check(key).unwrap().extra[0].0, "k1");
}

#[test]
fn duplicates_and_empty_fields_are_removed() {
    let groups = check(|identity| identity.groups = texts(&["b", "a", "b", "a"]))
        .unwrap()
        .groups;
    assert_eq!(groups, ["b", "a"]);
    assert_eq!(check(|identity| identity.uid = Some(String::new())).unwrap().uid, None);
    let extra = vec![
        ("a".to_owned(), texts(&["1", "2"])),
        ("none".to_owned(), vec![]),
        ("a".to_owned(), texts(&["2", "3"])),
    ];
    let extra = check(|identity| identity.extra = extra).unwrap().extra;
    assert_eq!(extra, [("a".to_owned(), texts(&["1", "2", "3"]))]);
}

#[test]
fn every_field_is_validated() {
    type Change = fn(&mut Identity, String);
    let parts: [(&str, Change); 4] = [
        ("username", |identity, value| identity.username = value),
        ("group", |identity, value| identity.groups[1] = value),
        ("uid", |identity, value| identity.uid = Some(value)),
        ("value of `extra`", |identity, value| identity.extra[0].1[0] = value),
    ];
    for (part, change) in parts {
        let with = |value: &str| check(|identity| change(identity, value.to_owned()));
        for value in ["a\nb", "a\r", "\0", "a\u{7f}", "a\u{85}b", "\t", "a\tb"] {
            assert_eq!(with(value), Err(Error::Control(part)), "{value:?}");
        }
        for value in [" a", "a ", "a\u{a0}", " "] {
            assert_eq!(with(value), Err(Error::Blank(part)), "{value:?}");
        }
        let long = "a".repeat(MAX_VALUE_BYTES + 1);
        let observed = long.len();
        assert_eq!(with(&long), Err(Error::TooLong { part, observed }));
        assert!(with(long.get(1..).unwrap()).is_ok());
        if part == "uid" {
            assert!(with("").is_ok());
        } else {
            assert_eq!(with(""), Err(Error::Empty(part)));
        }
    }
}

#[test]
fn reserved_names_of_kubernetes_are_refused() {
    for name in ["system:admin", "system:", "system:serviceaccount:kube-system:default"] {
        let user = check(|identity| identity.username = name.into());
        let name = name.to_owned();
        assert_eq!(user, Err(Error::System { part: "username", name }));
    }
    let group = check(|identity| identity.groups.push("system:masters".into()));
    let name = "system:masters".to_owned();
    assert_eq!(group, Err(Error::System { part: "group", name }));
    for name in ["systems:x", "my-system:x", "system"] {
        assert!(check(|identity| identity.username = name.into()).is_ok());
        assert!(check(|identity| identity.groups[0] = name.into()).is_ok());
    }
}

#[test]
fn too_many_groups_or_values_are_refused_with_their_count() {
    assert!(check(|identity| identity.groups = texts(&["a", "b", "c", "c"])).is_ok());
    let many = check(|identity| identity.groups = texts(&["a", "b", "c", "d"]));
    let refused = Error::TooManyGroups {
        observed: 4,
        allowed: 3,
    };
    assert_eq!(many, Err(refused));
    let values = (0..300).map(|at| at.to_string()).collect();
    let many = check(|identity| identity.extra[0].1 = values);
    assert_eq!(many, Err(Error::TooManyValues(300)));
}

#[test]
fn keys_of_extra_are_validated() {
    for (key, why) in [
        ("", "is empty, or its domain is"),
        ("/x", "is empty, or its domain is"),
        ("Corp.example/x", "is not lower case"),
        ("corp.example/Ä", "is not lower case"),
        ("corp.example/ä", "has characters a path cannot have"),
        ("a b", "has characters a path cannot have"),
        ("a\nb", "has characters a path cannot have"),
        ("kubernetes.io/x", "is of a domain of Kubernetes' own"),
        (
            "authentication.kubernetes.io/credential-id",
            "is of a domain of Kubernetes' own",
        ),
        ("x.k8s.io/y", "is of a domain of Kubernetes' own"),
        ("k8s.io", "is of a domain of Kubernetes' own"),
    ] {
        let refused = check(|identity| identity.extra[0].0 = key.into());
        let Err(Error::Key { problem, .. }) = refused else {
            panic!("{key:?}: {refused:?}");
        };
        assert_eq!(problem, why, "{key:?}");
    }
    for key in [
        "corp.example/a/b",
        "k1",
        "notkubernetes.io/x",
        "corp.example/k8s.io",
        "a%2fb",
    ] {
        assert!(check(|identity| identity.extra[0].0 = key.into()).is_ok(), "{key}");
    }
}

/// A mapping with these rules for people.
fn mapping(user: &str) -> Result<ImpersonationMapping, String> {
    let text = format!("user: {user}\nci_job: {{username: string(job.id)}}\n");
    let loaded = ImpersonationMapping::parse("impersonation.cel.yaml", &text, 10);
    let found: Vec<String> = loaded.diagnostics.iter().map(ToString::to_string).collect();
    loaded.value.ok_or(found.join("; "))
}

fn identity_of(user: &str, username: &str) -> Result<Identity, Error> {
    let access_input = AccessInput::from_input(&serde_json::json!({
        "agent": {"id": 1, "name": "a", "config_project": 2, "cluster": "c"},
        "user": {"id": 3, "username": username},
        "access": {
            "type": "session_cookie",
            "as": "user",
            "projects": [{"id": 7, "path": "g/p", "roles": ["reporter", "developer"]}],
            "groups": [],
        },
    }));
    mapping(user).unwrap().apply_case(&access_input).unwrap()
}

#[test]
fn nested_lists_are_flattened() {
    let groups = "[user.username, \"['b']\", \"[['c'], ['d', 'c']]\", \"access.projects.map(p, p.roles)\", 'null']";
    let identity = identity_of(&format!("{{username: user.username, groups: {groups}}}"), "a").unwrap();
    assert_eq!(identity.groups, ["a", "b", "c", "d", "reporter", "developer"]);
    let wrong = identity_of("{username: user.username, groups: ['[1]']}", "a").unwrap_err();
    let part = "user.groups[0]".to_owned();
    let source = cel::Error::WrongType {
        observed: "int",
        expected: "list of strings",
    };
    assert_eq!(wrong, Error::Expression { part, source });
}

#[test]
fn a_name_of_kubernetes_own_must_stand_in_the_mapping() {
    let refused = |rules: &str, name: &str, part: &'static str| {
        let error = identity_of(rules, name).unwrap_err();
        let name = error.to_string();
        assert!(matches!(error, Error::System { part: p, .. } if p == part), "{name}");
    };
    let all = "{username: user.username, groups: [\"['system:masters']\"]}";
    assert_eq!(identity_of(all, "ada").unwrap().groups, ["system:masters"]);
    let auditor = "{username: \"user.username == 'ada' ? 'system:auditor' : user.username\"}";
    assert_eq!(identity_of(auditor, "ada").unwrap().username, "system:auditor");
    // A name spelled out for one user does not hold for a user who has that name, or whose name
    // completes it.
    refused(auditor, "system:auditor", "username");
    let completed = "{username: \"user.username == 'ada' ? 'system:auditor' : 'system:' + user.username\"}";
    assert_eq!(identity_of(completed, "ada").unwrap().username, "system:auditor");
    refused(completed, "auditor", "username");
    let joined = "{username: \"user.username == 'ada' ? 'system:auditor' : user.username + ':auditor'\"}";
    assert_eq!(identity_of(joined, "ada").unwrap().username, "system:auditor");
    refused(joined, "system", "username");
    let list_rules =
        "{username: \"'x'\", groups: [\"user.username == 'ada' ? ['system:masters', 'b'] : [user.username, 'b']\"]}";
    assert_eq!(identity_of(list_rules, "ada").unwrap().groups, ["system:masters", "b"]);
    assert_eq!(identity_of(list_rules, "bob").unwrap().groups, ["bob", "b"]);
    refused(list_rules, "system:masters", "group");
    refused("{username: \"'syst\\\\x65m:auditor'\"}", "ada", "username");
    // A user who has the name of a group of the mapping does not become it.
    refused(all, "system:masters", "username");
    refused("{username: \"'system:' + user.username\"}", "admin", "username");
    refused("{username: \"'system:' + 'admin'\"}", "ada", "username");
    refused(
        "{username: \"user.username == 'system:admin' ? user.username : 'x'\"}",
        "system:admin",
        "username",
    );
    refused("{username: user.username}", "system:admin", "username");
    refused(
        "{username: \"'x'\", groups: [user.username]}",
        "system:masters",
        "group",
    );
    refused(
        "{username: \"'x'\", groups: [\"['system:' + user.username]\"]}",
        "masters",
        "group",
    );
}

#[test]
fn mistakes_in_a_mapping_are_reported_with_their_field() {
    for (rules, expected) in [
        ("{}", "username"),
        ("{username: user.username, group: []}", "unknown field `group`"),
        ("{username: claims.sub}", "`user.username`: `claims` is not known here"),
        ("{username: user.username, groups: ['x +']}", "`user.groups[0]`: line 1"),
        (
            "{username: user.username, uid: 'now()'}",
            "`user.uid`: function `now` is not available",
        ),
        (
            "{username: user.username, extra: {X/y: user.username}}",
            "the key `X/y` of `extra` is not lower case",
        ),
        (
            "{username: user.username, extra: {a.k8s.io/y: user.username}}",
            "the key `a.k8s.io/y` of `extra` is of a domain of Kubernetes' own",
        ),
    ] {
        let found = mapping(rules).unwrap_err();
        assert!(found.contains(expected), "{rules}: {found}");
        assert!(found.starts_with("impersonation.cel.yaml"), "{found}");
    }
    let nowhere = ImpersonationMapping::load(Path::new("/nowhere"), 10);
    assert!(nowhere.value.is_none() && nowhere.diagnostics[0].is_error());
}

#[test]
fn the_shipped_mapping_has_these_possible_names() {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../policies/kubernetes");
    let loaded = ImpersonationMapping::load(&folder, 200);
    assert_eq!(loaded.diagnostics, vec![]);
    let PossibleNames {
        extra_keys,
        uid,
        usernames,
        groups,
    } = loaded.value.unwrap().names();
    let keys = [
        "access_type",
        "ci_job_id",
        "ci_pipeline_id",
        "config_project_id",
        "environment_slug",
        "environment_tier",
        "id",
        "project_id",
        "username",
    ];
    assert_eq!(extra_keys, keys.map(|key| format!("agent.gitlab.com/{key}")).into());
    assert!(!uid);
    let start = |text: &str| ResultLiteral::Prefix(text.to_owned());
    let whole = |text: &str| ResultLiteral::Exact(text.to_owned());
    assert_eq!(usernames, [start("gitlab:ci_job:"), start("gitlab:user:")].into());
    let expected = [
        whole("gitlab:ci_job"),
        whole("gitlab:user"),
        start("gitlab:group:"),
        start("gitlab:group_env_tier:"),
        start("gitlab:group_role:"),
        start("gitlab:project:"),
        start("gitlab:project_env:"),
        start("gitlab:project_env_tier:"),
        start("gitlab:project_role:"),
    ];
    assert_eq!(groups, expected.into());
}

/// More memberships than anybody has: the lists stay within the bounds on input to expressions.
#[test]
fn many_memberships_fit_the_bounds_on_input() {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../policies/kubernetes");
    let mapping = ImpersonationMapping::load(&folder, 2_000).value.unwrap();
    let access_input = |memberships: usize| {
        let one = |id: usize| serde_json::json!({"id": id, "path": "g/p", "roles": ["reporter", "developer"]});
        let projects: Vec<_> = (0..memberships).map(one).collect();
        AccessInput::from_input(&serde_json::json!({
            "agent": {"id": 1, "name": "a", "config_project": 2, "cluster": "c"},
            "user": {"id": 3, "username": "ada"},
            "access": {"type": "session_cookie", "as": "user", "projects": projects, "groups": []},
        }))
    };
    let identity = mapping.apply_case(&access_input(500)).unwrap().unwrap();
    assert_eq!(identity.groups.len(), 1_001);
    let refused = mapping.apply_case(&access_input(1_500)).unwrap();
    let expected = Error::TooManyGroups {
        observed: 3_001,
        allowed: 2_000,
    };
    assert_eq!(refused, Err(expected));
}
