//! Projects and names that can change without a request.

#![expect(clippy::needless_pass_by_value, reason = "callers pass what they just wrote")]

use serde_json::json;

use super::*;

const SETS: &str = "p, ann, applicationsets, *, *, allow\np, ann, repositories, get, *, allow\n";

/// A set as it is sent, with Go templates.
fn sent(project: &str, generators: Value) -> ApplicationSet {
    let object = json!({
        "apiVersion": "argoproj.io/v1alpha1", "kind": "ApplicationSet",
        "metadata": {"name": "web", "namespace": "argocd"},
        "spec": {
            "goTemplate": true,
            "generators": generators,
            "template": {"metadata": {"name": "a"}, "spec": {"project": project}},
        },
    });
    ApplicationSet::read(object).unwrap()
}

fn list() -> Value {
    json!([{"list": {"elements": [{"p": "dev"}]}}])
}

fn git() -> Value {
    json!([{"git": {"repoURL": REPOSITORY, "files": [{"path": "*"}]}}])
}

fn create(rows: &str, set: &ApplicationSet) -> Result<ApprovedPlan, Error> {
    let generated = vec![application("a", "dev")];
    Fixture::new(&format!("{SETS}{rows}")).authorize(Operation::Create, set, &StoredState::default(), generated)
}

#[test]
fn a_project_from_external_input_needs_permission_in_all_projects() {
    let dev = "p, ann, applications, *, dev/*, allow";
    let each = "p, ann, applications, create, dev/*, allow\np, ann, applications, create, prod/*, allow\n\
                p, ann, applications, create, default/*, allow";
    let but_one = "p, ann, applications, *, *, allow\np, ann, applications, create, prod/*, deny";
    for rows in [dev, each, but_one] {
        let found = refusals(create(rows, &sent("{{ .p }}", git())));
        assert_eq!(
            found,
            [
                "applicationset `{{ .p }}/web`: the project depends on what the generator `git` reads, which can lead into \
              any project later: name the project, or have `applications, create` in all projects \
              (spec.generators[0].git)"
            ],
            "{rows}"
        );
        // A fixed project, or one from a list, needs no more.
        assert!(create(rows, &sent("dev", git())).is_ok(), "{rows}");
        assert!(create(rows, &sent("{{ .p }}", list())).is_ok(), "{rows}");
    }
    for rows in [
        "p, ann, applications, create, */*, allow",
        "p, ann, applications, *, *, allow",
    ] {
        assert!(create(rows, &sent("{{ .p }}", git())).is_ok(), "{rows}");
    }
}

#[test]
fn later_applications_that_the_webhook_judges_need_no_more() {
    let dev = "p, ann, applications, *, dev/*, allow";
    let set = sent("{{ .p }}", git());
    let judged = |later: LaterApplications, set: &ApplicationSet| {
        let fixture = Fixture::new(&format!("{SETS}{dev}")).with_later(later);
        fixture.authorize(
            Operation::Create,
            set,
            &StoredState::default(),
            vec![application("a", "dev")],
        )
    };
    assert!(judged(LaterApplications::JudgedByAuthor, &set).is_ok());
    assert_eq!(refusals(judged(LaterApplications::Unjudged, &set)).len(), 1);
    // No later judgement makes a project of each time another one.
    let clock = sent("{{ now | date \"2006\" }}", git());
    assert_eq!(refusals(judged(LaterApplications::JudgedByAuthor, &clock)).len(), 1);
}

#[test]
fn a_project_that_depends_on_the_time_is_always_refused() {
    let all = "p, ann, applications, *, *, allow";
    let outcome = create(
        all,
        &sent(
            "{{ if eq (now | date \"2006\") \"2001\" }}prod{{ else }}dev{{ end }}",
            list(),
        ),
    );
    let found = refusals(outcome);
    assert_eq!(found.len(), 1, "{found:#?}");
    assert!(found[0].contains("`now` gives another project each time"), "{found:#?}");
    assert!(
        found[0].ends_with("name the project (spec.template.spec.project)"),
        "{found:#?}"
    );
    assert!(create(all, &sent("{{ if eq .p \"x\" }}prod{{ else }}dev{{ end }}", list())).is_ok());
}

/// SECURITY: the same as for the project, even if the project is fixed.
#[test]
fn a_name_that_depends_on_the_time_is_always_refused() {
    let all = "p, ann, applications, *, *, allow";
    let named = |name: &str| {
        let mut object = sent("dev", list()).object;
        object["spec"]["template"]["metadata"]["name"] = json!(name);
        create(all, &ApplicationSet::read(object).unwrap())
    };
    refused(
        named("{{ if eq (now | date \"2006\") \"2001\" }}b{{ else }}a{{ end }}"),
        "`now` gives another name each time",
    );
    assert!(named("{{ if eq .p \"x\" }}b{{ else }}a{{ end }}").is_ok());
}

#[test]
fn a_changed_set_is_authorized_like_a_new_one() {
    let existing = stored("dev", vec![application("a", "dev")]);
    let fixture = Fixture::new(&format!("{SETS}p, ann, applications, *, dev/*, allow"));
    for operation in [Operation::Upsert, Operation::Update] {
        let authorize =
            |set: &ApplicationSet| fixture.authorize(operation, set, &existing, vec![application("a", "dev")]);
        refused(
            authorize(&sent("{{ .p }}", git())),
            "the project depends on what the generator `git` reads",
        );
        assert!(authorize(&sent("dev", git())).is_ok());
    }
    // Such a set that is already stored can be read and deleted.
    let mut existing = existing;
    existing.set = Some(sent("{{ .p }}", git()).object);
    existing.applications.clear();
    let rows = format!("{SETS}p, ann, applications, *, dev/*, allow");
    assert!(
        Fixture::new(&rows)
            .authorize_operation(Operation::Get, None, &existing)
            .is_ok()
    );
    assert!(Fixture::new(&rows).delete(&existing, Propagation::Background).is_ok());
}

/// A preview shows what is generated, and lists why it would not be written.
#[test]
fn a_preview_lists_these_refusals() {
    let fixture = Fixture::new(&format!("{SETS}p, ann, applications, *, dev/*, allow"));
    let none = StoredState::default();
    let review = |set: &ApplicationSet| {
        let permit = fixture
            .authorize_operation(Operation::Preview, Some(set), &none)
            .unwrap();
        let plan = Plan::new(set, none.clone(), vec![application("a", "dev")]);
        fixture
            .authorizer(&fixture.caller("ann"))
            .review(&permit, plan, &mut Vec::new())
            .unwrap()
    };
    let refused = review(&sent("{{ .p }}", git())).refused.unwrap();
    assert_eq!(refused.refusals().len(), 1, "{refused}");
    assert!(refused.to_string().contains("the project depends on"), "{refused}");
    assert!(review(&sent("{{ .p }}", list())).refused.is_none());
}

#[test]
fn a_patch_starts_no_operation_later() {
    let patched = |generators: Value, patch: &str| {
        let mut object = sent("dev", generators).object;
        object["spec"]["templatePatch"] = json!(patch);
        ApplicationSet::read(object).unwrap()
    };
    let hidden = "{{ if .go }}\noperation: {sync: {}}\n{{ end }}";
    let all = "p, ann, applications, *, *, allow";
    let found = refusals(create(all, &patched(list(), hidden)));
    assert_eq!(
        found,
        [
            "applicationset `dev/web`: it must not set `operation`, not even under a condition: start a sync by itself \
             (spec.templatePatch)"
        ]
    );
    // What a repository has may be any text, so it needs what the operation would need.
    let open = "metadata: {labels: {a: {{ .p }}}}";
    let writer = "p, ann, applications, create, dev/*, allow\np, ann, applications, sync, dev/*, allow";
    let found = refusals(create(writer, &patched(git(), open)));
    assert_eq!(found.len(), 1, "{found:?}");
    assert!(
        found[0].contains("`applications, override` is not permitted on `dev/*`"),
        "{found:?}"
    );
    assert!(create(writer, &patched(list(), open)).is_ok());
    assert!(create("p, ann, applications, *, dev/*, allow", &patched(git(), open)).is_ok());
    let fixture = Fixture::new(&format!("{SETS}{writer}")).with_later(LaterApplications::JudgedByAuthor);
    let judged = fixture.authorize(
        Operation::Create,
        &patched(git(), open),
        &StoredState::default(),
        vec![application("a", "dev")],
    );
    assert!(judged.is_ok(), "{:?}", refusals(judged));
}
