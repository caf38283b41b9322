//! Applications of others: who learns of them, and what becomes of them.

use serde_json::json;

use super::*;
use tollgate_applicationset::plan::Action;

const SETS: &str = "p, ann, applicationsets, *, *, allow\np, ann, applications, create, dev/a*, allow\n";

/// SECURITY: one answer for a name that is free and one that is taken, for those who
/// could not make the Application.
#[test]
fn that_a_name_is_taken_is_told_to_those_who_could_make_it() {
    let theirs = || StoredState {
        set: None,
        applications: vec![application("b", "prod"), application("a", "prod")],
    };
    let ask = |existing: &StoredState, generated: Vec<Value>| {
        refusals(World::new(SETS).judge(Operation::Create, &set("dev"), existing, generated))
    };
    let free = ask(&StoredState::default(), vec![application("b", "dev")]);
    assert_eq!(free, ["application `dev/b`: `applications, create` is not permitted"]);
    assert_eq!(ask(&theirs(), vec![application("b", "dev")]), free);
    // Nor by what is wrong with it besides.
    let wrong = || vec![with(application("b", "dev"), "source", json!({}))];
    assert_eq!(ask(&theirs(), wrong()), ask(&StoredState::default(), wrong()));
    let lost = || vec![with(application("b", "nope"), "destination", json!({}))];
    assert_eq!(ask(&theirs(), lost()), ask(&StoredState::default(), lost()));
    // Its twin: who could make it reads why not, and nothing of whose it is.
    let taken = ask(&theirs(), vec![application("a", "dev")]);
    assert_eq!(
        taken,
        ["application `dev/a`: application `a` exists and does not belong to the set (ownership)"]
    );
}

#[test]
fn a_templated_set_learns_no_more() {
    let rows = "p, ann, applicationsets, create, qa/*, allow\np, ann, applications, create, qa/*, allow";
    let ask = |existing: &StoredState| {
        let generated = vec![application("b", "dev")];
        refusals(World::new(rows).judge(Operation::Create, &set("{{ .p }}"), existing, generated))
    };
    let theirs = StoredState {
        set: None,
        applications: vec![application("b", "prod")],
    };
    let free = ask(&StoredState::default());
    assert_eq!(free.len(), 2, "{free:#?}");
    assert_eq!(ask(&theirs), free);
}

/// The stored set of `dev` with an Application of `prod` that refers to it, which it is
/// not the controller of.
fn attached() -> StoredState {
    let mut existing = stored("dev", vec![application("a", "dev"), application("b", "prod")]);
    existing.applications[1]["metadata"]["ownerReferences"][0]["controller"] = json!(false);
    existing
}

/// A cluster deletes it with the set.
#[test]
fn what_goes_with_a_set_is_judged_whoever_its_controller_is() {
    let rows = "p, ann, applicationsets, *, *, allow\np, ann, applications, delete, dev/*, allow\n";
    for (cascade, action) in [
        (Propagation::Background, Action::Delete),
        (Propagation::Orphan, Action::Update),
    ] {
        let outcome = World::new(rows).delete(&attached(), cascade);
        refused(outcome, "application `prod/b`: `applications, delete` is not permitted");
        let both = format!("{rows}p, ann, applications, delete, prod/*, allow");
        let approved = World::new(&both).delete(&attached(), cascade).unwrap();
        let actions: Vec<Action> = approved.plan().changes.iter().map(|change| change.action).collect();
        assert_eq!(actions, [action, action]);
    }
}

/// A change of the set is nothing to it, and takes it over no more than any other.
#[test]
fn what_refers_to_a_set_is_not_changed_with_it() {
    let world = World::new("p, ann, *, *, */*, allow");
    let mine = || vec![application("a", "dev")];
    let approved = world
        .judge(Operation::Upsert, &set("dev"), &attached(), mine())
        .unwrap();
    assert_eq!(approved.plan().changes.len(), 1);
    let both = vec![application("a", "dev"), application("b", "prod")];
    refused(
        world.judge(Operation::Upsert, &set("dev"), &attached(), both),
        "application `b` exists and does not belong to the set",
    );
}
