use super::{InputDependencies, RequestParts};
use crate::compile;
use crate::front::Front;
use crate::source::BundleSource;

/// What a bundle reads if its decision depends on `condition`. `imports` are lines in front of the
/// rule.
fn dependencies(imports: &str, condition: &str) -> InputDependencies {
    let policy = format!(
        "package tollgate.extensions\n{imports}\n\ndefault decision := {{\"allow\": false}}\n\n\
         decision := {{\"allow\": true}} if {{\n\t{condition}\n}}\n"
    );
    read_files(&[("policy.rego", &policy), ("cases.yaml", "[]")])
}

fn read_files(files: &[(&str, &str)]) -> InputDependencies {
    read_for(Front::Extensions, files)
}

fn read_for(front: Front, files: &[(&str, &str)]) -> InputDependencies {
    let folder = tempfile::tempdir().unwrap();
    for (name, text) in files {
        std::fs::write(folder.path().join(name), text).unwrap();
    }
    let source = BundleSource::read(folder.path(), front);
    let source = source.value.unwrap_or_else(|| panic!("{:?}", source.diagnostics));
    compile::compile_on_large_stack(&source)
        .map(|compiled| compiled.dependencies)
        .unwrap()
}

#[test]
fn a_policy_that_does_not_read_the_request_does_not_depend_on_it() {
    for condition in [
        "true",
        "input.rbac.extensions_invoke.allow",
        "input.application.project == input.request.project",
        "input[\"request\"][\"project\"] == \"p\"",
        "\"a\" in input.principal.groups",
        "some key; input.principal[key] == \"x\"",
        "input.destination.permitted; input.extension.scope == \"application\"",
    ] {
        assert_eq!(dependencies("", condition), InputDependencies::default(), "{condition}");
    }
}

#[test]
fn every_access_to_the_request_counts() {
    use RequestParts::{All, Method};
    for (condition, expected) in [
        ("input.request.method == \"GET\"", Method),
        ("input[\"request\"].method in {\"GET\"}", Method),
        ("not input.request.method == \"POST\"", Method),
        ("input.request.path == \"/\"", All),
        ("input.request.query", All),
        (
            "input.request.method == \"GET\"; startswith(input.request.path, \"/api\")",
            All,
        ),
        ("count(input.request) == 3", All),
        ("some key; input.request[key] == \"/\"", All),
        ("part := \"request\"; input[part].path == \"/\"", All),
        ("x := input; x.request.path == \"/\"", All),
        ("object.get(input, [\"request\", \"path\"], \"\") == \"/\"", All),
        ("{p | p := input.request.path} == {\"/\"}", All),
        ("every x in [1] { input.request.path == \"/\"; x == 1 }", All),
        ("count([x | some x in input.request]) == 3", All),
        ("{\"a\": input.request.path}.a == \"/\"", All),
        ("input.request.path in {\"/\"}", All),
    ] {
        assert_eq!(dependencies("", condition).request, expected, "{condition}");
    }
}

#[test]
fn imported_parts_of_the_input_count_as_read_whole() {
    assert_eq!(
        dependencies("import input.request as r", "r.path == \"/\"").request,
        RequestParts::All
    );
    assert_eq!(
        dependencies("import input.request.method", "method == \"GET\"").request,
        RequestParts::Method
    );
    assert_eq!(
        dependencies("import input.principal as p", "p.id == \"a\""),
        InputDependencies::default()
    );
}

#[test]
fn rules_and_functions_count_like_the_decision() {
    let called = "decide(x) if x.path == \"/\"";
    assert_eq!(dependencies(called, "decide(input.request)").request, RequestParts::All);
    let elsewhere = "unused contains input.request.path";
    assert_eq!(dependencies(elsewhere, "true").request, RequestParts::All);
}

#[test]
fn only_policies_that_read_candidates_depend_on_them() {
    for (condition, expected) in [
        ("input.rbac.extensions_invoke.allow", false),
        ("input.rbac.candidates[_].effect == \"deny\"", true),
        ("count(input.rbac) == 3", true),
        ("some x in input[\"rbac\"][\"candidates\"]; x.effect == \"deny\"", true),
        ("count(input) == 3", true),
    ] {
        assert_eq!(dependencies("", condition).candidates, expected, "{condition}");
    }
}

#[test]
fn a_cel_condition_depends_on_everything() {
    let policy = "package tollgate.extensions\n\ndefault decision := {\"allow\": false}\n";
    let condition = "matchConditions:\n- name: n\n  expression: input.principal.id == 'a'\n  message: no\n";
    let found = read_files(&[
        ("policy.rego", policy),
        ("own.cel.yaml", condition),
        ("cases.yaml", "[]"),
    ]);
    assert_eq!(
        found,
        InputDependencies {
            request: RequestParts::All,
            time: true,
            candidates: true,
            content: false,
        }
    );
}

#[test]
fn what_can_be_in_the_content_of_a_call_counts() {
    for (condition, expected) in [
        ("input.request.method == \"Sync\"", false),
        (
            "input.request.service == \"a\"; input.time == \"\"; input.reason == \"\"",
            false,
        ),
        ("\"a\" in input.principal.groups; input.request.known", false),
        ("input.request.project == \"a\"", true),
        ("input.request.action == \"override\"", true),
        ("input.application.labels.tier == \"prod\"", true),
        ("some key; input.request[key] == \"a\"", true),
        ("count(input) == 3", true),
    ] {
        let policy = format!(
            "package tollgate.argocd\n\ndefault decision := {{\"allow\": false}}\n\n\
             decision := {{\"allow\": true}} if {{\n\t{condition}\n}}\n"
        );
        let files = [("policy.rego", &*policy), ("cases.yaml", "[]")];
        assert_eq!(read_for(Front::Argocd, &files).content, expected, "{condition}");
    }
}

#[test]
fn a_policy_that_reads_the_time_decides_each_request() {
    for (condition, expected) in [
        ("time.weekday(time.parse_rfc3339_ns(input.time)) == \"Friday\"", true),
        ("count(input) == 3", true),
        ("input.principal.id == \"time\"", false),
    ] {
        let found = dependencies("", condition);
        assert_eq!(found.time, expected, "{condition}");
        assert_eq!(found.request == RequestParts::All, expected, "{condition}");
    }
}
