//! Permissions on a set that are inherited from its Applications. Each allowed case has its refused
//! twin.

use serde_json::json;

use super::*;

/// A fixture in which `ann` has these permissions on Applications, and every permission on sets:
/// those do not count.
fn fixture(needs: &[&str]) -> Fixture {
    let rows = needs
        .iter()
        .map(|need| format!("p, ann, applications, {need}, allow\n"));
    let mut fixture = Fixture::new(&format!(
        "{}p, ann, applicationsets, *, */*, allow",
        rows.collect::<String>()
    ));
    fixture.settings.permissions = ApplicationSetPermissions::Inherited;
    fixture
}

fn without<'a>(needs: &[&'a str], left_out: &str) -> Vec<&'a str> {
    needs.iter().copied().filter(|need| *need != left_out).collect()
}

/// A set whose project is a template, or with a generator that is not a list.
fn set_with(project: &str, generator: &Value) -> ApplicationSet {
    let mut object = set(project).object;
    object["spec"]["generators"] = json!([generator]);
    set_of(object)
}

const ALL_OF_BOTH: [&str; 6] = [
    "create, dev/a",
    "update, dev/a",
    "delete, dev/a",
    "create, dev/b",
    "update, dev/b",
    "delete, dev/b",
];

/// Each operation on a stored set needs its permissions on each of its Applications.
#[test]
fn every_operation_needs_its_permissions_on_all_applications() {
    let existing = stored("dev", vec![application("a", "dev"), application("b", "dev")]);
    let dev = set("dev");
    for (operation, sent, needed) in [
        (Operation::Get, None, &["get, dev/a", "get, dev/b"][..]),
        (Operation::Delete, None, &["delete, dev/a", "delete, dev/b"]),
        (
            Operation::CreateUnchanged,
            Some(&dev),
            &["get, dev/a", "get, dev/b", "create, dev/a", "create, dev/b"],
        ),
        (Operation::Upsert, Some(&dev), &ALL_OF_BOTH),
        (Operation::Update, Some(&dev), &ALL_OF_BOTH),
    ] {
        let passed = fixture(needed).authorize_operation(operation, sent, &existing);
        assert!(passed.is_ok(), "{operation:?}: {passed:?}");
        for left_out in needed {
            let fixture = fixture(&without(needed, left_out));
            let outcome = fixture.authorize_operation(operation, sent, &existing);
            assert!(outcome.is_err(), "{operation:?} without {left_out}");
        }
    }
}

/// The answer is that for a set that does not exist.
#[test]
fn a_set_with_an_application_that_the_caller_may_not_see_seems_absent() {
    let existing = stored("dev", vec![application("a", "dev"), application("b", "dev")]);
    let some = fixture(&["*, dev/a", "get, dev/other"]);
    for operation in [Operation::Get, Operation::Update, Operation::Delete] {
        let sent = set("dev");
        let sent = (operation == Operation::Update).then_some(&sent);
        let outcome = some.authorize_operation(operation, sent, &existing);
        assert!(
            matches!(outcome, Err(Error::NotVisible(_))),
            "{operation:?}: {outcome:?}"
        );
    }
    // An upsert tells that the name is taken, and nothing else.
    let outcome = some.authorize_operation(Operation::Upsert, Some(&set("dev")), &existing);
    refused(outcome, "there is an applicationset of this name that you may not see");
    // With the right to see it, the refusal names the Application.
    let seen = fixture(&["*, dev/a", "get, dev/b"]);
    refused(
        seen.authorize_operation(Operation::Delete, None, &existing),
        "application `dev/b`: `applications, delete` is not permitted",
    );
}

/// A user who creates an Application chooses its owner, so one in another project settles nothing.
#[test]
fn an_application_of_another_project_does_not_open_a_set() {
    let foreign = stored("dev", vec![application("x", "eve")]);
    let templated = StoredState {
        set: Some(set("{{.project}}").object),
        ..stored("dev", vec![application("x", "eve")])
    };
    for (existing, all) in [(&foreign, "*, dev/*"), (&templated, "*, */*")] {
        for operation in [Operation::Get, Operation::Delete] {
            let eve = fixture(&["*, eve/*"]).authorize_operation(operation, None, existing);
            assert!(matches!(eve, Err(Error::NotVisible(_))), "{operation:?}: {eve:?}");
            let both = fixture(&["*, eve/*", all]).authorize_operation(operation, None, existing);
            assert!(both.is_ok(), "{operation:?}: {both:?}");
        }
    }
}

#[test]
fn what_is_generated_is_judged_and_what_is_removed_too() {
    let (none, dev) = (StoredState::default(), set("dev"));
    let both = || vec![application("a", "dev"), application("b", "dev")];
    let needed = ["create, dev/a", "create, dev/b"];
    let created = fixture(&needed).authorize(Operation::Create, &dev, &none, both());
    assert_eq!(created.unwrap().applications().len(), 2);
    for left_out in needed {
        let fixture = fixture(&without(&needed, left_out));
        assert!(
            fixture.authorize(Operation::Create, &dev, &none, both()).is_err(),
            "{left_out}"
        );
    }
    // `a` is removed and `b` is created.
    let existing = stored("dev", vec![application("a", "dev")]);
    let needed = ["create, dev/a", "update, dev/a", "delete, dev/a", "create, dev/b"];
    let generated = || vec![application("b", "dev")];
    let changed = fixture(&needed).authorize(Operation::Update, &dev, &existing, generated());
    assert!(changed.is_ok(), "{changed:?}");
    for left_out in needed {
        let fixture = fixture(&without(&needed, left_out));
        let outcome = fixture.authorize(Operation::Update, &dev, &existing, generated());
        assert!(outcome.is_err(), "{left_out}");
    }
    let deleted = fixture(&["delete, dev/a"]).delete(&existing, Propagation::Background);
    assert!(deleted.is_ok(), "{deleted:?}");
    let denied = fixture(&["create, dev/a", "get, dev/a"]).delete(&existing, Propagation::Orphan);
    refused(denied, "application `dev/a`: `applications, delete` is not permitted");
}

/// All of no Applications permits nothing.
#[test]
fn a_set_without_applications_needs_all_that_it_could_have() {
    let empty = stored("dev", Vec::new());
    for (operation, action) in [(Operation::Get, "get"), (Operation::Delete, "delete")] {
        for (need, passes) in [("dev/*", true), ("dev/a", false), ("dev/a*", false), ("prod/*", false)] {
            let fixture = fixture(&[&format!("{action}, {need}")]);
            let outcome = fixture.authorize_operation(operation, None, &empty);
            assert_eq!(outcome.is_ok(), passes, "{operation:?} {need}: {outcome:?}");
        }
        assert!(fixture(&[]).authorize_operation(operation, None, &empty).is_err());
    }
    let (dev, none) = (set("dev"), StoredState::default());
    let created = fixture(&["create, dev/*"]).authorize(Operation::Create, &dev, &none, Vec::new());
    assert!(created.is_ok(), "{created:?}");
    let denied = fixture(&["create, dev/a"]).authorize(Operation::Create, &dev, &none, Vec::new());
    refused(
        denied,
        "it generates no Application, and `applications, create` is not permitted on `dev/*`",
    );
    // A change that leaves nothing needs it, beside the permissions on what it removes.
    let existing = stored("dev", vec![application("a", "dev")]);
    let of_a = ["create, dev/a", "update, dev/a", "delete, dev/a"];
    let denied = fixture(&of_a).authorize(Operation::Update, &dev, &existing, Vec::new());
    refused(denied, "it generates no Application");
    let more = [&of_a[..], &["create, dev/*"]].concat();
    let changed = fixture(&more).authorize(Operation::Update, &dev, &existing, Vec::new());
    assert!(changed.is_ok(), "{changed:?}");
}

/// A set whose project is a template, or whose generators have templates, could have Applications
/// in every project.
#[test]
fn a_set_of_unknown_projects_needs_all_projects_if_it_is_empty() {
    let own_template = json!({"list": {"elements": [], "template": {"metadata": {}, "spec": {"project": "prod"}}}});
    for set in [set("{{p}}"), set_with("dev", &own_template)] {
        let mut empty = stored("dev", Vec::new());
        empty.set = Some(set.object.clone());
        for (needed, passes) in [(&["get, */*"][..], true), (&["get, dev/*", "get, prod/*"], false)] {
            let outcome = fixture(needed).authorize_operation(Operation::Get, None, &empty);
            assert_eq!(outcome.is_ok(), passes, "{needed:?}: {outcome:?}");
        }
        let mut denied = Fixture::new("p, ann, applications, get, */*, allow\np, ann, applications, get, prod/*, deny");
        denied.settings.permissions = ApplicationSetPermissions::Inherited;
        assert!(denied.authorize_operation(Operation::Get, None, &empty).is_err());
    }
}

/// What a repository or a cluster decides can become another Application without a write.
#[test]
fn applications_that_can_become_others_need_all_that_there_could_be() {
    let none = StoredState::default();
    let git = json!({"git": {"repoURL": REPOSITORY, "revision": "HEAD", "directories": [{"path": "*"}]}});
    let list = json!({"list": {"elements": []}});
    let nested = json!({"matrix": {"generators": [list, git]}});
    for generator in [git, json!({"clusters": {}}), nested] {
        let sent = set_with("dev", &generator);
        let create = |needed: &[&str]| {
            let generated = vec![application("a", "dev")];
            fixture(needed).authorize(Operation::Create, &sent, &none, generated)
        };
        assert!(create(&["create, dev/*"]).is_ok(), "{generator}");
        refused(create(&["create, dev/a"]), "decides which Applications it has");
        // A preview lists it.
        let preview = fixture(&["create, dev/a"]).authorize_operation(Operation::Preview, Some(&sent), &none);
        assert_eq!(preview.unwrap().nondeterminism.len(), 1, "{generator}");
    }
    let lists = set_with("dev", &json!({"matrix": {"generators": [{"list": {}}, {"list": {}}]}}));
    let created =
        fixture(&["create, dev/a"]).authorize(Operation::Create, &lists, &none, vec![application("a", "dev")]);
    assert!(created.is_ok(), "{created:?}");
}

/// Generators do not run, and names of stored sets are not told, for a caller who could create
/// nothing.
#[test]
fn a_caller_who_could_create_nothing_is_refused_before_anything_is_generated() {
    let (dev, none, existing) = (
        set("dev"),
        StoredState::default(),
        stored("dev", vec![application("a", "dev")]),
    );
    for operation in [Operation::Create, Operation::Preview] {
        let passed = fixture(&["create, dev/a", "get, dev/a"]).authorize_operation(operation, Some(&dev), &none);
        assert!(passed.is_ok(), "{operation:?}: {passed:?}");
        for needed in [&["create, prod/*"][..], &["get, dev/*", "update, dev/*"], &[]] {
            for stored in [&none, &existing] {
                let outcome = fixture(needed).authorize_operation(operation, Some(&dev), stored);
                assert_eq!(status_of(outcome), StatusCode::FORBIDDEN, "{operation:?} {needed:?}");
            }
        }
    }
    let taken = fixture(&["create, dev/z"]).authorize_operation(Operation::Create, Some(&dev), &existing);
    assert!(matches!(taken, Err(Error::Exists)), "{taken:?}");
}
