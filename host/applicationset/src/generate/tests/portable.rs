//! SECURITY: the gateway authorizes what it renders, and Argo CD's controller applies what it
//! renders itself. These tests check that the strings a decision depends on render the same in
//! both.

use serde_json::{Value, json};

use super::{Error, Fixture, list, matrix};
use crate::{GenerationBudget, generate, template};

/// Templates that render `dev` here and `prod` in some version of Argo CD.
const ATTACKS: [&str; 12] = [
    "{{ if eq (len \"\\xff\") 1 }}prod{{ else }}dev{{ end }}",
    "{{ if eq (len (substr 0 1 \"é\")) 1 }}prod{{ else }}dev{{ end }}",
    "{{ if eq (len (trunc 1 .letter)) 1 }}prod{{ else }}dev{{ end }}",
    "{{ if regexMatch \"a{1001}|.\" \"a\" }}dev{{ else }}prod{{ end }}",
    "{{ if regexMatch \"^\\\\<$\" \"<\" }}prod{{ else }}dev{{ end }}",
    "{{ if fromJson \"\\\"\\\\ud800\\\"\" }}prod{{ else }}dev{{ end }}",
    "{{ if eq (index .letter 0 | toString | len) 3 }}prod{{ else }}dev{{ end }}",
    "{{ if eq (upper \"ᾀ\") \"ᾈ\" }}prod{{ else }}dev{{ end }}",
    "{{ if eq (rest .none | toJson) \"null\" }}prod{{ else }}dev{{ end }}",
    "dev{{ $x := .a }}{{ range $x = .none }}{{ end }}{{ if not $x }}prod{{ end }}",
    "{{ define \"base\" }}prod{{ end }}dev",
    "{{ if false }}{{ $undeclared }}{{ end }}dev",
];

fn elements() -> Value {
    json!([{"a": "b", "letter": "é", "none": []}])
}

fn generated(spec: Value) -> Result<Vec<Value>, Error> {
    let fixture = Fixture::default();
    generate(
        &Fixture::set(spec),
        &fixture.inputs(),
        &GenerationBudget::new(fixture.limits),
    )
}

/// The spec of a set with `text` at `pointer`.
fn with(pointer: &str, text: &str) -> Value {
    let mut spec = json!({
        "goTemplate": true,
        "generators": [list(elements())],
        "template": {
            "metadata": {"name": "a", "labels": {"l": ""}},
            "spec": {
                "project": "dev",
                "destination": {"server": "s", "name": "", "namespace": "n"},
                "source": {"repoURL": "r", "path": "p"},
                "sources": [{"repoURL": "r", "path": "p"}],
                "sourceHydrator": {"drySource": {"repoURL": "r", "path": "p"}},
            },
        },
    });
    *spec.pointer_mut(pointer).unwrap() = json!(text);
    spec
}

const AUTHORIZED_FIELDS: [&str; 8] = [
    "/template/metadata/name",
    "/template/spec/project",
    "/template/spec/destination/server",
    "/template/spec/destination/name",
    "/template/spec/destination/namespace",
    "/template/spec/source/repoURL",
    "/template/spec/sources/0/repoURL",
    "/template/spec/sourceHydrator/drySource/repoURL",
];

fn assert_divergent(outcome: Result<Vec<Value>, Error>, about: &str) {
    let is_divergent = matches!(
        &outcome,
        Err(Error::Template {
            error: template::Error::Divergent { .. },
            ..
        })
    );
    assert!(is_divergent, "{about}: {outcome:?}");
}

#[test]
fn what_is_judged_is_what_argo_cd_renders() {
    for attack in ATTACKS {
        for pointer in AUTHORIZED_FIELDS {
            assert_divergent(generated(with(pointer, attack)), &format!("{pointer}: {attack}"));
        }
        let mut patched = with("/template/spec/project", "dev");
        patched["templatePatch"] = json!(format!("metadata: {{name: \"{attack}\"}}"));
        assert_divergent(generated(patched), &format!("patch: {attack}"));
        let mut own = with("/template/spec/project", "dev");
        own["generators"][0]["list"]["template"] = json!({"metadata": {}, "spec": {"project": attack}});
        assert_divergent(generated(own), &format!("own: {attack}"));
        // A template in a generator makes a parameter.
        let mut made = with("/template/spec/project", "{{ .p }}");
        made["generators"] = json!([matrix(json!([list(elements()), list(json!([{"p": attack}]))]))]);
        assert_divergent(generated(made), &format!("made: {attack}"));
        // The result of the first rendering is a template again.
        let mut twice = with("/template/spec/project", "{{ .p }}");
        let first = list(json!([{"a": "b", "letter": "é", "none": [], "x": attack}]));
        let inner = matrix(json!([
            list(json!([{"y": "z", "letter": "é", "none": []}])),
            list(json!([{"p": "{{ .x }}"}]))
        ]));
        twice["generators"] = json!([matrix(json!([first, inner]))]);
        let outcome = generated(twice);
        assert!(outcome.is_err(), "twice: {attack}: {outcome:?}");
    }
    for pointer in AUTHORIZED_FIELDS {
        for text in [
            "dev",
            "{{ .a }}",
            "{{ if eq .a \"b\" }}dev{{ else }}prod{{ end }}",
            "{{ .a | upper | default \"x\" }}",
        ] {
            let made = generated(with(pointer, text));
            assert_eq!(made.map(|made| made.len()).ok(), Some(1), "{pointer}: {text}");
        }
    }
}

/// The refusal names the field, what was found, and what is allowed.
#[test]
fn the_field_is_named() {
    let error = generated(with("/template/spec/project", ATTACKS[0]))
        .unwrap_err()
        .to_string();
    assert_eq!(
        error,
        "`spec.generators[0].list`: Argo CD may render `spec.project`, `{{ if eq (len \"\\xff\") 1 }}prod{{ else \
         }}dev{{ end }}` otherwise than it is judged here: an escape in a text; `\\n`, `\\r`, `\\t`, `\\\"` and `\\\\` \
         are allowed; see \"Texts that rights are judged by\" in docs/applicationset-templates.md for what such a text may have"
    );
}

/// Authorization does not depend on labels: Argo CD may render them differently, as long as that
/// changes no parameter.
#[test]
fn texts_beside_what_is_judged_may_have_all_functions() {
    let label = "/template/metadata/labels/l";
    for text in [
        ATTACKS[0],
        ATTACKS[3],
        "{{ now }}",
        "{{ $d := dict }}{{ $_ := set $d \"a\" \"b\" }}{{ $d.a }}",
    ] {
        assert_eq!(
            generated(with(label, text)).map(|made| made.len()).ok(),
            Some(1),
            "{text}"
        );
    }
    let changing = "{{ if eq (len \"\\xff\") 1 }}{{ $_ := set . \"a\" \"prod\" }}{{ end }}";
    assert_divergent(generated(with(label, changing)), changing);
}
