//! Runs the cases of `glob.yaml`.

use serde::Deserialize;
use tollgate_core::glob::{
    ListMode, Negation, Pattern, matches_list, matches_negatable, namespace_enabled, quote_meta, source_permitted,
};

use crate::suite::{Case, Suite, Table, same};

/// Kinds of the glob table.
pub(crate) struct Globs;

impl Suite for Globs {
    fn covers(&self, table: &Table, kind: &str) -> bool {
        table.subject.contains("glob")
            && matches!(
                kind,
                "match"
                    | "match_list"
                    | "match_negatable"
                    | "namespace_enabled"
                    | "project_source_permitted"
                    | "quote_meta"
            )
    }

    fn run(&self, _table: &Table, case: &Case) -> Result<(), String> {
        match case.kind.as_str() {
            "match" => one(&case.read()?),
            "match_list" => list(&case.read()?),
            "match_negatable" => negatable(&case.read()?),
            "namespace_enabled" => namespace(&case.read()?),
            "project_source_permitted" => source(&case.read()?),
            "quote_meta" => quote(&case.read()?),
            other => Err(format!("no handler for `{other}`")),
        }
    }
}

fn separators(text: &str) -> Vec<char> {
    text.chars().collect()
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Match {
    pattern: String,
    text: String,
    #[serde(default)]
    separators: String,
    expected: bool,
    expected_compile_error_contains: Option<String>,
}

fn one(case: &Match) -> Result<(), String> {
    let compiled = Pattern::compile(&case.pattern, &separators(&case.separators));
    match (&compiled, &case.expected_compile_error_contains) {
        (Ok(_), Some(words)) => return Err(format!("compiles, expected an error with `{words}`")),
        (Err(error), None) if case.expected => return Err(format!("does not compile: {error}")),
        (Err(error), Some(words)) if !error.to_string().contains(words) => {
            return Err(format!("error is `{error}`, expected `{words}` in it"));
        }
        _ => {}
    }
    same(
        &case.expected,
        &compiled.is_ok_and(|pattern| pattern.matches(&case.text)),
    )
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct List {
    list: Option<Vec<String>>,
    mode: Mode,
    text: String,
    expected: bool,
}

#[derive(Clone, Copy, Deserialize)]
#[serde(rename_all = "lowercase")]
enum Mode {
    Exact,
    Glob,
    Regexp,
}

fn list(case: &List) -> Result<(), String> {
    let mode = match case.mode {
        Mode::Exact => ListMode::Exact,
        Mode::Glob => ListMode::Glob,
        Mode::Regexp => ListMode::Regexp,
    };
    same(
        &case.expected,
        &matches_list(mode, case.list.as_deref().unwrap_or_default(), &case.text),
    )
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Negatable {
    pattern: String,
    text: String,
    allow_negation: bool,
    #[serde(default)]
    separators: String,
    expected: bool,
}

fn negatable(case: &Negatable) -> Result<(), String> {
    let negation = if case.allow_negation {
        Negation::Allowed
    } else {
        Negation::Literal
    };
    let observed = matches_negatable(&case.pattern, &case.text, negation, &separators(&case.separators));
    same(&case.expected, &observed)
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Namespace {
    namespace: String,
    control_plane_namespace: String,
    enabled_namespaces: Option<Vec<String>>,
    expected: bool,
}

fn namespace(case: &Namespace) -> Result<(), String> {
    let enabled = case.enabled_namespaces.as_deref().unwrap_or_default();
    same(
        &case.expected,
        &namespace_enabled(&case.namespace, &case.control_plane_namespace, enabled),
    )
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Source {
    source_repos: Option<Vec<String>>,
    app_repo: String,
    separators: Option<String>,
    expected: bool,
}

fn source(case: &Source) -> Result<(), String> {
    if case.separators.as_deref().is_some_and(|separators| separators != "/") {
        return Err("`sourceRepos` has only the separator `/`".to_owned());
    }
    same(
        &case.expected,
        &source_permitted(case.source_repos.as_deref().unwrap_or_default(), &case.app_repo),
    )
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Quote {
    input: String,
    expected_pattern: String,
    then_matches_only: Option<String>,
}

fn quote(case: &Quote) -> Result<(), String> {
    let quoted = quote_meta(&case.input);
    same(&case.expected_pattern, &quoted)?;
    let pattern = Pattern::compile(&quoted, &[]).map_err(|error| error.to_string())?;
    match &case.then_matches_only {
        Some(only) => same(&Some(only.as_str()), &pattern.literal())
            .and_then(|()| same(&true, &pattern.matches(only)))
            .and_then(|()| same(&false, &pattern.matches(&format!("{only}x")))),
        None => Ok(()),
    }
}
