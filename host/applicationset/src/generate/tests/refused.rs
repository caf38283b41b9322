use serde_json::json;

use super::super::static_inputs;
use super::{Error, Fixture, cluster, list, matrix, own_cluster};
use crate::{DeniedResource, GeneratorKind};

fn fixture(forbidden: Vec<DeniedResource>) -> Fixture {
    Fixture {
        clusters: vec![
            cluster("a", &[("env", "dev")], &[]),
            cluster("b", &[], &[]),
            own_cluster(),
        ],
        files: vec![("apps/one/x", "")],
        plugin_params: vec![serde_json::Map::new()],
        forbidden,
        ..Fixture::default()
    }
}

#[test]
fn all_denied_inputs_are_reported_at_once_and_none_is_read() {
    let repository = "https://git.example/r".to_owned();
    let git = json!({"git": {"repoURL": repository, "directories": [{"path": "*"}]}});
    let generators =
        json!([{"clusters": {}}, git, {"plugin": {}}, matrix(json!([list(json!([{"a": "1"}])), git])), {"merge": {}}]);
    let forbidden = vec![
        DeniedResource::Cluster("a".to_owned()),
        DeniedResource::Cluster("in-cluster".to_owned()),
        DeniedResource::Repository(repository),
        DeniedResource::Generator("plugin"),
    ];
    let fixture = fixture(forbidden.clone());
    // The error of the broken merge generator is not reported.
    let Err(Error::Denied(refused)) = fixture.params(json!({"generators": generators})) else {
        panic!("everything is forbidden");
    };
    let about: Vec<DeniedResource> = refused.into_iter().map(|refusal| refusal.about).collect();
    assert_eq!(about, forbidden);
    assert!(fixture.accesses.lock().unwrap().is_empty());
}

#[test]
fn only_selected_clusters_are_authorized() {
    let generator = json!({"clusters": {"selector": {"matchLabels": {"env": "dev"}}}});
    let others = vec![
        DeniedResource::Cluster("b".to_owned()),
        DeniedResource::Cluster("in-cluster".to_owned()),
    ];
    assert_eq!(fixture(others).fast(generator.clone()).unwrap().len(), 1);
    assert!(matches!(
        fixture(vec![DeniedResource::Cluster("a".to_owned())]).fast(generator),
        Err(Error::Denied(refused)) if refused.len() == 1
    ));
}

#[test]
fn repositories_named_by_parameters_are_authorized_once_known() {
    let elements = json!([{"r": "mine"}, {"r": "theirs"}]);
    let git = json!({"git": {"repoURL": "https://git.example/{{r}}", "directories": [{"path": "apps"}]}});
    let generator = matrix(json!([list(elements), git]));
    let theirs = DeniedResource::Repository("https://git.example/theirs".to_owned());
    let refusing = fixture(vec![theirs.clone()]);
    assert!(matches!(
        refusing.fast(generator.clone()),
        Err(Error::Denied(refused)) if refused.len() == 1 && refused[0].about == theirs
    ));
    assert_eq!(*refusing.accesses.lock().unwrap(), ["https://git.example/mine@"]);
    assert_eq!(fixture(Vec::new()).fast(generator).unwrap().len(), 2);
}

#[test]
fn static_inputs_are_found_without_running_generators() {
    let git = |url: &str| json!({"git": {"repoURL": url, "files": [{"path": "x"}]}});
    let clusters = |env: &str| json!({"clusters": {"selector": {"matchLabels": {"env": env}}}});
    let set = Fixture::set(json!({"generators": [
        git("https://b"),
        matrix(json!([git("https://a/{{x}}"), git("https://c")])),
        matrix(json!([clusters("dev"), matrix(json!([git("https://b"), {"pullRequest": {}}]))])),
        {"clusters": {}, "list": {}, "plugin": {}},
    ]}));
    let found = static_inputs(&set.spec).unwrap();
    assert_eq!(found.repositories, ["https://a/{{x}}", "https://b", "https://c"]);
    assert_eq!(found.plugin_kinds, [GeneratorKind::PullRequest, GeneratorKind::Plugin]);
    assert!(!found.is_incomplete);
    let fixture = fixture(Vec::new());
    let names = |index: usize| -> Vec<&str> {
        let chosen = found.clusters[index].of(&fixture.clusters);
        chosen.into_iter().map(|cluster| cluster.name.as_str()).collect()
    };
    assert_eq!((names(0), names(1)), (vec!["a"], vec!["a", "b", "in-cluster"]));
    assert_eq!(
        found.clusters[0].path,
        "spec.generators[2].matrix.generators[0].clusters"
    );
}

#[test]
fn inputs_that_depend_on_parameters_make_static_inputs_incomplete() {
    for second in [
        json!({"git": {"repoURL": "https://{{x}}"}}),
        json!({"clusters": {"selector": {"matchLabels": {"{{x}}": "y"}}}}),
        json!({"merge": {"generators": [{"git": {"repoURL": "https://{{x}}"}}]}}),
    ] {
        let set = Fixture::set(json!({"generators": [matrix(json!([list(json!([])), second]))]}));
        let found = static_inputs(&set.spec).unwrap();
        assert!(
            found.is_incomplete && found.repositories.is_empty() && found.clusters.is_empty(),
            "{second}"
        );
    }
    let set = Fixture::set(json!({"generators": [{"clusters": {"selector": {"matchLabels": {"a": "{{x}}"}}}}]}));
    let error = static_inputs(&set.spec).unwrap_err().to_string();
    assert!(error.contains("is not a value labels have"), "{error}");
}
