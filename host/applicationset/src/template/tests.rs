//! Tests of templates, functions and Applications. The expected results of the functions come from
//! the library `sprig` 3.3.0 itself (`tests/functions.json`).

use std::time::Duration;

use serde_json::{Value, json};

use super::{ApplicationTemplate, CompiledTemplate, Error, functions, render_generator};
use crate::{
    ApplicationsSync, Exceeded, GenerationBudget, MissingKey, Params, PreservedFields, Spec, SyncPolicy, TemplateEngine,
};
use tollgate_config::GenerationLimits;

const GO: TemplateEngine = TemplateEngine::GoTemplate {
    missing_key: MissingKey::Default,
};
const STRICT: TemplateEngine = TemplateEngine::GoTemplate {
    missing_key: MissingKey::Error,
};

fn budget() -> GenerationBudget {
    GenerationBudget::new(GenerationLimits::default())
}

fn params(value: Value) -> Params {
    match value {
        Value::Object(fields) => fields,
        other => panic!("{other}"),
    }
}

fn render(engine: TemplateEngine, text: &str, given: Value) -> Result<String, Error> {
    let rendered = CompiledTemplate::value(engine, &json!(text))?.render(&params(given), &budget())?;
    Ok(rendered.as_str().unwrap().to_owned())
}

fn known() -> Value {
    json!({
        "name": "web", "n": 3, "big": 1_000_000, "f": 1.5, "t": true, "s": "", "nil": null,
        "list": ["b", "a", "c", "a"], "nums": [1, 2, 3], "map": {"k": "v", "a": {"b": "c"}}, "text": "Hello World",
    })
}

/// SECURITY: Argo CD renders the strings of a template in its own order, all with the same
/// parameters. A change that one made would be visible to others there and not here.
#[test]
fn templates_cannot_change_parameters() {
    let given = || json!({"p": "mine", "m": {"n": {"k": "v"}}, "l": [{"k": "v"}], "e": {}});
    for text in [
        "{{ $_ := set . \"p\" \"victim\" }}",
        "{{ $_ := set $ \"new\" \"victim\" }}",
        "{{ $_ := unset . \"p\" }}",
        "{{ $_ := unset . \"none\" }}",
        "{{ $_ := set .m.n \"k\" \"x\" }}",
        "{{ $x := .m }}{{ $_ := set $x \"k\" \"x\" }}",
        "{{ range .l }}{{ $_ := set . \"k\" \"x\" }}{{ end }}",
        "{{ with index .m \"n\" }}{{ $_ := unset . \"k\" }}{{ end }}",
        "{{ $_ := set (first .l) \"k\" \"x\" }}",
        "{{ $_ := set (dict \"m\" .m).m \"k\" \"x\" }}",
        "{{ $_ := set (get (pick . \"m\") \"m\") \"k\" \"x\" }}",
        "{{ $_ := merge . (dict \"q\" \"x\") }}",
        "{{ $_ := mustMerge .e (dict \"q\" \"x\") }}",
        "{{ $_ := mergeOverwrite . (dict \"p\" \"victim\") }}",
        "{{ $_ := mustMergeOverwrite (dict \"m\" .m) (dict \"m\" (dict \"n\" 1)) }}",
        // A merged map is shared by both.
        "{{ $_ := set (merge (dict) .).m \"n\" \"x\" }}",
    ] {
        let error = render(GO, text, given()).unwrap_err();
        assert!(
            error.to_string().contains("parameters cannot be changed"),
            "{text}: {error}"
        );
    }
    for (text, becomes) in [
        ("{{ (set (deepCopy .) \"p\" \"x\").p }}{{ .p }}", "xmine"),
        ("{{ (set (deepCopy .).m.n \"k\" \"x\").k }}{{ .m.n.k }}", "xv"),
        (
            "{{ $d := merge (dict \"p\" \"x\") . }}{{ $d.p }}{{ $d.m.n.k }}{{ .p }}",
            "xvmine",
        ),
        ("{{ (mergeOverwrite (dict \"p\" \"x\") .).p }}", "mine"),
        ("{{ (set (omit . \"m\") \"p\" \"x\").p }}{{ .p }}", "xmine"),
        ("{{ (merge (deepCopy .m) (dict \"q\" \"x\")).q }}", "x"),
        (
            "{{ $a := dict \"b\" (dict) }}{{ $d := merge (dict) $a }}{{ $_ := set $d.b \"c\" \"x\" }}{{ $a.b.c }}",
            "x",
        ),
        (
            "{{ (set (.p | toJson | printf `{\"p\": %s}` | fromJson) \"p\" \"x\").p }}",
            "x",
        ),
    ] {
        assert_eq!(render(GO, text, given()).unwrap(), becomes, "{text}");
    }
}

/// SECURITY: upstream sorts a list of strings in place, so every other holder sees it sorted.
#[test]
fn shared_lists_are_not_sorted_in_place() {
    let given = || json!({"t": "b,a", "l": ["b", "a"], "path": {"basenameNormalized": "x", "segments": ["b", "a"]}});
    for text in [
        "{{ $l := splitList \",\" .t }}{{ $_ := sortAlpha $l }}{{ first $l }}",
        "{{ with splitList \",\" .t }}{{ $_ := sortAlpha . }}{{ first . }}{{ end }}",
        "{{ $l := splitList \",\" .t }}{{ $_ := sortAlpha (toStrings $l) }}{{ first $l }}",
        "{{ $l := splitList \",\" .t }}{{ $_ := sortAlpha (slice $l 0 2) }}{{ first $l }}",
        "{{ $_ := sortAlpha .path.segments }}",
        "{{ $_ := sortAlpha (toStrings (slice .path.segments 0 2)) }}",
    ] {
        let error = render(GO, text, given()).unwrap_err();
        assert!(error.to_string().contains("used elsewhere"), "{text}: {error}");
    }
    for (text, becomes) in [
        ("{{ splitList \",\" .t | sortAlpha | join \"\" }}", "ab"),
        (
            "{{ $l := splitList \",\" .t }}{{ concat $l | sortAlpha | first }}{{ first $l }}",
            "ab",
        ),
        ("{{ $l := splitList \",\" \"a,b\" }}{{ sortAlpha $l | first }}", "a"),
        ("{{ sortAlpha .l | first }}{{ first .l }}", "ab"),
        ("{{ sortAlpha (slice .l 0 2) | first }}", "a"),
        ("{{ sortAlpha (concat .path.segments) | first }}", "a"),
    ] {
        assert_eq!(render(GO, text, given()).unwrap(), becomes, "{text}");
    }
}

/// SECURITY: the parser recurses once for each `{{else if}}`.
#[test]
fn else_if_chains_have_a_maximum_length() {
    let chain = |links: usize| format!("{{{{if .s}}}}{}{{{{end}}}}x", "{{else if .s}}".repeat(links));
    assert_eq!(render(GO, &chain(90), known()).unwrap(), "x");
    let error = render(GO, &chain(1_001), known()).unwrap_err();
    assert!(
        error
            .to_string()
            .contains("`else` 1001 times, at most 1000 are allowed"),
        "{error}"
    );
}

/// SECURITY: without parameters nothing is rendered, but each copy takes memory.
#[test]
fn copies_of_a_template_are_charged() {
    let written = json!({"metadata": {"name": "a"}, "spec": {"x": vec![0; 1_000]}});
    let spec = Spec {
        generators: Vec::new(),
        template: written,
        template_patch: None,
        engine: TemplateEngine::FastTemplate,
        sync_policy: SyncPolicy::default(),
        preserved_fields: PreservedFields::default(),
    };
    let template = ApplicationTemplate::new(&spec, None, "argocd").unwrap();
    let budget = GenerationBudget::new(GenerationLimits {
        bytes: 110_000,
        ..GenerationLimits::default()
    });
    let copies = (0..10)
        .map_while(|_| template.render(&Params::new(), &budget).ok())
        .count();
    assert_eq!(copies, 3);
    let error = template.render(&Params::new(), &budget).unwrap_err();
    assert!(matches!(error, Error::Exceeded(Exceeded::Bytes { .. })), "{error}");
}

#[test]
fn functions_return_the_same_as_sprig() {
    let rows: Vec<(String, Option<String>)> = serde_json::from_str(include_str!("tests/functions.json")).unwrap();
    assert!(rows.len() > 50);
    let mut wrong = Vec::new();
    for (text, wanted) in rows {
        let observed = render(GO, &text, known());
        let same = match (&wanted, &observed) {
            (Some(wanted), Ok(observed)) => wanted == observed,
            (None, Err(_)) => true,
            _ => false,
        };
        if !same {
            wrong.push(format!("{text}\n  wanted   {wanted:?}\n  observed {observed:?}"));
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

/// In Go, indexing a `map[string]string` never gives `<no value>`.
#[test]
fn missing_labels_and_values_of_generator_maps_are_empty() {
    let cluster = json!({
        "name": "a", "nameNormalized": "a", "metadata": {"labels": {"env": "dev"}}, "values": {"k": "v"},
    });
    let git = json!({"path": {"basenameNormalized": "x"}, "values": {"k": "v"}});
    let list = json!({"metadata": {"labels": {"env": "dev"}}, "values": {"k": "v"}});
    for (given, label, value) in [
        (&cluster, Ok(""), ""),
        (&git, Err(()), ""),
        (&list, Ok("<no value>"), "<no value>"),
    ] {
        let of = |text| render(STRICT, text, given.clone());
        let observed = of("{{ index .metadata.labels \"none\" }}");
        assert_eq!(observed.as_deref().map_err(|_| ()), label, "{given}");
        assert_eq!(of("{{ index .values \"none\" }}").unwrap(), value, "{given}");
        assert_eq!(of("{{ .values.k }}").unwrap(), "v");
    }
    let flat = json!({ "clusters": [cluster] });
    let text =
        "{{ range .clusters }}[{{ index .metadata.labels \"none\" }}{{ index .metadata.labels \"env\" }}]{{ end }}";
    assert_eq!(render(STRICT, text, flat).unwrap(), "[dev]");
}

/// As in Go's `net/url`: a text before a colon that is not a valid scheme is refused.
#[test]
fn relative_urls_with_a_colon_in_the_first_segment_are_refused() {
    for url in ["git@github.com:o/r.git", "1a:b"] {
        assert!(
            render(GO, &format!("{{{{ (urlParse \"{url}\").path }}}}"), json!({"a": 1})).is_err(),
            "{url}"
        );
    }
    assert_eq!(
        render(GO, "{{ (urlParse \"a/b:c\").path }}", json!({"a": 1})).unwrap(),
        "a/b:c"
    );
}

#[test]
fn every_argo_cd_function_is_implemented_or_refused_by_name() {
    let names = include_str!("tests/names.txt");
    let unknown: Vec<&str> = names.lines().filter(|name| !functions::is_known(name)).collect();
    assert!(unknown.is_empty(), "{unknown:?}");
    for name in functions::UNSUPPORTED_FUNCTIONS.split(' ') {
        assert!(names.lines().any(|known| known == name), "{name}");
        let error = render(GO, &format!("{{{{ {name} }}}}"), json!({"a": "b"})).unwrap_err();
        assert!(
            error.to_string().contains(&format!("function `{name}` is not offered")),
            "{error}"
        );
    }
    // Each module implements the names it lists.
    for name in names.lines() {
        for arguments in ["", "nil", "nil nil", "nil nil nil"] {
            if let Err(error) = render(GO, &format!("{{{{ {name} {arguments} }}}}"), json!({"a": "b"})) {
                assert!(!error.to_string().contains("is not implemented"), "{error}");
            }
        }
    }
    for name in ["env", "expandenv", "getHostByName"] {
        let error = render(GO, &format!("{{{{ {name} \"HOME\" }}}}"), json!({"a": "b"})).unwrap_err();
        assert!(error.to_string().contains("is not defined"), "{error}");
    }
}

#[test]
fn random_functions_return_different_values_of_the_right_form() {
    let text = "{{ randAlphaNum 20 }}|{{ randAlpha 20 }}|{{ randNumeric 20 }}|{{ uuidv4 }}|{{ randInt 3 5 }}";
    let (one, two) = (render(GO, text, known()).unwrap(), render(GO, text, known()).unwrap());
    assert_ne!(one, two);
    let parts: Vec<&str> = one.split('|').collect();
    assert!(parts[0].len() == 20 && parts[0].bytes().all(|byte| byte.is_ascii_alphanumeric()));
    assert!(parts[1].len() == 20 && parts[1].bytes().all(|byte| byte.is_ascii_alphabetic()));
    assert!(parts[2].len() == 20 && parts[2].bytes().all(|byte| byte.is_ascii_digit()));
    assert_eq!(uuid::Uuid::parse_str(parts[3]).unwrap().get_version_num(), 4);
    assert!(["3", "4"].contains(&parts[4]), "{}", parts[4]);
    assert!(render(GO, "{{ randInt 5 5 }}", known()).is_err());
}

#[test]
fn fast_template_tags_are_replaced_as_in_argo_cd() {
    let given =
        json!({"one": "two", "three": "four", "{{one}}": "x", "n": 3, " sp": "never", "quoted": "\"hello\" world"});
    let rows = [
        ("{{one}}", "two"),
        ("{{ one }}", "two"),
        ("{{\tone\n}}", "{{\tone\n}}"),
        ("{{one}}{{three}}", "twofour"),
        ("{{quoted}} {{three}}", "\"hello\" world four"),
        ("{{ONE}}", "{{ONE}}"),
        ("{{ }}", "{{ }}"),
        ("{{}}", "{{}}"),
        ("{{n}}", "{{n}}"),
        ("{{ unknown.key }}", "{{ unknown.key }}"),
        ("{{{one}}}", "{{{one}}}"),
        ("a {{one", "a {{one"),
        ("}} {{", "}} {{"),
        ("{one}", "{one}"),
        ("{{one}} and {{\nthree}}", "two and four"),
    ];
    for (text, wanted) in rows {
        assert_eq!(
            render(TemplateEngine::FastTemplate, text, given.clone()).unwrap(),
            wanted,
            "{text}"
        );
    }
    let error = render(TemplateEngine::FastTemplate, "{{one}} {{two", given).unwrap_err();
    assert!(matches!(error, Error::Syntax { .. }), "{error}");
}

#[test]
fn a_parameter_is_never_rendered_again() {
    let given = json!({"one": "{{two}}", "two": "no"});
    assert_eq!(
        render(TemplateEngine::FastTemplate, "{{one}}", given.clone()).unwrap(),
        "{{two}}"
    );
    assert_eq!(render(GO, "{{.one}}", given).unwrap(), "{{two}}");
}

#[test]
fn missing_keys_are_errors_only_with_missingkey_error() {
    assert_eq!(render(GO, "{{.x}}", json!({"a": 1})).unwrap(), "<no value>");
    let error = render(STRICT, "{{.x}}", json!({"a": 1})).unwrap_err();
    assert!(
        matches!(&error, Error::MissingKey { message, .. } if message.contains("`x`")),
        "{error}"
    );
    assert_eq!(render(STRICT, "{{.a}}", json!({"a": "b"})).unwrap(), "b");
}

#[test]
fn arguments_of_a_missing_field_are_ignored() {
    for (text, given) in [
        ("{{.e.d toString}}", json!({"no": false})),
        ("{{(index .l0 0).a lt}}", json!({"l0": [null]})),
        ("{{.no | .e.d}}", json!({})),
    ] {
        assert_eq!(render(GO, text, given.clone()).unwrap(), "<no value>", "{text}");
        assert!(render(STRICT, text, given).is_err(), "{text}");
    }
    // A value that exists and is not a method takes no arguments.
    for text in ["{{.e.d toString}}", "{{.e.d 1}}", "{{1 | .e.d}}"] {
        assert!(render(GO, text, json!({"e": {"d": "x"}})).is_err(), "{text}");
    }
}

/// Rust's own formatter panics on a precision above 65,535; Go takes up to a million.
#[test]
fn floats_print_with_any_precision_as_in_go() {
    let given = json!({"f": 1.5, "small": 5e-324});
    for (verb, of, begin, end, length) in [
        ("%.70000f", ".f", "1.500", "000", 70_002),
        ("%.70000e", ".f", "1.500", "000e+00", 70_006),
        ("%.1075f", ".small", "0.000", "6250", 1_077),
        ("%.1074f", ".small", "0.000", "625", 1_076),
        ("%.1073f", ".small", "0.000", "562", 1_075),
        ("%.70000e", ".small", "4.940", "000e-324", 70_007),
        ("%.70000g", ".f", "1.5", "1.5", 3),
        ("%.70000g", ".small", "4.940", "625e-324", 757),
    ] {
        let text = render(GO, &format!("{{{{ printf {verb:?} {of} }}}}"), given.clone()).unwrap();
        assert!(
            text.starts_with(begin) && text.ends_with(end),
            "{verb} {of}: {text:.20}…"
        );
        assert_eq!(text.len(), length, "{verb} {of}");
    }
}

#[test]
fn keys_and_strings_are_rendered_and_null_fields_left_out() {
    let tree = json!({"{{.k}}": {"n": 1, "list": ["{{.v}}", null, 2], "gone": null}, "plain": true});
    let observed = CompiledTemplate::value(GO, &tree)
        .unwrap()
        .render(&params(json!({"k": "key", "v": "value"})), &budget());
    assert_eq!(
        observed.unwrap(),
        json!({"key": {"n": 1, "list": ["value", null, 2]}, "plain": true})
    );
}

fn spec(template: Value) -> Spec {
    Spec {
        generators: Vec::new(),
        template,
        template_patch: None,
        engine: GO,
        sync_policy: SyncPolicy {
            applications: ApplicationsSync::Sync,
            preserve_resources: false,
        },
        preserved_fields: PreservedFields::default(),
    }
}

fn template() -> Value {
    json!({
        "metadata": {"name": "{{.name}}", "namespace": "kube-system", "labels": {"l": "{{.name}}"}, "uid": "x"},
        "spec": {
            "project": "p",
            "source": {"repoURL": "https://git/{{.name}}", "helm": {"values": "a: {{.name}}"}},
            "destination": {"server": "https://{{.name}}", "namespace": "ns"},
        },
    })
}

fn one(spec: &Spec, given: Value) -> Result<Value, Error> {
    ApplicationTemplate::new(spec, None, "argocd")?.render(&params(given), &budget())
}

#[test]
fn an_application_gets_the_sets_namespace_and_the_cascade_finalizer() {
    let observed = one(&spec(template()), json!({"name": "web"})).unwrap();
    assert_eq!(
        observed,
        json!({
            "apiVersion": "argoproj.io/v1alpha1",
            "kind": "Application",
            "metadata": {
                "name": "web", "namespace": "argocd", "labels": {"l": "web"},
                "finalizers": ["resources-finalizer.argocd.argoproj.io"],
            },
            "spec": {
                "project": "p",
                "source": {"repoURL": "https://git/web", "helm": {"values": "a: web"}},
                "destination": {"server": "https://web", "namespace": "ns"},
            },
        })
    );
}

#[test]
fn the_cascade_finalizer_is_added_only_where_argo_cd_adds_it() {
    let mut own = spec(template());
    own.template["metadata"]["finalizers"] = json!(["mine"]);
    assert_eq!(
        one(&own, json!({"name": "web"})).unwrap()["metadata"]["finalizers"],
        json!(["mine"])
    );
    let mut kept = spec(template());
    kept.sync_policy.preserve_resources = true;
    assert!(
        one(&kept, json!({"name": "web"})).unwrap()["metadata"]
            .get("finalizers")
            .is_none()
    );
    let untouched = one(&spec(template()), json!({})).unwrap();
    assert_eq!(untouched["metadata"]["name"], "{{.name}}");
    assert_eq!(untouched["metadata"]["namespace"], "argocd");
    assert!(untouched["metadata"].get("finalizers").is_none());
}

#[test]
fn a_patch_changes_all_but_the_project() {
    let mut patched = spec(template());
    patched.template_patch = Some(
        "{{- if eq .name \"web\" }}\nmetadata:\n  labels:\n    l: null\n    m: '{{ .name }}'\n  finalizers: [other]\nspec:\n  project: stolen\n  source:\n    helm:\n      values: b\n  destination:\n    $patch: replace\n    name: c\n{{- end }}\n".to_owned(),
    );
    let observed = one(&patched, json!({"name": "web"})).unwrap();
    assert_eq!(observed["metadata"]["labels"], json!({"m": "web"}));
    assert_eq!(
        observed["metadata"]["finalizers"],
        json!(["other", "resources-finalizer.argocd.argoproj.io"])
    );
    assert_eq!(observed["spec"]["project"], "p");
    assert_eq!(observed["spec"]["source"]["helm"]["values"], "b");
    assert_eq!(observed["spec"]["destination"], json!({"name": "c"}));
    let other = one(&patched, json!({"name": "api"})).unwrap();
    assert_eq!(other["metadata"]["labels"], json!({"l": "api"}));
}

#[test]
fn a_patch_that_is_no_object_is_an_error() {
    let mut patched = spec(template());
    patched.template_patch = Some("hello world".to_owned());
    let error = one(&patched, json!({"name": "web"})).unwrap_err();
    assert!(matches!(error, Error::Patch(_)), "{error}");
}

#[test]
fn fields_the_gateway_decides_on_must_have_their_type() {
    for (pointer, value) in [
        ("/spec/project", json!(1)),
        ("/spec/source/repoURL", json!({"a": "b"})),
        ("/spec/destination", json!("x")),
        ("/spec/destination/server", json!(["x"])),
        ("/metadata/name", json!(5)),
        ("/metadata/labels/l", json!(true)),
        ("/spec/source", json!([])),
    ] {
        let mut wrong = template();
        *wrong.pointer_mut(pointer).unwrap() = value;
        let error = one(&spec(wrong), json!({"name": "web"})).unwrap_err();
        assert!(matches!(error, Error::Field { .. }), "{pointer}: {error}");
    }
}

#[test]
fn nonempty_fields_of_a_generators_template_win() {
    let base = json!({
        "metadata": {"name": "name", "namespace": "namespace", "labels": {"label_name": "label_value"}},
        "spec": {"project": "p", "source": {"repoURL": "r", "helm": {"valuesObject": {"a": 1}}},
            "syncPolicy": {"automated": {"prune": true}}, "sources": [{"repoURL": "s"}]},
    });
    let own = json!({
        "metadata": {"name": "test", "labels": {"foo": "bar"}},
        "spec": {"project": "", "source": {"helm": {"valuesObject": {"b": 2}}},
            "syncPolicy": {"automated": {"prune": false}}, "sources": []},
    });
    assert_eq!(
        super::applications::fill(&own, &base),
        json!({
            "metadata": {"name": "test", "namespace": "namespace", "labels": {"label_name": "label_value", "foo": "bar"}},
            "spec": {"project": "p", "source": {"repoURL": "r", "helm": {"valuesObject": {"b": 2}}},
                "syncPolicy": {"automated": {"prune": true}}, "sources": [{"repoURL": "s"}]},
        })
    );
    let both = ApplicationTemplate::new(&spec(base), Some(&own), "argocd").unwrap();
    let observed = both.render(&params(json!({"x": "y"})), &budget()).unwrap();
    assert_eq!(observed["metadata"]["name"], "test");
    assert_eq!(observed["spec"]["project"], "p");
}

#[test]
fn values_of_a_child_generator_may_use_its_own_parameters_later() {
    let raw = json!({"git": {"repoURL": "{{.url}}", "values": {"now": "{{.url}}", "later": "{{.path.path}}"}}});
    let observed = render_generator(GO, &raw, &params(json!({"url": "u"})), &budget()).unwrap();
    assert_eq!(
        observed,
        json!({"git": {"repoURL": "u", "values": {"now": "u", "later": "{{.path.path}}"}}})
    );
    let nested = json!({"matrix": {"generators": [raw]}});
    let observed = render_generator(GO, &nested, &params(json!({"url": "u"})), &budget()).unwrap();
    assert_eq!(
        observed["matrix"]["generators"][0]["git"]["values"]["later"],
        "{{.path.path}}"
    );
    let list = json!({"list": {"elements": [{"a": "{{.path}}"}]}});
    assert!(render_generator(STRICT, &list, &params(json!({"url": "u"})), &budget()).is_err());
}

#[test]
fn resource_exhaustion_attacks_are_refused_quickly() {
    let bombs = [
        "{{ repeat 1000000000 \"x\" }}",
        "{{ repeat -1 \"x\" }}",
        "{{ until 1000000000 }}",
        "{{ seq 1 1000000000 }}",
        "{{ untilStep 0 9223372036854775807 1 }}",
        "{{ nindent 1000000000 \"x\" }}",
        "{{ indent 100000 (repeat 100000 \"\\n\") }}",
        "{{ printf \"%999999999d\" 1 }}{{ printf \"%900000d%900000d%900000d%900000d%900000d%900000d\" 1 1 1 1 1 1 }}",
        "{{ randAlphaNum 1000000000 }}",
        "{{ randBytes 1000000000 }}",
        "{{ range 1000000000 }}{{ range 1000000000 }}{{ end }}{{ end }}",
        "{{ range 1000000000 }}xxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxx{{ end }}",
        "{{ define \"r\" }}{{ template \"r\" . }}{{ end }}{{ template \"r\" . }}",
        "{{ $x := list 1 }}{{ range 1000000 }}{{ $x = list $x $x }}{{ end }}{{ $x }}",
        "{{ $x := dict }}{{ range 60 }}{{ $x = dict \"a\" $x \"b\" $x }}{{ end }}{{ toJson $x }}",
        "{{ $x := dict }}{{ $_ := set $x \"x\" $x }}{{ $x }}",
        "{{ $x := dict }}{{ $_ := set $x \"x\" $x }}{{ $x | toJson }}",
        "{{ $x := dict }}{{ $_ := set $x \"x\" $x }}{{ deepCopy $x }}",
        "{{ $x := dict }}{{ $_ := set $x \"x\" $x }}{{ $x | toYaml }}",
        "{{ $s := \"xxxxxxxx\" }}{{ range 100 }}{{ $s = print $s $s }}{{ end }}{{ $s }}",
        "{{ $s := repeat 100000 \"x\" }}{{ replace \"x\" $s $s }}",
        "{{ $s := repeat 100000 \"x\" }}{{ regexReplaceAll \"x\" $s $s }}",
        "{{ $s := repeat 10000 \"x\" }}{{ join $s (until 10000) }}",
        "{{ regexMatch \"(a{1000}){1000}\" \"a\" | ternary (fail \"x\") (fail \"y\") }}",
        "{{ mustRegexMatch \"(((a{100}){100}){100})\" \"a\" }}",
        "{{ range until 100000 }}{{ $_ := uniq (until 100000) }}{{ end }}",
        "{{ wrapWith 1 (repeat 100000 \"y\") (repeat 100000 \"x\") }}",
        "{{ regexFindAll \"x\" (repeat 2000000 \"x\") -1 }}",
        "{{ regexMatch (repeat 5000 \"a\") \"a\" }}",
        "{{ regexMatch \".{900}\" (repeat 100000 \"x\") }}",
        "{{ regexReplaceAll \"(x+)\" (repeat 100000 \"x\") (repeat 1000 \"$1\") }}",
        "{{ fromJson (print \"[\" (repeat 1000000 \"0,\") \"0]\") }}",
        "{{ fromYamlArray (print \"[\" (repeat 1000000 \"~,\") \"~]\") }}",
        "{{ fromYaml (print \"a: &a [\" (repeat 1000 \"x,\") \"]\\nb: [\" (repeat 1000 \"*a,\") \"]\") }}",
        "{{ $x := repeat 200000 \"a b \" }}{{ range 90 }}{{ $x = list $x }}{{ end }}{{ toYaml $x }}",
    ];
    for bomb in bombs {
        let budget = GenerationBudget::new(GenerationLimits {
            time: Duration::from_secs(20),
            ..GenerationLimits::default()
        });
        let begin = tokio::time::Instant::now();
        let result =
            CompiledTemplate::value(GO, &json!(bomb)).and_then(|text| text.render(&params(json!({"a": "b"})), &budget));
        let took = begin.elapsed();
        assert!(result.is_err(), "{bomb}");
        assert!(took < Duration::from_secs(15), "{bomb}: {took:?}");
    }
}

/// Small inputs pass; each pattern of the attacks above has a harmless counterpart here.
#[test]
fn expressions_and_documents_within_the_bounds_are_read() {
    for (text, wanted) in [
        ("{{ len (regexFindAll \"x\" (repeat 2000 \"x\") -1) }}", "2000"),
        ("{{ regexMatch (repeat 4000 \"a\") \"a\" }}", "false"),
        ("{{ regexMatch \".{900}\" (repeat 1000 \"x\") }}", "true"),
        ("{{ regexMatch \"[a-z]\" (repeat 100000 \"x\") }}", "true"),
        (
            "{{ regexReplaceAll \"(x+)(y?)\" \"axxybxc\" \"<$1|${2}>\" }}",
            "a<xx|y>b<x|>c",
        ),
        ("{{ regexReplaceAll \"\" \"ab\" \"-\" }}", "-a-b-"),
        ("{{ regexReplaceAllLiteral \"x\" \"axb\" \"$0\" }}", "a$0b"),
        ("{{ regexSplit \",\" \"a,b,,c\" 3 | toJson }}", "[\"a\",\"b\",\",c\"]"),
        (
            "{{ range until 100 }}{{ if regexMatch \"^[0-4]$\" (print .) }}{{ . }}{{ end }}{{ end }}",
            "01234",
        ),
        ("{{ len (fromJson (print \"[\" (repeat 1000 \"0,\") \"0]\")) }}", "1001"),
        (
            "{{ len (fromYamlArray (print \"[\" (repeat 1000 \"~,\") \"~]\")) }}",
            "1001",
        ),
        (
            "{{ (fromYaml \"a: &a [x]\\nb: [*a, yes]\").b | toJson }}",
            "[[\"x\"],true]",
        ),
        ("{{ fromJson \"[\" | toJson }}", "null"),
    ] {
        assert_eq!(render(GO, text, known()).unwrap(), wanted, "{text}");
    }
}

/// SECURITY: `.*[^a]|a` scans all of the remaining text for each letter.
#[test]
fn regex_searches_stop_when_cancelled() {
    let budget = GenerationBudget::new(GenerationLimits::default());
    budget.cancel();
    let all = [
        "{{ regexMatch \"a\" \"a\" }}",
        "{{ regexFindAll \".*[^a]|a\" \"aaaa\" -1 }}",
        "{{ regexReplaceAll \".*[^a]|a\" \"aaaa\" \"$0\" }}",
        "{{ regexSplit \".*[^a]|a\" \"aaaa\" -1 }}",
    ];
    for text in all {
        let text = CompiledTemplate::value(GO, &json!(text)).unwrap();
        let given = params(json!({"a": "b"}));
        assert!(text.render(&given, &self::budget()).is_ok());
        let error = text.render(&given, &budget).unwrap_err();
        assert_eq!(error, Error::Exceeded(Exceeded::Cancelled));
    }
}

#[test]
fn long_chains_of_maps_need_no_deep_stack() {
    let text = "{{ $root := dict }}{{ $at := $root }}{{ range 20000 }}{{ $next := dict }}{{ $_ := set $at \"x\" $next }}{{ $at = $next }}{{ end }}done";
    assert_eq!(render(GO, text, json!({"a": "b"})).unwrap(), "done");
}

#[test]
fn rendered_bytes_are_charged_to_the_budget() {
    let budget = GenerationBudget::new(GenerationLimits {
        bytes: 100,
        ..GenerationLimits::default()
    });
    for (engine, text) in [(GO, "{{ .x }}"), (TemplateEngine::FastTemplate, "{{ x }}")] {
        let text = CompiledTemplate::value(engine, &json!(text)).unwrap();
        let error = text
            .render(&params(json!({"x": "y".repeat(101)})), &budget)
            .unwrap_err();
        assert!(matches!(error, Error::Exceeded(Exceeded::Bytes { .. })), "{error}");
    }
}

#[test]
fn a_thousand_applications_render_fast() {
    let mut many = template();
    for index in 0..12 {
        many["metadata"]["labels"][format!("l{index}")] = json!("x-{{ .name | upper }}-{{ .n }}");
    }
    let parsed = ApplicationTemplate::new(&spec(many), None, "argocd").unwrap();
    let begin = tokio::time::Instant::now();
    let budget = budget();
    for index in 0..1_000 {
        let given = params(
            json!({"name": format!("web-{index}"), "n": index, "path": {"path": "a/b", "segments": ["a", "b"]}}),
        );
        let observed = parsed.render(&given, &budget).unwrap();
        assert_eq!(observed["metadata"]["name"], format!("web-{index}"));
    }
    let took = begin.elapsed();
    println!("1000 applications: {took:?}");
    assert!(took < Duration::from_secs(5), "{took:?}");
}

#[test]
fn transient_annotations_are_removed_from_templates() {
    let mut written = template();
    let last = "kubectl.kubernetes.io/last-applied-configuration";
    written["metadata"]["annotations"] = json!({
        last: "{}", "argocd.argoproj.io/refresh": "hard", "argocd.argoproj.io/sync-wave": "1", "team": "{{.name}}",
    });
    let observed = one(&spec(written), json!({"name": "web"})).unwrap();
    assert_eq!(
        observed["metadata"]["annotations"],
        json!({"argocd.argoproj.io/sync-wave": "1", "team": "web"})
    );
}

/// SECURITY: error texts go into responses and logs.
#[test]
fn error_messages_have_a_maximum_length() {
    let long = "{{ fail (repeat 1000000 \"x\") }}";
    for text in [long.to_owned(), format!("{{{{ {} }}}}", "y".repeat(100_000))] {
        let error = render(GO, &text, known()).unwrap_err().to_string();
        assert!(error.len() < 3_000, "{}", error.len());
    }
    let error = render(GO, "{{ fail \"not here\" }}", known()).unwrap_err().to_string();
    assert!(error.ends_with("not here"), "{error}");
    for patch in [
        format!("spec: {{$patch: {}}}", "x".repeat(100_000)),
        format!("{{\"spec\": {{\"$retainKeys\": [], \"{}\": 1}}}}", "x".repeat(100_000)),
    ] {
        let mut written = spec(template());
        written.template_patch = Some(patch);
        let error = one(&written, json!({"name": "web"})).unwrap_err().to_string();
        assert!(
            error.contains("templatePatch") && error.len() < 3_000,
            "{}",
            error.len()
        );
    }
}
