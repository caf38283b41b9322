//! Compares the results of every function that templates may call with Argo CD's, for the templates
//! of a table and one set of parameters. Each function must be in the table.

use std::collections::BTreeSet;

use serde_json::{Value, json};
use tollgate_applicationset::template::CompiledTemplate;
use tollgate_applicationset::{GenerationBudget, MissingKey, TemplateEngine};
use tollgate_config::GenerationLimits;

use test_support::judge::Judge;

/// Templates by subject, one or more a line; see [`texts`].
const TEXTS: &str = include_str!("functions.txt");

/// Every template of the table. A line is split into its actions, so that an error of one does not
/// hide an error of another. Lines with blocks or variables stay whole.
fn texts() -> Vec<String> {
    let lines = TEXTS.lines().filter(|line| !line.is_empty() && !line.starts_with("# "));
    lines
        .flat_map(|line| {
            let whole = line.contains("end }}") || line.contains(":=") || !line.starts_with("{{ ");
            let parts: Vec<&str> = if whole {
                vec![line]
            } else {
                line.split("}} {{").collect()
            };
            let last = parts.len() - 1;
            let text = move |(index, part): (usize, &str)| {
                let open = if index == 0 { "" } else { "{{" };
                let close = if index == last { "" } else { "}}" };
                format!("{open}{part}{close}")
            };
            parts.into_iter().enumerate().map(text).collect::<Vec<_>>()
        })
        .collect()
}

/// Templates with functions that we do not offer on purpose.
const REFUSED: &str = include_str!("refused.txt");

fn parameters() -> Value {
    json!({
        "name": "engineering-dev",
        "Name": "Engineering_Dev 1",
        "empty": "",
        "zero": 0,
        "number": 42,
        "negative": -7,
        "real": 3.75,
        "large": 12_345_678_901_i64,
        "yes": true,
        "no": false,
        "nothing": null,
        "long": "The quick brown fox jumps over the lazy dog, twice and once more.",
        "text": "a,b,,c",
        "unicode": "Grüße, Jürgen ❤ 世界",
        "spaced": "  two  words ",
        "list": ["b", "a", "c", "a"],
        "numbers": [3, 1, 2],
        "mixed": ["x", 1, true, null, {"k": "v"}],
        "map": {"b": "2", "a": "1", "n": {"deep": {"er": "found"}}},
        "other": {"b": "9", "c": "3"},
        "maps": [{"id": "x", "v": 1}, {"id": "y", "v": 2}, {"w": 3}],
        "yaml": "a: 1\nb:\n  - x\n  - y\n",
        "array": "[1, \"two\", {\"three\": 3}]",
        "path": {"path": "apps/one/dev", "basename": "dev", "segments": ["apps", "one", "dev"]},
        "metadata": {"labels": {"env/kind": "dev"}, "annotations": {}},
    })
}

fn ours(text: &str, parameters: &Value, missing_key: MissingKey) -> Result<String, String> {
    let engine = TemplateEngine::GoTemplate { missing_key };
    let compiled = CompiledTemplate::value(engine, &json!(text)).map_err(|error| error.to_string())?;
    let rendered = compiled.render(
        parameters.as_object().unwrap(),
        &GenerationBudget::new(GenerationLimits::default()),
    );
    match rendered.map_err(|error| error.to_string())? {
        Value::String(text) => Ok(text),
        other => panic!("the template rendered as {other}, not as a string"),
    }
}

#[test]
fn every_text_renders_as_argo_cd_renders_it() {
    let judge = Judge::start();
    let parameters = parameters();
    let options = [
        (MissingKey::Default, &[][..]),
        (MissingKey::Zero, &["missingkey=zero"][..]),
        (MissingKey::Error, &["missingkey=error"][..]),
    ];
    let (mut wrong, mut rendered) = (Vec::new(), 0);
    for text in &texts() {
        for (missing_key, options) in &options {
            let theirs = judge.render(text, &parameters, options);
            match (ours(text, &parameters, *missing_key), theirs) {
                (Ok(ours), Ok(theirs)) if ours == theirs => rendered += 1,
                (Err(_), Err(_)) => {}
                (ours, theirs) => {
                    wrong.push(format!("{text}  {options:?}\n  ours   {ours:?}\n  theirs {theirs:?}"));
                    break;
                }
            }
        }
    }
    assert!(
        wrong.is_empty(),
        "{} templates render differently:\n{}",
        wrong.len(),
        wrong.join("\n")
    );
    // Templates that fail on both sides prove little.
    assert!(rendered > 3 * 400, "{rendered}");
}

#[test]
fn functions_that_are_not_offered_are_refused_as_such() {
    let judge = Judge::start();
    for text in REFUSED.lines().filter(|line| !line.starts_with("# ")) {
        let error = ours(text, &parameters(), MissingKey::Default).unwrap_err();
        assert!(error.contains("is not offered"), "{error}");
        // Argo CD has the function: its template renders, or the call fails.
        let theirs = judge.render(text, &parameters(), &[]);
        assert!(
            theirs
                .as_ref()
                .err()
                .is_none_or(|error| error.contains("error calling")),
            "{theirs:?}"
        );
    }
}

/// The two tables together mention every function of Argo CD.
#[test]
fn every_function_is_in_a_text() {
    let mut answer = Judge::start().ask(&json!({"kind": "functions"})).unwrap();
    let known: BTreeSet<String> = serde_json::from_value(answer["value"].take()).unwrap();
    assert!(known.len() > 180, "{}", known.len());
    let words = |line: &'static str| line.split(|c: char| c != '_' && !c.is_ascii_alphanumeric());
    let called: BTreeSet<&str> = TEXTS.lines().chain(REFUSED.lines()).flat_map(words).collect();
    let missing: Vec<&String> = known.iter().filter(|name| !called.contains(name.as_str())).collect();
    assert!(missing.is_empty(), "{missing:?}");
}
