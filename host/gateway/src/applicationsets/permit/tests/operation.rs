//! What is judged before anything is generated.

use serde_json::json;

use super::*;
use tollgate_applicationset::{ClusterInput, Denial, DeniedResource, GeneratorKind, InputAuthorizer};

const MAKER: &str = "p, ann, applicationsets, create, dev/*, allow\np, ann, applications, create, dev/*, allow";

#[test]
fn sets_are_in_permitted_namespaces() {
    let world = World::new("p, ann, *, *, *, allow");
    let none = StoredState::default();
    for namespace in ["argocd", "team-a"] {
        assert!(
            world
                .authorize_operation(Operation::Create, Some(&set_in(namespace, "dev")), &none)
                .is_ok()
        );
    }
    let error = world.authorize_operation(Operation::Create, Some(&set_in("NOT-ALLOWED", "dev")), &none);
    let error = error.unwrap_err();
    assert_eq!(error.to_string(), "namespace 'NOT-ALLOWED' is not permitted");
    assert_eq!(error.answer().0, StatusCode::FORBIDDEN);
    // `prod` takes none of that namespace.
    let outcome = world.authorize_operation(Operation::Create, Some(&set_in("team-a", "prod")), &none);
    refused(
        outcome,
        "namespace 'team-a' is not permitted to use project 'prod' (sourceNamespaces of project `prod`)",
    );
}

/// Each operation needs exactly its rights: every one taken away refuses it.
#[test]
fn every_operation_needs_its_rights() {
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
        let world = |needed: &[&str]| {
            let rows = needed
                .iter()
                .map(|need| format!("p, ann, applicationsets, {need}/web, allow\n"));
            let rows: String = rows.collect();
            World::new(&format!("{rows}p, ann, applications, *, */*, allow"))
        };
        let passed = world(needed).authorize_operation(operation, sent, stored);
        assert!(passed.is_ok(), "{operation:?} {needed:?}: {passed:?}");
        for left_out in needed {
            let fewer: Vec<&str> = needed.iter().copied().filter(|need| need != left_out).collect();
            let outcome = world(&fewer).authorize_operation(operation, sent, stored);
            assert!(outcome.is_err(), "{operation:?} without {left_out}");
        }
    }
}

#[test]
fn a_preview_needs_preview_or_create() {
    let none = StoredState::default();
    for (action, passes) in [("preview", true), ("create", true), ("update", false), ("get", false)] {
        let world = World::new(&format!("p, ann, applicationsets, {action}, dev/*, allow"));
        let outcome = world.authorize_operation(Operation::Preview, Some(&set("dev")), &none);
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
fn a_refusal_has_the_row_that_denies() {
    let world = World::new(&format!("{MAKER}\np, ann, applicationsets, create, dev/web, deny"));
    let found = refusals(world.authorize_operation(Operation::Create, Some(&set("dev")), &StoredState::default()));
    assert_eq!(found.len(), 1);
    assert!(found[0].contains("state.yaml:"), "{found:?}");
    assert!(
        found[0].ends_with("p, ann, applicationsets, create, dev/web, deny)"),
        "{found:?}"
    );
}

/// One answer for a set that is not there and one that is somebody else's.
#[test]
fn who_may_not_see_a_set_does_not_learn_of_it() {
    let world = World::new(MAKER);
    let theirs = stored("prod", vec![application("a", "prod")]);
    let none = StoredState::default();
    for operation in [Operation::Get, Operation::Delete] {
        let absent = world.authorize_operation(operation, None, &none).unwrap_err();
        assert_eq!(world.authorize_operation(operation, None, &theirs).unwrap_err(), absent);
        assert_eq!(absent.answer().0, StatusCode::NOT_FOUND);
        assert_eq!(absent.to_string(), "applicationsets.argoproj.io \"web\" not found");
    }
    let sent = set("dev");
    let absent = world
        .authorize_operation(Operation::Update, Some(&sent), &none)
        .unwrap_err();
    assert_eq!(
        world
            .authorize_operation(Operation::Update, Some(&sent), &theirs)
            .unwrap_err(),
        absent
    );
    // Who uses its name learns that it is taken, and nothing else.
    let more = World::new(&format!("{MAKER}\np, ann, applicationsets, update, dev/*, allow"));
    let text = format!(
        "{:?}",
        more.authorize_operation(Operation::Upsert, Some(&sent), &theirs)
            .unwrap_err()
    );
    assert!(
        text.contains("there is an applicationset of this name") && !text.contains("prod"),
        "{text}"
    );
    // Who may see it reads what is missing.
    let sees = World::new("p, ann, applicationsets, get, prod/*, allow");
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
fn a_set_that_is_stored_is_not_made_again() {
    let world = World::new(MAKER);
    let outcome = world.authorize_operation(Operation::Create, Some(&set("dev")), &stored("dev", Vec::new()));
    let error = outcome.unwrap_err();
    assert!(error.to_string().contains("use upsert flag to force update"));
    assert_eq!(error.answer().0, StatusCode::BAD_REQUEST);
    // Only callers who may create it learn that it exists.
    let outcome = World::new("").authorize_operation(Operation::Create, Some(&set("dev")), &stored("dev", Vec::new()));
    assert_eq!(status_of(outcome), StatusCode::FORBIDDEN);
}

#[test]
fn a_project_has_to_be_there() {
    let world = World::new("p, ann, *, *, */*, allow");
    let none = StoredState::default();
    let error = world
        .authorize_operation(Operation::Create, Some(&set("nope")), &none)
        .unwrap_err();
    assert_eq!(
        error.to_string(),
        "ApplicationSet references project nope which does not exist"
    );
    assert_eq!(error.answer().0, StatusCode::BAD_REQUEST);
    assert!(
        world
            .authorize_operation(Operation::Create, Some(&set("")), &none)
            .is_ok(),
        "empty is `default`"
    );
    // RBAC comes first.
    let outcome = World::new(MAKER).authorize_operation(Operation::Create, Some(&set("nope")), &none);
    assert_eq!(status_of(outcome), StatusCode::FORBIDDEN);
}

#[test]
fn a_templated_set_is_in_the_projects_of_its_applications() {
    let see = |rows: &str, annotation: Option<&str>, owned: &[&str]| {
        let mut object = set("{{ .p }}").object;
        if let Some(annotation) = annotation {
            object["metadata"]["annotations"] = json!({"tollgate.dev/projects": annotation});
        }
        let world = World::new(rows);
        let caller = world.caller("ann");
        let name = name_of(Some(&object));
        world.authorizer(&caller).may_get(&name, &object, owned.iter().copied())
    };
    let dev = "p, ann, applicationsets, get, dev/*, allow";
    let both = "p, ann, applicationsets, get, dev/*, allow\np, ann, applicationsets, get, prod/*, allow";
    assert!(see(dev, Some("dev"), &[]));
    assert!(!see(dev, Some("dev, prod"), &[]) && see(both, Some("dev, prod"), &[]));
    assert!(!see(dev, Some("dev"), &["prod"]) && see(both, Some("dev"), &["prod"]));
    // Neither is known: the text itself.
    assert!(!see(both, None, &[]) && see("p, ann, *, *, *, allow", None, &[]));
}

#[test]
fn somebody_who_could_have_no_application_generates_none() {
    let none = StoredState::default();
    let create =
        |rows: &str, set: &ApplicationSet| World::new(rows).authorize_operation(Operation::Create, Some(set), &none);
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
fn an_update_needs_all_rights_on_all_that_is_owned() {
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
            World::new(&format!("{sets}{rows}")).authorize_operation(Operation::Upsert, Some(&set("dev")), &existing);
        refused(
            outcome,
            &format!("application `dev/b`: `applications, {left_out}` is not permitted"),
        );
    }
    let all = World::new(&format!("{sets}p, ann, applications, *, dev/b, allow"));
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
fn what_generators_read_is_asked_first() {
    let none = StoredState::default();
    let cluster = cluster();
    let reads = ResolvedInputs {
        repositories: &[REPOSITORY, "https://elsewhere.example.org/x"],
        clusters: &[&cluster],
        plugin_kinds: &[GeneratorKind::PullRequest],
    };
    let create = |rows: &str| {
        let world = World::new(&format!("{MAKER}\n{rows}"));
        world.authorize_operation_with(Operation::Create, (Some(&set("dev")), &none), reads)
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
fn plugins_do_not_generate_for_those_who_may_only_look() {
    let none = StoredState::default();
    let reads = ResolvedInputs {
        plugin_kinds: &[GeneratorKind::ScmProvider],
        ..ResolvedInputs::default()
    };
    let preview = |action: &str| {
        let world = World::new(&format!("p, ann, applicationsets, {action}, dev/*, allow"));
        world.authorize_operation_with(Operation::Preview, (Some(&set("dev")), &none), reads)
    };
    refused(
        preview("preview"),
        "generator `scmProvider`: `applicationsets, create` is not permitted",
    );
    assert!(preview("create").is_ok());
}

#[test]
fn the_gate_answers_while_generators_run() {
    let world = World::new(&format!("{MAKER}\np, ann, repositories, get, {REPOSITORY}, allow"));
    let permit = world
        .authorize_operation(Operation::Create, Some(&set("dev")), &StoredState::default())
        .unwrap();
    let caller = world.caller("ann");
    let authorizer = world.authorizer(&caller);
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
fn who_may_preview_no_set_runs_no_generator_of_a_templated_one() {
    let none = StoredState::default();
    let templated = set("{{ .p }}");
    let preview = |rows: &str| World::new(rows).authorize_operation(Operation::Preview, Some(&templated), &none);
    refused(
        preview("p, ann, applications, *, */*, allow"),
        "`applicationsets, preview or create` is not permitted in any project",
    );
    assert!(preview("p, ann, applicationsets, preview, prod/*, allow").is_ok());
}
