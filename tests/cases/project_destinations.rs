//! Runs the cases of `project_destinations.yaml`.

use serde::Deserialize;
use tollgate_core::diagnostic::Location;
use tollgate_objects::destination::{Error, permitted_with};
use tollgate_objects::{Cluster, Destination, Project};

use crate::suite::{Case, Suite, Table};

/// Kinds of the project destinations table.
pub(crate) struct ProjectDestinations;

impl Suite for ProjectDestinations {
    fn covers(&self, _table: &Table, kind: &str) -> bool {
        matches!(kind, "destination_permitted" | "destination_permitted_error")
    }

    fn run(&self, _table: &Table, case: &Case) -> Result<(), String> {
        match case.kind.as_str() {
            "destination_permitted" => destination_permitted(case),
            "destination_permitted_error" => destination_permitted_error(case),
            other => Err(format!("no handler for `{other}`")),
        }
    }
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Rule {
    #[serde(default)]
    name: String,
    #[serde(default)]
    server: String,
    #[serde(default)]
    namespace: String,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Known {
    #[serde(default)]
    name: String,
    #[serde(default)]
    server: String,
}

/// The fields of both kinds. Each kind has one of the last two.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Question {
    project_destinations: Vec<Rule>,
    resolved_cluster: Known,
    destination_namespace: String,
    #[serde(default)]
    permit_only_project_scoped_clusters: bool,
    #[serde(default)]
    project_clusters: Vec<Known>,
    project_clusters_error: Option<String>,
    expected: Option<bool>,
    expected_error_contains: Option<String>,
}

/// `destination_permitted`: whether the project permits the destination.
fn destination_permitted(case: &Case) -> Result<(), String> {
    let mut case: Question = case.read()?;
    let expected = case.expected.take().ok_or("`expected` is missing")?;
    if case.expected_error_contains.is_some() {
        return Err("`expected_error_contains` belongs to the other kind".to_owned());
    }
    match decide(case) {
        Ok(found) if found == expected => Ok(()),
        found => Err(format!("found {found:?}, expected {expected}")),
    }
}

/// `destination_permitted_error`: an error instead of a decision.
fn destination_permitted_error(case: &Case) -> Result<(), String> {
    let mut case: Question = case.read()?;
    let expected = case
        .expected_error_contains
        .take()
        .ok_or("`expected_error_contains` is missing")?;
    if case.expected.is_some() {
        return Err("`expected` belongs to the other kind".to_owned());
    }
    match decide(case) {
        Err(error) if error.to_string().contains(&expected) => Ok(()),
        found => Err(format!("found {found:?}, expected an error with `{expected}`")),
    }
}

fn decide(case: Question) -> Result<bool, Error> {
    let rule = |Rule {
                    name,
                    server,
                    namespace,
                }: Rule| Destination {
        name,
        server,
        namespace,
    };
    let project = Project {
        name: "project".to_owned(),
        destinations: case.project_destinations.into_iter().map(rule).collect(),
        permit_only_project_scoped_clusters: case.permit_only_project_scoped_clusters,
        location: Location::new("case", 0),
        ..Project::default()
    };
    let known = |Known { name, server }: Known| Cluster {
        name,
        server,
        project: "project".to_owned(),
    };
    let cluster = known(case.resolved_cluster);
    let owned: Vec<Cluster> = case.project_clusters.into_iter().map(known).collect();
    permitted_with(&project, &cluster, &case.destination_namespace, || {
        match case.project_clusters_error {
            Some(error) => Err(error),
            None => Ok(owned),
        }
    })
}
