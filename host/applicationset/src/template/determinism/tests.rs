//! Tests of which inputs and functions make the projects of a set nondeterministic.

#![expect(clippy::needless_pass_by_value, reason = "callers pass what they just wrote")]

use serde_json::{Value, json};

use super::{Nondeterminism, nondeterminism};
use crate::{ApplicationSet, GeneratorKind};

/// What makes the projects of such a set nondeterministic.
fn found(go: bool, project: &str, generators: Value) -> Vec<Nondeterminism> {
    of(json!({
        "goTemplate": go,
        "generators": generators,
        "template": {"metadata": {"name": "a"}, "spec": {"project": project}},
    }))
}

fn of(spec: Value) -> Vec<Nondeterminism> {
    let set = ApplicationSet::read_stored(json!({"metadata": {"name": "web", "namespace": "argocd"}, "spec": spec}));
    nondeterminism(&set.unwrap().spec)
}

fn list(element: Value) -> Value {
    json!({"list": {"elements": [element]}})
}

fn git() -> Value {
    json!({"git": {"repoURL": "https://git.example.org/r", "directories": [{"path": "*"}]}})
}

fn matrix(one: Value, other: Value) -> Value {
    json!({"matrix": {"generators": [one, other]}})
}

fn by_generator(path: &str, kind: GeneratorKind) -> Nondeterminism {
    Nondeterminism::Generator {
        path: path.to_owned(),
        kind,
    }
}

fn by_parameters(path: &str) -> Nondeterminism {
    Nondeterminism::Parameters(path.to_owned())
}

#[test]
fn a_literal_project_is_deterministic() {
    let everything = json!([git(), {"clusters": {}}, matrix(list(json!({"p": "{{ now }}"})), git())]);
    assert_eq!(found(true, "dev", everything.clone()), []);
    assert_eq!(found(false, "", everything.clone()), []);
    assert_eq!(found(true, "{{ .p }}", everything).len(), 3);
}

#[test]
fn elements_of_lists_are_deterministic() {
    let lists = || {
        let merge =
            json!({"merge": {"mergeKeys": ["p"], "generators": [list(json!({"p": "a"})), list(json!({"p": "b"}))]}});
        json!([
            list(json!({"p": "now"})),
            merge,
            matrix(list(json!({"p": "a"})), list(json!({"q": "{{ .p }}"})))
        ])
    };
    assert_eq!(found(true, "{{ .p }}", lists()), []);
    assert_eq!(found(false, "{{p}}", lists()), []);
    assert_eq!(found(true, "{{ .p | lower | default \"dev\" }}", lists()), []);
}

#[test]
fn generators_with_external_inputs_are_nondeterministic() {
    let generators = json!([
        list(json!({"p": "a"})), git(), {"clusters": {}}, matrix(list(json!({})), git()),
        {"merge": {"mergeKeys": ["p"], "generators": [list(json!({})), matrix(git(), list(json!({})))]}},
        {"plugin": {"configMapRef": {"name": "x"}, "requeueAfterSeconds": 30}},
    ]);
    assert_eq!(
        found(false, "{{p}}", generators),
        [
            by_generator("spec.generators[1].git", GeneratorKind::Git),
            by_generator("spec.generators[2].clusters", GeneratorKind::Clusters),
            by_generator("spec.generators[3].matrix.generators[1].git", GeneratorKind::Git),
            by_generator(
                "spec.generators[4].merge.generators[1].matrix.generators[0].git",
                GeneratorKind::Git
            ),
            by_generator("spec.generators[5].plugin", GeneratorKind::Plugin),
        ]
    );
}

/// Each generator is checked with its own template.
#[test]
fn templates_of_generators_are_checked() {
    let with = |project: Value| {
        let mut generator = git();
        generator["git"]["template"] = json!({"metadata": {}, "spec": {"project": project}});
        json!([generator])
    };
    let path = [by_generator("spec.generators[0].git", GeneratorKind::Git)];
    assert_eq!(found(false, "dev", with(json!("{{path.basename}}"))), path);
    assert_eq!(found(false, "{{path.basename}}", with(json!("dev"))), []);
    assert_eq!(found(false, "{{path.basename}}", with(json!(""))), path);
    // A key that becomes `project`.
    let mut keyed = git();
    keyed["git"]["template"] = json!({"metadata": {}, "spec": {"{{path.basename}}": "prod"}});
    assert_eq!(found(false, "dev", json!([keyed])), path);
}

#[test]
fn clock_and_random_functions_are_nondeterministic() {
    let lists = || json!([list(json!({"p": "a", "map": {"a": "b"}}))]);
    for (project, name) in [
        ("p{{ now | date \"2006\" }}", "now"),
        ("{{ .p }}-{{ randAlphaNum 3 | lower }}", "randAlphaNum"),
        ("{{ if .p }}{{ uuidv4 }}{{ end }}", "uuidv4"),
        ("{{ with (index (keys .map) 0) }}{{ . }}{{ end }}", "keys"),
        ("{{ (shuffle .p) }}", "shuffle"),
        (
            "{{ define \"x\" }}{{ randInt 0 9 }}{{ end }}{{ template \"x\" }}",
            "randInt",
        ),
        ("{{ date \"2006\" .p }}", "date"),
        ("{{ genPrivateKey \"rsa\" }}", "genPrivateKey"),
        ("{{ slugify 20 .p }}", "slugify"),
    ] {
        assert_eq!(
            found(true, project, lists()),
            [Nondeterminism::Function(name)],
            "{project}"
        );
        // Without Go templates it is an unknown parameter.
        assert_eq!(found(false, project, lists()), [], "{project}");
    }
    for project in [
        "now-{{ .p }}",
        "{{ .now }}{{ .p.uuidv4 }}",
        "{{ printf \"%s-now\" .p }}",
    ] {
        assert_eq!(found(true, project, lists()), [], "{project}");
    }
}

/// SECURITY: a name that depends on the clock may one day be that of somebody else's Application, which
/// Argo CD's controller then takes over, regardless of its project.
#[test]
fn names_from_clock_and_random_functions_are_reported() {
    let with = |go: bool, name: &str, patch: &str| {
        of(json!({
            "goTemplate": go,
            "generators": [list(json!({"p": "a"}))],
            "template": {
                "metadata": {"name": name, "annotations": {"made": "{{ now }}"}},
                "spec": {"project": "dev"},
            },
            "templatePatch": patch,
        }))
    };
    let by = |function, path| Nondeterminism::Name { function, path };
    let name = "{{ if eq (now | date \"2006\") \"2026\" }}mine{{ else }}payments{{ end }}";
    let (at, patch) = ("spec.template.metadata.name", "spec.templatePatch");
    assert_eq!(with(true, name, "{}"), [by("now", at)]);
    assert_eq!(with(true, "a-{{ randNumeric 2 }}", "{}"), [by("randNumeric", at)]);
    assert_eq!(
        with(true, "a", "metadata: {name: '{{ uuidv4 }}'}"),
        [by("uuidv4", patch)]
    );
    // Without Go templates it is an unknown parameter; annotations do not affect the name.
    assert_eq!(with(false, name, "{}"), []);
    assert_eq!(with(true, "{{ .p }}-now", "metadata: {name: 'x{{ .p }}'}"), []);
    // A generator's own template takes precedence over that of the set.
    let own = |own: &str, base: &str| {
        let mut generator = list(json!({"p": "a"}));
        generator["list"]["template"] = json!({"metadata": {"name": own}, "spec": {}});
        of(json!({
            "goTemplate": true,
            "generators": [generator],
            "template": {"metadata": {"name": base}, "spec": {"project": "dev"}},
        }))
    };
    assert_eq!(own("{{ now }}", "a"), [by("now", at)]);
    assert_eq!(own("", "{{ now }}"), [by("now", at)]);
    assert_eq!(own("a", "{{ now }}"), []);
    // Parameters that a template makes count too, but not what generators read.
    let named = |name: &str, generator: Value| {
        of(json!({
            "goTemplate": true,
            "generators": [generator],
            "template": {"metadata": {"name": name}, "spec": {"project": "dev"}},
        }))
    };
    let clock = || matrix(list(json!({})), list(json!({"p": "{{ now }}"})));
    let path = "spec.generators[0].matrix.generators[1].list";
    assert_eq!(named("{{ .p }}", clock()), [by_parameters(path)]);
    assert_eq!(named("a", clock()), []);
    assert_eq!(named("{{ .p }}", git()), []);
}

/// SECURITY: what a patch renders to now says nothing about what it renders to when its parameters change.
#[test]
fn a_patch_that_could_start_an_operation_is_reported() {
    let patched = |generator: Value, patch: &str| {
        of(json!({
            "goTemplate": true,
            "generators": [generator],
            "template": {"metadata": {"name": "a"}, "spec": {"project": "dev"}},
            "templatePatch": patch,
        }))
    };
    let fixed = || list(json!({"go": ""}));
    for patch in [
        "{{ if .go }}\noperation:\n  sync:\n    manifests: ['{}']\n{{ end }}\n",
        "  {{- if .go }}\n  \"Operation\" :\n    sync: {}\n  {{- end }}",
        "{\"metadata\": {}{{ if .go }}, \"operation\": {}{{ end }}}",
        "{{ if .go }}x: 1{{ else }}oper{{ \"\" }}ation: {}{{ end }}",
        "operation: null",
        "{operation: {}}",
    ] {
        assert_eq!(patched(fixed(), patch), [Nondeterminism::Operation], "{patch}");
    }
    for patch in [
        "metadata:\n  labels: {operation: x}\n",
        "metadata: {annotations: {why: 'an operation of {{ .go }}'}}",
        "metadata: {labels: {a: '{{ .go }}'}}",
    ] {
        assert_eq!(patched(fixed(), patch), [], "{patch}");
    }
    // A value from a repository can span several lines.
    let value = "metadata: {labels: {a: {{ .go }}}}";
    let path = "spec.generators[0].git".to_owned();
    assert_eq!(patched(git(), value), [Nondeterminism::Patch(path)]);
    assert_eq!(patched(git(), "metadata: {labels: {a: b}}"), []);
}

/// SECURITY: the parameters of one generator are rendered into the strings of another, and the
/// result may be a template again.
#[test]
fn parameters_rendered_from_templates_are_reported() {
    let first = || list(json!({"x": "{{ now }}"}));
    let second = |text: &str| list(json!({"p": text}));
    let makes = |generators: Value| found(true, "{{ .p }}", json!([generators]));
    assert_eq!(
        makes(matrix(first(), second("{{ now }}"))),
        [by_parameters("spec.generators[0].matrix.generators[1].list")]
    );
    assert_eq!(makes(matrix(first(), second("{{ .x }}"))), []);
    // The first child is not rendered as a template.
    assert_eq!(makes(matrix(second("{{ now }}"), second("b"))), []);
    let deep = "spec.generators[0].matrix.generators[1].matrix.generators[1].list";
    for text in ["{{ .x }}", "{{ \"{{ now }}\" }}", "{{ printf \"%s\" .x }}"] {
        assert_eq!(
            makes(matrix(first(), matrix(list(json!({"y": "1"})), second(text)))),
            [by_parameters(deep)],
            "{text}"
        );
    }
    assert_eq!(
        makes(matrix(first(), matrix(list(json!({"y": "1"})), second("dev")))),
        []
    );
    // Elements given as a YAML string are a template too.
    let yaml = json!({"list": {"elementsYaml": "[{p: '{{ now }}'}]"}});
    assert_eq!(
        makes(matrix(first(), yaml.clone())),
        [by_parameters("spec.generators[0].matrix.generators[1].list")]
    );
    assert_eq!(makes(yaml), []);
    // Without Go templates no function is called.
    let fast = matrix(first(), matrix(list(json!({"y": "1"})), second("{{x}}")));
    assert_eq!(found(false, "{{p}}", json!([fast])), []);
}
