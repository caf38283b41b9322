//! Expressions: what works, and what each bound refuses.

use std::time::{Duration, Instant};

use serde_json::json;

use super::{Error, Expression, Variables};

fn compile(source: &str) -> Result<Expression, Error> {
    Expression::compile(source, &["claims", "user", "l"])
}

fn claims() -> serde_json::Value {
    json!({
        "sub": "u1",
        "email": "ann@example.org",
        "email_verified": true,
        "exp": 2_000, "nbf": 1_000,
        "big": u64::MAX,
        "groups": ["dev", "ops"],
        "roles": "a,b,c",
        "nested": {"team": "blue"},
    })
}

#[track_caller]
fn check(source: &str, expected: &serde_json::Value) {
    let claims = claims();
    let expression = compile(source).unwrap_or_else(|error| panic!("{source}: {error}"));
    let variables = [("claims", &claims)];
    let observed = match expected {
        serde_json::Value::Bool(_) => expression.eval_bool(&variables).map(serde_json::Value::from),
        serde_json::Value::String(_) => expression.eval_string(&variables).map(serde_json::Value::from),
        _ => expression.eval_strings(&variables).map(serde_json::Value::from),
    };
    assert_eq!(observed.as_ref(), Ok(expected), "{source}");
}

#[test]
fn expressions_of_kubernetes_authentication_work() {
    check("claims.sub", &json!("u1"));
    check("'oidc:' + claims.sub", &json!("oidc:u1"));
    check(
        "claims.email_verified == true ? claims.email : ''",
        &json!("ann@example.org"),
    );
    check("claims.?email_verified.orValue(true) == true", &json!(true));
    check("claims.?missing.orValue(false)", &json!(false));
    check("claims.exp - claims.nbf <= 86400", &json!(true));
    check("claims.exp - claims.nbf <= 10", &json!(false));
    check("has(claims.nested.team) && !has(claims.nested.lead)", &json!(true));
    check("'groups' in claims", &json!(true));
    check("claims.groups.map(g, 'oidc:' + g)", &json!(["oidc:dev", "oidc:ops"]));
    check("claims.groups.filter(g, g.startsWith('d'))", &json!(["dev"]));
    check("claims.roles.split(',')", &json!(["a", "b", "c"]));
    check("claims.groups + ['all']", &json!(["dev", "ops", "all"]));
    check("claims.groups.all(g, !g.startsWith('system:'))", &json!(true));
    check("claims.groups.exists(g, g == 'ops')", &json!(true));
    check("claims.groups.exists(g, g == 'root')", &json!(false));
    check("claims.email.lowerAscii().endsWith('@example.org')", &json!(true));
    check("claims.big > 5u", &json!(true));
    check("type(claims.sub) == string", &json!(true));
    check("claims.sub == '' ? [] : [claims.sub]", &json!(["u1"]));
}

#[test]
fn a_string_is_a_list_of_one_and_an_empty_string_an_empty_list() {
    check("claims.sub", &json!("u1"));
    let claims = claims();
    let strings = |source: &str| compile(source).unwrap().eval_strings(&[("claims", &claims)]);
    assert_eq!(strings("claims.sub"), Ok(vec!["u1".to_owned()]));
    assert_eq!(strings("''"), Ok(vec![]));
    assert_eq!(strings("null"), Ok(vec![]));
    assert_eq!(
        strings("[1]"),
        Err(Error::WrongType {
            observed: "int",
            expected: "list of strings"
        })
    );
}

#[test]
fn classes_of_patterns_are_ascii_as_in_re2() {
    for (pattern, matched, other) in [
        (r"^\\w$", "a", "Ä"),
        (r"^\\d$", "7", "٧"),
        (r"^\\s$", " ", "\u{a0}"),
        (r"^.\\b", "a", "ß"),
    ] {
        check(&format!("'{matched}'.matches('{pattern}')"), &json!(true));
        check(&format!("'{other}'.matches('{pattern}')"), &json!(false));
    }
}

#[test]
fn only_times_in_rfc_3339_are_timestamps() {
    let source = |text: &str| format!("timestamp('{text}') > timestamp(0)");
    for time in [
        "2026-11-29T15:30:00Z",
        "2026-11-29T15:30:00.25+01:00",
        "2026-11-29T15:30:00-00:30",
    ] {
        check(&source(time), &json!(true));
    }
    check(
        "timestamp(timestamp('2026-11-29T15:30:00Z')) > timestamp(1)",
        &json!(true),
    );
    for text in [
        "2026-11-29 15:30:00Z",
        "2026-11-29t15:30:00Z",
        "2026-11-29T15:30:00z",
        "2026-11-29T23:59:60Z",
        "2026-11-29T15:30:00",
        "2026-11-29T15:30:00.Z",
        "2026-11-29T15:30:00+0100",
        "2026-13-29T15:30:00Z",
        "",
    ] {
        let error = compile(&source(text)).unwrap().eval_bool(&[]).unwrap_err();
        assert!(matches!(error, Error::Evaluation(_)), "{text}: {error}");
    }
}

#[test]
fn what_has_no_such_field_or_sum_fails_as_in_cel_go() {
    for source in [
        "claims.groups.?team.orValue('') == ''",
        "claims.groups[?'team'].orValue('') == ''",
        "claims.?groups.?team.orValue('') == ''",
        "claims.sub[?0].orValue('') == ''",
        "[] == [] + {}",
        "['team'] == [] + claims.nested",
        "claims.groups.map(g, [g] + claims.nested).size() == 2",
    ] {
        let claims = claims();
        let outcome = compile(source).unwrap().eval_bool(&[("claims", &claims)]);
        assert!(matches!(outcome, Err(Error::Evaluation(_))), "{source}: {outcome:?}");
    }
    check("claims.groups[?1].orValue('none')", &json!("ops"));
    check("claims.groups[?9].orValue('none')", &json!("none"));
    check("claims.?nested.?team.orValue('none')", &json!("blue"));
    check("claims.?missing.?team.orValue('none')", &json!("none"));
    check(
        "claims.groups.map(g, [g] + ['x']).map(l, l[0] + '!')",
        &json!(["dev!", "ops!"]),
    );
    check("claims.exp + 1 == 2001", &json!(true));
}

#[test]
fn patterns_of_matches_are_compiled_with_the_expression() {
    check("claims.email.matches('^[a-z]+@example[.]org$')", &json!(true));
    check("matches(claims.email, '^x')", &json!(false));
    check(
        "claims.groups.exists(g, g.matches('^o') && claims.sub.matches('1$'))",
        &json!(true),
    );
    for source in [
        "claims.sub.matches(claims.email)",
        "claims.sub.matches('(')",
        "claims.sub.matches('(a{1000}){1000}')",
    ] {
        let error = compile(source).expect_err(source);
        assert!(
            matches!(&error, Error::Syntax { message, .. } if message.contains("pattern")),
            "{source}: {error}"
        );
    }
}

#[test]
fn only_a_boolean_is_a_verdict() {
    let claims = claims();
    for (source, observed) in [
        ("claims.sub", "string"),
        ("1", "int"),
        ("claims", "map"),
        ("null", "null"),
        ("[true]", "list"),
    ] {
        let result = compile(source).unwrap().eval_bool(&[("claims", &claims)]);
        assert_eq!(
            result,
            Err(Error::WrongType {
                observed,
                expected: "bool"
            }),
            "{source}"
        );
    }
}

#[test]
fn evaluation_errors_contain_no_values() {
    let claims = json!({"secret": "hunter2", "n": 1});
    for source in [
        "claims.missing",
        "claims.secret + 1",
        "claims.n / 0 == 1",
        "claims.secret < 5",
        "int(claims.secret) == 1",
        "[1][7] == 1",
    ] {
        let error = compile(source)
            .unwrap()
            .eval_bool(&[("claims", &claims)])
            .expect_err(source);
        assert!(matches!(error, Error::Evaluation { .. }), "{source}: {error:?}");
        assert!(!error.to_string().contains("hunter2"), "{error}");
    }
    let error = compile("user.name == 'a'")
        .unwrap()
        .eval_bool(&[("claims", &claims)])
        .unwrap_err();
    assert_eq!(error, Error::Evaluation("`user` has no value".into()));
}

#[test]
fn unknown_names_are_refused_when_compiled() {
    assert!(matches!(compile("claim.sub"), Err(Error::UnknownVariable { name, .. }) if name == "claim"));
    assert!(matches!(compile("l.all(x, y == x)"), Err(Error::UnknownVariable { name, .. }) if name == "y"));
    for source in [
        "now()",
        "claims.sub.replace('a', 'b')",
        "'%s'.format([1])",
        "claims.sub.reverse()",
        "strings.quote('a')",
    ] {
        assert!(
            matches!(
                compile(source),
                Err(Error::UnknownFunction { .. } | Error::UnknownVariable { .. })
            ),
            "{source}"
        );
    }
    assert!(matches!(
        compile("claims.Type{a: 1}"),
        Err(Error::Unsupported { .. } | Error::Syntax { .. })
    ));
}

#[test]
fn hostile_sources_are_refused_quickly() {
    let chain = |unit: &str| format!("1{}", unit.repeat(50_000));
    let dense = "[[[[[[[[[[[[".to_owned() + &"{(".repeat(50);
    let doubling = format!("l{} == []", ".map(x, x + x)".repeat(20));
    let cases: Vec<(&str, String)> = vec![
        ("1+1+…", chain("+1")),
        ("l.a.a…", format!("l{}", ".a".repeat(50_000))),
        ("100,000 (", "(".repeat(100_000)),
        ("2,000 (", "(".repeat(2_000)),
        ("4 KiB of !", "!".repeat(4_000)),
        ("4 KiB of .a", format!("l{}", ".a".repeat(2_000))),
        ("4 KiB of +1", format!("1{}", "+1".repeat(2_000))),
        ("4 KiB of ?", format!("true{}", "?1:1".repeat(1_000))),
        (
            "4 deep",
            "l.all(a, l.all(b, l.all(c, l.all(d, a + b + c + d < 1))))".into(),
        ),
        ("3 deep", "l.exists(a, l.exists(b, l.exists(c, a + b + c == 7)))".into()),
        ("doubling texts", doubling),
        ("#306 dense", dense),
        ("#306 dense, short", "[{[{[{[{[{[{".repeat(10)),
        ("#306 mixed", "a[b(c{d[e(f{g[h(i{j[k(l{".repeat(5)),
        ("unbalanced", ")]}".repeat(1_000)),
        ("empty", "  ".into()),
        ("unended text", "'".repeat(3_999)),
        ("unended triple text", "'''".to_owned() + &"a".repeat(4_000)),
    ];
    for (name, source) in cases {
        let started = Instant::now();
        let error = compile(&source).expect_err(name);
        assert!(
            started.elapsed() < Duration::from_secs(3),
            "{name} took {:?}: {error}",
            started.elapsed()
        );
        assert!(error.to_string().len() < 400, "{name}: {error}");
    }
}

#[test]
fn long_chains_of_unary_operators_are_harmless() {
    // The parser folds these. Whether or not they are accepted, the tree is not deep.
    for source in [
        "!".repeat(4_000) + "true",
        "-".repeat(4_000) + "1",
        "- ".repeat(2_000) + "1",
    ] {
        if let Ok(expression) = compile(&source) {
            drop(expression.eval_bool(&[]));
        }
    }
}

#[test]
fn brackets_in_strings_do_not_count_as_nesting() {
    for source in [
        "'((((((((((((((((' == ''",
        r#""[[[[[[[[[[[[[[[[\"[[" == """#,
        "r'\\' == '((((((((((((((((('",
        "'''(((((((\n'((((((((((''' == ''",
        "1 == 1 // ((((((((((((((((((((",
    ] {
        compile(source).unwrap_or_else(|error| panic!("{source}: {error}"));
    }
    // The brackets only seem to be inside a string.
    for source in [
        "r'\\' + ((((((((((((((((1",
        "'a' ((((((((((((((((((((((",
        "'\n(((((((((((((((((((",
    ] {
        assert!(matches!(compile(source), Err(Error::TooDeep { .. })), "{source}");
    }
}

#[test]
fn the_cost_of_an_expression_bounds_the_length_of_lists() {
    let simple = compile("claims.groups.all(g, !g.startsWith('system:'))").unwrap();
    assert_eq!(simple.items, 4096);
    let mapping = compile("claims.groups.map(g, 'oidc:' + g)").unwrap();
    assert_eq!(mapping.items, 4096);
    let nested = compile("claims.a.all(a, claims.b.exists(b, a == b))").unwrap();
    assert!((64..1024).contains(&nested.items), "{}", nested.items);
    let long = json!({"a": vec!["x"; 2000], "b": ["x"]});
    let error = nested.eval_bool(&[("claims", &long)]).unwrap_err();
    assert!(matches!(error, Error::TooManyItems { observed: 2000, .. }), "{error}");
    let short = json!({"a": ["x"], "b": ["x"]});
    assert_eq!(nested.eval_bool(&[("claims", &short)]), Ok(true));
}

/// Each of these is accepted for lists of some length. Evaluated with lists of just that length,
/// the work stays bounded.
#[test]
fn the_work_at_the_maximum_list_length_is_bounded() {
    for source in [
        "l.all(a, l.all(b, a + b != 'q'))",
        "l.map(a, l.map(b, 'x' + a + b)).all(x, x != [])",
        "l.map(x, x + x + x + x).map(x, x + x + x).map(x, x + x).all(x, x.size() > 0)",
        "l.all(a, a in l)",
        "l.map(a, l).all(x, x == l)",
        "l.filter(a, a.matches('(a|b|ab|ba)*c?') || true).size() > 0",
        "(l + l + l + l).map(x, [x, x, x, x]).all(x, x.size() == 4)",
        "l.map(a, l.join('aaaaaaaaaaaaaaaa')).all(x, x != '')",
    ] {
        let expression = compile(source).unwrap_or_else(|error| panic!("{source}: {error}"));
        let items = expression.items;
        let list = json!(vec!["abababababababab".repeat(3); items]);
        let started = Instant::now();
        let result = expression.eval_bool(&[("l", &list)]);
        let took = started.elapsed();
        assert!(result.is_ok(), "{source}: {result:?}");
        assert!(
            took < Duration::from_secs(2),
            "{source} with {items} items took {took:?}"
        );
    }
}

#[test]
fn inputs_are_bounded() {
    let expression = compile("claims.a == ''").unwrap();
    let mut deep = json!(1);
    for _ in 0..20 {
        deep = json!([deep]);
    }
    for value in [
        json!({"a": "x".repeat(20_000)}),
        json!({"a": deep}),
        json!({"a": vec!["y".repeat(1000); 300]}),
        json!({"a": vec![0; 20_000]}),
    ] {
        let error = expression.eval_bool(&[("claims", &value)]).unwrap_err();
        assert!(matches!(error, Error::InputTooLarge { .. }), "{error}");
    }
    assert_eq!(expression.eval_bool(&[("claims", &json!({"a": ""}))]), Ok(true));
}

#[test]
fn values_can_be_converted_once() {
    let claims = claims();
    let variables = Variables::new([("claims", &claims)]).unwrap();
    assert_eq!(
        compile("claims.sub == 'u1'").unwrap().eval_bool_in(&variables),
        Ok(true)
    );
    assert_eq!(
        compile("claims.sub == 'u2'").unwrap().eval_bool_in(&variables),
        Ok(false)
    );
    assert!(!format!("{variables:?}").contains("u1"));
}

#[test]
fn mentions_of_a_field_are_found_in_every_syntax() {
    for source in [
        "claims.email",
        "claims['email']",
        "claims.?email.orValue('')",
        "has(claims.email) ? 'a' : 'b'",
        "l.exists(x, x == claims.email)",
    ] {
        assert!(compile(source).unwrap().mentions("claims", "email"), "{source}");
    }
    for source in ["claims.email_verified", "claims.sub", "user.email"] {
        assert!(!compile(source).unwrap().mentions("claims", "email"), "{source}");
    }
}

#[test]
fn a_conjunction_is_taken_apart_and_nothing_else() {
    for (source, expected) in [
        ("a", &["a"][..]),
        ("a && b&&c", &["a", "b", "c"]),
        (" ( a && (b || c) ) ", &["a", "(b || c)"]),
        ("(a) && (b)", &["(a)", "(b)"]),
        ("a && b || c", &["a && b || c"]),
        ("a ? b && c : d", &["a ? b && c : d"]),
        ("a.?b.orValue(true) && c", &["a.?b.orValue(true)", "c"]),
        ("x.all(y, y && z) && b", &["x.all(y, y && z)", "b"]),
        ("a == ' && ' && b == \"||\"", &["a == ' && '", "b == \"||\""]),
        ("a // && b || ) \n && c", &["a // && b || )", "c"]),
        ("((a))", &["a"]),
        ("(a", &["(a"]),
    ] {
        assert_eq!(super::conjuncts(source), expected, "{source}");
    }
}
