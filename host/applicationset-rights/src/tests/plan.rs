//! Authorization of plans.

use serde_json::json;

use super::*;
use crate::error::MAX_REFUSALS;
use crate::{MAX_RECORDED_CHECKS, generated_errors};
use tollgate_applicationset::plan::Action;

const ALL: &str = "p, ann, applicationsets, *, *, allow\np, ann, applications, *, *, allow";

fn all() -> Fixture {
    Fixture::new(ALL)
}

/// Expects that a set of `dev` that generates this Application is refused.
#[track_caller]
fn refuses(fixture: &Fixture, application: Value, expected: &str) {
    let outcome = fixture.authorize(
        Operation::Create,
        &set("dev"),
        &StoredState::default(),
        vec![application],
    );
    refused(outcome, expected);
}

#[test]
fn changes_that_could_be_made_directly_are_approved() {
    let generated = vec![application("a", "dev"), application("b", "dev")];
    let approved = all()
        .authorize(Operation::Create, &set("dev"), &StoredState::default(), generated)
        .unwrap();
    assert_eq!(projects_of(&approved), ["dev"]);
    let actions: Vec<Action> = approved
        .into_plan()
        .changes
        .iter()
        .map(|change| change.action)
        .collect();
    assert_eq!(actions, [Action::Create, Action::Create]);
}

#[test]
fn every_application_needs_permission() {
    let rows = "p, ann, applicationsets, *, *, allow\np, ann, applications, create, dev/a, allow\n\
                p, ann, applications, create, dev/b*, deny";
    let generated = ["a", "b", "c"].map(|name| application(name, "dev")).to_vec();
    let outcome = Fixture::new(rows).authorize(Operation::Create, &set("dev"), &StoredState::default(), generated);
    let found = refusals(outcome);
    assert_eq!(found.len(), 2, "{found:#?}");
    assert!(found[0].starts_with("application `dev/b`: `applications, create` is not permitted (state.yaml:"));
    assert!(found[0].ends_with("p, ann, applications, create, dev/b*, deny)"));
    assert_eq!(found[1], "application `dev/c`: `applications, create` is not permitted");
}

#[test]
fn a_template_of_a_generator_cannot_reach_another_project() {
    let rows = "p, ann, applicationsets, *, *, allow\np, ann, applications, *, dev/*, allow";
    let outcome = Fixture::new(rows).authorize(
        Operation::Create,
        &set("dev"),
        &StoredState::default(),
        vec![application("a", "prod")],
    );
    refused(outcome, "application `prod/a`: `applications, create` is not permitted");
}

#[test]
fn projects_restrict_applications() {
    let fixture = all();
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
        refuses(&fixture, with(application("a", "dev"), key, value), expected);
    }
    // The server names the same cluster.
    let served = json!({"server": "https://eu.example.org/", "namespace": "web"});
    let generated = vec![with(application("a", "dev"), "destination", served)];
    assert!(
        fixture
            .authorize(Operation::Create, &set("dev"), &StoredState::default(), generated)
            .is_ok()
    );
}

#[test]
fn invalid_applications_are_refused() {
    let fixture = all();
    let mut started = application("a", "dev");
    started["operation"] = json!({"sync": {}});
    refuses(&fixture, started, "`operation` cannot be set by writing an application");
    refuses(
        &fixture,
        application("Not_A_Name", "dev"),
        "`Not_A_Name` is no name for an object",
    );
    refuses(
        &fixture,
        application("foreign", "dev"),
        "application `foreign` exists and does not belong to the set (ownership)",
    );
    let nameless = application("", "dev");
    refuses(
        &fixture,
        nameless,
        "ApplicationSet web contains an application with no name; a name must be set",
    );
    let twice = vec![application("a", "dev"), application("a", "dev")];
    let outcome = fixture.authorize(Operation::Create, &set("dev"), &StoredState::default(), twice);
    assert_eq!(status_of(outcome), StatusCode::BAD_REQUEST);
}

#[test]
fn an_application_that_the_set_does_not_own_is_never_taken_over() {
    let mut existing = stored("dev", vec![application("mine", "dev")]);
    existing.applications.push(application("theirs", "dev"));
    let generated = vec![application("mine", "dev"), application("theirs", "dev")];
    let outcome = all().authorize(Operation::Upsert, &set("dev"), &existing, generated);
    refused(
        outcome,
        "application `theirs` exists and does not belong to the set (ownership)",
    );
    let outcome = all().authorize(
        Operation::Upsert,
        &set("dev"),
        &existing,
        vec![application("mine", "dev")],
    );
    assert!(outcome.is_ok());
}

/// Only callers who could write in a project see findings about it.
#[test]
fn without_permission_nothing_of_a_project_is_revealed() {
    let rows = "p, ann, applicationsets, *, *, allow\np, ann, applications, create, dev/*, allow";
    let fixture = Fixture::new(rows);
    let refusals_for = |project: &str| {
        let wrong = with(application("a", project), "destination", json!({"name": "us"}));
        refusals(fixture.authorize(Operation::Create, &set("dev"), &StoredState::default(), vec![wrong]))
    };
    for project in ["prod", "nope"] {
        let expected = format!("application `{project}/a`: `applications, create` is not permitted");
        assert_eq!(refusals_for(project), [expected]);
    }
}

#[test]
fn refusals_are_bounded_and_counted() {
    let rows = "p, ann, applicationsets, *, *, allow\np, ann, applications, create, dev/none, allow";
    let fixture = Fixture::new(rows);
    let generated = (0..MAX_REFUSALS + 7)
        .map(|number| application(&format!("a{number:04}"), "dev"))
        .collect();
    let permit = fixture
        .authorize_operation(Operation::Create, Some(&set("dev")), &StoredState::default())
        .unwrap();
    let plan = Plan::new(&set("dev"), StoredState::default(), generated);
    let mut checks = Vec::new();
    let outcome = fixture
        .authorizer(&fixture.caller("ann"))
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
fn a_templated_project_needs_permissions_in_every_rendered_project() {
    let applications = "p, ann, applications, *, *, allow\n";
    let dev = format!("{applications}p, ann, applicationsets, create, dev/*, allow\n");
    let both = format!("{dev}p, ann, applicationsets, create, prod/*, allow\n");
    let generated = || vec![application("a", "dev"), application("b", "prod")];
    let authorize = |rows: &str, generated| {
        Fixture::new(rows).authorize(Operation::Create, &set("{{ .p }}"), &StoredState::default(), generated)
    };
    refused(
        authorize(&dev, generated()),
        "applicationset `prod/web`: `applicationsets, create` is not permitted",
    );
    assert_eq!(projects_of(&authorize(&both, generated()).unwrap()), ["dev", "prod"]);
    // If nothing is rendered, the template's text is the project, as in Argo CD.
    assert!(authorize(&both, Vec::new()).is_err());
    assert!(authorize(ALL, Vec::new()).is_ok());
}

#[test]
fn a_changed_project_needs_permissions_in_both_projects() {
    let existing = stored("dev", vec![application("a", "dev")]);
    let rows = "p, ann, applicationsets, *, *, allow\np, ann, applications, *, dev/*, allow\n";
    let authorize = |more: &str| {
        let fixture = Fixture::new(&format!("{rows}{more}"));
        fixture.authorize(
            Operation::Upsert,
            &set("dev"),
            &existing,
            vec![application("a", "prod")],
        )
    };
    let create = "p, ann, applications, create, prod/*, allow\n";
    let update = "p, ann, applications, update, prod/*, allow\n";
    refused(
        authorize(create),
        "application `prod/a`: `applications, update` is not permitted",
    );
    refused(
        authorize(update),
        "application `prod/a`: `applications, create` is not permitted",
    );
    assert!(authorize(&format!("{create}{update}")).is_ok());
}

#[test]
fn unchanged_applications_pass_the_same_checks() {
    let existing = stored("dev", vec![application("a", "dev")]);
    let fixture = all();
    let approved = fixture.authorize(Operation::Upsert, &set("dev"), &existing, vec![application("a", "dev")]);
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
    let outcome = fixture.authorize(Operation::Upsert, &set("dev"), &existing, vec![elsewhere]);
    refused(outcome, "do not match any of the allowed destinations");
}

#[test]
fn deleting_needs_permission_on_every_owned_application() {
    let existing = stored("dev", vec![application("a", "dev"), application("b", "prod")]);
    let rows = "p, ann, applicationsets, *, *, allow\np, ann, applications, delete, dev/*, allow\n";
    for cascade in [Propagation::Background, Propagation::Orphan] {
        let outcome = Fixture::new(rows).delete(&existing, cascade);
        refused(outcome, "application `prod/b`: `applications, delete` is not permitted");
        let both = format!("{rows}p, ann, applications, delete, prod/*, allow");
        let approved = Fixture::new(&both).delete(&existing, cascade).unwrap();
        assert_eq!(approved.plan().changes.len(), 2);
    }
}

#[test]
fn an_orphaned_application_loses_only_its_owner_reference() {
    let fixture = all();
    let existing = stored("dev", vec![application("a", "dev")]);
    let permit = fixture.authorize_operation(Operation::Delete, None, &existing).unwrap();
    let mut plan = Plan::deletion(&set_of(existing.set.clone().unwrap()), existing, Propagation::Orphan);
    plan.changes[0].after.as_mut().unwrap()["spec"]["project"] = json!("prod");
    let outcome = fixture
        .authorizer(&fixture.caller("ann"))
        .authorize_plan(&permit, plan, &mut Vec::new());
    refused(outcome, "more than the reference to the set would change");
}

#[test]
fn a_plan_for_another_request_is_not_approved() {
    let fixture = all();
    let caller = fixture.caller("ann");
    let authorizer = fixture.authorizer(&caller);
    let existing = stored("dev", vec![application("a", "dev")]);
    let assert_mismatch = |permit: &SetPermit, plan: Plan| {
        let outcome = authorizer.authorize_plan(permit, plan, &mut Vec::new());
        assert_eq!(outcome.unwrap_err(), Error::PlanMismatch);
    };
    let permit = fixture
        .authorize_operation(Operation::Upsert, Some(&set("dev")), &existing)
        .unwrap();
    let plan = || Plan::new(&set("dev"), existing.clone(), vec![application("a", "dev")]);
    assert!(authorizer.authorize_plan(&permit, plan(), &mut Vec::new()).is_ok());
    let mut other = plan();
    other.set.name.name = "other".to_owned();
    assert_mismatch(&permit, other);
    let mut moved = Plan::new(&set("prod"), existing.clone(), vec![application("a", "dev")]);
    assert_mismatch(&permit, moved.clone());
    moved.changes.clear();
    assert_mismatch(&permit, moved);
    let mut without = plan();
    without.changes.clear();
    assert_mismatch(&permit, without);
    let mut twice = plan();
    twice.changes.extend(plan().changes);
    assert_mismatch(&permit, twice);
    let mut elsewhere = plan();
    elsewhere.changes[0].name.namespace = "kube-system".to_owned();
    assert_mismatch(&permit, elsewhere);
    let preview = fixture
        .authorize_operation(Operation::Preview, Some(&set("dev")), &existing)
        .unwrap();
    assert_mismatch(&preview, plan());
}

#[test]
fn a_preview_lists_refusals_and_visible_changes() {
    let rows = "p, ann, applicationsets, preview, dev/*, allow\np, ann, applicationsets, get, dev/*, allow\n\
                p, ann, applications, get, dev/a, allow";
    let fixture = Fixture::new(rows);
    let existing = stored("dev", vec![application("a", "dev"), application("b", "dev")]);
    let permit = fixture
        .authorize_operation(Operation::Preview, Some(&set("dev")), &existing)
        .unwrap();
    let generated = ["a", "b", "c"].map(|name| application(name, "dev")).to_vec();
    let plan = Plan::new(&set("dev"), existing, generated);
    let review = fixture
        .authorizer(&fixture.caller("ann"))
        .review(&permit, plan, &mut Vec::new())
        .unwrap();
    assert_eq!(review.visible, [true, false, true]);
    let refused = review.refused.unwrap();
    assert_eq!(refused.refusals().len(), 7, "{refused}");
    let templated = "p, ann, applicationsets, preview, dev/*, allow";
    let fixture = Fixture::new(templated);
    let none = StoredState::default();
    let permit = fixture
        .authorize_operation(Operation::Preview, Some(&set("{{ .p }}")), &none)
        .unwrap();
    let review = |project: &str| {
        let plan = Plan::new(&set("{{ .p }}"), none.clone(), vec![application("a", project)]);
        fixture
            .authorizer(&fixture.caller("ann"))
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
fn validation_errors_of_generated_applications_match_argo_cd() {
    let fixture = all();
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
    let found = generated_errors("web", &fixture.resources, &applications);
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

/// Projects that `argocd-cm` makes global, and Secrets that belong to projects.
const SHARED: &str = r#"
---
apiVersion: argoproj.io/v1alpha1
kind: AppProject
metadata: {name: everybody, namespace: argocd}
spec:
  sourceRepos: ["https://shared.example.org/*", "!https://git.example.org/forbidden"]
  destinations: [{name: eu, namespace: shared}, {server: "https://eu.example.org", namespace: "!kube-system"}]
---
apiVersion: v1
kind: Secret
metadata: {name: chart, namespace: argocd, labels: {argocd.argoproj.io/secret-type: repository}}
stringData: {type: helm, url: "https://charts.example.org/dev", project: dev}
---
apiVersion: v1
kind: Secret
metadata: {name: registry, namespace: argocd, labels: {argocd.argoproj.io/secret-type: repository}}
stringData: {type: oci, url: "oci://registry.example.org/dev", project: dev}
---
apiVersion: v1
kind: Secret
metadata: {name: creds, namespace: argocd, labels: {argocd.argoproj.io/secret-type: repo-creds}}
stringData: {url: "https://creds.example.org/dev", project: dev}
---
apiVersion: v1
kind: Secret
metadata: {name: own, namespace: argocd, labels: {argocd.argoproj.io/secret-type: cluster}}
stringData: {name: own, server: "https://own.example.org", config: "{}", project: dev}
---
apiVersion: v1
kind: Secret
metadata: {name: partly, namespace: argocd, labels: {argocd.argoproj.io/secret-type: cluster}}
stringData: {name: partly, server: "https://partly.example.org", config: "{}", project: dev, namespaces: "a, b"}
"#;

fn shared() -> Fixture {
    let global = "data: {globalProjects: \"[{projectName: everybody, labelSelector: {}}]\"}";
    let rows: String = ALL.lines().map(|row| format!("    {row}\n")).collect();
    let state = STATE.replace("data: {}", global).replace("    # rows\n", &rows);
    Fixture::of(&format!("{state}{SHARED}"))
}

#[test]
fn a_project_permits_what_argocd_puts_together_for_it() {
    let fixture = shared();
    let create = |application: Value| {
        let (set, stored) = (set("dev"), StoredState::default());
        fixture.authorize(Operation::Create, &set, &stored, vec![application])
    };
    let from = |url: &str| with(application("a", "dev"), "source", json!({"repoURL": url, "path": "."}));
    let to = |name: &str, namespace: &str| {
        let destination = json!({"name": name, "namespace": namespace});
        with(application("a", "dev"), "destination", destination)
    };
    for permitted in [
        from("https://shared.example.org/x"),
        from("https://charts.example.org/dev"),
        from("oci://registry.example.org/dev"),
        to("eu", "shared"),
        to("own", "anything"),
        to("partly", "b"),
    ] {
        let outcome = create(permitted.clone());
        assert!(outcome.is_ok(), "{permitted}: {outcome:?}");
    }
    for (refused_one, expected) in [
        (
            from("https://git.example.org/forbidden"),
            "is not permitted in project 'dev'",
        ),
        (to("eu", "kube-system"), "do not match any of the allowed destinations"),
        (to("partly", "c"), "do not match any of the allowed destinations"),
    ] {
        refused(create(refused_one), expected);
    }
    // What belongs to `dev` is nothing to another project.
    let mut foreign = to("own", "anything");
    foreign["spec"]["project"] = json!("prod");
    let outcome = fixture.authorize(Operation::Create, &set("prod"), &StoredState::default(), vec![foreign]);
    refused(outcome, "project 'prod'");
}

/// The index of Applications and the fronts without it read the same projects.
#[test]
fn projects_are_the_same_with_and_without_an_index() {
    let fixture = shared();
    let rules = tollgate_policy::impersonate::service_account::ImpersonationRules::default();
    let index = tollgate_policy::applications::ApplicationIndex::build(&fixture.resources, &rules, None, None);
    let (projects, findings) = Projects::build(&fixture.resources);
    assert_eq!(findings, []);
    assert!(projects.is_same(&index.projects()));
    let dev = projects.find("dev").unwrap();
    assert_eq!(index.project("dev"), Some(dev));
    // Its own, the two that belong to it (credentials are no repository), and those of the global one.
    let expected = [
        "https://git.example.org/*",
        "https://charts.example.org/dev",
        "oci://registry.example.org/dev",
        "https://shared.example.org/*",
        "!https://git.example.org/forbidden",
    ];
    assert_eq!(dev.source_repos, expected);
    assert_eq!(projects.find("prod").unwrap().source_repos.len(), 3);
}
