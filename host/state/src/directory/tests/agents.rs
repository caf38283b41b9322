//! Agents and their configurations, in folders.

use std::collections::BTreeMap;
use std::path::Path;
use std::sync::Arc;

use serde_json::json;

use crate::directory::load;
use tollgate_core::diagnostic::Loaded;
use tollgate_objects::Resources;
use tollgate_objects::agent::{AccessMode, MappedAuthorization, Sharing, UserAccess};
use tollgate_objects::decode::{configured_agent, load_text};
use tollgate_objects::people::PersonState;

fn object(config: &str) -> String {
    format!(
        "apiVersion: tollgate.dev/v1alpha1\nkind: Agent\nmetadata: {{name: my-agent}}\nspec:\n  id: 9999\n  \
         configProject: {{id: 1234}}\n  cluster: in-cluster\n{config}"
    )
}

fn lines(loaded: &Loaded<Resources>) -> Vec<String> {
    let shown = loaded.diagnostics.iter().map(ToString::to_string);
    shown.filter(|line| !line.contains("argocd-cm")).collect()
}

fn sharing(resources: &Resources) -> &Sharing {
    &resources.agents["my-agent"].sharing
}

fn people(resources: &Resources) -> Arc<UserAccess> {
    match sharing(resources) {
        Sharing::People(access) => Arc::clone(access),
        other => panic!("{other:?}"),
    }
}

/// One configuration in the object, at line 8.
fn inline(config: &str) -> Loaded<Resources> {
    load_text(&object(&format!("  config: {{{config}}}\n")), "f.yaml", "argocd")
}

/// A configuration with mistakes does not refuse the load. Only the agent cannot be used, and the
/// findings say where the mistakes are.
#[track_caller]
fn broken(config: &str, expected: &[&str]) {
    let loaded = inline(config);
    let lines = lines(&loaded);
    let resources = loaded.value.unwrap();
    assert_eq!(sharing(&resources), &Sharing::Invalid, "{config}");
    assert_eq!(lines.len(), expected.len(), "{config}: {lines:#?}");
    for (line, expected) in lines.iter().zip(expected) {
        assert!(line.starts_with("f.yaml:8:"), "{line}");
        assert!(
            line.contains("warning: the configuration of agent `my-agent` cannot be used: "),
            "{line}"
        );
        assert!(line.contains(expected), "{line}\n{expected}");
    }
}

fn folder(files: &[(&str, &str)]) -> tempfile::TempDir {
    let folder = tempfile::tempdir().unwrap();
    let files: BTreeMap<&str, &str> = files.iter().copied().collect();
    for (path, text) in files {
        let path = folder.path().join(path);
        std::fs::create_dir_all(path.parent().unwrap()).unwrap();
        std::fs::write(path, text).unwrap();
    }
    folder
}

fn errors(folder: &Path) -> Vec<String> {
    let loaded = load(folder, "argocd");
    let errors = loaded.diagnostics.iter().filter(|finding| finding.is_error());
    errors.map(ToString::to_string).collect()
}

const GOOD: &str = "user_access:\n  access_as:\n    user: {}\n  projects:\n    - id: Group-1/Project-1\n  groups:\n    \
                    - id: group-2\n    - id: GROUP-2\n    - id: group-3/subgroup\n";

#[test]
fn an_agent_is_read_with_its_configuration() {
    let loaded = load_text(
        &object("  config:\n    user_access:\n      access_as: {agent: {}}\n      groups: [{id: A}]\n"),
        "f.yaml",
        "argocd",
    );
    assert_eq!(lines(&loaded), Vec::<String>::new());
    let resources = loaded.value.unwrap();
    let agent = &resources.agents["my-agent"];
    let binding = agent.binding.as_ref().unwrap();
    assert_eq!((binding.id.get(), binding.config_project), (9999, 1234));
    assert_eq!(binding.cluster, "in-cluster");
    let access = people(&resources);
    assert_eq!(
        (access.access_mode, access.groups.as_slice()),
        (AccessMode::Agent, &[Arc::from("a")][..])
    );
    assert_eq!(access.location.line, 10);
}

#[test]
fn a_gitlab_config_file_configures_the_agent_of_its_folder() {
    for path in [
        ".gitlab/agents/my-agent/config.yaml",
        "agents/my-agent/config.yaml",
        "team/repo/.gitlab/agents/my-agent/config.yaml",
    ] {
        let folder = folder(&[("agent.yaml", &object("")), (path, GOOD)]);
        let loaded = load(folder.path(), "argocd");
        assert_eq!(lines(&loaded), Vec::<String>::new(), "{path}");
        let access = people(loaded.value.as_ref().unwrap());
        assert_eq!(access.access_mode, AccessMode::User);
        assert_eq!(access.projects, [Arc::from("group-1/project-1")]);
        assert_eq!(access.groups, [Arc::from("group-2"), Arc::from("group-3/subgroup")]);
        assert!(
            access.location.to_string().ends_with(&format!("{path}:2:3")),
            "{}",
            access.location
        );
    }
}

#[test]
fn other_files_of_hidden_folders_are_not_read() {
    let folder = folder(&[
        ("agent.yaml", &object("")),
        (".gitlab/ci/jobs.yaml", "build: {}"),
        (".gitlab/agents/readme.yaml", "about: {}"),
        (".gitlab/agents/my-agent/other.yaml", "about: {}"),
        (".gitlab/agents/my-agent/deep/config.yaml", "about: {}"),
        (".gitlab/agents/.hidden/config.yaml", "about: {}"),
        (".github/agents/my-agent/config.yaml", GOOD),
    ]);
    let loaded = load(folder.path(), "argocd");
    assert_eq!(lines(&loaded), Vec::<String>::new());
    assert_eq!(sharing(&loaded.value.unwrap()), &Sharing::Nobody);
}

#[test]
fn config_files_outside_an_agent_folder_are_read_as_objects() {
    let folder = folder(&[("agents/config.yaml", GOOD), ("a/my-agent/config.yaml", GOOD)]);
    let errors = errors(folder.path());
    assert_eq!(errors.len(), 2, "{errors:?}");
    assert!(
        errors.iter().all(|line| line.contains("not a Kubernetes object")),
        "{errors:?}"
    );
}

#[test]
fn an_invalid_configuration_file_affects_only_its_agent() {
    let path = ".gitlab/agents/my-agent/config.yaml";
    for (text, expected) in [
        ("", "file is empty"),
        ("user_access: [", ":1:"),
        ("- a\n", "must be a mapping, found a list"),
        ("user_access: {}\n---\nuser_access: {}\n", ":3:1: warning"),
        (
            "user_access:\n  access_as: {user: {}}\n  project: []\n",
            ":3:3: warning",
        ),
    ] {
        let folder = folder(&[("agent.yaml", &object("")), (path, text)]);
        let loaded = load(folder.path(), "argocd");
        let lines = lines(&loaded);
        assert!(lines.iter().any(|line| line.contains(expected)), "{lines:?}");
        assert!(lines.iter().all(|line| line.contains(path)), "{lines:?}");
        assert_eq!(sharing(&loaded.value.unwrap()), &Sharing::Invalid, "{text}");
    }
}

#[test]
fn a_configuration_without_user_access_shares_with_nobody() {
    for text in [
        "# nothing yet\n",
        "{}\n",
        "gitops: {}\n",
        "ci_access: {groups: [{id: a}]}\n",
        "user_access:\n",
    ] {
        let folder = folder(&[("agent.yaml", &object("")), ("agents/my-agent/config.yaml", text)]);
        let loaded = load(folder.path(), "argocd");
        assert_eq!(sharing(&loaded.value.unwrap()), &Sharing::Nobody, "{text}");
    }
}

#[test]
fn neither_of_two_configurations_of_an_agent_is_used() {
    let good = folder(&[("agent.yaml", &object("")), ("agents/my-agent/config.yaml", GOOD)]);
    assert_eq!(errors(good.path()), Vec::<String>::new());
    let both = folder(&[
        ("agent.yaml", &object("  config: {}\n")),
        ("agents/my-agent/config.yaml", GOOD),
    ]);
    let neither = |path: &std::path::Path, words: &str| {
        let loaded = load(path, "argocd");
        let found = lines(&loaded);
        assert!(found.iter().any(|line| line.contains(words)), "{found:?}");
        assert_eq!(loaded.value.unwrap().agents["my-agent"].sharing, Sharing::Invalid);
    };
    neither(
        both.path(),
        "warning: agent `my-agent` has a configuration in its object too, at ",
    );
    let twice = folder(&[
        ("agent.yaml", &object("")),
        ("agents/my-agent/config.yaml", GOOD),
        (".gitlab/agents/my-agent/config.yaml", GOOD),
    ]);
    neither(twice.path(), "warning: agent `my-agent` has two configuration files");
}

#[test]
fn a_configuration_file_without_an_agent_is_warned_about() {
    let folder = folder(&[("agents/other/config.yaml", GOOD)]);
    let loaded = load(folder.path(), "argocd");
    let lines = lines(&loaded);
    assert!(
        lines[0].contains("warning: there is no Agent `other` this file could configure"),
        "{lines:?}"
    );
    assert!(loaded.value.is_some());
}

#[test]
fn agents_with_a_duplicate_id_are_left_out_and_no_others() {
    let second = object("").replace("my-agent", "second");
    let third = object("").replace("my-agent", "third").replace("9999", "7");
    let blocked = "apiVersion: tollgate.dev/v1alpha1\nkind: UserDirectory\nmetadata: {name: people}\n\
                   spec: {users: [{id: 1, username: eve, state: blocked}]}\n";
    let text = format!("{}---\n{second}---\n{third}---\n{blocked}", object(""));
    let loaded = load_text(&text, "f.yaml", "argocd");
    let lines = lines(&loaded);
    assert_eq!(
        lines,
        ["f.yaml:9:1: warning: two agents have the number `9999`, the other at f.yaml:1:1; both are closed"]
    );
    let resources = loaded.value.unwrap();
    assert_eq!(resources.agents.keys().collect::<Vec<_>>(), ["third"]);
    assert_eq!(resources.people.person(1).unwrap().state, PersonState::Blocked);
    let other = second.replace("9999", "8");
    let loaded = load_text(&format!("{}---\n{other}", object("")), "f.yaml", "argocd");
    assert_eq!(loaded.value.unwrap().agents.len(), 2);
}

#[test]
fn agents_with_a_duplicate_name_are_left_out_and_no_others() {
    let twin = object("").replace("9999", "8");
    let other = object("").replace("my-agent", "other").replace("9999", "7");
    let text = format!("{}---\n{twin}---\n{other}", object(""));
    let loaded = load_text(&text, "f.yaml", "argocd");
    let lines = lines(&loaded);
    let expected = "f.yaml:9:1: warning: Agent `my-agent` in namespace `argocd` is defined twice, first at f.yaml:1:1; \
                    it is closed";
    assert_eq!(lines, [expected]);
    assert_eq!(loaded.value.unwrap().agents.keys().collect::<Vec<_>>(), ["other"]);
}

#[test]
fn an_agent_s_name_is_a_dns_label_and_no_number() {
    let [longest, long] = [63, 64].map(|letters| "a".repeat(letters));
    for (name, good) in [
        ("prod", true),
        ("9999a", true),
        ("a-1", true),
        (&longest, true),
        ("'9999'", false),
        ("'007'", false),
        ("1-2", false),
        ("Prod", false),
        ("a_b", false),
        ("a.b", false),
        ("a/b", false),
        ("-a", false),
        ("a-", false),
        (&long, false),
    ] {
        let loaded = load_text(&object("").replace("my-agent", name), "f.yaml", "argocd");
        let lines = lines(&loaded);
        assert_eq!(loaded.value.unwrap().agents.len(), usize::from(good), "{name}");
        assert_eq!(lines.len(), usize::from(!good), "{lines:?}");
        if !good {
            let expected = format!(
                "f.yaml:1:1: warning: agent `{}` is closed: its name",
                name.trim_matches('\'')
            );
            assert!(lines[0].starts_with(&expected), "{lines:?}");
        }
    }
}

#[test]
fn access_as_has_exactly_one_known_key() {
    broken("user_access: {}", &["`spec.config.user_access.access_as` is missing"]);
    broken("user_access: {access_as: {}}", &["has 0 keys, exactly one is allowed"]);
    broken(
        "user_access: {access_as: {agent: {}, user: {}}}",
        &["has 2 keys, exactly one is allowed"],
    );
    let unknown = "`spec.config.user_access.access_as.cluster_admin` is not known";
    broken("user_access: {access_as: {cluster_admin: {}}}", &[unknown]);
    broken(
        "user_access: {access_as: {agent: {admin: true}}}",
        &["`spec.config.user_access.access_as.agent` must be"],
    );
    broken(
        "user_access: {access_as: {agent: }}",
        &["access_as.agent` must be `{}`"],
    );
    broken("user_access: {access_as: user}", &["must be a mapping, found text"]);
    for (kind, expected) in [
        ("agent", AccessMode::Agent),
        ("user", AccessMode::User),
        ("mapped", AccessMode::Mapped(MappedAuthorization::Claim)),
    ] {
        let loaded = inline(&format!("user_access: {{access_as: {{{kind}: {{}}}}}}"));
        assert_eq!(people(&loaded.value.unwrap()).access_mode, expected);
    }
    for list in ["groups: []", "projects: ", "groups: [{id: a}]"] {
        let loaded = inline(&format!("user_access: {{access_as: {{mapped: {{}}}}, {list}}}"));
        let expected = AccessMode::Mapped(MappedAuthorization::Membership);
        assert_eq!(people(&loaded.value.unwrap()).access_mode, expected, "{list}");
    }
}

#[test]
fn groups_and_projects_are_lists_of_paths() {
    let with = |list: &str| format!("user_access: {{access_as: {{user: {{}}}}, {list}}}");
    broken(
        &with("group: [{id: a}]"),
        &["`spec.config.user_access.group` is not known"],
    );
    broken(
        &with("groups: [{id: a, role: owner}]"),
        &["`spec.config.user_access.groups[0].role` is not known"],
    );
    broken(
        &with("groups: [{}]"),
        &["`spec.config.user_access.groups[0].id` is missing"],
    );
    broken(&with("groups: {id: a}"), &["must be a list, found a mapping"]);
    broken(&with("groups: [a]"), &["must be a mapping, found text"]);
    for path in ["/a", "a/", "a//b", "a b"] {
        let expected = format!("`{path}`, which is no path");
        broken(&with(&format!("projects: [{{id: {path}}}]")), &[&expected]);
    }
}

#[test]
fn only_the_first_500_entries_count() {
    for (entries, findings) in [(500, 0), (501, 1)] {
        let list: Vec<String> = (0..entries)
            .map(|number| format!("{{id: g{number}}}, {{id: G{number}}}"))
            .collect();
        let loaded = inline(&format!(
            "user_access: {{access_as: {{user: {{}}}}, groups: [{}]}}",
            list.join(", ")
        ));
        let lines = lines(&loaded);
        assert_eq!(lines.len(), findings, "{lines:?}");
        let access = people(&loaded.value.unwrap());
        assert_eq!(access.groups.len(), 500);
        assert_eq!(access.groups[499].as_ref(), "g499");
    }
}

#[test]
fn unknown_configuration_keys_are_only_warned_about() {
    let loaded = inline("user_access: {access_as: {user: {}}}, workspaces: {}, remote_development: {}");
    let lines = lines(&loaded);
    assert_eq!(lines.len(), 1, "{lines:?}");
    assert!(
        lines[0].ends_with("warning: `spec.config.workspaces` is not known"),
        "{lines:?}"
    );
    people(&loaded.value.unwrap());
}

#[test]
fn a_misspelled_user_access_is_a_mistake() {
    for key in ["userAccess", "user-access", "user_acess", "user_accesss", "User_Access"] {
        let loaded = inline(&format!("{key}: {{access_as: {{user: {{}}}}, groups: [{{id: a}}]}}"));
        let lines = lines(&loaded);
        let expected = format!("`spec.config.{key}` is not known");
        assert!(
            lines
                .iter()
                .any(|line| line.contains(&expected) && line.contains("is `user_access` meant?")),
            "{lines:?}"
        );
        let agents = loaded.value.unwrap().agents;
        assert!(agents.values().all(|agent| agent.sharing == Sharing::Invalid), "{key}");
    }
    // Beside the right key it is a key of a newer GitLab.
    let loaded = inline("user_access: {access_as: {user: {}}}, user_accesses: {}");
    people(&loaded.value.unwrap());
}

#[test]
fn a_configuration_is_kept_whole_unless_it_has_mistakes() {
    let document = |config: &str| inline(config).value.unwrap().agents["my-agent"].configuration.clone();
    let all = document("ci_access: {groups: [{id: A/b}]}, gitops: {a: [1, true, \"1\"]}, unknown: x").unwrap();
    let expected = json!({
        "ci_access": {"groups": [{"id": "A/b"}]}, "gitops": {"a": [1, true, "1"]}, "unknown": "x",
    });
    assert_eq!(*all, expected);
    assert_eq!(document(""), Some(Arc::new(json!({}))));
    assert_eq!(document("ci_access: {users: []}"), None);
    let without = load_text(&object(""), "f.yaml", "argocd").value.unwrap();
    assert_eq!(without.agents["my-agent"].configuration, Some(Arc::new(json!({}))));
}

#[test]
fn ci_access_has_the_fields_of_gitlab() {
    let good = "ci_access: {groups: [{id: a, default_namespace: n, environments: [prod], protected_branches_only: true, \
                access_as: {ci_job: {}}}], projects: [{id: a/b, access_as: {impersonate: {username: u, uid: i, \
                groups: [g], extra: [{key: k, val: [v]}]}}}], instance: {}}";
    let loaded = inline(good);
    assert_eq!(lines(&loaded), Vec::<String>::new());
    assert_eq!(sharing(&loaded.value.unwrap()), &Sharing::Nobody);
    for (config, expected) in [
        ("ci_access: {groups: [{}]}", "groups[0].id` is missing"),
        ("ci_access: {users: []}", "`spec.config.ci_access.users` is not known"),
        ("ci_access: {groups: [{id: a, access_as: {}}]}", "has 0 keys"),
        (
            "ci_access: {groups: [{id: a, access_as: {root: {}}}]}",
            "access_as.root` is not known",
        ),
        (
            "ci_access: {groups: [{id: a, access_as: {impersonate: {groups: [g]}}}]}",
            "username` is missing",
        ),
        ("ci_access: {groups: [{id: a, environments: prod}]}", "must be a list"),
    ] {
        broken(config, &[expected]);
    }
}

#[test]
fn an_invalid_agent_object_has_no_binding() {
    for (from, to, expected) in [
        ("id: 9999", "id: 0", "`spec.id` is `0`, at least 1 is allowed"),
        ("id: 9999", "id: '9999'", "`spec.id` must be a whole number, found text"),
        ("id: 9999", "number: 9999", "`spec.number` is not known"),
        (
            "configProject: {id: 1234}",
            "configProject: 1234",
            "`spec.configProject` must be a mapping",
        ),
        (
            "configProject: {id: 1234}",
            "configProject: {}",
            "`spec.configProject.id` is missing",
        ),
        ("cluster: in-cluster", "cluster: ''", "`spec.cluster` is missing"),
    ] {
        let loaded = load_text(&object("").replace(from, to), "f.yaml", "argocd");
        let lines = lines(&loaded);
        assert!(lines.iter().any(|line| line.contains(expected)), "{lines:?}");
        assert!(lines.iter().all(|line| line.starts_with("f.yaml:")), "{lines:?}");
        assert_eq!(loaded.value.unwrap().agents["my-agent"].binding, None, "{to}");
    }
}

#[test]
fn an_unknown_cluster_is_warned_about() {
    let loaded = load_text(&object("").replace("in-cluster", "production"), "f.yaml", "argocd");
    let lines = lines(&loaded);
    assert_eq!(
        lines,
        ["f.yaml:1:1: warning: agent `my-agent` is for the cluster `production`, which is not known"]
    );
    let by_server = object("").replace("in-cluster", "https://kubernetes.default.svc");
    assert_eq!(load_text(&by_server, "f.yaml", "argocd").diagnostics.len(), 1);
}

#[test]
fn configuration_files_are_recognized_by_their_path() {
    assert_eq!(configured_agent(".gitlab/agents/a/config.yaml"), Some("a"));
    assert_eq!(configured_agent("agents/a/config.yaml"), Some("a"));
    for other in [
        "agents/config.yaml",
        "config.yaml",
        "agents/a/b/config.yaml",
        "agents/a/config.yml",
        "xagents/a/config.yaml",
        "agents//config.yaml",
    ] {
        assert_eq!(configured_agent(other), None, "{other}");
    }
}
