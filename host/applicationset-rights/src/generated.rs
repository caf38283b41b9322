//! What Argo CD's controller refuses of the Applications that a set generates.

use std::collections::BTreeSet;

use serde_json::Value;

use crate::application::{duplicate, unnamed};
use crate::placement::PlacementChecker;
use tollgate_front::set_list::project_of;
use tollgate_objects::{Destination, Resources};
use tollgate_policy::applications::Projects;

/// The error of Argo CD's controller for each Application that a set generates: its name must be
/// unique, and its project and cluster must exist. `None` where the controller accepts it.
///
/// - `set`: name of the set.
///
/// Source: Argo CD, `validateGeneratedApplications`.
pub fn generated_errors(set: &str, resources: &Resources, applications: &[Value]) -> Vec<Option<String>> {
    let mut seen = BTreeSet::new();
    let (projects, _) = Projects::build(resources);
    // Only projects and destinations are looked up, and those do not depend on the namespace.
    let placement = PlacementChecker::new(resources, &projects, "");
    let mut judge = |application: &Value| {
        let name = application.pointer("/metadata/name").and_then(Value::as_str);
        let name = name.unwrap_or_default();
        if name.is_empty() {
            return Some(unnamed(set));
        }
        if !seen.insert(name.to_owned()) {
            return Some(duplicate(set, name));
        }
        let field = |pointer: &str| {
            let text = application.pointer(pointer).and_then(Value::as_str);
            text.unwrap_or_default().to_owned()
        };
        let destination = Destination {
            name: field("/spec/destination/name"),
            server: field("/spec/destination/server"),
            namespace: field("/spec/destination/namespace"),
        };
        let missing = placement.missing_project(project_of(application));
        missing.or_else(|| placement.destination_error(&destination))
    };
    applications.iter().map(&mut judge).collect()
}
