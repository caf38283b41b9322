use serde_json::{Value, json};

use super::{Error, Fixture, cluster, list, own_cluster};
use crate::budget::Excess;
use crate::{Exceeded, GenerationBudget, generate};
use tollgate_config::GenerationLimits;

fn generated(fixture: &Fixture, spec: Value) -> Result<Vec<Value>, Error> {
    generate(
        &Fixture::set(spec),
        &fixture.inputs(),
        &GenerationBudget::new(fixture.limits),
    )
}

fn names(applications: &[Value]) -> Vec<&str> {
    let names = applications.iter().map(|application| &application["metadata"]["name"]);
    names.map(|name| name.as_str().unwrap()).collect()
}

#[test]
fn applications_are_in_the_order_of_generators_and_parameters() {
    let fixture = Fixture {
        clusters: vec![own_cluster(), cluster("fake-cluster", &[], &[])],
        ..Fixture::default()
    };
    let spec = json!({
        "generators": [{"clusters": {}}, list(json!([{"name": "x"}, {"name": "y"}]))],
        "template": {"metadata": {"name": "{{name}}"}, "spec": {"project": "default"}},
    });
    let applications = generated(&fixture, spec).unwrap();
    assert_eq!(names(&applications), ["fake-cluster", "in-cluster", "x", "y"]);
    assert_eq!(applications[0]["kind"], "Application");
    assert_eq!(applications[0]["metadata"]["namespace"], "argocd");
    assert_eq!(applications[0]["spec"]["project"], "default");
}

#[test]
fn a_generators_template_overrides_the_sets_template() {
    let fixture = Fixture::default();
    let own = json!({"metadata": {"labels": {"own": "yes"}}, "spec": {"project": "other"}});
    let mut first = list(json!([{"name": "x"}]));
    first["list"]["template"] = own;
    let spec = json!({
        "generators": [first, list(json!([{"name": "y"}]))],
        "template": {"metadata": {"name": "{{name}}"}, "spec": {"project": "default"}},
    });
    let applications = generated(&fixture, spec).unwrap();
    assert_eq!(names(&applications), ["x", "y"]);
    assert_eq!(applications[0]["spec"]["project"], "other");
    assert_eq!(applications[0]["metadata"]["labels"]["own"], "yes");
    assert_eq!(applications[1]["spec"]["project"], "default");
}

#[test]
fn one_error_fails_the_whole_generation() {
    let fixture = Fixture::default();
    let spec = |name: &str| {
        json!({
            "goTemplate": true,
            "goTemplateOptions": ["missingkey=error"],
            "generators": [list(json!([{"name": "x"}, {"other": "y"}]))],
            "template": {"metadata": {"name": name}, "spec": {"project": "default"}},
        })
    };
    let error = generated(&fixture, spec("{{.name}}")).unwrap_err();
    assert!(
        matches!(&error, Error::Template { path, .. } if path == "spec.generators[0].list"),
        "{error}"
    );
    assert!(generated(&fixture, spec("same")).is_ok());
    let wrong =
        json!({"generators": [list(json!([{"a": "b"}])), {"matrix": {}}], "template": {"metadata": {"name": "{{a}}"}}});
    let error = generated(&fixture, wrong).unwrap_err().to_string();
    assert!(error.starts_with("`spec.generators[1].matrix`: "), "{error}");
}

#[test]
fn applications_are_counted() {
    let fixture = Fixture {
        limits: GenerationLimits {
            applications: 1,
            ..GenerationLimits::default()
        },
        ..Fixture::default()
    };
    let spec =
        |elements: Value| json!({"generators": [list(elements)], "template": {"metadata": {"name": "{{name}}"}}});
    assert_eq!(generated(&fixture, spec(json!([{"name": "x"}]))).unwrap().len(), 1);
    assert!(matches!(
        generated(&fixture, spec(json!([{"name": "x"}, {"name": "y"}]))),
        Err(Error::Exceeded(Exceeded::Applications(Excess {
            observed: 2,
            allowed: 1
        })))
    ));
}

#[test]
fn an_unknown_generator_in_a_stored_set_fails_the_whole_generation() {
    let object = json!({"metadata": {"name": "s"}, "spec": {"generators": [list(json!([{"a": "b"}])), {}]}});
    let set = crate::ApplicationSet::read_stored(object).unwrap();
    let fixture = Fixture::default();
    let error = generate(
        &set,
        &fixture.inputs(),
        &GenerationBudget::new(GenerationLimits::default()),
    )
    .unwrap_err()
    .to_string();
    assert_eq!(error, "`spec.generators[1]`: the kind of this generator is not known");
}
