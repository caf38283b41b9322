//! Changes that a set holds back are authorized like changes that are written.

use serde_json::json;

use super::*;
use crate::tests::policy::with_policy;
use tollgate_applicationset::ApplicationsSync;

const SETS: &str = "p, ann, applicationsets, *, *, allow\np, ann, applications, *, dev/*, allow\n";
const PROD: &str = "p, ann, applications, create, prod/*, allow\np, ann, applications, update, prod/*, allow\n";

/// A set of `dev` that creates Applications and never changes them.
fn create_only() -> ApplicationSet {
    let mut set = set("dev");
    set.spec.sync_policy.applications = ApplicationsSync::CreateOnly;
    set
}

/// A set of `dev` whose Applications keep one field as it is stored.
fn ignoring(pointer: &str) -> ApplicationSet {
    let mut set = set("dev");
    set.object["spec"]["ignoreApplicationDifferences"] = json!([{"jsonPointers": [pointer]}]);
    set
}

/// The set is changed, and generates one Application in place of `dev/a`.
fn upsert(rows: &str, set: &ApplicationSet, generated: Value) -> Result<ApprovedPlan, Error> {
    let existing = stored("dev", vec![application("a", "dev")]);
    Fixture::new(rows).authorize(Operation::Upsert, set, &existing, vec![generated])
}

#[test]
fn held_back_changes_need_permissions_in_the_target_project() {
    for (set, what) in [(create_only(), "create-only"), (ignoring("/spec/project"), "ignored")] {
        let found = refusals(upsert(SETS, &set, application("a", "prod")));
        let missing = |action: &str| format!("application `prod/a`: `applications, {action}` is not permitted");
        assert_eq!(found, [missing("create"), missing("update")], "{what}");
        let both = format!("{SETS}{PROD}");
        let approved = upsert(&both, &set, application("a", "prod")).unwrap();
        // It stays where it is.
        assert_eq!(projects_of(&approved), ["dev"], "{what}");
        assert!(upsert(SETS, &set, application("a", "dev")).is_ok(), "{what}");
    }
}

#[test]
fn held_back_changes_must_be_permitted_by_the_project() {
    let sourced = json!({"repoURL": "https://elsewhere.example.org/x", "path": "."});
    let elsewhere = json!({"name": "eu", "namespace": "kube-system"});
    for (key, value, pointer, expected) in [
        ("source", sourced, "/spec/source", "is not permitted in project 'dev'"),
        (
            "destination",
            elsewhere,
            "/spec/destination",
            "do not match any of the allowed destinations",
        ),
        (
            "project",
            json!("nope"),
            "/spec/project",
            "references project nope which does not exist",
        ),
    ] {
        let rows = "p, ann, *, *, */*, allow";
        for set in [create_only(), ignoring(pointer)] {
            let wanted = with(application("a", "dev"), key, value.clone());
            refused(upsert(rows, &set, wanted), expected);
            assert!(upsert(rows, &set, application("a", "dev")).is_ok(), "{key}");
        }
    }
}

/// A set whose project is a template also needs its own permissions in that project.
#[test]
fn a_templated_set_needs_permissions_for_held_back_changes() {
    let applications = "p, ann, applications, *, *, allow\np, ann, applicationsets, *, dev/*, allow\n";
    let mut templated = set("{{ .p }}");
    templated.spec.sync_policy.applications = ApplicationsSync::CreateOnly;
    let existing = stored("{{ .p }}", vec![application("a", "dev")]);
    let authorize = |rows: &str, project: &str| {
        Fixture::new(rows).authorize(
            Operation::Upsert,
            &templated,
            &existing,
            vec![application("a", project)],
        )
    };
    let found = refusals(authorize(applications, "prod"));
    assert!(
        found.iter().all(|text| text.starts_with("applicationset `prod/web`")),
        "{found:#?}"
    );
    assert!(
        authorize(
            &format!("{applications}p, ann, applicationsets, *, prod/*, allow"),
            "prod"
        )
        .is_ok()
    );
    assert!(authorize(applications, "dev").is_ok());
}

/// The policy's input is the same as for a change that is written.
#[test]
fn the_policy_decides_about_held_back_changes() {
    let rego = "default decision := {\"allow\": true, \"reason\": \"yes\"}\n\n\
                decision := {\"allow\": false, \"reason\": \"by hand\"} if {\n\
                input.application.action == \"update\"\n\
                input.application.project == \"prod\"\n}";
    let fixture = with_policy("p, ann, *, *, */*, allow", rego);
    let existing = stored("dev", vec![application("a", "dev")]);
    let authorize = |project: &str| {
        let generated = vec![application("a", project)];
        fixture.authorize(Operation::Upsert, &create_only(), &existing, generated)
    };
    refused(
        authorize("prod"),
        "application `prod/a`: by hand (policies/applicationsets)",
    );
    assert!(authorize("dev").is_ok());
}
