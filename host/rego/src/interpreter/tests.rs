use std::time::Duration;

use regorus::Value;
use serde_json::{Value as Json, json};

use crate::bundle::Bundle;
use crate::compile;
use crate::error::Error;
use crate::front::Front;
use crate::graph::MAX_LEVELS;
use crate::limits::{MAX_MEMORY_BYTES, MAX_STACK_BYTES};
use crate::source::{BundleSource, File, FileKind};

/// No test of what a policy gives depends on how fast this machine is.
const NO_TIME_LIMIT: Duration = Duration::from_secs(3_600);

/// A policy that permits what no rule denies. `X` stands for a label, which can be anything.
fn source(deny: &str, rules: &str) -> BundleSource {
    source_with("", deny, rules)
}

/// The same with an import.
fn source_with(import: &str, deny: &str, rules: &str) -> BundleSource {
    let text = format!(
        "package tollgate.extensions\n{import}\n\
         default decision := {{\"allow\": false, \"reason\": \"no\"}}\n\n\
         decision := {{\"allow\": true, \"reason\": \"yes\"}} if count(deny) == 0\n\n\
         deny contains \"denied\" if {{\n\t{deny}\n}}\n\n{rules}\n"
    );
    let file = |kind, path: &str, text| File {
        kind,
        path: path.into(),
        stem: path.split('.').next().unwrap().into(),
        text,
    };
    BundleSource::new(
        Front::Extensions,
        vec![
            file(
                FileKind::Policy,
                "policy.rego",
                text.replace('X', "input.application.labels.x"),
            ),
            file(
                FileKind::Data,
                "names.yaml",
                "by_number: {\"1\": one}\nlist: [a, b]\norder: [1, 0, x]\ntexts: [a, \"1\"]\n".into(),
            ),
        ],
    )
}

#[track_caller]
fn bundle(deny: &str, rules: &str) -> Bundle {
    Bundle::unchecked(&source(deny, rules)).unwrap_or_else(|| {
        panic!(
            "{deny}: {:?}",
            compile::compile_on_large_stack(&source(deny, rules)).err()
        )
    })
}

#[expect(clippy::needless_pass_by_value, reason = "callers write literals")]
fn decide(bundle: &Bundle, labels: Json) -> Result<bool, Error> {
    let input = json!({"application": {"labels": labels}});
    let decision = bundle.decide_within(&Value::from(input), NO_TIME_LIMIT);
    decision.map(|decision| decision.allow)
}

/// The failure of a decision about a label, as text.
#[expect(clippy::needless_pass_by_value, reason = "callers write literals")]
#[track_caller]
fn failure(deny: &str, rules: &str, x: Json) -> String {
    let bundle = bundle(deny, rules);
    let shown = x.to_string();
    match decide(&bundle, json!({"x": x})) {
        Err(error) => error.to_string(),
        Ok(allowed) => panic!("`{deny}` for {shown}: allowed is {allowed}"),
    }
}

#[test]
fn a_function_or_operator_that_fails_never_permits() {
    let small = "small(y) if to_number(y) < 100";
    for (deny, rules, failing, good, denied) in [
        (
            "y := X\n\tnot to_number(y) < 100",
            "",
            json!("alice"),
            json!("5"),
            json!("500"),
        ),
        (
            "some y in [X]\n\tnot to_number(y) < 100",
            "",
            json!("alice"),
            json!("5"),
            json!("500"),
        ),
        (
            "y := X\n\tnot small(y)",
            small,
            json!("alice"),
            json!("5"),
            json!("500"),
        ),
        (
            "count([y | some y in [X]; small(y)]) == 0",
            small,
            json!("alice"),
            json!("5"),
            json!("500"),
        ),
        (
            "count({y | some y in [X]; to_number(y) < 100}) == 0",
            "",
            json!("alice"),
            json!("5"),
            json!("500"),
        ),
        (
            "count({y: 1 | some y in [X]; to_number(y) < 100}) == 0",
            "",
            json!("alice"),
            json!("5"),
            json!("500"),
        ),
        (
            "not all",
            "all if every y in [X] { to_number(y) < 100 }",
            json!("alice"),
            json!("5"),
            json!("500"),
        ),
        (
            "level > 1",
            "level := 1 if {\n\tto_number(X) < 100\n} else := 2",
            json!("alice"),
            json!("5"),
            json!("500"),
        ),
        (
            "level(X) > 1",
            "level(y) := 1 if {\n\tto_number(y) < 100\n} else := 2",
            json!("alice"),
            json!("5"),
            json!("500"),
        ),
        (
            "count(few) == 0",
            "few contains y if {\n\tsome y in [X]\n\tto_number(y) < 100\n}",
            json!("alice"),
            json!("5"),
            json!("500"),
        ),
        (
            "not few.a",
            "few[\"a\"] if to_number(X) < 100",
            json!("alice"),
            json!("5"),
            json!("500"),
        ),
        (
            "max([to_number(X)]) > 100",
            "",
            json!("alice"),
            json!("5"),
            json!("500"),
        ),
        ("v := X; not 10 / v == 5", "", json!(0), json!(2), json!(4)),
        ("v := X; not 10 % v == 0", "", json!(1.5), json!(2), json!(3)),
        ("v := X; not v + 1 == 3", "", json!("a"), json!(2), json!(3)),
        ("v := X; not v - {1} == {2}", "", json!(3), json!(null), json!(null)),
        (
            "v := X; not startswith(v, \"a\")",
            "",
            json!(5),
            json!("ab"),
            json!("b"),
        ),
        (
            "v := X; not substring(v, -1, 1) == \"a\"",
            "",
            json!("a"),
            json!(null),
            json!(null),
        ),
        (
            "v := X; not semver.compare(v, \"1.0.0\") == 0",
            "",
            json!("one"),
            json!("1.0.0"),
            json!("1.0.1"),
        ),
        (
            "v := X; not time.parse_rfc3339_ns(v) > 0",
            "",
            json!("yesterday"),
            json!("2026-11-27T17:30:00Z"),
            json!("1950-11-27T17:30:00Z"),
        ),
        (
            "v := X; not upper(v) == \"A\"",
            "",
            json!(["a"]),
            json!("a"),
            json!("b"),
        ),
        ("v := X; not count(v) == 1", "", json!(1), json!([1]), json!([1, 2])),
        ("indexof(\"abc\", X) == 1", "", json!(""), json!("a"), json!("b")),
        ("upper(X) == \"B\"", "", json!("ß"), json!("a"), json!("b")),
        ("ceil(X) == 2", "", json!(-0.5), json!(0.5), json!(1.5)),
        ("format_int(X, 10) == \"2\"", "", json!(-0.5), json!(1), json!(2)),
    ] {
        let failed = failure(deny, rules, failing.clone());
        assert!(
            failed.starts_with("the policy failed: policy.rego:"),
            "{deny}: {failed}"
        );
        if good.is_null() {
            continue;
        }
        let bundle = bundle(deny, rules);
        for _ in 0..3 {
            // What a failure leaves behind does not reach the next decision.
            assert!(decide(&bundle, json!({"x": failing})).is_err(), "{deny}");
            assert_eq!(decide(&bundle, json!({"x": good})), Ok(true), "{deny}");
            assert_eq!(decide(&bundle, json!({"x": denied})), Ok(false), "{deny}");
        }
    }
}

/// A value that makes a function fail must not be put before the one that is denied.
#[test]
fn a_failure_within_a_loop_does_not_end_the_rule_alone() {
    let deny = "some y in X\n\tto_number(y) > 100";
    let bundle = bundle(deny, "");
    for labels in [json!(["alice", "500"]), json!(["5", "alice"]), json!([["1"], "500"])] {
        assert!(matches!(
            decide(&bundle, json!({"x": labels})),
            Err(Error::Evaluation(_))
        ));
    }
    assert_eq!(decide(&bundle, json!({"x": ["5", "500"]})), Ok(false));
    assert_eq!(decide(&bundle, json!({"x": ["5"]})), Ok(true));
}

#[test]
fn a_failure_says_where_and_what_without_values() {
    for (deny, rules, x, what) in [
        (
            "to_number(X) > 1",
            "",
            json!("secret"),
            "8: `to_number` failed, given string",
        ),
        (
            "f(X)",
            "f(y) if {\n\ttrue\n\tcontains(y, \"a\")\n}",
            json!(77),
            "13: `contains` failed, given number, string",
        ),
        ("1 / X > 1", "", json!(0), "8: division by zero"),
        ("1 % X > 1", "", json!(0), "8: remainder of a division by zero"),
        (
            "X + 1 > 1",
            "",
            json!("secret"),
            "8: an operator of numbers has an operand that is no number",
        ),
        (
            "y := X | {1}\n\ty == {1}",
            "",
            json!("secret"),
            "8: an operator of sets has an operand that is no set",
        ),
        (
            "some y in X",
            "",
            json!("secret"),
            "8: `some … in` has no array, object or set",
        ),
        (
            "X / 3 > 1",
            "",
            json!(5),
            "8: the result of an operator or function of numbers needs more digits than are kept",
        ),
        (
            "{1 | true} > X",
            "",
            json!({"secret": 1}),
            "8: an order of a set and an object",
        ),
        (
            "{\"secret\": 1, X: 2} == X",
            "",
            json!("secret"),
            "8: an object has the same key twice",
        ),
        // The text of an argument is not taken for the engine's.
        (
            "to_number(X) > 1",
            "",
            json!("execution exceeded time limit"),
            "8: `to_number` failed, given string",
        ),
        (
            "X + 1 > 1",
            "",
            json!("` failed, given secret"),
            "8: an operator of numbers has an operand that is no number",
        ),
    ] {
        let failed = failure(deny, rules, x);
        assert_eq!(failed, format!("the policy failed: policy.rego:{what}"), "{deny}");
    }
}

#[test]
fn two_values_of_one_rule_are_a_failure() {
    for (deny, rules) in [
        ("tier == \"none\"", "tier := \"gold\" if X.a\n\ntier := \"base\" if X.b"),
        ("tier == \"none\"", "tier := n if some n, true in X"),
        (
            "tier(X) == \"none\"",
            "tier(y) := \"gold\" if y.a\n\ntier(y) := \"base\" if y.b",
        ),
        ("tier(X) == \"none\"", "tier(y) := n if some n, true in y"),
        (
            "tiers.t == \"none\"",
            "tiers[\"t\"] := \"gold\" if X.a\n\ntiers[\"t\"] := \"base\" if X.b",
        ),
        (
            "tiers.t == \"none\"",
            "tiers[k] := n if {\n\tsome n, true in X\n\tk := \"t\"\n}",
        ),
        ("{\"t\": n | some n, true in X}.t == \"none\"", ""),
    ] {
        let bundle = bundle(deny, rules);
        let both = decide(&bundle, json!({"x": {"a": true, "b": true}}));
        assert!(
            matches!(&both, Err(Error::Evaluation(text)) if text.starts_with("policy.rego:") && !text.contains("could not")),
            "{deny}: {both:?}"
        );
        assert_eq!(decide(&bundle, json!({"x": {"a": true}})), Ok(true), "{deny}");
        assert_eq!(decide(&bundle, json!({"x": {"b": true}})), Ok(true), "{deny}");
    }
}

#[test]
fn membership_with_a_key_compares_the_key() {
    let bundle = bundle("not member", "member if \"team\", \"blue\" in X");
    assert_eq!(decide(&bundle, json!({"x": {"team": "blue"}})), Ok(true));
    for x in [
        json!({"team": "red", "color": "blue"}),
        json!({}),
        json!(["blue"]),
        json!("blue"),
        json!(null),
    ] {
        assert_eq!(decide(&bundle, json!({"x": x})), Ok(false), "{x}");
    }
    let bundle = super::tests::bundle("team := input.application.labels.team\n\t0, team in X", "");
    assert_eq!(decide(&bundle, json!({"x": ["a"], "team": "a"})), Ok(false));
    assert_eq!(decide(&bundle, json!({"x": ["b", "a"], "team": "a"})), Ok(true));
}

#[test]
fn values_of_different_types_have_an_order() {
    let bundle = bundle("X > 10", "");
    for (x, allowed) in [
        (json!(null), true),
        (json!(true), true),
        (json!(9), true),
        (json!(11), false),
        (json!("1"), false),
        (json!([]), false),
        (json!({}), false),
    ] {
        assert_eq!(decide(&bundle, json!({"x": x})), Ok(allowed), "{x}");
    }
}

#[test]
fn numbers_are_those_of_opa() {
    for (deny, x, is_denied) in [
        ("X + 0.2 == 0.3", json!(0.1), true),
        ("sum([X, 0.2, 0.3]) == 0.6", json!(0.1), true),
        ("X * 3 == 0.3", json!(0.1), true),
        ("X / 4 == 0.25", json!(1), true),
        ("floor(X) == 3", json!(3.5), true),
        ("X + 1 == 9007199254740994", json!(9_007_199_254_740_993_i64), true),
        ("X * 10 == 90071992547409930", json!(9_007_199_254_740_993_i64), true),
        (
            "to_number(X) == 12345678901234567890123",
            json!("12345678901234567890123"),
            true,
        ),
        ("X == 0.3", json!(0.300_000_000_000_000_04), false),
    ] {
        let decision = decide(&bundle(deny, ""), json!({"x": x}));
        assert_eq!(decision, Ok(!is_denied), "{deny} for {x}");
    }
    for (deny, x) in [
        ("X / 3 > 1", json!(1)),
        ("X + 2.2 > 9", json!(1.1)),
        ("X - 0.6 > 9", json!(0.7)),
        ("sum([X, 2.2]) > 9", json!(1.1)),
        ("to_number(X) > 9", json!("0.30000000000000000001")),
        ("to_number(X) > 9", json!("1e400")),
        ("X == 9", json!(1e23)),
        ("X[1.5] == 9", json!(1.0)),
        ("to_number(X) > 9", json!("1.0")),
        ("sprintf(\"%v\", [X]) == \"\"", json!([0.5])),
        ("X / -5 > 9", json!(0)),
    ] {
        let decision = decide(&bundle(deny, ""), json!({"x": x}));
        assert!(
            matches!(decision, Err(Error::Evaluation(_))),
            "{deny} for {x}: {decision:?}"
        );
    }
}

#[test]
fn an_object_with_computed_keys_has_all_of_them() {
    let bundle = bundle("{\"a\": 1, X: 2} == {\"a\": 1, \"b\": 2}", "");
    assert_eq!(decide(&bundle, json!({"x": "b"})), Ok(false));
    assert_eq!(decide(&bundle, json!({"x": "c"})), Ok(true));
    assert!(matches!(decide(&bundle, json!({"x": "a"})), Err(Error::Evaluation(_))));
}

#[test]
fn an_else_follows_a_value_that_is_undefined() {
    let rules = "f(y) := z if {\n\tz := y.missing\n} else := 1\n\nr := X.missing if {\n\tX\n} else := 1";
    for deny in ["y := f(X)\n\tnot y == 1", "not r == 1"] {
        assert_eq!(decide(&bundle(deny, rules), json!({"x": {}})), Ok(true), "{deny}");
        assert_eq!(
            decide(&bundle(deny, rules), json!({"x": {"missing": 2}})),
            Ok(false),
            "{deny}"
        );
    }
}

#[track_caller]
fn refused(deny: &str, rules: &str, message: &str) {
    refused_with("", deny, rules, message);
}

#[track_caller]
fn refused_with(import: &str, deny: &str, rules: &str, message: &str) {
    let found = compile::compile_on_large_stack(&source_with(import, deny, rules)).expect_err(deny);
    let [finding] = found.as_slice() else {
        panic!("{deny}: {found:?}");
    };
    assert!(finding.message.contains(message), "{deny}: {finding}");
    let place = finding.location.as_ref().unwrap();
    assert!(
        &*place.file == "policy.rego" && place.line > 7 && finding.hint.is_some(),
        "{deny}: {finding}"
    );
}

/// Each of these lost a denial: the engine gave `deny` no item where OPA gives it one.
#[test]
fn what_the_engine_would_lose_is_refused() {
    let head = "a part of the head may have no value";
    let alternative = "a value with an index or a comprehension";
    let object = "matches larger objects, too";
    let undeclared = "the engine does not look for values of it";
    let early = "is used before the index that gives it a value";
    let part = "is unsafe";
    let twice = "is declared twice in a body";
    let nested = "before it has a value";
    let every = "the engine does not use the value of";
    let open = "the rule has no value for the engine while it has no entry";
    let brackets = "name with brackets";
    let unclear = "a body that is a comprehension, or begins with a union";
    for (deny, rules, message) in [
        ("some y in r", "r contains data.names.by_number[x] if some x in X", head),
        ("some y in r", "r contains row.why if some row in X", head),
        (
            "some y in r",
            "r contains sprintf(\"%s\", [row.why]) if some row in X",
            head,
        ),
        ("r.a", "r[row.a] := row.b if some row in X", head),
        ("r", "r := row.b if some row in X", head),
        (
            "not r",
            "r := data.names.by_number[t] if { t := X } else := false",
            alternative,
        ),
        (
            "not r",
            "r := {x | some x in [t]} if { t := X } else := false",
            alternative,
        ),
        (
            "f(X)",
            "f(x) := false if x == 1 else if x == 2",
            "an `else` without a value",
        ),
        ("y := X\n\t{\"a\": z} = y\n\tz == 1", "", object),
        ("some {X: y} in X\n\ty == 1", "", object),
        ("some y\n\t{\"b\": y, \"a\": y} = X", "", object),
        ("f(X)", "f({\"a\": y}) if y == 1", object),
        ("some r\n\tX[r] == 1", "r := 1", undeclared),
        (
            "some k in [\"a\"]\n\tX[k]\n\tcount([1 | some k; X[k] == 2]) > 0",
            "",
            undeclared,
        ),
        ("some k\n\tlower(k) = X[k]", "", early),
        ("some i\n\tdata.names.list[X - i] == data.names.list[i]", "", early),
        ("some k\n\tX[k] == lower(k)", "", part),
        ("some k\n\tX[k] == k + 1", "", part),
        ("some k\n\tX[k] != count({1 | X[k] == 7})", "", part),
        ("p := [X[k], lower(k)]\n\tp[0] == p[1]", "", part),
        ("k = lower(k)", "", part),
        ("some k\n\tX[k] == v + 1\n\t[0, k] = v", "", part),
        ("some k\n\tX[k] != [y | y := data.names.by_number[k]]\n\tX[k]", "", part),
        (
            "some k\n\tX[k] = k",
            "",
            "is an index in the statement that gives it a value",
        ),
        ("[count] = X\n\tcount(count) == 1", "", "a variable has its name"),
        (
            "not f(1)",
            "f(x) if { x == 2 } else := X",
            "the value of a function with `else`",
        ),
        ("some contains\n\tX[contains] == 1", "", "is a keyword"),
        ("every y, y in X { y == 1 }", "", "is declared twice in `every`"),
        ("v := X[v]\n\tv == 1", "", "is used in the value that `:=` gives it"),
        ("not true", "", "`not` of a literal"),
        ("X == 9[0]", "", "has no parts"),
        ("[y, 1] = \"a\"\n\ty == X", "", "does not equal a literal"),
        ("not X = y", "", "within `not` has no value there"),
        ("f := X\n\tf(f)", "f(x) := x", "a variable has its name"),
        (
            "every r in [y | y := r] { r == X }",
            "r := 1",
            "is also in what it goes through",
        ),
        ("some k\n\tk := X\n\tk == 1", "", twice),
        (
            "every y in X { y == r }\n\tr := X\n\tr == 1",
            "r := 1",
            "is used before it is declared",
        ),
        ("r == 1\n\tr := X\n\tr == 1", "r := 1", "is used before it is declared"),
        ("some k in X\n\tsome k in data.names.list\n\tk == 1", "", twice),
        ("some i\n\t[i, \"x\"] = X[i]", "", "out of an array or object"),
        (
            "count({k: X[k] | some k}) > 0",
            "",
            "nothing in the body gives `k` a value",
        ),
        ("not data.names.by_number[k]\n\tX[k] == 1", "", nested),
        ("count([1 | y[k]]) > 0\n\tsome k in X\n\ty := {k: 1}", "", nested),
        ("every g in X { r[[g, \"a\"]] }", "r contains [\"x\", \"a\"]", every),
        ("every g in X { lower(g, g) }", "", "the last argument is the result"),
        ("count(r) == 0", "r[x] contains y if { some x in X; some y in X }", open),
        ("count(r) == 0", "r[x].max := 1 if some x in X", open),
        (
            "r.a",
            "default r[\"a\"] := true\n\nr[\"a\"] := false if X == 1",
            brackets,
        ),
        ("r.a", "default r.a := false\n\nr[`a`] := true if X == 1", brackets),
        (
            "r.a.q",
            "r[x].q := true if some x in X\n\nr.a.b := 1",
            "is below a rule and a part of",
        ),
        (
            "type_name := X\n\ttype_name == type_name\n\t(X == 1)",
            "",
            "is taken for its arguments",
        ),
        ("r | s == {\"x\"}", "r contains X\n\ns contains X", unclear),
        (
            "not r",
            "r if { X == 1 } else := true if { {X | s} }\n\ns := {1}",
            unclear,
        ),
        (
            "X == 1",
            "r[\"\\u005f_tollgate_gt\"](a, b) := a == b",
            "begins with `__tollgate_`",
        ),
    ] {
        let found = compile::compile_on_large_stack(&source(deny, rules)).expect_err(deny);
        let is_said = found.iter().any(|finding| finding.message.contains(message));
        assert!(is_said, "{deny} / {rules}: {found:?}");
    }
    // What is near to them, and means the same to both.
    for (deny, rules) in [
        ("some y in r", "r contains why if { some row in X; why := row.why }"),
        ("not r", "r := value if { t := X; value := t.a } else := false"),
        ("f(X)", "f(x) := false if x == 1 else := true if x == 2"),
        ("{\"a\": y, \"b\": 1} = {\"a\": X, \"b\": 1}\n\ty == 1", ""),
        ("X = {\"a\": 1}", ""),
        ("some i\n\tX[i] == 1", ""),
        ("some k\n\tX[k] == k", ""),
        ("some k\n\tX[k] + k == 2", ""),
        ("some k\n\tcount(X[k]) == k", ""),
        ("some k\n\tX[k] == count(r[k])", "r := {\"a\": [1]}"),
        ("some i, j\n\tX[i] == X[j]", ""),
        ("X[k] == 1\n\tnot r[k]", "r := {\"a\": true}"),
        ("k := X\n\tnot r[k]", "r := {\"a\": true}"),
        ("every g in X { r[g] }", "r contains \"x\""),
        ("every k, v in X { v == r[k] }", "r := {\"a\": true}"),
        ("count(r) == 0", "r[x] := 1 if some x in X"),
        ("r.a", "default r.a := true\n\nr.a := false if X == 1"),
        ("y := r | s\n\ty == {\"x\"}", "r contains X\n\ns contains X"),
        // No decision needs it.
        ("X == 1", "f({\"a\": y}) if y == 1"),
    ] {
        bundle(deny, rules);
    }
}

#[test]
fn objects_give_values_only_of_objects_with_the_same_keys() {
    for (deny, smaller, larger) in [
        ("{\"a\": y} = X\n\ty == 1", json!({"a": 1}), json!({"a": 1, "b": 2})),
        (
            "X = {\"a\": [y, {\"b\": 1}]}\n\ty == 1",
            json!({"a": [1, {"b": 1}]}),
            json!({"a": [1, {"b": 1, "c": 2}]}),
        ),
        (
            "some {\"a\": y} in X\n\ty == 1",
            json!([{"b": 2}, {"a": 1}]),
            json!([{"a": 1, "b": 2}]),
        ),
        (
            "some i, {\"a\": y} in X\n\ti == 1\n\ty == 1",
            json!([{}, {"a": 1}]),
            json!([{"a": 1}, {"a": 1, "b": 2}]),
        ),
        (
            "some k, {\"a\": y} in X\n\tk == \"t\"\n\ty == 1",
            json!({"t": {"a": 1}}),
            json!({"t": {"a": 1, "b": 2}}),
        ),
    ] {
        let bundle = bundle(deny, "");
        assert_eq!(decide(&bundle, json!({"x": smaller})), Ok(false), "{deny}");
        assert_eq!(decide(&bundle, json!({"x": larger})), Ok(true), "{deny}");
    }
    assert_eq!(
        failure("some {\"a\": y} in X\n\ty == 1", "", json!("text")),
        failure("some y in X\n\ty == 1", "", json!("text"))
    );
}

/// The engine would call what the policy names so, and the check would look at the built-in function.
#[test]
fn a_built_in_function_with_the_name_of_an_import_or_a_rule_is_refused() {
    let ambiguous = "is a built-in function, and also a name of an import or a rule";
    let call = "count(numbers.range(1, X)) > 0";
    refused_with("import data.names as numbers", call, "", ambiguous);
    refused_with("import input.application as numbers", call, "", ambiguous);
    refused_with("import data.names as lower", "lower(X) == \"a\"", "", ambiguous);
    refused(call, "numbers := {\"range\": 1}", ambiguous);
    assert_eq!(
        decide(&bundle(call, "other := data.names.list"), json!({"x": 2})),
        Ok(false)
    );
}

#[test]
fn what_the_engine_reads_otherwise_than_opa_is_refused() {
    let unbound = "within `not` has no value there";
    refused("not X[_] == 1", "", unbound);
    refused("not X[i] == 1", "", unbound);
    refused("not f(X[_])", "f(y) if y == 1", unbound);
    refused("not \"a\" in X[_].b", "", unbound);
    refused("count([1 | some y in X; not y[_]]) > 0", "", unbound);
    refused("every y in X { not y[_] == 1 }", "", unbound);
    let value = "the value of `key, value in …`";
    refused("\"team\", input.application.labels.y in X", "", value);
    refused("\"team\", wanted in X", "wanted := input.application.labels.y", value);
    let used = "`in` is used as a value";
    refused("member == false", "member := \"a\" in X", used);
    refused("y := \"a\" in X\n\ty == false", "", used);
    refused("f(\"a\" in X)", "f(y) if y == false", used);
    refused("some y in [\"a\" in X]\n\ty == false", "", used);
    let negated = "a part of what is negated may have no value";
    for deny in [
        "not X > 3",
        "not X != 3",
        "not startswith(X, \"a\")",
        "not \"a\" in X",
        "not count(X) == 3",
        "not [X] == [1]",
        "not X[X]",
        "not small(X)",
    ] {
        refused(deny, "small(y) if y < 3", negated);
    }
    refused("every y in [X] { y = 0 }", "", "`=` within `every`");
    refused(
        "count(r) > 0",
        "r := [1 | X = y] if some y in [1]",
        "`=` in the value of a rule",
    );
    refused("-X == 1", "", "negates all that follows");
    refused("{{1} - {2} | {X}} == X", "", "could start a comprehension");
    refused("X == 0.30000000000000000001", "", "cannot be kept as it is written");
    refused(
        "__tollgate_add(X)",
        "__tollgate_add(y) if y > 1",
        "begins with `__tollgate_`",
    );
    refused("X < 1e3", "", "`1e3` is a fraction");
    refused("{X: 1, X: 2} != 3", "", "the same key twice");
    let key = "would find a key such as";
    refused("data.names.by_number[X] == \"one\"", "", key);
    refused("data[\"names\"].by_number[X] == \"one\"", "", key);
    let position = "for the first item of a list";
    refused("data.names.list[X] == \"a\"", "", position);
    refused("data.names.list[\"0\"] == \"a\"", "", position);
    refused("data.names.list[\"+1\"] == X", "", position);
    for before in [
        "some i in X",
        "some i in [\"a\", \"0\"]",
        "some i, v in {\"-1\": X}\n\tv == 1",
        "some [i, v] in [[X, 1]]\n\tv == 1",
        "[v, i] := [X, \"1\"]\n\tv == 1",
        "i := data.names.texts[_]",
        "some i, v in data.names.by_number\n\tv == X",
        "v := [i | i := 1]\n\tv == X\n\ti = \"1\"",
        "v := {\"a\": [X]}\n\ti := v.a[0]",
        "i := upper(X)",
        "i := max([X, 1])",
        "i := zero",
        "X[i] == 1",
        "every i in X { data.names.list[i] == \"a\" }\n\ti := 0",
    ] {
        refused(
            &format!("{before}\n\tdata.names.list[i] == X"),
            "zero := \"0\"",
            position,
        );
    }
    for rule in [
        "item(i) := data.names.list[i]",
        "item(y) := data.names.list[i] if i := y",
        "item(y) := [data.names.list[i] | i := y]",
        "item(y) := {i: data.names.list[i] | some i in y}",
    ] {
        refused("item(X) == \"a\"", rule, position);
        refused("item(X) == \"a\"", &rule.replace("list", "by_number"), key);
    }
    let chain: String = (1..60)
        .map(|at| format!("v{at} := [v{}, v{}]\n\t", at - 1, at - 1))
        .collect();
    let steps = "[0]".repeat(59);
    refused(
        &format!("v0 := 1\n\t{chain}data.names.list[v59{steps}] == X"),
        "",
        position,
    );
    let overlapping = "is below a rule";
    refused(
        "r.b.c[X]",
        "r[q].c contains q if q := X\n\nr.b.c contains \"d\"",
        overlapping,
    );
    let result = "the result of this function";
    refused("array.flatten(X, [y])\n\ty == 1", "", result);
    refused("y := [1]\n\tnot array.flatten([1], y)", "", result);
    refused(
        "z := [2]\n\tevery y in [1] { array.flatten([y], z) }",
        "",
        "`=` within `every`",
    );
    refused(
        "__tollgate_x := X\n\t__tollgate_x == 1",
        "",
        "begins with `__tollgate_`",
    );
}

#[test]
fn a_variable_with_the_name_of_an_import_is_not_what_is_imported() {
    let mut source = source("order := X\n\tdata.names.list[order] == \"a\"", "");
    source.files[0].text = source.files[0]
        .text
        .replace("\n\ndefault", "\n\nimport data.names.order\n\ndefault");
    let found = compile::compile_on_large_stack(&source).unwrap_err();
    assert!(found[0].message.contains("for the first item of a list"), "{found:?}");
}

#[test]
fn what_is_near_to_a_refused_construct_is_not_refused() {
    for (deny, rules, x, allowed) in [
        ("some i in [0, 1]\n\tnot X[i] == 1", "", json!([1, 1]), true),
        ("X[i] == 1\n\tnot X[i] == 1", "", json!([1, 2]), true),
        ("not X == 3", "", json!(4), false),
        ("y := X\n\tnot y > 3", "", json!(4), true),
        ("{1 | true} > {X | true}", "", json!(0), false),
        ("not some_one", "some_one if X[_] == 1", json!([2, 1]), true),
        ("not some_one", "some_one if X[_] == 1", json!([2, 3]), false),
        ("not {y | y := X[_]} == {1}", "", json!([1]), true),
        ("every y in X { not y == 1 }", "", json!([1]), true),
        ("not X[method]", "method := \"a\"", json!({"a": true}), true),
        ("member", "member if \"a\" in X", json!(["b"]), true),
        ("y := 1 in [1, 2]\n\ty == false", "", json!(1), true),
        ("l := data.names.list\n\tl[X] == \"b\"", "", json!(0), true),
        ("data.names.list[1] == \"b\"", "", json!(0), false),
        ("data.names.list[_] == X", "", json!("b"), false),
        ("data.names.list[count(X)] == \"b\"", "", json!([7]), false),
        ("data.names.list[X - 1] == \"b\"", "", json!(2), false),
        ("some i in [1, \"x\"]\n\tdata.names.list[i] == X", "", json!("b"), false),
        (
            "some i, v in X\n\ti = 1\n\tv == 7\n\tj := i - 1\n\tdata.names.list[j] == \"a\"",
            "",
            json!([7, 7]),
            false,
        ),
        (
            "some i in numbers.range(1, X)\n\tdata.names.list[i] == \"a\"",
            "",
            json!(5),
            true,
        ),
        (
            "some i in data.names.order\n\tdata.names.list[i] == X",
            "",
            json!("b"),
            false,
        ),
        ("data.names.list[data.names.order[_]] == X", "", json!("b"), false),
        (
            "data.names.list[i] == X\n\tdata.names.order[i] == 0",
            "",
            json!("b"),
            false,
        ),
        (
            "data.names.list[i] == X\n\tdata.names.order[i] == 0",
            "",
            json!("a"),
            true,
        ),
        ("data.names.list[i] == X\n\ti = 1", "", json!("b"), false),
        ("data.names.list[[0]] == X", "", json!("a"), true),
        (
            "v := {\"a\": [0, 1]}\n\ti := v.a[_]\n\tdata.names.list[i] == X",
            "",
            json!("b"),
            false,
        ),
        ("every i in [0, 1] { data.names.list[i] != X }", "", json!("c"), false),
        (
            "d",
            "other[k] := 1 if some k in [\"1\"]\n\nd if data.tollgate.extensions.other[X]",
            json!(1),
            true,
        ),
        (
            "d",
            "other[k] := 1 if some k in [\"1\"]\n\nd if data.tollgate.extensions.other[X]",
            json!("1"),
            false,
        ),
        ("array.flatten(X, y)\n\ty == [1, 2]", "", json!([[1], 2]), false),
        ("y := [1]\n\tarray.flatten(X, y)", "", json!([[1], 2]), true),
        (
            "net.cidr_contains(\"10.0.0.0/8\", X, true)",
            "",
            json!("10.0.0.1"),
            false,
        ),
        (
            "net.cidr_contains(\"10.0.0.0/8\", X, false)",
            "",
            json!("10.0.0.1"),
            true,
        ),
        ("m := data.names.by_number\n\tm[X] == \"one\"", "", json!(1), true),
        ("m := data.names.by_number\n\tm[X] == \"one\"", "", json!("1"), false),
        ("l := n.list\n\tl[X] == \"b\"", "", json!(1), false),
    ] {
        let mut source = source(deny, rules);
        source.files[0].text = source.files[0]
            .text
            .replace("\n\ndefault", "\n\nimport data.names as n\n\ndefault");
        let bundle = Bundle::unchecked(&source)
            .unwrap_or_else(|| panic!("{deny}: {:?}", compile::compile_on_large_stack(&source).err()));
        assert_eq!(decide(&bundle, json!({"x": x})), Ok(allowed), "{deny} for {x}");
    }
}

#[test]
fn the_start_of_the_names_of_rules_that_have_a_value_is_taken() {
    let sets = "b.s contains q if {\n\tq := X\n\tq == 5\n}\n\nb.d := 1";
    let defaults = "default b.d := 1\n\nb.d := 3 if X == 5\n\nb.c.e := 2";
    for (rules, x, expected) in [
        (sets, 1, "{\"s\": set(), \"d\": 1}"),
        (sets, 5, "{\"s\": {5}, \"d\": 1}"),
        (defaults, 1, "{\"d\": 1, \"c\": {\"e\": 2}}"),
        (defaults, 5, "{\"d\": 3, \"c\": {\"e\": 2}}"),
    ] {
        for deny in [
            format!("b == {expected}"),
            format!("data.tollgate.extensions.b == {expected}"),
            format!("b.d > 0\n\tb == {expected}"),
            format!("y := {expected}\n\tevery k, v in b {{ y[k] == v }}\n\tcount(b) == 2"),
            format!("y := {expected}\n\tb[k] == y[k]\n\tcount([z | z := b[_]]) == 2"),
        ] {
            assert_eq!(
                decide(&bundle(&deny, rules), json!({"x": x})),
                Ok(false),
                "{deny} for {x}"
            );
        }
    }
}

/// The results are those of OPA 1.22.0.
#[test]
fn results_of_functions_are_those_of_opa() {
    for (call, x, expected) in [
        ("crypto.md5(X)", "lorem ipsum", "\"80a751fde577028640c419000e33eba6\""),
        (
            "crypto.sha1(X)",
            "lorem ipsum",
            "\"bfb7759a67daeb65410490b4d98bb9da7d1ea2ce\"",
        ),
        ("split(X, \"\")", "aé", "[\"a\", \"é\"]"),
        ("split(\"\", X)", "", "[]"),
        ("split(\"a.b\", X)", ".", "[\"a\", \"b\"]"),
        ("strings.split_n(X, \"\", -2)", "abc", "[\"b\", \"c\"]"),
        ("regex.replace(X, \"\", \"-\")", "abc", "\"-a-b-c-\""),
        ("regex.replace(X, \"a*\", \"-\")", "baaac", "\"-b-c-\""),
        (
            "regex.replace(X, `(?P<n>\\w)(x)?`, \"<$0>${1}$2$$\")",
            "a-",
            "\"<a>a$-\"",
        ),
        (
            "json.marshal({\"b\": {2, X}, \"a\": [null, true, {}]})",
            "<&\u{2028}\u{c}\u{1}\u{7f}é\"",
            "`{\"a\":[null,true,{}],\"b\":[2,\"\\u003c\\u0026\\u2028\\f\\u0001\u{7f}é\\\"\"]}`",
        ),
        (
            "json.marshal_with_options({X: {\"b\": [], \"d\": [1]}}, {\"prefix\": \"P\", \"indent\": \"I\"})",
            "a",
            "\"P{\\nPI\\\"a\\\": {\\nPII\\\"b\\\": [],\\nPII\\\"d\\\": [\\nPIII1\\nPII]\\nPI}\\nP}\"",
        ),
        (
            "json.marshal_with_options([X], {\"pretty\": false, \"prefix\": \"P\"})",
            "a",
            "`[\"a\"]`",
        ),
        ("json.is_valid(X)", "{\"a\": [1e999, \"\\ud800\"]}", "true"),
        ("json.is_valid(X)", "[01]", "false"),
        ("object.subset([], set())", "", "false"),
        ("object.subset([X, X], {X, 1})", "a", "true"),
        ("object.subset([X, 1], {X, 2})", "a", "false"),
        ("object.subset({\"a\": [X], \"b\": 1}, {\"a\": []})", "", "true"),
        ("object.subset({\"a\": [X]}, {\"a\": {X}})", "", "false"),
        ("object.subset([1, 2, 1, X], [1, X])", "a", "true"),
        ("object.subset([1, 2, X], [1, X])", "a", "false"),
        (
            "uri.parse(X)",
            "HTTPS://u:p@Example.com:8080/a%2Fb?q=%zz#top%20x",
            "{\"fragment\": \"top x\", \"hostname\": \"Example.com\", \"path\": \"/a/b\", \"port\": \"8080\", \
             \"raw_path\": \"/a%2Fb\", \"raw_query\": \"q=%zz\", \"scheme\": \"https\"}",
        ),
        (
            "uri.parse(X)",
            "//[::1]:/a%20b",
            "{\"hostname\": \"::1\", \"path\": \"/a b\", \"raw_path\": \"/a b\"}",
        ),
        ("uri.parse(X)", "mailto:a@b", "{\"scheme\": \"mailto\"}"),
        ("uri.is_valid(X)", "http://[1.2.3.4]/", "false"),
        ("uri.is_valid(X)", "a:b/c", "true"),
        ("uri.is_valid(X)", "1a:b", "false"),
        ("uri.is_valid(X)", "http://%41/", "false"),
        ("uri.is_valid(X)", "http://%C3%A4:x/", "false"),
        (
            "urlquery.decode_object(X)",
            "a=1&b&a=%20+&&=",
            "{\"a\": [\"1\", \"  \"], \"b\": [\"\"], \"\": [\"\"]}",
        ),
        (
            "uuid.parse(X)",
            "000003e8-48b9-21ee-b200-325096b39f47",
            "{\"clocksequence\": 12800, \"domain\": \"Person\", \"id\": 1000, \"macvariables\": \"local:unicast\", \
             \"nodeid\": \"32-50-96-b3-9f-47\", \"time\": 1693566990121469600, \"variant\": \"RFC4122\", \
             \"version\": 2}",
        ),
        (
            "uuid.parse(X)",
            "{00000000-0000-4000-c000-000000000000}",
            "{\"variant\": \"Microsoft\", \"version\": 4}",
        ),
        ("[y | y := uuid.parse(X)]", "00000000-0000-4000-c000-00000000000", "[]"),
    ] {
        let decision = decide(&bundle(&format!("x := {call}\n\tx == {expected}"), ""), json!({"x": x}));
        assert_eq!(decision, Ok(false), "{call} for {x:?}");
    }
}

#[test]
fn functions_without_opas_result_fail() {
    for deny in [
        "net.cidr_contains(\"10.0.0.0/8\", X)",
        "net.cidr_is_valid(X)",
        "net.cidr_merge([X]) != set()",
        "net.cidr_expand(X) != set()",
        "base64.decode(X) != \"\"",
        "hex.decode(X) != \"\"",
        "urlquery.decode(X) != \"\"",
        "strings.split_n(X, \".\", 1.5) != []",
    ] {
        for x in ["::ffff:10.0.0.1/104", "%ff/w==", "\n"] {
            let bundle = bundle(deny, "");
            let is_known = matches!(
                (deny, x),
                ("net.cidr_is_valid(X)", "%ff/w==" | "\n")
                    | ("urlquery.decode(X) != \"\"", "::ffff:10.0.0.1/104" | "\n")
            );
            let decision = decide(&bundle, json!({"x": x}));
            assert_eq!(
                matches!(decision, Err(Error::Evaluation(_))),
                !is_known,
                "{deny} for {x:?}: {decision:?}"
            );
        }
    }
    for (deny, x) in [
        ("net.cidr_expand(X) != set()", json!("10.0.0.0/18")),
        ("net.cidr_merge(X) != set()", json!(["::/0", "10.0.0.0/8"])),
        ("net.cidr_merge(X) != set()", json!(["64:ff9b::/127", "64:ff9b::2/127"])),
        ("net.cidr_contains(\"::/0\", X)", json!("::ffff:1.2.3.4")),
        ("uri.parse(X) == 1", json!("http://a b/")),
        ("uri.parse(X) == 1", json!("/%ff")),
        ("uri.is_valid(X)", json!("http://[::1%25eth0]/")),
        ("uri.is_valid(X)", json!("http://a:b:80/")),
        ("uuid.parse(X) == 1", json!(5)),
        ("uuid.parse(X) == 1", json!("ffffffff-ffff-1fff-ffff-ffffffffffff")),
        ("urlquery.decode_object(X) == 1", json!("a;b=1")),
        ("urlquery.decode_object(X) == 1", json!("a=%ff")),
        ("urlquery.decode_object(X) == 1", json!("a&".repeat(10_000))),
        ("json.marshal(X) == 1", json!(0.5)),
        ("json.marshal(X) == 1", json!(u64::MAX)),
        ("json.marshal({X: 1}) == 1", json!(5)),
        ("json.marshal({{1}, {\"a\": X}}) == 1", json!(1)),
        (
            "json.marshal([y | some y in X; some _ in X]) == 1",
            json!(vec!["\u{1}".repeat(400); 30]),
        ),
        ("json.marshal_with_options([1], {\"indent\": X}) == 1", json!(1)),
        ("json.marshal_with_options([1], {X: \"\"}) == 1", json!("tab")),
        ("regex.replace(X, \"a\", \"b\") == 1", json!(1)),
        (
            "regex.replace(X, \"a\", \"$0$0$0$0$0$0$0$0\") == 1",
            json!("a".repeat(200_000)),
        ),
        ("split(X, \"\") == 1", json!(1)),
        ("crypto.sha1(X) == 1", json!(1)),
    ] {
        let decision = decide(&bundle(deny, ""), json!({"x": x}));
        assert!(
            matches!(decision, Err(Error::Evaluation(_))),
            "{deny} for {x}: {decision:?}"
        );
    }
}

#[test]
fn a_data_file_with_a_value_for_a_rule_is_refused() {
    let mut bundle = source("X == 1", "");
    bundle.files[1].path = "names.rego".into();
    bundle.files.push(File {
        kind: FileKind::Policy,
        path: "lib.rego".into(),
        stem: "lib".into(),
        text: "package names\n\nlist := [1]\n".into(),
    });
    let found = compile::compile_on_large_stack(&bundle).unwrap_err();
    assert!(
        found[0]
            .message
            .contains("a data file has a value for the rule `data.names.list`"),
        "{found:?}"
    );
}

#[test]
fn memory_is_bounded_within_and_after_calls() {
    let long = json!(vec!["y".repeat(500); 200]);
    let calls = "y := [upper(a) | some a in X; some b in X]\n\tcount(y) == 0";
    let values = "y := [[a, b] | some a in X; some b in X]\n\tcount(y) == 0";
    for deny in [calls, values] {
        match decide(&bundle(deny, ""), json!({"x": long})) {
            Err(Error::Memory { observed, limit }) => {
                assert!(observed > limit && limit == MAX_MEMORY_BYTES, "{observed}")
            }
            other => panic!("{deny}: {other:?}"),
        }
        assert_eq!(decide(&bundle(deny, ""), json!({"x": ["a"]})), Ok(true));
    }
}

#[test]
fn what_a_decision_leaves_behind_gives_the_next_no_memory() {
    let copies = "y := [sprintf(\"%s%d\", [X, i]) | some i in numbers.range(1, 100)]\n\tcount(y) == 0";
    let bundle = bundle(copies, "");
    let of = |bytes: usize| json!({"x": "y".repeat(bytes)});
    for bytes in [15_000, 18_000] {
        assert_eq!(decide(&bundle, of(bytes)), Ok(true));
        let next = decide(&bundle, of(30_000));
        assert!(matches!(next, Err(Error::Memory { .. })), "{next:?}");
    }
    for bytes in [18_000, 30_000] {
        let next = decide(&bundle, of(bytes));
        assert_eq!(next.is_ok(), bytes < 20_000, "{next:?}");
    }
}

/// What nests as deep as it may, in each way.
fn deep(levels: usize) -> [(String, String); 4] {
    let chain = |calls: usize, call: &str| {
        let rows = (0..calls).map(|at| format!("f{at}(n) := {}\n\n", call.replace("NEXT", &format!("f{}", at + 1))));
        rows.collect::<String>() + &format!("f{calls}(n) := n\n")
    };
    let loops = |count: usize| {
        let loops = (0..count).map(|at| format!("some l{at} in [1]\n\t"));
        loops.collect::<String>()
    };
    let sum = |terms: usize| vec!["1"; terms].join(" +\n\t");
    let call = format!(
        "[x | {}every z in [1] {{ z == 1 }}; x := NEXT(n)][0]",
        loops(8).replace("\n\t", "; ")
    );
    [
        (loops(levels / 4) + "X == 1", String::new()),
        (format!("X == {}", sum(levels)), String::new()),
        ("f0(1) == X".into(), chain(levels / 72, &call)),
        (
            "f0(1) == X".into(),
            chain(levels / 72, &format!("NEXT(n) + {}", sum(50))),
        ),
    ]
}

#[test]
fn the_deepest_policies_fit_the_stack() {
    for (number, (deny, rules)) in deep(MAX_LEVELS * 9 / 10).into_iter().enumerate() {
        let found = compile::compile_on_large_stack(&source(&deny, &rules)).err();
        let found = found.unwrap_or_default();
        assert!(found.is_empty(), "{number}: {found:?}");
        let bundle = bundle(&deny, &rules);
        let decide = move || decide(&bundle, json!({"x": "different"}));
        let thread = std::thread::Builder::new().stack_size(MAX_STACK_BYTES);
        assert_eq!(thread.spawn(decide).unwrap().join().unwrap(), Ok(true), "{number}");
    }
    for (deny, rules) in deep(MAX_LEVELS * 3) {
        let found = compile::compile_on_large_stack(&source(&deny, &rules)).unwrap_err();
        let is_expected = |text: &str| text.contains("2000 are allowed") || text.contains("a chain of more than 32");
        assert!(found.iter().any(|finding| is_expected(&finding.message)), "{found:?}");
    }
}

#[test]
fn the_start_of_the_names_of_rules_is_refused() {
    let start = "is only the start of the names of rules";
    refused("not base", "base.a if X == 1", start);
    refused("count(base) == 0", "base.a[k] := 1 if some k in X", start);
    refused("not data.tollgate.extensions.base", "base.a if X == 1", start);
    assert_eq!(
        decide(&bundle("not base.a", "base.a if X == 1"), json!({"x": 1})),
        Ok(true)
    );
}

#[test]
fn a_key_in_what_could_be_a_set_is_refused() {
    refused(
        "xs := {y | some y in X}\n\tnot \"a\", \"a\" in xs",
        "",
        "of what could be a set",
    );
}
