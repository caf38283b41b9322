use std::collections::BTreeMap;

use super::*;

mod cases;
mod contexts;

/// Renders `source` in `context` with public values.
fn render(source: &str, context: Context, data: &BTreeMap<String, String>) -> Result<String, Error> {
    let template = Template::parse(source)?;
    let parts = template.render(context, &|name: &str| data.get(name).cloned().map(Value::Public))?;
    Ok(flat(&parts, data))
}

/// Renders `source` with every value a secret that need not be public.
fn render_secret(source: &str, context: Context, data: &BTreeMap<String, String>) -> Result<String, Error> {
    let template = Template::parse(source)?;
    let public = template.public_names(context);
    let parts = template.render(context, &|name: &str| {
        let value = data.get(name).cloned()?;
        Some(if public.contains(name) {
            Value::Public(value)
        } else {
            Value::Secret
        })
    })?;
    Ok(flat(&parts, data))
}

/// The text that the host makes of the parts.
fn flat(parts: &[Part], data: &BTreeMap<String, String>) -> String {
    let text = |part: &Part| match part {
        Part::Text(text) => text.clone(),
        Part::Secret(name) => data[name].clone(),
        Part::Applied { operation, parts } => escape::escape(*operation, &flat(parts, data)),
    };
    parts.iter().map(text).collect()
}

fn data(pairs: &[(&str, &str)]) -> BTreeMap<String, String> {
    pairs
        .iter()
        .map(|(key, value)| ((*key).into(), (*value).into()))
        .collect()
}

fn usual() -> BTreeMap<String, String> {
    data(&[
        ("a", "A&b"),
        ("org", "acme"),
        ("empty", ""),
        ("token", "a+b/c==&x=1"),
        ("api-key", "K"),
        ("tls.crt", "PEM"),
        ("line", " abc\n"),
        ("quote", "he\"l\\lo\u{1}é"),
    ])
}

/// Asserts that `source` renders to `expected`, with public values and with secrets.
fn gives(source: &str, expected: &str) {
    let found = render(source, Context::Body, &usual());
    assert_eq!(found.as_deref(), Ok(expected), "{source}");
    let found = render_secret(source, Context::Body, &usual());
    assert_eq!(found.as_deref(), Ok(expected), "{source}, as secrets");
}

/// Asserts that `source` is refused with `code`, at `position`, with `words` in the message.
fn refused(source: &str, code: Code, position: (usize, usize), words: &str) {
    let error = render(source, Context::Body, &usual()).expect_err(source);
    let (line, column) = position;
    assert_eq!(error.code(), code, "{source}: {error}");
    assert_eq!(error.position(), Some(Position { line, column }), "{source}: {error}");
    assert!(error.to_string().contains(words), "{source}: {error}");
}

#[test]
fn renders_what_go_renders() {
    for (source, expected) in [
        ("", ""),
        ("a{{- /* c */ -}} b", "ab"),
        ("a \n{{- .org }} \t{{ .org -}}\n b", "aacme \tacmeb"),
        ("{{.org|urlquery|urlquery}}", "acme"),
        ("{{ $x := .a }}{{ $x }}-{{ urlquery $x }}", "A&b-A%26b"),
        ("{{ $x := \"1\" }}{{ if .org }}{{ $x = \"2\" }}{{ end }}{{ $x }}", "2"),
        (
            "{{ $x := \"1\" }}{{ if .org }}{{ $x := \"2\" }}{{ $x }}{{ end }}{{ $x }}",
            "21",
        ),
        (
            "{{ with $x := .org }}{{ . }}{{ $x }}{{ $.a }}{{ index $ \"api-key\" }}{{ end }}",
            "acmeacmeA&bK",
        ),
        ("{{ with .empty }}y{{ else }}{{ .org }}{{ end }}", "acme"),
        ("{{ with .empty }}y{{ else with .org }}<{{ . }}>{{ end }}", "<acme>"),
        (
            "{{ if .empty }}1{{ else if eq .org \"x\" \"acme\" }}2{{ else }}3{{ end }}",
            "2",
        ),
        ("{{ if not (and .org (ne .org \"x\")) }}y{{ else }}n{{ end }}", "n"),
        (
            "{{ or .empty \"\" .org }}{{ and .empty .nope }}{{ or .org .nope }}",
            "acmeacme",
        ),
        (
            "{{ .org | eq \"acme\" }} {{ true }} {{ not .org | urlquery }}",
            "true true false",
        ),
        ("{{ .org | printf \"%s%%%s\" .a }}", "A&b%acme"),
        ("{{ printf `\\n%s` (urlquery .a) }}", "\\nA%26b"),
        ("{{ \"a\\x41\\101\\u00e9\\U0001F600\\t\\\"\\\\\" }}", "aAAé😀\t\"\\"),
        ("{{ `a\r\nb` }}{{ \"}}\" }}", "a\nb}}"),
        ("{{ urlquery .org \" \" .a }}", "acme+A%26b"),
        (
            "{{ index . \"tls.crt\" | pathescape }}{{ pathescape \" /\" }}",
            "PEM%20%2F",
        ),
        (
            "{{ .line | trim }}|{{ printf \" %s \" .line | trim | json }}",
            "abc|\"abc\"",
        ),
        ("{{ json .quote }}", "\"he\\\"l\\\\lo\\u0001é\""),
        (
            "{{ printf \"%s:%s\" .org .token | b64 | urlquery }}",
            "YWNtZTphK2IvYz09Jng9MQ%3D%3D",
        ),
        ("{ {{ .org }} } $ .x }} ${x}", "{ acme } $ .x }} ${x}"),
        ("{{\n.org\n}}", "acme"),
        ("{{ \"{.token}\" }}", "{.token}"),
    ] {
        gives(source, expected);
    }
}

#[test]
fn errors_have_code_position_and_message() {
    for (source, code, position, words) in [
        ("x{{ .org ", Code::Syntax, (1, 2), "has no `}}`"),
        ("{{ .org }", Code::Syntax, (1, 1), "has no `}}`"),
        ("{{.org}", Code::Syntax, (1, 7), "write `}}`"),
        ("{{ .api-key }}", Code::Syntax, (1, 8), "index . \"key\""),
        ("a\né{{ /* c */ }}", Code::Syntax, (2, 5), "`/` may not stand"),
        ("{{/* c */ }}", Code::Syntax, (1, 10), "a comment ends"),
        ("{{/* c }}", Code::Syntax, (1, 1), "no `*/`"),
        ("{{ \"a }}", Code::Syntax, (1, 4), "does not end"),
        ("{{ \"a\nb\" }}", Code::Syntax, (1, 4), "does not end"),
        ("{{ \"\\q\" }}", Code::Syntax, (1, 5), "no such escape"),
        ("{{ \"\\xff\" }}", Code::Syntax, (1, 5), "not UTF-8"),
        ("{{ (.org }}", Code::Syntax, (1, 10), "`(` without `)`"),
        ("{{ .org) }}", Code::Syntax, (1, 8), "`)` without `(`"),
        ("{{}}", Code::Syntax, (1, 3), "a value is missing"),
        ("{{ .org | .a }}", Code::Syntax, (1, 10), "has to be a function"),
        ("{{ .org .a }}", Code::Syntax, (1, 9), "only functions take"),
        ("{{ $x }}", Code::Syntax, (1, 4), "no variable `$x`"),
        (
            "{{ if .org }}{{ $x := .a }}{{ end }}{{ $x }}",
            Code::Syntax,
            (1, 40),
            "no variable",
        ),
        (
            "{{ if .org }}{{ $x := .a }}{{ else }}{{ $x }}{{ end }}",
            Code::Syntax,
            (1, 41),
            "no variable",
        ),
        ("{{ if .org }}x", Code::Syntax, (1, 6), "no `end`"),
        ("{{ end }}", Code::Syntax, (1, 4), "`end` without"),
        ("{{ else }}", Code::Syntax, (1, 4), "`else` without"),
        (
            "{{ if .a }}{{ else }}{{ else }}{{ end }}",
            Code::Syntax,
            (1, 25),
            "a second",
        ),
        (
            "{{ if .a }}{{ else with .a }}{{ end }}",
            Code::Syntax,
            (1, 20),
            "after `else`",
        ),
        ("{{ if }}x{{ end }}", Code::Syntax, (1, 7), "a value is missing"),
        (
            "{{ range . }}{{ end }}",
            Code::Unsupported,
            (1, 4),
            "allowed are values",
        ),
        ("{{ define \"x\" }}{{ end }}", Code::Unsupported, (1, 4), "`define`"),
        ("{{ template \"x\" }}", Code::Unsupported, (1, 4), "`template`"),
        ("{{ .org | html }}", Code::Unsupported, (1, 11), "`html`"),
        ("{{ .org | js }}", Code::Unsupported, (1, 11), "made by `json`"),
        ("{{ lt .org \"b\" }}", Code::Unsupported, (1, 4), "`lt`"),
        ("{{ . }}", Code::Unsupported, (1, 4), "name one"),
        ("{{ $ }}", Code::Unsupported, (1, 4), "name one"),
        ("{{ with . }}{{ end }}", Code::Unsupported, (1, 9), "name one"),
        ("{{ 1 }}", Code::Unsupported, (1, 4), "write a string"),
        ("{{ .1 }}", Code::Unsupported, (1, 4), "write a string"),
        ("{{-3}}", Code::Unsupported, (1, 3), "write a string"),
        ("{{ 'a' }}", Code::Unsupported, (1, 4), "write a string"),
        ("{{ index . .org }}", Code::Unsupported, (1, 4), "as a string"),
        (
            "{{ with .org }}{{ index . \"a\" }}{{ end }}",
            Code::Unsupported,
            (1, 19),
            "index $",
        ),
        ("{{ printf .org }}", Code::Unsupported, (1, 4), "format as a string"),
        ("{{ printf \"%5s\" .org }}", Code::Unsupported, (1, 4), "without width"),
        ("{{ printf \"%\" }}", Code::Unsupported, (1, 4), "without width"),
        ("{{ printf \"%s\" }}", Code::Type, (1, 4), "takes 1 values and got 0"),
        (
            "{{ printf \"x\" .org }}",
            Code::Type,
            (1, 4),
            "takes 0 values and got 1",
        ),
        ("{{ printf \"%s\" (not .org) }}", Code::Type, (1, 4), "true or false"),
        ("{{ .org | b64enc }}", Code::UnknownFunction, (1, 11), "`b64`"),
        ("{{ env \"HOME\" }}", Code::UnknownFunction, (1, 4), "no function `env`"),
        ("{{ .tls.crt }}", Code::Type, (1, 8), "index . \"tls.crt\""),
        ("{{ with .org }}{{ .a }}{{ end }}", Code::Type, (1, 19), "write `$.a`"),
        ("{{ json .org .a }}", Code::Type, (1, 4), "takes one argument and got 2"),
        ("{{ eq .org }}", Code::Type, (1, 4), "at least 2 arguments"),
        ("{{ eq .org true }}", Code::Type, (1, 4), "cannot compare"),
        ("{{ json true }}", Code::Type, (1, 4), "true or false"),
        ("x\n{{ .nope }}", Code::Missing, (2, 4), "no value `nope`"),
        ("{{ index . \"no-pe\" }}", Code::Missing, (1, 4), "no value `no-pe`"),
        ("{{ if .nope }}{{ end }}", Code::Missing, (1, 7), "no value `nope`"),
        ("{{ with .nope }}{{ end }}", Code::Missing, (1, 9), "no value `nope`"),
        ("{{ or .nope .org }}", Code::Missing, (1, 7), "no value `nope`"),
        ("{{ .nope | or .org }}", Code::Missing, (1, 4), "no value `nope`"),
        ("a{.token}", Code::SingleBrace, (1, 2), "write `{{ .token }}`"),
        ("é\na${.org}", Code::SingleBrace, (2, 2), "`${.org}` is no value"),
        ("a{.b c", Code::SingleBrace, (1, 2), "write `{{ .name }}`"),
    ] {
        refused(source, code, position, words);
    }
}

#[test]
fn corrects_what_was_meant() {
    let seed = "scope=upbound%3Aorg%3A${.orgName}&subject_token={.token}&x={{ .y }}";
    assert_eq!(
        corrected(seed, TargetFormat::Form),
        "scope=upbound%3Aorg%3A{{ .orgName | urlquery }}&subject_token={{ .token | urlquery }}&x={{ .y }}"
    );
    assert_eq!(
        corrected(seed, TargetFormat::Other),
        "scope=upbound%3Aorg%3A{{ .orgName }}&subject_token={{ .token }}&x={{ .y }}"
    );
    for (wrong, right) in [
        ("{.api-key} ", "{{ index . \"api-key\" }} "),
        ("{{ \"{.a}\" }}{.b}", "{{ \"{.a}\" }}{{ .b }}"),
        ("{.a b}", "{{ \"{.\" }}a b}"),
        ("${.a b}", "{{ \"${.\" }}a b}"),
        ("{{ .open", "{{ .open"),
        ("plain", "plain"),
    ] {
        assert_eq!(corrected(wrong, TargetFormat::Other), right);
        if wrong != right {
            assert!(Template::parse(right).is_ok(), "{right}");
        }
    }
}

#[test]
fn warns_of_a_dollar_sign() {
    let template = Template::parse("x=${{ .org }}").expect("legal");
    assert_eq!(template.warnings().len(), 1);
    assert!(template.warnings()[0].starts_with("line 1, column 3: the `$`"));
    gives("x=${{ .org }}", "x=$acme");
    assert!(Template::parse("x={{ .org }}$").expect("legal").warnings().is_empty());
}

#[test]
fn names_what_has_to_be_public() {
    let check = |source: &str, context, public: &[&str], all: &[&str]| {
        let template = Template::parse(source).expect(source);
        let names = |names: &[&str]| names.iter().map(|name| (*name).into()).collect::<BTreeSet<String>>();
        assert_eq!(template.public_names(context), names(public), "{source}");
        assert_eq!(template.names(), names(all), "{source}");
    };
    let body = Context::Body;
    check("{{ .a | urlquery }}{{ printf \"%s\" .b }}", body, &[], &["a", "b"]);
    check(
        "{{ or .a .b }}{{ .c | and .d }}",
        body,
        &["a", "d"],
        &["a", "b", "c", "d"],
    );
    check("{{ not .a }}{{ eq .b .c }}", body, &["a", "b", "c"], &["a", "b", "c"]);
    check(
        "{{ with .a }}{{ . }}{{ $.b }}{{ else }}{{ .c }}{{ end }}",
        body,
        &["a"],
        &["a", "b", "c"],
    );
    check(
        "{{ $x := .a }}{{ $y := $x }}{{ if $y }}{{ .b }}{{ end }}",
        body,
        &["a"],
        &["a", "b"],
    );
    check(
        "{{ with printf \"%s%s\" .a .b }}{{ end }}",
        body,
        &["a", "b"],
        &["a", "b"],
    );
    check(
        "{{ $x := .a }}{{ if .c }}{{ $x = .b }}{{ end }}{{ not $x }}",
        body,
        &["a", "b", "c"],
        &["a", "b", "c"],
    );
    let url = Context::Url;
    check(
        "https://{{ .a }}/{{ .b }}?x={{ .c }}",
        url,
        &["a", "b"],
        &["a", "b", "c"],
    );
    check("https://h/{{ if .a }}?{{ end }}{{ .b }}", url, &["a", "b"], &["a", "b"]);
    check(
        "https://h/{{ if .a }}?{{ else }}x?{{ end }}{{ .b }}",
        url,
        &["a"],
        &["a", "b"],
    );
    check("https://h/{{ $x := .a }}?{{ $x }}", url, &[], &["a"]);
}

#[test]
fn never_decides_by_a_secret() {
    for source in [
        "{{ if .org }}y{{ end }}",
        "{{ with .org }}y{{ end }}",
        "{{ or .org .a }}",
        "{{ and .org .a }}",
        "{{ not .org }}",
        "{{ eq .org \"acme\" }}",
        "{{ ne \"acme\" .org }}",
        "{{ if printf \"x%s\" .org | urlquery }}y{{ end }}",
        "{{ $x := b64 .org }}{{ if $x }}y{{ end }}",
    ] {
        let template = Template::parse(source).expect(source);
        assert!(template.public_names(Context::Body).contains("org"), "{source}");
        let error = template
            .render(Context::Body, &|_: &str| Some(Value::Secret))
            .expect_err(source);
        assert_eq!(error.code(), Code::SecretBranch, "{source}");
        assert!(error.to_string().contains("`org` is a secret"), "{error}");
        assert!(!error.to_string().contains("acme"), "{error}");
    }
}

#[test]
fn keeps_secrets_apart_from_text() {
    let template = Template::parse("a={{ .s }}&b={{ printf \"%s:%s\" .u .s | b64 | urlquery }}").expect("legal");
    let parts = template.render(Context::Body, &|name: &str| {
        Some(if name == "s" {
            Value::Secret
        } else {
            Value::Public("me".into())
        })
    });
    let applied = |operation, parts| Part::Applied { operation, parts };
    let joined = vec![Part::Text("me:".into()), Part::Secret("s".into())];
    assert_eq!(
        parts.expect("renders"),
        [
            Part::Text("a=".into()),
            Part::Secret("s".into()),
            Part::Text("&b=".into()),
            applied(Operation::Form, vec![applied(Operation::Base64, joined)]),
        ]
    );
}

#[test]
fn is_bounded() {
    let code = |source: &str, data: &BTreeMap<String, String>| {
        let result = render(source, Context::Body, data);
        result.map(|text| text.len()).map_err(|error| error.code())
    };
    let long = data(&[("v", &"x".repeat(MAX_OUTPUT_BYTES))]);
    assert_eq!(code("{{ .v }}", &long), Ok(MAX_OUTPUT_BYTES));
    assert_eq!(code("{{ .v }}x", &long), Err(Code::TooLarge));
    assert_eq!(code("{{ $x := b64 .v }}", &long), Err(Code::TooLarge));
    assert_eq!(code(&"x".repeat(MAX_SOURCE_BYTES), &long), Ok(MAX_SOURCE_BYTES));
    assert_eq!(code(&"x".repeat(MAX_SOURCE_BYTES + 1), &long), Err(Code::TooLarge));

    let doubled = "{{ $x := .v }}".to_owned() + &"{{ $x = printf \"%s%s\" $x $x }}".repeat(40) + "{{ $x }}";
    assert_eq!(code(&doubled, &data(&[("v", "ab")])), Err(Code::TooLarge));
    let template = Template::parse(&doubled).expect("legal");
    let error = template
        .render(Context::Body, &|_: &str| Some(Value::Secret))
        .expect_err("too many parts");
    assert_eq!(error.code(), Code::TooLarge);

    let nested = |levels: usize| "{{ if .v }}".repeat(levels) + "x" + &"{{ end }}".repeat(levels);
    assert_eq!(code(&nested(MAX_DEPTH), &long), Ok(1));
    assert_eq!(code(&nested(MAX_DEPTH + 1), &long), Err(Code::TooLarge));
    let wrapped = |levels: usize| format!("{{{{ {}.v{} }}}}", "(".repeat(levels), ")".repeat(levels));
    assert_eq!(code(&wrapped(MAX_DEPTH), &data(&[("v", "x")])), Ok(1));
    assert_eq!(code(&wrapped(20_000), &long), Err(Code::TooLarge));

    let encoded = |times: usize| "{{ .v".to_owned() + &" | urlquery".repeat(times) + " }}";
    let secret = |source: &str| {
        let template = Template::parse(source).expect("legal");
        let parts = template.render(Context::Body, &|_: &str| Some(Value::Secret));
        parts.map(|parts| parts.len()).map_err(|error| error.code())
    };
    assert_eq!(secret(&encoded(MAX_ENCODINGS)), Ok(1));
    assert_eq!(secret(&encoded(MAX_ENCODINGS + 1)), Err(Code::TooLarge));

    // Time grows with the length of a template, not with its square.
    let long = "{{ .v }}\n".repeat(MAX_SOURCE_BYTES / 9);
    assert_eq!(code(&long, &data(&[("v", "x")])), Ok(MAX_SOURCE_BYTES / 9 * 2));
}
