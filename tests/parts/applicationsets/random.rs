//! Compares the outcomes for random ApplicationSets: nested generators, both template engines,
//! selectors and patches. The seeds are fixed, and enough of the sets must make Applications.

use std::cell::Cell;
use std::collections::BTreeMap;

use proptest::prelude::{Just, Strategy, any};
use proptest::prop_oneof;
use proptest::sample::select;
use proptest::test_runner::{Config, RngSeed, TestCaseError, TestRunner};
use serde_json::{Map, Value, json};

use crate::applicationsets::compare::{Agreed, World};
use crate::applicationsets::examples::{cluster, in_cluster};
use crate::applicationsets::repositories::LocalRepositories;
use test_support::judge::Judge;

/// Sets in one run. `PROPTEST_CASES` does not change it, so that CI always runs all.
const SETS: u32 = 400;

const URL: &str = "https://git.example.com/team/repo.git";

/// The template engine of a set.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Engine {
    Fast,
    Go,
}

fn world() -> World {
    let files = [
        (
            "apps/one/config.json",
            r#"{"a": "one", "n": 1, "deep": {"er": ["x", "y"]}}"#,
        ),
        ("apps/two/config.json", r#"[{"a": "two"}, {"a": "three", "b": true}]"#),
        ("apps/two/values.yaml", "a: yaml\nb:\n  c: 1.5\n  d: null\n"),
        ("envs/dev/one.yaml", "env: dev\na: one\n"),
        ("envs/prod/one.yaml", "env: prod\na: two\n"),
        ("envs/.hidden/one.yaml", "env: hidden\n"),
        ("Odd_Name.X/empty.yaml", ""),
        ("root.yaml", "a: root"),
    ];
    let files = files.map(|(path, content)| (path.to_owned(), content.as_bytes().to_vec()));
    World {
        judge: Judge::start(),
        repositories: LocalRepositories::new().with(URL, &files.into_iter().collect::<BTreeMap<_, _>>()),
        clusters: vec![
            cluster("dev", "https://dev.example.com", &[("env", "dev"), ("tier", "one")]),
            cluster("Prod_1", "https://prod.example.com", &[("env", "prod")]),
            in_cluster(),
        ],
    }
}

/// A value of a parameter. Fast templates only take strings.
fn value(engine: Engine) -> impl Strategy<Value = Value> {
    let text = select(vec!["one", "two", "dev", "prod", "", "a b", "x-1", "{{ b }}", "ü"]).prop_map(|text| json!(text));
    let other = select(vec![
        json!(1),
        json!(2.5),
        json!(true),
        json!(null),
        json!(["p", "q"]),
        json!({"k": "v", "l": 1}),
    ]);
    match engine {
        Engine::Fast => text.boxed(),
        Engine::Go => prop_oneof![4 => text, 1 => other].boxed(),
    }
}

/// One of the `elements` of a list generator.
fn element(engine: Engine) -> impl Strategy<Value = Value> {
    let keys = proptest::collection::btree_map(select(vec!["a", "b", "env", "name"]), value(engine), 0..4);
    let values = proptest::option::weighted(0.3, select(vec!["v", "w"]));
    (keys, values).prop_map(|(keys, values)| {
        let mut element: Map<String, Value> = keys.into_iter().map(|(key, value)| (key.to_owned(), value)).collect();
        if let Some(value) = values {
            element.insert("values".to_owned(), json!({"extra": value}));
        }
        Value::Object(element)
    })
}

/// A template.
fn text(engine: Engine) -> impl Strategy<Value = String> {
    let fast = vec![
        "plain",
        "{{a}}",
        "{{ b }}-x",
        "{{env}}/{{name}}",
        "{{path.basename}}",
        "{{path[0]}}",
        "{{ path }}",
        "{{values.extra}}",
        "{{metadata.labels.env}}",
        "{{missing}}",
        "{{ missing }} {{a}}",
        "{{unclosed",
        "{{.a}}",
        "{{server}}",
        "{{nameNormalized}}",
        "{{p.path.filename}}",
        "{{deep.er.1}}",
    ];
    let go = vec![
        "plain",
        "{{ .a }}",
        "{{.b}}-x",
        "{{ .env }}/{{ .name }}",
        "{{ if .path }}{{ .path.basename }}{{ end }}",
        "{{ with .path }}{{ index .segments 0 }}{{ end }}",
        "{{ dig \"path\" \"path\" \"none\" . }}",
        "{{ with .values }}{{ .extra }}{{ end }}",
        "{{ with .metadata }}{{ with .labels }}{{ .env }}{{ end }}{{ end }}",
        "{{ .missing }}",
        "{{ default \"d\" .a }}",
        "{{ .a | toString | upper }}",
        "{{ .server | default \"s\" | b64enc }}",
        "{{ . | toJson | sha256sum | trunc 8 }}",
        "{{ normalize (toString .a) }}",
        "{{ range $k, $v := . }}{{ $k }};{{ end }}",
        "{{ .a.b }}",
    ];
    select(if engine == Engine::Fast { fast } else { go }).prop_map(str::to_owned)
}

/// The optional selector and template of a generator.
fn selector_and_template(engine: Engine) -> impl Strategy<Value = (Option<Value>, Option<Value>)> {
    let key = || {
        select(vec![
            "a",
            "env",
            "name",
            "path.basename",
            "metadata.labels.env",
            "values.extra",
        ])
    };
    let wanted = || select(vec!["one", "dev", "prod", "", "in-cluster"]);
    let labels = (key(), wanted()).prop_map(|(key, value)| json!({"matchLabels": {key: value}}));
    let operator = select(vec!["In", "NotIn", "Exists", "DoesNotExist"]);
    let expressions = (key(), operator, wanted()).prop_map(|(key, operator, value)| {
        let values = if operator.ends_with("In") {
            json!([value, "two"])
        } else {
            json!(null)
        };
        let expression = json!({"key": key, "operator": operator, "values": values});
        let mut expression = expression;
        if expression["values"].is_null() {
            expression
                .as_object_mut()
                .into_iter()
                .for_each(|it| drop(it.remove("values")));
        }
        json!({"matchExpressions": [expression]})
    });
    let selector = prop_oneof![labels, expressions, Just(json!({}))];
    let template = text(engine).prop_map(|text| {
        json!({"metadata": {"labels": {"of": text}}, "spec": {"destination": {"namespace": "own"}, "source": {"path": "own"}}})
    });
    (
        proptest::option::weighted(0.25, selector),
        proptest::option::weighted(0.15, template),
    )
}

fn values(engine: Engine) -> impl Strategy<Value = Value> {
    proptest::option::weighted(0.4, (text(engine), text(engine))).prop_map(|texts| match texts {
        Some((one, two)) => json!({"extra": one, "more": two}),
        None => json!({}),
    })
}

fn list(engine: Engine) -> impl Strategy<Value = Value> {
    proptest::collection::vec(element(engine), 0..4).prop_map(|elements| json!({"list": {"elements": elements}}))
}

fn clusters(engine: Engine) -> impl Strategy<Value = Value> {
    let selector = select(vec![
        json!({}),
        json!({"matchLabels": {"env": "dev"}}),
        json!({"matchExpressions": [{"key": "tier", "operator": "DoesNotExist"}]}),
        json!({"matchExpressions": [{"key": "env", "operator": "In", "values": ["dev", "prod"]}]}),
    ]);
    let flat = if engine == Engine::Go {
        any::<bool>().boxed()
    } else {
        Just(false).boxed()
    };
    (selector, values(engine), flat).prop_map(
        |(selector, values, flat)| json!({"clusters": {"selector": selector, "values": values, "flatList": flat}}),
    )
}

fn git(engine: Engine) -> impl Strategy<Value = Value> {
    let directories = select(vec![
        "*",
        "apps/*",
        "envs/*",
        "*/*",
        "apps/one",
        "none/*",
        "[ae]*/[!t]*",
    ]);
    let files = select(vec![
        "apps/*/config.json",
        "**/config.json",
        "envs/*/one.yaml",
        "**/*.yaml",
        "root.yaml",
        "apps/{{name}}*",
        "Odd_Name.X/*",
    ]);
    let prefix = select(vec!["", "", "p"]);
    (
        any::<bool>(),
        directories,
        files,
        any::<bool>(),
        (prefix, values(engine)),
    )
        .prop_map(|(folders, directory, file, excludes, (prefix, values))| {
            let (key, path, other) = if folders {
                ("directories", directory, "apps/two")
            } else {
                ("files", file, "envs/prod/*")
            };
            let mut entries = vec![json!({"path": path})];
            if excludes {
                entries.push(json!({"path": other, "exclude": true}));
            }
            json!({"git": {
                "repoURL": URL, "revision": "HEAD", key: entries, "pathParamPrefix": prefix, "values": values,
            }})
        })
}

/// A generator, nested at most `depth` levels.
fn generator(engine: Engine, depth: u32) -> impl Strategy<Value = Value> {
    let leaf = prop_oneof![3 => list(engine), 1 => clusters(engine), 2 => git(engine)].boxed();
    let bare = if depth == 0 {
        leaf
    } else {
        let child = || generator(engine, depth - 1);
        let matrix = (child(), child()).prop_map(|(one, two)| json!({"matrix": {"generators": [one, two]}}));
        let keys = proptest::sample::subsequence(vec!["a", "env", "name"], 1..3);
        let merge = (keys, proptest::collection::vec(child(), 2..4))
            .prop_map(|(keys, children)| json!({"merge": {"mergeKeys": keys, "generators": children}}));
        prop_oneof![3 => leaf, 2 => matrix, 2 => merge].boxed()
    };
    (bare, selector_and_template(engine)).prop_map(|(mut generator, (selector, template))| {
        if let Some(template) = template {
            let settings = generator.as_object_mut().and_then(|entry| entry.values_mut().next());
            settings
                .into_iter()
                .for_each(|settings| settings["template"] = template.clone());
        }
        if let Some(selector) = selector {
            generator["selector"] = selector;
        }
        generator
    })
}

/// The template of the Applications.
fn template(engine: Engine) -> impl Strategy<Value = Value> {
    let texts = proptest::collection::vec(text(engine), 6);
    (texts, 0..4_u8).prop_map(|(texts, shape)| {
        let mut source = json!({"repoURL": URL, "path": texts[1], "targetRevision": "HEAD"});
        match shape {
            1 => {
                source["helm"] = json!({
                    "parameters": [{"name": texts[2], "value": texts[3], "forceString": true}],
                    "valuesObject": {format!("k-{}", texts[4]): [texts[5], 1, 1.5, true, null], "n": {"m": texts[2]}},
                });
            }
            2 => source["kustomize"] = json!({"images": [texts[2]], "commonLabels": {texts[3].clone(): texts[4]}}),
            3 => source["directory"] = json!({"recurse": true, "jsonnet": {}}),
            _ => {}
        }
        json!({
            "metadata": {
                "name": texts[0],
                // The keys must stay distinct: for keys that render the same, Argo CD has no order.
                "labels": {"one": texts[2], format!("two-{}", texts[3]): "two"},
                "annotations": {"note": texts[4]},
                "finalizers": if shape == 3 { json!(["own.example.com/finalizer"]) } else { json!([]) },
            },
            "spec": {
                "project": "default",
                "source": source,
                "destination": {"server": texts[5], "namespace": texts[1]},
                "syncPolicy": {"automated": {"prune": true}, "syncOptions": [texts[2]], "retry": {"limit": 3}},
            },
        })
    })
}

fn patch(engine: Engine) -> impl Strategy<Value = Option<String>> {
    let fast = vec![
        "metadata:\n  annotations:\n    patched: '{{a}}'\n",
        "spec:\n  source:\n    helm:\n      parameters:\n      - name: extra\n        value: '{{name}}'\n",
        "spec: {syncPolicy: null, project: other}",
    ];
    let go = vec![
        "metadata:\n  annotations:\n    patched: {{ .a | toString | quote }}\n",
        "spec:\n  syncPolicy:\n    {{- if .name }}\n    automated:\n      selfHeal: true\n    {{- else }}\n    syncOptions: [Patched=true]\n    {{- end }}\n",
        "{{ if .env }}spec: {syncPolicy: null}{{ else }}{}{{ end }}",
        "spec:\n  ignoreDifferences:\n  - kind: Deployment\n    jsonPointers: [/spec/replicas]\n  info:\n  - name: note\n    value: {{ .a | toString | quote }}\n",
    ];
    proptest::option::weighted(
        0.3,
        select(if engine == Engine::Fast { fast } else { go }).prop_map(str::to_owned),
    )
}

fn set(engine: Engine) -> impl Strategy<Value = Value> {
    let generators = proptest::collection::vec(generator(engine, 2), 1..3);
    let options = select(vec![
        json!([]),
        json!([]),
        json!(["missingkey=zero"]),
        json!(["missingkey=error"]),
        json!(["missingkey=default"]),
    ]);
    let sync = select(vec![
        json!(null),
        json!({}),
        json!({"preserveResourcesOnDeletion": true}),
    ]);
    (generators, template(engine), patch(engine), options, sync).prop_map(
        move |(generators, template, patch, options, sync)| {
            let mut spec = json!({"generators": generators, "template": template});
            if engine == Engine::Go {
                spec["goTemplate"] = json!(true);
                spec["goTemplateOptions"] = options;
            }
            if let Some(patch) = patch {
                spec["templatePatch"] = json!(patch);
            }
            if !sync.is_null() {
                spec["syncPolicy"] = sync;
            }
            json!({
                "apiVersion": "argoproj.io/v1alpha1", "kind": "ApplicationSet",
                "metadata": {"name": "random"}, "spec": spec,
            })
        },
    )
}

fn agree(engine: Engine, seed: u64) {
    let world = world();
    let (made, refused) = (Cell::new(0_u32), Cell::new(0_u32));
    let config = Config {
        cases: SETS,
        failure_persistence: None,
        rng_seed: RngSeed::Fixed(seed),
        max_shrink_iters: 600,
        ..Config::default()
    };
    let outcome = TestRunner::new(config).run(&set(engine), |set| match world.compare(&set) {
        Ok(agreed) => {
            made.set(made.get() + u32::from(matches!(agreed, Agreed::Applications(1..))));
            Ok(())
        }
        // We refuse on purpose what Argo CD could type differently.
        Err(difference) if difference.contains("types of its parameters are others to Argo CD") => {
            refused.set(refused.get() + 1);
            Ok(())
        }
        Err(difference) => Err(TestCaseError::fail(format!("{set:#}\n{difference}"))),
    });
    if let Err(error) = outcome {
        panic!("{error}");
    }
    // Sets that make no Application prove little.
    let (made, refused) = (made.get(), refused.get());
    assert!(refused * 5 < SETS, "we alone refuse {refused} of {SETS} sets");
    assert!(
        made * 5 > SETS - refused,
        "only {made} of {SETS} sets make an Application, we alone refuse {refused}"
    );
}

#[test]
fn random_sets_of_fast_templates_become_what_argo_cd_makes_of_them() {
    agree(Engine::Fast, 1);
}

#[test]
fn random_sets_of_go_templates_become_what_argo_cd_makes_of_them() {
    agree(Engine::Go, 2);
}
