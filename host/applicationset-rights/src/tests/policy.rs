//! The bundle can only deny more, and its input matches the schema.

use std::collections::BTreeMap;

use serde_json::json;

use super::*;
use tollgate_applicationset::{GeneratorKind, InputAuthorizer};
use tollgate_rego::{
    ApplicationChange, ApplicationSetDetails, ApplicationSetFacts, ApplicationSetInput, ApplicationSetStage,
    CheckedFact, PlacementChecks, RbacCheck, RbacVerdict,
};

pub(super) fn bundle(text: &str) -> Arc<Bundle> {
    let folder = tempfile::tempdir().unwrap();
    std::fs::write(folder.path().join("policy.rego"), text).unwrap();
    std::fs::write(folder.path().join("cases.yaml"), "cases: []\n").unwrap();
    let source = BundleSource::read(folder.path(), Front::ApplicationSets).value.unwrap();
    Arc::new(Bundle::unchecked(&source).unwrap())
}

pub(super) fn with_policy(rows: &str, rego: &str) -> Fixture {
    let mut fixture = Fixture::new(rows);
    fixture.policy = bundle(&format!("package tollgate.applicationsets\n\n{rego}\n"));
    fixture
}

const YES: &str = r#"decision := {"allow": true, "reason": "yes"}"#;
const ALL: &str = "p, ann, *, *, *, allow";

#[test]
fn a_bundle_that_allows_everything_grants_nothing() {
    let none = StoredState::default();
    let fixture = with_policy(
        "p, ann, applicationsets, *, *, allow\np, ann, applications, *, dev/*, allow",
        YES,
    );
    let authorize = |application| fixture.authorize(Operation::Create, &set("dev"), &none, vec![application]);
    assert!(authorize(application("a", "dev")).is_ok());
    refused(
        authorize(application("a", "prod")),
        "`applications, create` is not permitted",
    );
    refused(authorize(application("foreign", "dev")), "does not belong to the set");
    let nowhere = with(application("a", "dev"), "destination", json!({"name": "us"}));
    refused(authorize(nowhere), "there are no clusters with this name");
    let outcome = with_policy("", YES).authorize_operation(Operation::Preview, Some(&set("dev")), &none);
    assert_eq!(status_of(outcome), StatusCode::FORBIDDEN);
}

#[test]
fn a_custom_bundle_can_deny_at_every_stage() {
    let none = StoredState::default();
    let reads = ResolvedInputs {
        repositories: &[REPOSITORY],
        plugin_kinds: &[GeneratorKind::Plugin],
        ..ResolvedInputs::default()
    };
    for (stage, about) in [
        ("set", "applicationset `dev/web`"),
        ("repository", "repository `https://git.example.org/guestbook`"),
        ("generator", "generator `plugin`"),
    ] {
        let rego = format!(
            "decision := {{\"allow\": false, \"reason\": \"not today\"}} if input.stage == \"{stage}\"\n\n\
             decision := {{\"allow\": true, \"reason\": \"yes\"}} if input.stage != \"{stage}\""
        );
        let fixture = with_policy(ALL, &rego);
        let outcome = fixture.authorize_operation_with(Operation::Create, (Some(&set("dev")), &none), reads);
        refused(outcome, &format!("{about}: not today (policies/applicationsets)"));
    }
    let rego = "default decision := {\"allow\": true, \"reason\": \"yes\"}\n\n\
                decision := {\"allow\": false, \"reason\": \"not b\"} if input.application.name == \"b\"";
    let generated = ["a", "b", "c"].map(|name| application(name, "dev")).to_vec();
    let outcome = with_policy(ALL, rego).authorize(Operation::Create, &set("dev"), &none, generated);
    refused(outcome, "application `dev/b`: not b (policies/applicationsets)");
}

#[test]
fn an_invalid_decision_denies() {
    let none = StoredState::default();
    let fixture = with_policy(ALL, "decision := {\"allow\": \"yes\", \"reason\": \"\"}");
    let error = fixture
        .authorize_operation(Operation::Create, Some(&set("dev")), &none)
        .unwrap_err();
    assert!(matches!(error, Error::Policy(_)), "{error:?}");
    assert_eq!(error.answer(), (StatusCode::FORBIDDEN, "policy_failed"));
    let caller = fixture.caller("ann");
    let dev = set("dev");
    assert!(
        !fixture
            .authorizer(&caller)
            .may_get(&dev.name, &dev.object, &owned_in(&[]))
    );
    // Generators may then read nothing.
    let permit = Fixture::new(ALL)
        .authorize_operation(Operation::Create, Some(&dev), &none)
        .unwrap();
    let authorizer = fixture.authorizer(&caller);
    let refusal = authorizer
        .input_authorizer(&permit)
        .check_repository(REPOSITORY)
        .unwrap_err();
    assert_eq!(refusal.reason, "the policy could not be evaluated");
}

/// The input of every stage matches the schema that cases are checked against, and the shipped
/// bundle decides as the host does.
#[test]
fn the_input_matches_the_schema() {
    let fixture = Fixture::new(ALL);
    let caller = fixture.caller("ann");
    let labels = BTreeMap::from([("team".to_owned(), "web".to_owned())]);
    let projects = ["dev".to_owned()];
    let known = ApplicationSetDetails {
        namespace: "argocd",
        name: "web",
        project: "dev",
        projects: &projects,
        labels: &labels,
        generators: &["git", "list"],
    };
    let facts = ApplicationSetFacts::new(&caller.policy, "create", &known);
    let fact = |refused| CheckedFact::new(refused);
    let project = fixture.resources.projects.get("dev").map(|project| &**project);
    let part = |refused: Option<&'static str>| ApplicationChange {
        namespace: "argocd",
        name: "a",
        project: "dev",
        action: "create",
        labels: vec![("team", "web")],
        object: fact(None),
        ownership: fact(None),
        placement: Some(PlacementChecks {
            project: CheckedFact::project("dev", project, None),
            namespace: fact(None),
            source: CheckedFact::source(&[REPOSITORY], refused),
            destination: CheckedFact::destination(fixture.resources.clusters.first(), "web", None),
        }),
    };
    let gone = ApplicationChange {
        action: "delete",
        placement: None,
        ..part(None)
    };
    let egress = fact(Some("not listed"));
    let subjects = [
        (ApplicationSetStage::Set, true),
        (ApplicationSetStage::Application(part(None)), true),
        (ApplicationSetStage::Application(part(Some("not from there"))), false),
        (ApplicationSetStage::Application(gone), true),
        (
            ApplicationSetStage::Repository {
                url: REPOSITORY,
                egress,
            },
            false,
        ),
        (
            ApplicationSetStage::Repository {
                url: REPOSITORY,
                egress: fact(None),
            },
            true,
        ),
        (
            ApplicationSetStage::Cluster {
                name: "eu",
                server: "https://eu.example.org",
            },
            true,
        ),
        (ApplicationSetStage::Generator("plugin"), true),
    ];
    let schema = jsonschema::validator_for(Front::ApplicationSets.input_schema()).unwrap();
    let check = RbacCheck {
        resource: "applications",
        action: "create",
        object: "dev/a",
        verdict: RbacVerdict {
            allow: true,
            rule: Some("policy.csv:1: p, …"),
            why: "allowed",
        },
    };
    for (subject, passes) in subjects {
        for refused in [None, Some("no right")] {
            let input = ApplicationSetInput {
                facts: &facts,
                subject: subject.clone(),
                checks: &[check],
                refused,
            };
            let json = serde_json::to_value(input.to_value()).unwrap();
            let wrong: Vec<String> = schema.iter_errors(&json).map(|error| error.to_string()).collect();
            assert!(wrong.is_empty(), "{wrong:?}: {json}");
            let labels = json.pointer("/application/labels");
            let is_application = matches!(subject, ApplicationSetStage::Application(_));
            let expected = serde_json::json!({"team": "web"});
            assert_eq!(labels, is_application.then_some(&expected), "{json}");
            let decided = fixture.policy.decide(input.to_value()).unwrap();
            assert_eq!(decided.allow, passes && refused.is_none(), "{json}: {decided:?}");
        }
    }
}
