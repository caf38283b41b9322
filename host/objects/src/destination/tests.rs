use super::{
    ClustersByProject, CompiledDestinations, Error, IN_CLUSTER_SERVER, known_clusters, permitted, permitted_with,
    resolve,
};
use crate::{Cluster, ConfigMap, Destination, Project, Text};
use tollgate_core::diagnostic::Location;

fn cluster(name: &str, server: &str, project: &str) -> Cluster {
    Cluster {
        name: name.into(),
        server: server.into(),
        project: project.into(),
    }
}

/// Checks that compiled destinations give the same answer.
fn both(project: &Project, cluster: &Cluster, namespace: &str, clusters: &[Cluster]) -> bool {
    let once = permitted(project, cluster, namespace, clusters);
    let kept = CompiledDestinations::of(project).permit(cluster, namespace, clusters);
    assert_eq!(once, kept, "{project:?} {namespace}");
    let by_project = ClustersByProject::of(clusters);
    let grouped = CompiledDestinations::of(project).permit_among(cluster, namespace, || &by_project);
    assert_eq!(once, grouped, "{project:?} {namespace}");
    once
}

fn to(name: &str, server: &str) -> Destination {
    Destination {
        name: name.into(),
        server: server.into(),
        namespace: "ns".into(),
    }
}

fn project(rules: &[(&str, &str, &str)]) -> Project {
    let rule = |rule: &(&str, &str, &str)| Destination {
        name: rule.0.into(),
        server: rule.1.into(),
        namespace: rule.2.into(),
    };
    Project {
        name: "p".into(),
        destinations: rules.iter().map(rule).collect(),
        location: Location::new("p.yaml", 1),
        ..Project::default()
    }
}

fn in_cluster_enabled(value: &str) -> ConfigMap {
    let text = Text {
        value: value.into(),
        location: Location::new("cm.yaml", 1),
    };
    ConfigMap {
        data: [("cluster.inClusterEnabled".to_owned(), text)].into(),
    }
}

#[test]
fn a_destination_resolves_to_exactly_one_cluster() {
    let clusters = [
        cluster("a", "https://a", ""),
        cluster("twin", "https://b", ""),
        cluster("twin", "https://c", ""),
        cluster("in-cluster", IN_CLUSTER_SERVER, ""),
    ];
    assert_eq!(resolve(&to("a", ""), &clusters).unwrap(), clusters[0]);
    assert_eq!(resolve(&to("", "https://c/"), &clusters).unwrap(), clusters[2]);
    assert_eq!(
        resolve(&to("in-cluster", ""), &clusters).unwrap().server,
        IN_CLUSTER_SERVER
    );
    assert_eq!(resolve(&to("", ""), &clusters), Err(Error::Missing));
    let both = Error::NameAndServer {
        name: "a".into(),
        server: "https://a".into(),
    };
    assert_eq!(resolve(&to("a", "https://a"), &clusters), Err(both));
    assert_eq!(resolve(&to("A", ""), &clusters), Err(Error::UnknownName("A".into())));
    assert_eq!(
        resolve(&to("", "https://d"), &clusters),
        Err(Error::UnknownServer("https://d".into()))
    );
    let ambiguous = resolve(&to("twin", ""), &clusters).unwrap_err();
    assert_eq!(
        ambiguous.to_string(),
        "2 clusters have the name `twin`: https://b, https://c"
    );
}

#[test]
fn in_cluster_is_known_unless_redefined_or_disabled() {
    let other = cluster("a", "https://a", "");
    let own = |clusters: &[Cluster]| clusters.first().map(|first| (first.name.clone(), first.server.clone()));
    let known = known_clusters(&ConfigMap::default(), vec![other.clone()]);
    assert_eq!(own(&known), Some(("in-cluster".into(), IN_CLUSTER_SERVER.into())));
    let redefined = vec![other.clone(), cluster("home", IN_CLUSTER_SERVER, "p")];
    let known = known_clusters(&in_cluster_enabled("False"), redefined.clone());
    assert_eq!(own(&known), Some(("home".into(), IN_CLUSTER_SERVER.into())));
    assert_eq!(
        resolve(&to("in-cluster", ""), &known),
        Err(Error::UnknownName("in-cluster".into()))
    );
    assert_eq!(known_clusters(&in_cluster_enabled("false"), redefined), [other]);
}

#[test]
fn negated_names_refuse_everywhere_negated_servers_only_in_their_namespace() {
    let here = cluster("a", "https://a", "");
    let check = |rules: &[(&str, &str, &str)], namespace: &str| both(&project(rules), &here, namespace, &[]);
    let all = ("", "*", "*");
    assert!(check(&[all], "x"));
    assert!(!check(&[], "x"));
    assert!(!check(&[all, ("!a", "", "other")], "x"));
    assert!(check(&[all, ("!b", "", "other")], "x"));
    assert!(check(&[all, ("", "!https://a", "other")], "x"));
    assert!(!check(&[all, ("", "!https://a", "x")], "x"));
    assert!(!check(&[all, ("", "https://*", "!x")], "x"));
    assert!(check(&[all, ("", "https://b", "!x")], "x"));
    assert!(check(&[("a", "", "x")], "x"));
    assert!(!check(&[("a", "", "x")], "y"));
}

#[test]
fn an_invalid_pattern_never_allows_and_refuses_when_negated() {
    let here = cluster("a", "https://a", "");
    assert!(!both(&project(&[("", "[", "*")]), &here, "x", &[]));
    assert!(!both(&project(&[("", "*", "*"), ("", "![", "*")]), &here, "x", &[]));
}

#[test]
fn project_scoped_clusters_are_recognized_by_name_or_server() {
    let mut scoped = project(&[("", "*", "*")]);
    scoped.permit_only_project_scoped_clusters = true;
    let here = cluster("", "https://a", "");
    assert!(!both(&scoped, &here, "x", &[cluster("", "https://b", "p")]));
    assert!(!both(&scoped, &here, "x", &[cluster("", "https://a", "other")]));
    assert!(both(&scoped, &here, "x", &[cluster("", "https://a", "p")]));
    let failed = permitted_with(&scoped, &here, "x", || Err("no answer".into())).unwrap_err();
    assert_eq!(failed.to_string(), "could not retrieve project clusters: no answer");
}
