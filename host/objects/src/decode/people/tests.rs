use crate::Resources;
use crate::decode::load_text;
use crate::people::PersonState;
use tollgate_core::diagnostic::Loaded;
use tollgate_core::user::Role;

fn object(name: &str, spec: &str) -> String {
    format!(
        "---\napiVersion: tollgate.dev/v1alpha1\nkind: UserDirectory\nmetadata: {{name: {name}}}\nspec: {{{spec}}}\n"
    )
}

fn read(specs: &[&str]) -> Loaded<Resources> {
    let objects = specs.iter().enumerate();
    let text: String = objects
        .map(|(index, spec)| object(&format!("d{index}"), spec))
        .collect();
    load_text(&text, "f.yaml", "argocd")
}

/// Expects that every mistake refuses the load with its location.
#[track_caller]
fn refused(specs: &[&str], expected: &str) {
    let loaded = read(specs);
    assert!(loaded.value.is_none(), "{specs:?}");
    let errors: Vec<String> = loaded
        .diagnostics
        .iter()
        .filter(|finding| finding.is_error())
        .map(ToString::to_string)
        .collect();
    assert_eq!(errors.len(), 1, "{errors:#?}");
    assert!(errors[0].contains(expected), "{errors:?}\n{expected}");
    assert!(errors[0].starts_with("f.yaml:"), "{errors:?}");
}

#[test]
fn user_directories_are_merged() {
    let loaded = read(&[
        "users: [{id: 1, username: alice}, {id: 2, username: bob, state: blocked}, {id: 3, username: eve, state: active}]",
        "groups: [{id: 1, path: A, members: [{username: alice, role: owner}]}, {id: 2, path: A/B/C}]",
        "projects: [{id: 1, path: A/B/p, members: [{username: bob, role: guest}]}]",
    ]);
    let people = loaded.value.unwrap().people;
    assert_eq!(people.person(1).unwrap().state, PersonState::Active);
    assert_eq!(people.person_by_username("bob").unwrap().state, PersonState::Blocked);
    assert_eq!(people.person_by_username("eve").unwrap().user.id, 3);
    assert!(people.person_by_username("Alice").is_none() && people.person(9).is_none());
    let project = people.project("a/b/p").unwrap();
    assert_eq!((project.id, project.members.get(&2)), (1, Some(&Role::Guest)));
    assert!(people.project("A/B/p").is_none() && people.group("a/b/p").is_none());
    // `a/b` is a folder that is not a group; the one above it counts.
    let above = |path| -> Vec<i64> { people.ancestor_groups(path).map(|group| group.id).collect() };
    assert_eq!(above("a/b/p"), [1]);
    assert_eq!(above("a/b/c/d"), [2, 1]);
    assert_eq!(above("a"), [0_i64; 0]);
    assert_eq!(people.group_by_id(2).unwrap().path.as_ref(), "a/b/c");
    assert_eq!(people.project_by_id(1).unwrap().path.as_ref(), "a/b/p");
    assert!(people.project_by_id(2).is_none() && people.group_by_id(9).is_none());
}

#[test]
fn duplicate_ids_names_and_paths_are_refused() {
    let alice = "users: [{id: 1, username: alice}]";
    refused(
        &[alice, "users: [{id: 1, username: bob}]"],
        "the user number `1` occurs twice, first at f.yaml:5:16",
    );
    refused(
        &[alice, "users: [{id: 2, username: Alice}]"],
        "the username `alice` occurs twice",
    );
    refused(
        &["groups: [{id: 1, path: a}, {id: 1, path: b}]"],
        "the group number `1` occurs twice",
    );
    refused(
        &["groups: [{id: 1, path: a}, {id: 2, path: A}]"],
        "the path `a` occurs twice",
    );
    refused(
        &["projects: [{id: 1, path: a/b}, {id: 1, path: b}]"],
        "the project number `1` occurs twice",
    );
    refused(
        &["projects: [{id: 1, path: a}]", "groups: [{id: 2, path: a}]"],
        "the path `a` occurs twice",
    );
    let twice = "groups: [{id: 1, path: a, members: [{username: alice, role: guest}, {username: alice, role: owner}]}]";
    refused(&[alice, twice], "the member `alice` occurs twice");
    // Groups and projects are numbered separately.
    assert!(
        read(&["groups: [{id: 1, path: a}], projects: [{id: 1, path: b}]"])
            .value
            .is_some()
    );
}

#[test]
fn invalid_fields_refuse_the_load() {
    refused(&["user: []"], "`spec.user` is not known");
    refused(
        &["users: [{id: 1, username: a, stat: blocked}]"],
        "`spec.users[0].stat` is not known",
    );
    refused(
        &["users: [{id: 1, username: a, state: Blocked}]"],
        "`spec.users[0].state` is `Blocked`, allowed are",
    );
    refused(
        &["users: [{id: 0, username: a}]"],
        "`spec.users[0].id` is `0`, at least 1 is allowed",
    );
    refused(&["users: [{username: a}]"], "`spec.users[0].id` is missing");
    refused(&["users: [{id: 1}]"], "`spec.users[0].username` is missing");
    refused(&["users: [{id: 1, username: \"a\\nb\"}]"], "has control characters");
    refused(&["groups: [{id: 1, path: a/}]"], "`a/`, which is no path");
    refused(&["groups: [{id: 1}]"], "`spec.groups[0].path` is missing");
    refused(
        &["groups: [{id: 1, path: a, owner: b}]"],
        "`spec.groups[0].owner` is not known",
    );
    let member =
        |member: &str| format!("users: [{{id: 1, username: a}}], groups: [{{id: 1, path: a, members: [{member}]}}]");
    refused(
        &[&member("{username: a, role: admin}")],
        "`spec.groups[0].members[0].role` is `admin`, allowed are `guest`",
    );
    refused(&[&member("{username: a}")], "role` is missing");
    refused(
        &[&member("{username: a, role: guest, until: x}")],
        "until` is not known",
    );
}

#[test]
fn unknown_members_are_warned_about_and_ignored() {
    let loaded = read(&["groups: [{id: 1, path: a, members: [{username: eve, role: owner}]}]"]);
    let lines: Vec<String> = loaded.diagnostics.iter().map(ToString::to_string).collect();
    let expected = "f.yaml:5:44: warning: `eve` is a member of `a` and no user of any directory";
    assert!(lines.iter().any(|line| line == expected), "{lines:?}");
    assert!(loaded.value.unwrap().people.group("a").unwrap().members.is_empty());
}

#[test]
fn an_object_without_spec_is_refused() {
    let text = "apiVersion: tollgate.dev/v1alpha1\nkind: UserDirectory\nmetadata: {name: people}\n";
    let loaded = load_text(text, "f.yaml", "argocd");
    assert!(loaded.value.is_none());
}
