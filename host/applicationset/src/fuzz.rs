//! Fuzz targets for ApplicationSets and their templates.

use serde_json::{Map, Value, json};

use std::time::Duration;

use tollgate_config::GenerationLimits;
use tollgate_fuzz::{Target, files, inputs, strings, text};

use crate::template::CompiledTemplate;
use crate::yaml::{self, DuplicateKeys};
use crate::{ApplicationSet, GenerationBudget, MissingKey, TemplateEngine};

const TARGETS: &[Target] = &[
    target("applicationset", applicationset, sets),
    target("go_template", go_template, go_templates),
    target("judged_template", judged_template, go_templates),
    target("fasttemplate", fasttemplate, fast_templates),
    target("yaml", yaml, documents),
];

const fn target(name: &'static str, run: fn(&[u8]), seeds: fn() -> Vec<Vec<u8>>) -> Target {
    Target { name, run, seeds }
}

/// Every target of this crate.
pub fn targets() -> Vec<Target> {
    TARGETS.to_vec()
}

/// Small limits: an input stopped by a limit is as useful as one that completes.
fn budget() -> GenerationBudget {
    GenerationBudget::new(GenerationLimits {
        applications: 100,
        parameters: 1_000,
        generators: 20,
        bytes: 4 * 1024 * 1024,
        time: Duration::from_secs(5),
    })
}

const CASES: [&str; 2] = [
    "tests/cases/applicationsets.yaml",
    "tests/cases/applicationsets_derived.yaml",
];

fn parameters() -> Map<String, Value> {
    let given = json!({
        "name": "web", "n": 3, "f": 1.5, "t": true, "s": "", "list": ["b", "a"], "map": {"k": "v"},
        "path": {"basename": "x", "segments": ["a", "b"]}, "values": {"env": "dev"}, "odd": "é\u{0}",
    });
    match given {
        Value::Object(members) => members,
        _ => Map::new(),
    }
}

fn sets() -> Vec<Vec<u8>> {
    let mut seeds = files("tests/data/state", &["applicationsets.yaml", "appset.yaml"]);
    seeds.extend(
        tollgate_fuzz::values(&CASES, &["applicationset", "set", "object", "manifest"])
            .iter()
            .map(|set| set.to_string().into_bytes()),
    );
    seeds.push(
        json!({
            "metadata": {"name": "web", "namespace": "argocd"},
            "spec": {
                "goTemplate": true,
                "generators": [{"list": {"elements": [{"env": "dev"}]}}],
                "template": {"metadata": {"name": "{{ .env }}"}, "spec": {"project": "default"}},
            },
        })
        .to_string()
        .into_bytes(),
    );
    seeds
}

/// A set that may be stored can be decoded again once it is.
fn applicationset(data: &[u8]) {
    let Some(text) = text(data) else { return };
    let Ok(object) = serde_saphyr::from_str::<Value>(text) else {
        return;
    };
    if ApplicationSet::read(object.clone()).is_ok() {
        assert!(ApplicationSet::read_stored(object).is_ok());
    }
}

fn go_templates() -> Vec<Vec<u8>> {
    let mut seeds = inputs(strings(
        &CASES,
        &["name", "project", "template", "templatePatch", "path"],
    ));
    seeds.retain(|seed| seed.windows(2).any(|pair| pair == b"{{"));
    seeds.extend(inputs([
        "{{ .name }}-{{ index .list 0 | upper }}",
        "{{ if eq (len \"\\xff\") 1 }}a{{ else }}b{{ end }}",
        "{{ range $i, $x := .list }}{{ $i }}{{ $x }}{{ end }}",
        "{{- /* c */ -}} {{ with .map }}{{ .k | default \"x\" | trunc 3 | quote }}{{ end }}",
        "{{ define \"t\" }}{{ . }}{{ end }}{{ template \"t\" .name }}",
        "{{ toJson . | fromJson | toYaml }}{{ dict \"a\" (list 1 2.5 nil) }}",
        "{{ printf \"%05d %q %v %T\" .n .name .list .f }}",
        "{{ regexReplaceAll \"a(x*)b\" \"-ab-axxb-\" \"${1}W\" }}{{ slugify .name }}{{ normalize .name }}",
    ]));
    seeds
}

fn rendered(engine: TemplateEngine, template: &str) {
    let Ok(compiled) = CompiledTemplate::value(engine, &template.into()) else {
        return;
    };
    let first = compiled.render(&parameters(), &budget());
    let second = compiled.render(&parameters(), &budget());
    // Clocks and randomness are allowed here; templates without them render the same each time.
    let varies = [
        "now",
        "date",
        "ago",
        "rand",
        "uuid",
        "shuffle",
        "htpasswd",
        "bcrypt",
        "encryptAES",
    ];
    if !varies.iter().any(|name| template.contains(name)) {
        assert_eq!(first.ok(), second.ok(), "{template:?}");
    }
}

fn go_template(data: &[u8]) {
    let Some(template) = text(data) else { return };
    for missing_key in [MissingKey::Default, MissingKey::Error] {
        rendered(TemplateEngine::GoTemplate { missing_key }, template);
    }
}

/// A template that is accepted for authorization renders as it does without that check.
#[expect(clippy::expect_used, reason = "a property that must hold")]
fn judged_template(data: &[u8]) {
    let Some(template) = text(data) else { return };
    for missing_key in [MissingKey::Default, MissingKey::Error] {
        let engine = TemplateEngine::GoTemplate { missing_key };
        let Ok(checked) = CompiledTemplate::for_authorization(engine, &Value::String(template.to_owned())) else {
            continue;
        };
        let plain = CompiledTemplate::value(engine, &template.into()).expect("what is judged is a template");
        let rendered = checked.render(&parameters(), &budget());
        if let Ok(rendered) = rendered {
            assert_eq!(
                Some(rendered),
                plain.render(&parameters(), &budget()).ok(),
                "{template:?}"
            );
        }
    }
}

fn fast_templates() -> Vec<Vec<u8>> {
    inputs([
        "{{name}}-{{ path.basename }}",
        "{{values.env}}{{unknown}}",
        "{{{{name}}",
        "a{{b",
    ])
}

fn fasttemplate(data: &[u8]) {
    let Some(template) = text(data) else { return };
    rendered(TemplateEngine::FastTemplate, template);
}

fn documents() -> Vec<Vec<u8>> {
    let mut seeds = files("tests/data/state", &["applicationsets.yaml", "appset.yaml"]);
    seeds.extend(inputs([
        "a: &a {x: 1, l: &l [2]}\nb: *a\nc: *l\ne: {<<: [*a, {z: 4}]}\n",
        "- a: |+2\n    x\n\n- >-\n  y\n  z",
        "? [a]\n: \"\\u00e4\\\n  b\"\n!!str yes: 'it''s'\n",
        "%YAML 1.1\n---\n!x,y !<a%20> !!binary AA==\n...\n",
        "{a: 0b+1, b: .1_0, c: 2001-01-01, d: ~, 1.5: [x?y]}",
    ]));
    seeds
}

/// [`DuplicateKeys::LastWins`] parses everything that [`DuplicateKeys::Refused`] accepts.
fn yaml(data: &[u8]) {
    let Some(text) = text(data) else { return };
    let read = |duplicate_keys| yaml::read(text, duplicate_keys, &mut |_| Ok::<_, ()>(()));
    if let Ok(value) = read(DuplicateKeys::Refused) {
        assert_eq!(read(DuplicateKeys::LastWins), Ok(value), "{text:?}");
    }
}

#[cfg(test)]
mod tests {
    #[test]
    fn every_target_holds_on_its_seeds_earlier_finds_and_mutations() {
        tollgate_fuzz::check(&super::targets());
    }
}
