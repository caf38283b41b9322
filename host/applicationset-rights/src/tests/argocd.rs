//! The historical checks: the set's RBAC object alone.

use super::*;
use tollgate_applicationset::{ClusterInput, GeneratorKind, InputAuthorizer};

fn fixture(rows: &str) -> Fixture {
    let mut fixture = Fixture::new(rows);
    fixture.settings.checks = ApplicationSetChecks::Argocd;
    fixture
}

#[test]
fn only_the_sets_own_object_decides() {
    let mine = fixture("p, ann, applicationsets, *, dev/*, allow");
    let none = StoredState::default();
    let permit = mine
        .authorize_operation(Operation::Create, Some(&set("dev")), &none)
        .unwrap();
    let caller = mine.caller("ann");
    let plan = Plan::set_only(&set("dev"), None);
    assert!(
        mine.authorizer(&caller)
            .authorize_plan(&permit, plan, &mut Vec::new())
            .is_ok()
    );
    // Nothing but the set is written.
    let more = Plan::new(&set("dev"), none.clone(), vec![application("a", "dev")]);
    let outcome = mine.authorizer(&caller).authorize_plan(&permit, more, &mut Vec::new());
    assert_eq!(outcome.unwrap_err(), Error::PlanMismatch);
    let error = mine
        .authorize_operation(Operation::Create, Some(&set("prod")), &none)
        .unwrap_err();
    assert_eq!(
        error.to_string(),
        "permission denied: applicationsets, create, prod/web, sub: ann"
    );
    assert_eq!(error.answer().0, StatusCode::FORBIDDEN);
    // The source namespaces of the project are not checked.
    assert!(
        fixture("p, ann, applicationsets, create, prod/team-a/*, allow")
            .authorize_operation(Operation::Create, Some(&set_in("team-a", "prod")), &none)
            .is_ok()
    );
}

#[test]
fn checks_run_in_the_order_of_argo_cd() {
    let all = fixture("p, ann, applicationsets, *, *, allow");
    let none = StoredState::default();
    let create = |fixture: &Fixture, set: &ApplicationSet| {
        fixture
            .authorize_operation(Operation::Create, Some(set), &none)
            .unwrap_err()
    };
    assert_eq!(create(&all, &set("{{ .p }}")), Error::Templated);
    assert_eq!(create(&all, &set_in("elsewhere", "{{ .p }}")), Error::Templated);
    let preview = all.authorize_operation(Operation::Preview, Some(&set_in("elsewhere", "{{ .p }}")), &none);
    assert!(matches!(preview, Err(Error::Namespace(_))));
    let unknown = create(&all, &set("nope"));
    assert!(unknown.to_string().contains("does not exist"));
    assert_eq!(unknown.answer().0, StatusCode::BAD_REQUEST);
    assert_eq!(create(&all, &set("")), Error::UnknownProject(String::new()));
    let dev = fixture("p, ann, applicationsets, *, dev/*, allow");
    assert_eq!(create(&dev, &set("nope")).answer().0, StatusCode::FORBIDDEN);
    let outcome = all.authorize_operation(Operation::Create, Some(&set("dev")), &stored("dev", Vec::new()));
    assert_eq!(outcome.unwrap_err(), Error::Exists);
    let outcome = all.authorize_operation(Operation::Get, None, &none);
    assert_eq!(status_of(outcome), StatusCode::NOT_FOUND);
}

#[test]
fn a_move_needs_permissions_in_both_projects() {
    let rows = [
        "p, ann, applicationsets, create, prod/*, allow",
        "p, ann, applicationsets, update, prod/*, allow",
        "p, ann, applicationsets, update, dev/*, allow",
    ];
    let upsert = |rows: &[&str]| {
        fixture(&rows.join("\n")).authorize_operation(Operation::Upsert, Some(&set("prod")), &stored("dev", Vec::new()))
    };
    assert!(upsert(&rows).is_ok());
    for left_out in rows {
        let fewer: Vec<&str> = rows.into_iter().filter(|row| *row != left_out).collect();
        assert_eq!(status_of(upsert(&fewer)), StatusCode::FORBIDDEN, "{left_out}");
    }
    // In one project an upsert needs `create` too.
    let update = fixture("p, ann, applicationsets, update, dev/*, allow");
    let outcome = update.authorize_operation(Operation::Upsert, Some(&set("dev")), &stored("dev", Vec::new()));
    assert_eq!(status_of(outcome), StatusCode::FORBIDDEN);
}

#[test]
fn sets_are_visible_by_the_text_of_their_project() {
    let one = fixture("p, ann, applicationsets, get, dev/*, allow");
    let caller = one.caller("ann");
    let authorizer = one.authorizer(&caller);
    let (dev, prod) = (set("dev"), set("prod"));
    let sees = |set: &ApplicationSet| authorizer.may_get(&set.name, &set.object, &owned_in(&["dev"]));
    assert_eq!([&dev, &prod].map(sees), [true, false]);
    assert_eq!(
        status_of(one.authorize_operation(Operation::Preview, Some(&dev), &StoredState::default())),
        StatusCode::FORBIDDEN
    );
}

#[test]
fn generators_read_with_the_permissions_of_the_control_plane() {
    let one = fixture("p, ann, applicationsets, create, dev/*, allow");
    let permit = one
        .authorize_operation(Operation::Preview, Some(&set("dev")), &StoredState::default())
        .unwrap();
    let caller = one.caller("ann");
    let authorizer = one.authorizer(&caller);
    let input_authorizer = authorizer.input_authorizer(&permit);
    let cluster = ClusterInput {
        name: "eu".to_owned(),
        server: "https://eu.example.org".to_owned(),
        project: String::new(),
        secret: None,
    };
    assert_eq!(input_authorizer.check_cluster(&cluster), Ok(()));
    assert_eq!(input_authorizer.check_plugin(GeneratorKind::Plugin), Ok(()));
    assert_eq!(input_authorizer.check_repository(REPOSITORY), Ok(()));
    // Repositories that are not listed are refused.
    assert!(
        input_authorizer
            .check_repository("https://elsewhere.example.org/x")
            .is_err()
    );
}
