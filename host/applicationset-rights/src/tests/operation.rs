//! Authorization before anything is generated.

use serde_json::json;

use super::*;
use tollgate_applicationset::{ClusterInput, Denial, DeniedResource, GeneratorKind, InputAuthorizer};

const CREATE_IN_DEV: &str = "p, ann, applicationsets, create, dev/*, allow\np, ann, applications, create, dev/*, allow";

#[test]
fn sets_are_in_permitted_namespaces() {
    let fixture = Fixture::new("p, ann, *, *, *, allow");
    let none = StoredState::default();
    for namespace in ["argocd", "team-a"] {
        assert!(
            fixture
                .authorize_operation(Operation::Create, Some(&set_in(namespace, "dev")), &none)
                .is_ok()
        );
    }
    let error = fixture.authorize_operation(Operation::Create, Some(&set_in("NOT-ALLOWED", "dev")), &none);
    let error = error.unwrap_err();
    assert_eq!(error.to_string(), "namespace 'NOT-ALLOWED' is not permitted");
    assert_eq!(error.answer().0, StatusCode::FORBIDDEN);
    // `prod` does not accept that namespace.
    let outcome = fixture.authorize_operation(Operation::Create, Some(&set_in("team-a", "prod")), &none);
    refused(
        outcome,
        "namespace 'team-a' is not permitted to use project 'prod' (sourceNamespaces of project `prod`)",
    );
}

/// Each operation needs exactly these permissions: without any one of them, it is refused.
#[test]
fn every_operation_needs_its_permissions() {
    let (dev, prod) = (set("dev"), set("prod"));
    let existing = stored("dev", Vec::new());
    let none = StoredState::default();
    let cases: [(Operation, Option<&ApplicationSet>, &StoredState, &[&str]); 9] = [
        (Operation::Get, None, &existing, &["get, dev"]),
        (Operation::Delete, None, &existing, &["delete, dev"]),
        (Operation::Create, Some(&dev), &none, &["create, dev"]),
        (
            Operation::CreateUnchanged,
            Some(&dev),
            &existing,
            &["create, dev", "get, dev"],
        ),
        (
            Operation::Upsert,
            Some(&dev),
            &existing,
            &["create, dev", "update, dev"],
        ),
        (
            Operation::Upsert,
            Some(&prod),
            &existing,
            &["create, prod", "update, prod", "update, dev"],
        ),
        (Operation::Update, Some(&dev), &existing, &["update, dev"]),
        (
            Operation::Update,
            Some(&prod),
            &existing,
            &["create, prod", "update, prod", "update, dev"],
        ),
        (Operation::Preview, Some(&dev), &none, &["preview, dev"]),
    ];
    for (operation, sent, stored, needed) in cases {
        let fixture = |needed: &[&str]| {
            let rows = needed
                .iter()
                .map(|need| format!("p, ann, applicationsets, {need}/web, allow\n"));
            let rows: String = rows.collect();
            Fixture::new(&format!("{rows}p, ann, applications, *, */*, allow"))
        };
        let passed = fixture(needed).authorize_operation(operation, sent, stored);
        assert!(passed.is_ok(), "{operation:?} {needed:?}: {passed:?}");
        for left_out in needed {
            let fewer: Vec<&str> = needed.iter().copied().filter(|need| need != left_out).collect();
            let outcome = fixture(&fewer).authorize_operation(operation, sent, stored);
            assert!(outcome.is_err(), "{operation:?} without {left_out}");
        }
    }
}

#[test]
fn a_preview_needs_preview_or_create() {
    let none = StoredState::default();
    for (action, passes) in [("preview", true), ("create", true), ("update", false), ("get", false)] {
        let fixture = Fixture::new(&format!("p, ann, applicationsets, {action}, dev/*, allow"));
        let outcome = fixture.authorize_operation(Operation::Preview, Some(&set("dev")), &none);
        assert_eq!(outcome.is_ok(), passes, "{action}");
        if !passes {
            refused(
                outcome,
                "applicationset `dev/web`: `applicationsets, preview` is not permitted",
            );
        }
    }
}

#[test]
fn a_refusal_names_the_row_that_denies() {
    let fixture = Fixture::new(&format!(
        "{CREATE_IN_DEV}\np, ann, applicationsets, create, dev/web, deny"
    ));
    let found = refusals(fixture.authorize_operation(Operation::Create, Some(&set("dev")), &StoredState::default()));
    assert_eq!(found.len(), 1);
    assert!(found[0].contains("state.yaml:"), "{found:?}");
    assert!(
        found[0].ends_with("p, ann, applicationsets, create, dev/web, deny)"),
        "{found:?}"
    );
}

/// The error is the same for a set that does not exist and for one that the caller may not see.
#[test]
fn a_set_that_the_caller_may_not_see_seems_absent() {
    let fixture = Fixture::new(CREATE_IN_DEV);
    let theirs = stored("prod", vec![application("a", "prod")]);
    let none = StoredState::default();
    for operation in [Operation::Get, Operation::Delete] {
        let absent = fixture.authorize_operation(operation, None, &none).unwrap_err();
        assert_eq!(
            fixture.authorize_operation(operation, None, &theirs).unwrap_err(),
            absent
        );
        assert_eq!(absent.answer().0, StatusCode::NOT_FOUND);
        assert_eq!(absent.to_string(), "applicationsets.argoproj.io \"web\" not found");
    }
    let sent = set("dev");
    let absent = fixture
        .authorize_operation(Operation::Update, Some(&sent), &none)
        .unwrap_err();
    assert_eq!(
        fixture
            .authorize_operation(Operation::Update, Some(&sent), &theirs)
            .unwrap_err(),
        absent
    );
    // A caller who uses its name learns only that it is taken.
    let more = Fixture::new(&format!(
        "{CREATE_IN_DEV}\np, ann, applicationsets, update, dev/*, allow"
    ));
    let text = format!(
        "{:?}",
        more.authorize_operation(Operation::Upsert, Some(&sent), &theirs)
            .unwrap_err()
    );
    assert!(
        text.contains("there is an applicationset of this name") && !text.contains("prod"),
        "{text}"
    );
    // A caller who may see it learns which permissions are missing.
    let sees = Fixture::new("p, ann, applicationsets, get, prod/*, allow");
    let outcome = sees.authorize_operation(Operation::Delete, None, &theirs);
    assert_eq!(
        refusals(outcome),
        [
            "applicationset `prod/web`: `applicationsets, delete` is not permitted",
            "application `prod/a`: `applications, delete` is not permitted",
        ]
    );
}

#[test]
fn a_stored_set_is_not_created_again() {
    let fixture = Fixture::new(CREATE_IN_DEV);
    let outcome = fixture.authorize_operation(Operation::Create, Some(&set("dev")), &stored("dev", Vec::new()));
    let error = outcome.unwrap_err();
    assert!(error.to_string().contains("use upsert flag to force update"));
    assert_eq!(error.answer().0, StatusCode::BAD_REQUEST);
    // Only callers who may create it learn that it exists.
    let outcome =
        Fixture::new("").authorize_operation(Operation::Create, Some(&set("dev")), &stored("dev", Vec::new()));
    assert_eq!(status_of(outcome), StatusCode::FORBIDDEN);
}

#[test]
fn the_project_must_exist() {
    let fixture = Fixture::new("p, ann, *, *, */*, allow");
    let none = StoredState::default();
    let error = fixture
        .authorize_operation(Operation::Create, Some(&set("nope")), &none)
        .unwrap_err();
    assert_eq!(
        error.to_string(),
        "ApplicationSet references project nope which does not exist"
    );
    assert_eq!(error.answer().0, StatusCode::BAD_REQUEST);
    assert!(
        fixture
            .authorize_operation(Operation::Create, Some(&set("")), &none)
            .is_ok(),
        "empty is `default`"
    );
    // RBAC comes first.
    let outcome = Fixture::new(CREATE_IN_DEV).authorize_operation(Operation::Create, Some(&set("nope")), &none);
    assert_eq!(status_of(outcome), StatusCode::FORBIDDEN);
}

#[test]
fn a_templated_set_belongs_to_the_projects_of_its_applications() {
    let see = |rows: &str, annotation: Option<&str>, owned: &[&str]| {
        let mut object = set("{{ .p }}").object;
        if let Some(annotation) = annotation {
            object["metadata"]["annotations"] = json!({"tollgate.dev/projects": annotation});
        }
        let fixture = Fixture::new(rows);
        let caller = fixture.caller("ann");
        let name = name_of(Some(&object));
        fixture.authorizer(&caller).may_get(&name, &object, &owned_in(owned))
    };
    let dev = "p, ann, applicationsets, get, dev/*, allow";
    let both = "p, ann, applicationsets, get, dev/*, allow\np, ann, applicationsets, get, prod/*, allow";
    assert!(see(dev, Some("dev"), &[]));
    assert!(!see(dev, Some("dev, prod"), &[]) && see(both, Some("dev, prod"), &[]));
    assert!(!see(dev, Some("dev"), &["prod"]) && see(both, Some("dev"), &["prod"]));
    // Without either, the template's text is the project.
    assert!(!see(both, None, &[]) && see("p, ann, *, *, *, allow", None, &[]));
}

#[test]
fn a_caller_who_could_create_no_application_generates_none() {
    let none = StoredState::default();
    let create =
        |rows: &str, set: &ApplicationSet| Fixture::new(rows).authorize_operation(Operation::Create, Some(set), &none);
    let sets = "p, ann, applicationsets, *, *, allow\n";
    for (rows, passes) in [
        ("", false),
        ("p, ann, applications, get, dev/*, allow", false),
        ("p, ann, applications, create, prod/*, allow", false),
        ("p, other, applications, create, dev/*, allow", false),
        ("p, ann, applications, create, dev/*, allow", true),
        ("p, ann, applications, *, */*, allow", true),
        ("p, ann, applications, create, dev/only-this, allow", true),
        (
            "p, ann, applications, create, *, allow\np, ann, applications, create, dev/*, deny",
            false,
        ),
        (
            "p, ann, applications, create, *, allow\np, ann, applications, create, dev/x*, deny",
            true,
        ),
        ("p, makers, applications, create, dev/*, allow\ng, ann, makers", true),
    ] {
        let outcome = create(&format!("{sets}{rows}"), &set("dev"));
        assert_eq!(outcome.is_ok(), passes, "{rows}: {outcome:?}");
        if !passes {
            refused(outcome, "it could generate no Application that you may create");
        }
    }
    // A template of a generator may name another project.
    let mut own = set("dev");
    own.object["spec"]["generators"] = json!([{"list": {"template": {"spec": {"project": "prod"}}}}]);
    assert!(create(&format!("{sets}p, ann, applications, create, prod/*, allow"), &own).is_ok());
    // Without generators nothing is generated.
    let mut bare = set("dev");
    bare.object["spec"]["generators"] = json!([]);
    assert!(create(sets, &bare).is_ok());
}

#[test]
fn an_update_needs_every_permission_on_every_owned_application() {
    let existing = stored("dev", vec![application("a", "dev"), application("b", "dev")]);
    let sets = "p, ann, applicationsets, *, dev/*, allow\np, ann, applications, *, dev/a, allow\n";
    for left_out in ["create", "update", "delete"] {
        let rows = ["create", "update", "delete"]
            .into_iter()
            .filter(|action| *action != left_out);
        let rows: String = rows
            .map(|action| format!("p, ann, applications, {action}, dev/b, allow\n"))
            .collect();
        let outcome =
            Fixture::new(&format!("{sets}{rows}")).authorize_operation(Operation::Upsert, Some(&set("dev")), &existing);
        refused(
            outcome,
            &format!("application `dev/b`: `applications, {left_out}` is not permitted"),
        );
    }
    let all = Fixture::new(&format!("{sets}p, ann, applications, *, dev/b, allow"));
    assert!(
        all.authorize_operation(Operation::Upsert, Some(&set("dev")), &existing)
            .is_ok()
    );
}

fn cluster() -> ClusterInput {
    ClusterInput {
        name: "secret-cluster".to_owned(),
        server: "https://secret.example.org".to_owned(),
        project: String::new(),
        secret: None,
    }
}

#[test]
fn inputs_of_generators_are_authorized_first() {
    let none = StoredState::default();
    let cluster = cluster();
    let reads = ResolvedInputs {
        repositories: &[REPOSITORY, "https://elsewhere.example.org/x"],
        clusters: &[&cluster],
        plugin_kinds: &[GeneratorKind::PullRequest],
    };
    let create = |rows: &str| {
        let fixture = Fixture::new(&format!("{CREATE_IN_DEV}\n{rows}"));
        fixture.authorize_operation_with(Operation::Create, (Some(&set("dev")), &none), reads)
    };
    let found = refusals(create(""));
    assert_eq!(found.len(), 3, "{found:#?}");
    assert_eq!(
        found[0],
        "repository `https://git.example.org/guestbook`: `repositories, get` is not permitted"
    );
    assert!(found[1].starts_with("repository `https://elsewhere.example.org/x`"));
    assert!(found[2].starts_with("generator `clusters`"));
    assert!(!found.concat().contains("secret"), "{found:#?}");
    let rows = "p, ann, repositories, get, *, allow\np, ann, clusters, get, *, allow";
    let found = refusals(create(rows));
    assert_eq!(found.len(), 1, "{found:#?}");
    assert!(found[0].contains("may not read repository") && found[0].contains("applicationSets.repositories"));
}

#[test]
fn plugin_generators_need_more_than_preview() {
    let none = StoredState::default();
    let reads = ResolvedInputs {
        plugin_kinds: &[GeneratorKind::ScmProvider],
        ..ResolvedInputs::default()
    };
    let preview = |action: &str| {
        let fixture = Fixture::new(&format!("p, ann, applicationsets, {action}, dev/*, allow"));
        fixture.authorize_operation_with(Operation::Preview, (Some(&set("dev")), &none), reads)
    };
    refused(
        preview("preview"),
        "generator `scmProvider`: `applicationsets, create` is not permitted",
    );
    assert!(preview("create").is_ok());
}

#[test]
fn inputs_are_authorized_while_generators_run() {
    let fixture = Fixture::new(&format!(
        "{CREATE_IN_DEV}\np, ann, repositories, get, {REPOSITORY}, allow"
    ));
    let permit = fixture
        .authorize_operation(Operation::Create, Some(&set("dev")), &StoredState::default())
        .unwrap();
    let caller = fixture.caller("ann");
    let authorizer = fixture.authorizer(&caller);
    let input_authorizer = authorizer.input_authorizer(&permit);
    for _ in 0..2 {
        assert_eq!(input_authorizer.check_repository(REPOSITORY), Ok(()));
        let refusal = input_authorizer
            .check_repository("https://ann:password@git.example.org/other")
            .unwrap_err();
        assert_eq!(
            refusal.about,
            DeniedResource::Repository("https://git.example.org/other".to_owned())
        );
        assert!(!refusal.to_string().contains("password"));
        let Denial { about, rule, .. } = input_authorizer.check_cluster(&cluster()).unwrap_err();
        assert_eq!((about, rule), (DeniedResource::Generator("clusters"), None));
        assert_eq!(input_authorizer.check_plugin(GeneratorKind::Plugin), Ok(()));
    }
}

#[test]
fn previewing_a_templated_set_needs_preview_in_some_project() {
    let none = StoredState::default();
    let templated = set("{{ .p }}");
    let preview = |rows: &str| Fixture::new(rows).authorize_operation(Operation::Preview, Some(&templated), &none);
    refused(
        preview("p, ann, applications, *, */*, allow"),
        "`applicationsets, preview or create` is not permitted in any project",
    );
    assert!(preview("p, ann, applicationsets, preview, prod/*, allow").is_ok());
}
