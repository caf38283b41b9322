//! What is judged of a plan.

use serde_json::json;

use super::*;
use crate::applicationsets::permit::error::MAX_REFUSALS;
use crate::applicationsets::permit::{MAX_RECORDED_CHECKS, generated_errors};
use tollgate_applicationset::plan::Action;

const ALL: &str = "p, ann, applicationsets, *, *, allow\np, ann, applications, *, *, allow";

fn all() -> World {
    World::new(ALL)
}

/// What refuses a set of `dev` that generates one Application.
#[track_caller]
fn refuses(world: &World, application: Value, expected: &str) {
    let outcome = world.judge(
        Operation::Create,
        &set("dev"),
        &StoredState::default(),
        vec![application],
    );
    refused(outcome, expected);
}

#[test]
fn what_could_be_written_directly_is_approved() {
    let generated = vec![application("a", "dev"), application("b", "dev")];
    let approved = all()
        .judge(Operation::Create, &set("dev"), &StoredState::default(), generated)
        .unwrap();
    assert_eq!(approved.projects(), ["dev"]);
    let actions: Vec<Action> = approved
        .into_plan()
        .changes
        .iter()
        .map(|change| change.action)
        .collect();
    assert_eq!(actions, [Action::Create, Action::Create]);
}

#[test]
fn every_application_needs_the_right() {
    let rows = "p, ann, applicationsets, *, *, allow\np, ann, applications, create, dev/a, allow\n\
                p, ann, applications, create, dev/b*, deny";
    let generated = ["a", "b", "c"].map(|name| application(name, "dev")).to_vec();
    let outcome = World::new(rows).judge(Operation::Create, &set("dev"), &StoredState::default(), generated);
    let found = refusals(outcome);
    assert_eq!(found.len(), 2, "{found:#?}");
    assert!(found[0].starts_with("application `dev/b`: `applications, create` is not permitted (state.yaml:"));
    assert!(found[0].ends_with("p, ann, applications, create, dev/b*, deny)"));
    assert_eq!(found[1], "application `dev/c`: `applications, create` is not permitted");
}

#[test]
fn a_template_of_a_generator_does_not_lead_into_another_project() {
    let rows = "p, ann, applicationsets, *, *, allow\np, ann, applications, *, dev/*, allow";
    let outcome = World::new(rows).judge(
        Operation::Create,
        &set("dev"),
        &StoredState::default(),
        vec![application("a", "prod")],
    );
    refused(outcome, "application `prod/a`: `applications, create` is not permitted");
}

#[test]
fn projects_decide_too() {
    let world = all();
    for (key, value, expected) in [
        (
            "project",
            json!("nope"),
            "application references project nope which does not exist (project `nope`)",
        ),
        (
            "source",
            json!({"repoURL": "https://ann:secret@elsewhere.example.org/x", "path": "."}),
            "application repo https://elsewhere.example.org/x is not permitted in project 'dev' (sourceRepos of",
        ),
        (
            "sources",
            json!([{"repoURL": REPOSITORY, "path": "."}, {"repoURL": "https://elsewhere.example.org/x", "ref": "v"}]),
            "application repo https://elsewhere.example.org/x is not permitted",
        ),
        (
            "sourceHydrator",
            json!({"drySource": {"repoURL": "https://elsewhere.example.org/x"}, "syncSource": {"targetBranch": "b"}}),
            "application repo https://elsewhere.example.org/x is not permitted",
        ),
        (
            "destination",
            json!({"name": "eu", "namespace": "kube-system"}),
            "server 'eu' and namespace 'kube-system' do not match any of the allowed destinations in project 'dev' \
             (destinations of project `dev`)",
        ),
        (
            "destination",
            json!({"name": "us", "namespace": "web"}),
            "application destination spec is invalid: there are no clusters with this name: us",
        ),
        (
            "destination",
            json!({"name": "eu", "server": "https://eu.example.org", "namespace": "web"}),
            "application destination can't have both name and server defined: eu https://eu.example.org",
        ),
        ("destination", json!({}), "destination server missing from app spec"),
        (
            "source",
            json!({}),
            "spec.source.repoURL and either spec.source.path or spec.source.chart are required",
        ),
        ("source", json!("x"), "`spec.source` is not an object"),
        ("project", json!(["dev"]), "`spec.project` is not a text"),
    ] {
        refuses(&world, with(application("a", "dev"), key, value), expected);
    }
    // By its server it is the same cluster.
    let served = json!({"server": "https://eu.example.org/", "namespace": "web"});
    let generated = vec![with(application("a", "dev"), "destination", served)];
    assert!(
        world
            .judge(Operation::Create, &set("dev"), &StoredState::default(), generated)
            .is_ok()
    );
}

#[test]
fn what_nobody_could_write_is_refused() {
    let world = all();
    let mut started = application("a", "dev");
    started["operation"] = json!({"sync": {}});
    refuses(&world, started, "`operation` cannot be set by writing an application");
    refuses(
        &world,
        application("Not_A_Name", "dev"),
        "`Not_A_Name` is no name for an object",
    );
    refuses(
        &world,
        application("foreign", "dev"),
        "application `foreign` exists and does not belong to the set (ownership)",
    );
    let nameless = application("", "dev");
    refuses(
        &world,
        nameless,
        "ApplicationSet web contains an application with no name; a name must be set",
    );
    let twice = vec![application("a", "dev"), application("a", "dev")];
    let outcome = world.judge(Operation::Create, &set("dev"), &StoredState::default(), twice);
    assert_eq!(status_of(outcome), StatusCode::BAD_REQUEST);
}

#[test]
fn an_application_of_somebody_else_is_never_taken_over() {
    let mut existing = stored("dev", vec![application("mine", "dev")]);
    existing.applications.push(application("theirs", "dev"));
    let generated = vec![application("mine", "dev"), application("theirs", "dev")];
    let outcome = all().judge(Operation::Upsert, &set("dev"), &existing, generated);
    refused(
        outcome,
        "application `theirs` exists and does not belong to the set (ownership)",
    );
    let outcome = all().judge(
        Operation::Upsert,
        &set("dev"),
        &existing,
        vec![application("mine", "dev")],
    );
    assert!(outcome.is_ok());
}

/// Only callers who could write in a project see findings about it.
#[test]
fn without_the_right_nothing_of_a_project_is_told() {
    let rows = "p, ann, applicationsets, *, *, allow\np, ann, applications, create, dev/*, allow";
    let world = World::new(rows);
    let ask = |project: &str| {
        let wrong = with(application("a", project), "destination", json!({"name": "us"}));
        refusals(world.judge(Operation::Create, &set("dev"), &StoredState::default(), vec![wrong]))
    };
    for project in ["prod", "nope"] {
        let expected = format!("application `{project}/a`: `applications, create` is not permitted");
        assert_eq!(ask(project), [expected]);
    }
}

#[test]
fn refusals_are_bounded_and_counted() {
    let rows = "p, ann, applicationsets, *, *, allow\np, ann, applications, create, dev/none, allow";
    let world = World::new(rows);
    let generated = (0..MAX_REFUSALS + 7)
        .map(|number| application(&format!("a{number:04}"), "dev"))
        .collect();
    let permit = world
        .authorize_operation(Operation::Create, Some(&set("dev")), &StoredState::default())
        .unwrap();
    let plan = Plan::new(&set("dev"), StoredState::default(), generated);
    let mut checks = Vec::new();
    let outcome = world
        .authorizer(&world.caller("ann"))
        .authorize_plan(&permit, plan, &mut checks);
    let Err(Error::Refused(refused)) = outcome else {
        panic!("{outcome:?}")
    };
    assert_eq!((refused.refusals().len(), refused.more()), (MAX_REFUSALS, 7));
    assert!(refused.to_string().ends_with("; and 7 more"));
    assert_eq!(checks.len(), MAX_RECORDED_CHECKS);
    assert!(
        checks
            .iter()
            .all(|check| !check.allowed && check.resource == "applications")
    );
}

#[test]
fn a_project_that_is_a_template_needs_the_rights_of_all() {
    let applications = "p, ann, applications, *, *, allow\n";
    let dev = format!("{applications}p, ann, applicationsets, create, dev/*, allow\n");
    let both = format!("{dev}p, ann, applicationsets, create, prod/*, allow\n");
    let generated = || vec![application("a", "dev"), application("b", "prod")];
    let judge = |rows: &str, generated| {
        World::new(rows).judge(Operation::Create, &set("{{ .p }}"), &StoredState::default(), generated)
    };
    refused(
        judge(&dev, generated()),
        "applicationset `prod/web`: `applicationsets, create` is not permitted",
    );
    assert_eq!(judge(&both, generated()).unwrap().projects(), ["dev", "prod"]);
    // Nothing rendered: the text itself, as in Argo CD.
    assert!(judge(&both, Vec::new()).is_err());
    assert!(judge(ALL, Vec::new()).is_ok());
}

#[test]
fn a_changed_project_needs_the_rights_of_both() {
    let existing = stored("dev", vec![application("a", "dev")]);
    let rows = "p, ann, applicationsets, *, *, allow\np, ann, applications, *, dev/*, allow\n";
    let judge = |more: &str| {
        let world = World::new(&format!("{rows}{more}"));
        world.judge(
            Operation::Upsert,
            &set("dev"),
            &existing,
            vec![application("a", "prod")],
        )
    };
    let create = "p, ann, applications, create, prod/*, allow\n";
    let update = "p, ann, applications, update, prod/*, allow\n";
    refused(
        judge(create),
        "application `prod/a`: `applications, update` is not permitted",
    );
    refused(
        judge(update),
        "application `prod/a`: `applications, create` is not permitted",
    );
    assert!(judge(&format!("{create}{update}")).is_ok());
}

#[test]
fn what_stays_as_it_is_passes_the_same_checks() {
    let existing = stored("dev", vec![application("a", "dev")]);
    let world = all();
    let approved = world.judge(Operation::Upsert, &set("dev"), &existing, vec![application("a", "dev")]);
    let plan = approved.unwrap().into_plan();
    assert!(
        plan.changes.iter().all(|change| change.action == Action::Keep),
        "{plan:?}"
    );
    let elsewhere = with(
        application("a", "dev"),
        "destination",
        json!({"name": "eu", "namespace": "other"}),
    );
    let existing = stored("dev", vec![elsewhere.clone()]);
    let outcome = world.judge(Operation::Upsert, &set("dev"), &existing, vec![elsewhere]);
    refused(outcome, "do not match any of the allowed destinations");
}

#[test]
fn deleting_needs_the_right_on_all_that_is_owned() {
    let existing = stored("dev", vec![application("a", "dev"), application("b", "prod")]);
    let rows = "p, ann, applicationsets, *, *, allow\np, ann, applications, delete, dev/*, allow\n";
    for cascade in [Propagation::Background, Propagation::Orphan] {
        let outcome = World::new(rows).delete(&existing, cascade);
        refused(outcome, "application `prod/b`: `applications, delete` is not permitted");
        let both = format!("{rows}p, ann, applications, delete, prod/*, allow");
        let approved = World::new(&both).delete(&existing, cascade).unwrap();
        assert_eq!(approved.plan().changes.len(), 2);
    }
}

#[test]
fn what_stays_behind_loses_its_reference_and_nothing_else() {
    let world = all();
    let existing = stored("dev", vec![application("a", "dev")]);
    let permit = world.authorize_operation(Operation::Delete, None, &existing).unwrap();
    let mut plan = Plan::deletion(&set_of(existing.set.clone().unwrap()), existing, Propagation::Orphan);
    plan.changes[0].after.as_mut().unwrap()["spec"]["project"] = json!("prod");
    let outcome = world
        .authorizer(&world.caller("ann"))
        .authorize_plan(&permit, plan, &mut Vec::new());
    refused(outcome, "more than the reference to the set would change");
}

#[test]
fn a_plan_of_something_else_is_not_approved() {
    let world = all();
    let caller = world.caller("ann");
    let authorizer = world.authorizer(&caller);
    let existing = stored("dev", vec![application("a", "dev")]);
    let unplanned = |permit: &SetPermit, plan: Plan| {
        let outcome = authorizer.authorize_plan(permit, plan, &mut Vec::new());
        assert_eq!(outcome.unwrap_err(), Error::PlanMismatch);
    };
    let permit = world
        .authorize_operation(Operation::Upsert, Some(&set("dev")), &existing)
        .unwrap();
    let plan = || Plan::new(&set("dev"), existing.clone(), vec![application("a", "dev")]);
    assert!(authorizer.authorize_plan(&permit, plan(), &mut Vec::new()).is_ok());
    let mut other = plan();
    other.set.name.name = "other".to_owned();
    unplanned(&permit, other);
    let mut moved = Plan::new(&set("prod"), existing.clone(), vec![application("a", "dev")]);
    unplanned(&permit, moved.clone());
    moved.changes.clear();
    unplanned(&permit, moved);
    let mut without = plan();
    without.changes.clear();
    unplanned(&permit, without);
    let mut twice = plan();
    twice.changes.extend(plan().changes);
    unplanned(&permit, twice);
    let mut elsewhere = plan();
    elsewhere.changes[0].name.namespace = "kube-system".to_owned();
    unplanned(&permit, elsewhere);
    let preview = world
        .authorize_operation(Operation::Preview, Some(&set("dev")), &existing)
        .unwrap();
    unplanned(&preview, plan());
}

#[test]
fn a_preview_says_what_would_refuse_and_what_may_be_seen() {
    let rows = "p, ann, applicationsets, preview, dev/*, allow\np, ann, applicationsets, get, dev/*, allow\n\
                p, ann, applications, get, dev/a, allow";
    let world = World::new(rows);
    let existing = stored("dev", vec![application("a", "dev"), application("b", "dev")]);
    let permit = world
        .authorize_operation(Operation::Preview, Some(&set("dev")), &existing)
        .unwrap();
    let generated = ["a", "b", "c"].map(|name| application(name, "dev")).to_vec();
    let plan = Plan::new(&set("dev"), existing, generated);
    let review = world
        .authorizer(&world.caller("ann"))
        .review(&permit, plan, &mut Vec::new())
        .unwrap();
    assert_eq!(review.visible, [true, false, true]);
    let refused = review.refused.unwrap();
    assert_eq!(refused.refusals().len(), 7, "{refused}");
    let templated = "p, ann, applicationsets, preview, dev/*, allow";
    let world = World::new(templated);
    let none = StoredState::default();
    let permit = world
        .authorize_operation(Operation::Preview, Some(&set("{{ .p }}")), &none)
        .unwrap();
    let review = |project: &str| {
        let plan = Plan::new(&set("{{ .p }}"), none.clone(), vec![application("a", project)]);
        world
            .authorizer(&world.caller("ann"))
            .review(&permit, plan, &mut Vec::new())
    };
    assert!(review("dev").is_ok());
    refused_set(review("prod"));
}

#[track_caller]
fn refused_set(outcome: Result<impl std::fmt::Debug, Error>) {
    refused(
        outcome,
        "applicationset `prod/web`: `applicationsets, preview` is not permitted",
    );
}

#[test]
fn generated_applications_are_validated_in_the_words_of_argo_cd() {
    let world = all();
    let destination = |name: &str| json!({"name": name, "namespace": "namespace"});
    let one = |name: &str, project: &str, cluster: &str| {
        with(application(name, project), "destination", destination(cluster))
    };
    let applications = [
        one("app", "dev", "eu"),
        one("", "dev", "eu"),
        one("app", "dev", "eu"),
        one("other", "DOES-NOT-EXIST", "eu"),
        one("third", "dev", "nonexistent-cluster"),
    ];
    let found = generated_errors("web", &world.resources, &applications);
    let expected = [
        None,
        Some(
            "ApplicationSet web contains an application with no name; a name must be set in the template's \
             metadata.name or via a templatePatch (generateName is not supported)",
        ),
        Some("ApplicationSet web contains applications with duplicate name: app"),
        Some("application references project DOES-NOT-EXIST which does not exist"),
        Some("application destination spec is invalid: there are no clusters with this name: nonexistent-cluster"),
    ];
    assert_eq!(found, expected.map(|text| text.map(str::to_owned)));
}
