//! Tests of ownership: owner references of the controller and of others.

use serde_json::{Value, json};

use super::super::{Action, Owner, Plan, PlanProblem, StoredState, without_owner_reference};
use super::{actions, existing, generated, owned, plan, reference, set, stored};
use crate::ApplicationsSync;
use tollgate_state::write::batch::Propagation;

/// An Application that refers to the set as an owner that is not its controller.
fn attached(name: &str, others: &[Value]) -> Value {
    let mut plain = reference("u1");
    plain.as_object_mut().unwrap().remove("controller");
    let mut application = generated(name);
    let all: Vec<Value> = std::iter::once(plain).chain(others.iter().cloned()).collect();
    application["metadata"]["ownerReferences"] = json!(all);
    application
}

fn deletion(applications: Vec<Value>, cascade: Propagation) -> Plan {
    Plan::deletion(&set(&stored(), ApplicationsSync::Sync), existing(applications), cascade)
}

/// SECURITY: a set never takes over an Application it does not own, not even one that refers to an
/// earlier set of the same name.
#[test]
fn applications_of_others_are_not_taken_over() {
    let mut earlier = owned("a");
    earlier["metadata"]["ownerReferences"] = json!([reference("u0")]);
    let mut other = owned("a");
    other["metadata"]["ownerReferences"][0]["name"] = json!("else");
    let mut not_controller = owned("a");
    not_controller["metadata"]["ownerReferences"][0]["controller"] = json!(false);
    for before in [generated("a"), not_controller, earlier, other] {
        let taken = plan(existing(vec![before.clone()]), vec![generated("a")]);
        let [problem @ PlanProblem::NameConflict(change)] = &taken.problems[..] else {
            panic!("{:?}", taken.problems)
        };
        // It shows what would be created, and nothing of the existing Application.
        assert_eq!((change.name.name.as_str(), &change.before), ("a", &None));
        assert_eq!(
            problem.to_string(),
            "application `a` exists already and does not belong to the set"
        );
        assert!(taken.changes.is_empty());
        // The Application is not deleted either if it is not generated.
        let plan = plan(existing(vec![before]), Vec::new());
        assert!(plan.changes.is_empty() && plan.problems.is_empty());
    }
    // A set that is not stored owns nothing.
    let unstored = StoredState {
        set: None,
        applications: vec![owned("a")],
    };
    assert_eq!(plan(unstored, vec![generated("a")]).problems.len(), 1);
    // The counterpart: an Application of the set itself.
    assert!(
        plan(existing(vec![owned("a")]), vec![generated("a")])
            .problems
            .is_empty()
    );
}

/// Deleting a set makes a cluster delete everything that refers to it, regardless of the
/// controller.
#[test]
fn garbage_collected_applications_are_part_of_the_deletion() {
    let other = json!({"apiVersion": "v1", "kind": "ConfigMap", "name": "x", "uid": "o"});
    let all = || {
        vec![
            owned("a"),
            attached("b", &[]),
            attached("c", std::slice::from_ref(&other)),
            generated("d"),
        ]
    };
    let plan = deletion(all(), Propagation::Background);
    assert_eq!(
        actions(&plan),
        [
            ("a", Action::Delete, None),
            ("b", Action::Delete, None),
            ("c", Action::Keep, None)
        ]
    );
    assert_eq!(plan.deletions(), 2);
    let plan = deletion(all(), Propagation::Orphan);
    assert_eq!(
        actions(&plan),
        [
            ("a", Action::Update, None),
            ("b", Action::Update, None),
            ("c", Action::Update, None)
        ]
    );
    let after = |number: usize| {
        plan.changes[number].after.as_ref().unwrap()["metadata"]
            .get("ownerReferences")
            .cloned()
    };
    assert_eq!((after(1), after(2)), (None, Some(json!([other]))));
    // A reference to an earlier set of the same name, or one without a UID, does not count.
    for uid in [json!("u0"), json!("")] {
        let mut application = attached("b", &[]);
        application["metadata"]["ownerReferences"][0]["uid"] = uid;
        assert!(deletion(vec![application], Propagation::Background).changes.is_empty());
    }
}

/// Changing the set does not change such an Application.
#[test]
fn applications_without_a_controller_reference_are_not_owned() {
    let owner = Owner::of("web", &stored());
    assert!(owner.is_controller_of(&owned("a")) && owner.garbage_collects(&owned("a")));
    assert!(!owner.is_controller_of(&attached("a", &[])) && owner.garbage_collects(&attached("a", &[])));
    let plan = plan(existing(vec![attached("a", &[])]), Vec::new());
    assert!(plan.changes.is_empty() && plan.problems.is_empty());
}

#[test]
fn other_owner_references_are_kept() {
    let mut object = owned("a");
    let other = json!({"apiVersion": "v1", "kind": "ConfigMap", "name": "web", "uid": "o"});
    object["metadata"]["ownerReferences"] = json!([other, reference("u1")]);
    let released = without_owner_reference(&object, &Owner::of("web", &stored()));
    assert_eq!(released["metadata"]["ownerReferences"], json!([other]));
}
