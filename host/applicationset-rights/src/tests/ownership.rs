//! Applications that the set does not own: what callers learn of them, and what happens to them.

use serde_json::json;

use super::*;
use tollgate_applicationset::plan::Action;

const SETS: &str = "p, ann, applicationsets, *, *, allow\np, ann, applications, create, dev/a*, allow\n";

/// SECURITY: callers who may not create the Application get the same error whether its name is free
/// or taken.
#[test]
fn only_callers_who_may_create_it_learn_that_a_name_is_taken() {
    let theirs = || StoredState {
        set: None,
        applications: vec![application("b", "prod"), application("a", "prod")],
    };
    let refusals_of = |existing: &StoredState, generated: Vec<Value>| {
        refusals(Fixture::new(SETS).authorize(Operation::Create, &set("dev"), existing, generated))
    };
    let free = refusals_of(&StoredState::default(), vec![application("b", "dev")]);
    assert_eq!(free, ["application `dev/b`: `applications, create` is not permitted"]);
    assert_eq!(refusals_of(&theirs(), vec![application("b", "dev")]), free);
    // Other mistakes in it reveal nothing either.
    let wrong = || vec![with(application("b", "dev"), "source", json!({}))];
    assert_eq!(
        refusals_of(&theirs(), wrong()),
        refusals_of(&StoredState::default(), wrong())
    );
    let lost = || vec![with(application("b", "nope"), "destination", json!({}))];
    assert_eq!(
        refusals_of(&theirs(), lost()),
        refusals_of(&StoredState::default(), lost())
    );
    // A caller who may create it learns why not, but not who owns it.
    let taken = refusals_of(&theirs(), vec![application("a", "dev")]);
    assert_eq!(
        taken,
        ["application `dev/a`: application `a` exists and does not belong to the set (ownership)"]
    );
}

#[test]
fn a_templated_set_reveals_no_more() {
    let rows = "p, ann, applicationsets, create, qa/*, allow\np, ann, applications, create, qa/*, allow";
    let refusals_of = |existing: &StoredState| {
        let generated = vec![application("b", "dev")];
        refusals(Fixture::new(rows).authorize(Operation::Create, &set("{{ .p }}"), existing, generated))
    };
    let theirs = StoredState {
        set: None,
        applications: vec![application("b", "prod")],
    };
    let free = refusals_of(&StoredState::default());
    assert_eq!(free.len(), 2, "{free:#?}");
    assert_eq!(refusals_of(&theirs), free);
}

/// The stored set of `dev`, with an Application of `prod` that refers to it without having it as
/// its controller.
fn attached() -> StoredState {
    let mut existing = stored("dev", vec![application("a", "dev"), application("b", "prod")]);
    existing.applications[1]["metadata"]["ownerReferences"][0]["controller"] = json!(false);
    existing
}

/// Kubernetes deletes such an Application with the set.
#[test]
fn applications_deleted_with_a_set_are_authorized_whoever_controls_them() {
    let rows = "p, ann, applicationsets, *, *, allow\np, ann, applications, delete, dev/*, allow\n";
    for (cascade, action) in [
        (Propagation::Background, Action::Delete),
        (Propagation::Orphan, Action::Update),
    ] {
        let outcome = Fixture::new(rows).delete(&attached(), cascade);
        refused(outcome, "application `prod/b`: `applications, delete` is not permitted");
        let both = format!("{rows}p, ann, applications, delete, prod/*, allow");
        let approved = Fixture::new(&both).delete(&attached(), cascade).unwrap();
        let actions: Vec<Action> = approved.plan().changes.iter().map(|change| change.action).collect();
        assert_eq!(actions, [action, action]);
    }
}

/// A change of the set does not touch such an Application, and cannot take it over.
#[test]
fn an_application_that_only_refers_to_a_set_is_not_changed_with_it() {
    let fixture = Fixture::new("p, ann, *, *, */*, allow");
    let mine = || vec![application("a", "dev")];
    let approved = fixture
        .authorize(Operation::Upsert, &set("dev"), &attached(), mine())
        .unwrap();
    assert_eq!(approved.plan().changes.len(), 1);
    let both = vec![application("a", "dev"), application("b", "prod")];
    refused(
        fixture.authorize(Operation::Upsert, &set("dev"), &attached(), both),
        "application `b` exists and does not belong to the set",
    );
}
