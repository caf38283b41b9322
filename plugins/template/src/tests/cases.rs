//! Renders the templates of the provider cases, with public values and with secrets.

use std::collections::BTreeMap;

use super::{render, render_secret};
use crate::Context;

#[derive(serde::Deserialize)]
struct File {
    cases: Vec<Case>,
}

#[derive(serde::Deserialize)]
struct Case {
    id: String,
    kind: String,
    context: Option<String>,
    data: Option<BTreeMap<String, String>>,
    template: Option<String>,
    expect: Option<Expect>,
}

#[derive(serde::Deserialize)]
#[serde(untagged)]
enum Expect {
    Result {
        output: Option<String>,
        error_class: Option<String>,
    },
    /// In other kinds of cases.
    Word(serde::de::IgnoredAny),
}

#[test]
fn agrees_with_the_cases() {
    let path = concat!(env!("CARGO_MANIFEST_DIR"), "/../../tests/cases/providers.yaml");
    let text = std::fs::read_to_string(path).expect("tests/cases/providers.yaml");
    // Without this, the untagged enum reads the output `y` as true.
    let options = serde_saphyr::options! { strict_booleans: true };
    let file: File = serde_saphyr::from_str_with_options(&text, options).expect("cases");
    let mut seen = 0;
    for case in file.cases.into_iter().filter(|case| case.kind == "template") {
        seen += 1;
        let context = match case.context.as_deref() {
            Some("header") => Context::Header,
            Some("url") => Context::Url,
            Some("body") => Context::Body,
            other => panic!("{}: context {other:?}", case.id),
        };
        let (source, data) = (case.template.unwrap(), case.data.unwrap_or_default());
        let Some(Expect::Result { output, error_class }) = case.expect else {
            panic!("{}: expects nothing", case.id);
        };
        let open = render(&source, context, &data);
        match (output, error_class.as_deref()) {
            (Some(output), None) => {
                assert_eq!(open.as_ref(), Ok(&output), "{}", case.id);
                assert_eq!(
                    render_secret(&source, context, &data),
                    Ok(output),
                    "{}, as secrets",
                    case.id
                );
            }
            (None, Some("config")) => assert!(open.is_err(), "{}: {open:?}", case.id),
            other => panic!("{}: expects {other:?}", case.id),
        }
    }
    assert!(seen >= 44, "{seen} cases");
}
