//! What rendered headers and URLs may contain.

use super::{data, render, usual};
use crate::{Code, Context, Operation, Part, Template, Value};

#[test]
fn refuses_control_characters_in_headers() {
    for value in ["a\r\nX: y", "\0", "a\tb", "\u{7f}", "abc\n"] {
        let error = render("{{ .v }}", Context::Header, &data(&[("v", value)])).expect_err("a control character");
        assert_eq!(error.code(), Code::Header);
        assert!(error.to_string().contains("which a value has"), "{error}");
    }
    let error = render("a\nb", Context::Header, &usual()).expect_err("a line break");
    assert!(error.to_string().contains("the template's text"), "{error}");
    assert_eq!(
        render("é {{ .v }}", Context::Header, &data(&[("v", "~ !")])).as_deref(),
        Ok("é ~ !")
    );
}

#[test]
fn values_cannot_change_the_structure_of_a_url() {
    let base = "https://h/{{ .v }}/t";
    for (source, value, words) in [
        (base, "a/b", "`/`, which would change"),
        (base, "a?b", "`?`, which would change"),
        (base, "a#b", "`#`, which would change"),
        (base, "a\\b", "`\\`, which would change"),
        (base, "..", "`..`"),
        (base, "%2E.", "`%2E.`"),
        (base, "a\nb", "U+000A"),
        ("https://h/{{ .v }}{{ .v }}/t", ".", "`..`"),
        ("https://{{ .v }}/t", "h/x", "`/`, which would change"),
        ("https://{{ .v }}/t", "u@h", "user and password"),
        ("https://{{ .v }}/t", "", "no host"),
        ("https://h{{ .v }}", "/x", "`/`, which would change"),
        ("https://u:p@h/{{ .v }}", "x", "user and password"),
        ("https://h/../{{ .v }}", "x", "`..`"),
        ("https://h/{{ .v }}#x", "x", "no fragment"),
        ("https://h/t?a={{ .v }}", "x#y", "no fragment"),
        ("https://h/t?a={{ .v }}", "x\ny", "U+000A"),
        ("/t/{{ .v }}", "x", "no absolute URL"),
        ("{{ .v }}", "x", "no absolute URL"),
        ("https:\\\\h\\{{ .v }}", "x", "no absolute URL"),
    ] {
        let error = render(source, Context::Url, &data(&[("v", value)])).expect_err(source);
        assert_eq!(error.code(), Code::Url, "{source} {value}: {error}");
        assert!(error.to_string().contains(words), "{source} {value}: {error}");
    }
    for (source, value, expected) in [
        (base, "a b.c", "https://h/a b.c/t"),
        ("https://h/{{ .v | pathescape }}/t", "a/b ?", "https://h/a%2Fb%20%3F/t"),
        ("https://{{ .v }}/t", "h:8443", "https://h:8443/t"),
        ("{{ .v }}/t", "https://h", "https://h/t"),
        ("https://h/t?a={{ .v }}", "x/y?z", "https://h/t?a=x/y?z"),
        ("https://h/t?{{ .v }}", "", "https://h/t?"),
    ] {
        assert_eq!(
            render(source, Context::Url, &data(&[("v", value)])).as_deref(),
            Ok(expected)
        );
    }
}

#[test]
fn splits_a_url_and_keeps_secrets_out_of_its_base() {
    let template = Template::parse("https://{{ .h }}/t?a=?{{ .s | urlquery }}").expect("legal");
    let values = |name: &str| {
        Some(if name == "s" {
            Value::Secret
        } else {
            Value::Public("x?y".into())
        })
    };
    let error = template.render_url(&values).expect_err("a question mark in a value");
    assert_eq!(error.code(), Code::Url);
    let values = |name: &str| {
        Some(if name == "s" {
            Value::Secret
        } else {
            Value::Public("x".into())
        })
    };
    let url = template.render_url(&values).expect("renders");
    assert_eq!(url.base, "https://x/t");
    let applied = Part::Applied {
        operation: Operation::Form,
        parts: vec![Part::Secret("s".into())],
    };
    assert_eq!(url.query, Some(vec![Part::Text("a=?".into()), applied]));

    for source in ["https://{{ .s }}/t", "{{ .s }}", "https://h/{{ .s | pathescape }}?x"] {
        let template = Template::parse(source).expect(source);
        assert!(template.public_names(Context::Url).contains("s"), "{source}");
        let error = template
            .render(Context::Url, &|_: &str| Some(Value::Secret))
            .expect_err(source);
        assert_eq!(error.code(), Code::SecretInUrl, "{source}: {error}");
    }
}
