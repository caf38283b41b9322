use regorus::unstable::{Module, Parser, Source};
use regorus::{Engine, Value};
use serde_json::json;

use super::{SizeEstimator, check};
use crate::front::Front;

/// Each form computes `NEW` from `OLD`.
const FORMS: &[&str] = &[
    "NEW := [OLD, OLD]",
    "NEW := {\"a\": OLD, \"b\": [OLD]}",
    "NEW := {[OLD, 1]: OLD, 2: 3}",
    "NEW := {[OLD], [OLD, 1], 7}",
    "NEW contains y if some y in [[OLD, 1], [OLD, 2]]",
    "NEW contains [OLD, i] if data.t.numbers[i]",
    "NEW[k] := OLD if some k in [\"a\", \"b\"]",
    "NEW[k] := [OLD, v] if some k, v in data.t.owners",
    "NEW[k][l] := [OLD] if {\n\tsome k in [\"a\", \"b\"]\n\tsome l in [\"c\", \"d\", \"e\"]\n}",
    "NEW := [OLD | some _ in data.t.numbers]",
    "NEW := [OLD | data.t.numbers[_]; data.t.owners[_]]",
    "NEW := [[OLD, i, j] | data.t.numbers[i]; data.t.numbers[j]; i < j]",
    "NEW := {i: [OLD, v] | some i, v in data.t.numbers}",
    "NEW := {[i, OLD] | some i in data.t.numbers}",
    "NEW := [[y, OLD] | some y in input.principal.groups]",
    "NEW := [[z | some z in [OLD, OLD]] | some _ in data.t.numbers]",
    "NEW := y if {\n\ty := [[z, w] | some z in [OLD]; w := [z, z]]\n}",
    "NEW := z if {\n\ty = OLD\n\tz = [y, y]\n}",
    "NEW := y if [y, _] := [[OLD, OLD], 1]",
    "NEW := y if {\"a\": y} = {\"a\": [OLD, OLD]}",
    "NEW := [1] if {\n\tOLD == 1\n} else := [OLD, OLD]",
    "default NEW := [1]\n\nNEW := [OLD, OLD] if input.request.method == \"GET\"",
    "NEW := array.concat([OLD], [OLD, OLD])",
    "NEW := object.union({\"a\": OLD}, {\"b\": OLD})",
    "NEW := object.union({\"a\": {\"c\": OLD}}, {\"a\": {\"d\": OLD}})",
    "NEW := {[OLD]} | {[OLD, 1]}",
    "NEW := union({{[OLD]}, {[OLD, 1]}})",
    "NEW := {[OLD], 1} & {[OLD], 2}",
    "NEW := {[OLD], [OLD, 1]} - {[OLD]}",
    "NEW := sort([OLD, OLD, OLD])",
    "NEW := array.slice([OLD, OLD, OLD], 1, 3)",
    "NEW := object.keys({[OLD]: 1, [OLD, 2]: 2})",
    "NEW := object.get({\"a\": {\"b\": [OLD, OLD]}}, [\"a\", \"b\"], 1)",
    "NEW := object.get({}, \"a\", [OLD, OLD])",
    "NEW := object.remove({\"a\": OLD, \"b\": OLD}, [\"a\"])",
    "NEW := object.filter({\"a\": OLD, \"b\": OLD}, [\"a\"])",
    "NEW := max([[OLD], [OLD, OLD]])",
    "NEW := [OLD, sprintf(\"%v and %v\", [OLD, input.request.path])]",
    "NEW := [OLD, split(input.request.path, \"/\"), upper(input.request.path)]",
    "NEW := [OLD, split(input.request.path, \"\"), strings.split_n(input.request.path, \"s\", 400)]",
    "NEW := [OLD, regex.replace(input.request.path, `[a-z]`, \"$0<${0}>$0<${0}>$0<${0}>$0<>\")]",
    "NEW := [OLD, json.marshal([input.principal.groups, {\"\\u0001<<<<<<<<<<<<<<<<<<<<<<<<<<<<<<<\": {1, null}}])]",
    "NEW := [OLD, json.marshal_with_options([[[[[input.principal.groups]]]]], {\"indent\": input.request.path, \"prefix\": \"<\"})]",
    "NEW := [OLD, uri.parse(input.request.path), uuid.parse(\"000003e8-48b9-21ee-b200-325096b39f47\")]",
    "NEW := [OLD, urlquery.decode_object(\"a&b&a&c=1&d&e&f&g&h&i&j&k&l&m&n&o&p&q&r&s&t&u&v&w&x&y&z&=\")]",
    "NEW := {\"texts\": concat(\", \", {g | some g in input.principal.groups}), \"old\": OLD}",
    "NEW := f(OLD)\n\nf(a) := [a, g(a)]\n\ng(a) := {\"g\": a} if a != 1\n\ng(1) := 2",
    "NEW := y if f(OLD, y)\n\nf([a, b]) := [a, b, b] if a != 1\n\nelse := [a]\n\nf(a) := [a, a] if not is_array(a)\n\nf(a) := [a, 3] if {\n\tis_array(a)\n\tcount(a) != 2\n}",
    "NEW := [y | some y in OLD]",
    "NEW := {k: [v, OLD] | some k, v in {\"a\": OLD}}",
    "NEW := [x | x := OLD[_]]",
    "NEW := [OLD | every n in data.t.numbers { n < 10 }; data.t.numbers[_] > 2]",
    "NEW := data.tollgate.lib",
    "NEW := {\"d\": data.t, \"i\": input, \"o\": OLD}",
    "NEW := [r | some r in [{\"n\": n, \"o\": OLD} | some n in data.t.numbers]; r.n > 1]",
    "NEW := z if {\n\tz := [OLD | data.t.numbers[i]]\n\ti := 1\n\ti == 1\n}",
    "NEW := z if {\n\tz := [OLD | some i; data.t.numbers[i]; data.t.numbers[j]]\n}",
    "NEW := z if {\n\ti := 1\n\tz := [[OLD, i] | some i; data.t.numbers[i]]\n}",
    "NEW := [OLD | some i, j; data.t.numbers[i] = data.t.numbers[j]]",
    "NEW := {j | some i in OLD; j := [i, i]}",
    "NEW := [y | y := [[y, y] | some y in [OLD]]]",
    "NEW := y if {\n\ty := OLD\n\tz := [y | y := [y, y]]\n\tcount(z) > 0\n}",
    "NEW := z if {\n\ty := OLD\n\tz := [y | y := [y, y]]\n}",
    "NEW := y if {\n\tx = OLD\n\t[x, z] = [w, [x, w]]\n\ty = {\"z\": z, \"w\": w}\n}",
    "NEW := [[k, OLD] | {[1, 2]: 3, [4, 5]: 6}[k]]",
    "NEW := [[p, OLD] | {[1, 2], [4, 5]}[[p, _]]]",
    "NEW := [a * 7, a + a, a - 1, OLD] if a := 99999999999999999999999999999999",
];

fn data() -> serde_json::Value {
    json!({"t": {
        "numbers": [1, 2, 3, 4, 5],
        "owners": {"cart": ["blue", "red"], "pay": ["green"]},
        "text": "x".repeat(300),
    }})
}

fn input() -> serde_json::Value {
    json!({
        "principal": {"id": "a", "username": "ann", "groups": ["dev", "ops", "qa"], "issuer": "i", "kind": "oidc"},
        "request": {"method": "GET", "path": "/api/v1/".to_owned() + &"s".repeat(400)},
        "extension": {"name": "metrics", "scope": "global"},
        "rbac": {"extensions_invoke": {"allow": true, "why": "w"}, "candidates": []},
    })
}

/// The number of nodes of a value, as [`super::Size`] counts them.
fn tree(value: &Value) -> u64 {
    let text = |bytes: usize| 1 + bytes as u64 / 64;
    match value {
        Value::Array(items) => 1 + items.iter().map(tree).sum::<u64>(),
        Value::Set(items) => 1 + items.iter().map(tree).sum::<u64>(),
        Value::Object(entries) => {
            let entries = entries.iter();
            1 + entries.map(|(key, value)| tree(key) + tree(value)).sum::<u64>()
        }
        Value::String(text_) => text(text_.len()),
        Value::Number(_) => text(value.to_string().len()),
        Value::Null | Value::Bool(_) | Value::Undefined => 1,
    }
}

fn depth(value: &Value) -> u64 {
    let deepest = |items: &mut dyn Iterator<Item = &Value>| 1 + items.map(depth).max().unwrap_or(0);
    match value {
        Value::Array(items) => deepest(&mut items.iter()),
        Value::Set(items) => deepest(&mut items.iter()),
        Value::Object(entries) => deepest(&mut entries.iter().flat_map(|(key, value)| [key, value])),
        Value::Null | Value::Bool(_) | Value::Undefined | Value::String(_) | Value::Number(_) => 0,
    }
}

fn parsed(name: &str, text: &str) -> Module {
    let source = Source::from_contents(name.to_owned(), text.to_owned()).unwrap();
    let mut parser = Parser::new(&source).unwrap();
    parser.enable_rego_v1().unwrap();
    parser.parse().unwrap_or_else(|error| panic!("{error:#}\n{text}"))
}

/// A program with a rule for each form, computed from the rule before.
fn program(forms: &[&str]) -> String {
    let rules = forms.iter().enumerate().map(|(at, form)| {
        form.replace("NEW", &format!("x{}", at + 1))
            .replace("OLD", &format!("x{at}"))
            .replace("f(", &format!("f{at}("))
            .replace("sprintf", "sprint_f")
            .replace(&format!("sprint_f{at}("), "sprintf(")
            .replace("g(", &format!("g{at}("))
            + "\n\n"
    });
    format!(
        "package tollgate.extensions\n\nx0 := [input.request.path, data.t.text]\n\n{}",
        rules.collect::<String>()
    )
}

const LIB: &str = "package tollgate.lib\n\nnames contains name if some name in input.principal.groups\n\nf(a) := [a, a]\n\nv := [input, input]\n";

/// Compares every rule's bound with the value that the engine computes. Returns the number of rules
/// with a value.
#[track_caller]
fn compare(forms: &[&str]) -> usize {
    let text = program(forms);
    let modules = [parsed("policy.rego", &text), parsed("lib.rego", LIB)];
    let data = data();
    if !check(&modules, &data, Front::Extensions.input_schema()).is_empty() {
        return 0;
    }
    let mut estimator = SizeEstimator::new(&modules, &data, Front::Extensions.input_schema());
    let mut engine = Engine::new();
    for (name, text) in [("policy.rego", text.as_str()), ("lib.rego", LIB)] {
        engine.add_policy(name.to_owned(), text.to_owned()).unwrap();
    }
    engine.add_data(Value::from(data.clone())).unwrap();
    engine.set_input(Value::from(input()));
    let mut compared = 0;
    for at in 1..=forms.len() {
        let path = ["tollgate", "extensions", &format!("x{at}")]
            .map(str::to_owned)
            .to_vec();
        let bound = estimator.value(&path, None).unwrap();
        let mut largest = 0;
        if let Some(value) = interpreted(&mut engine, at) {
            let (nodes, levels) = (tree(&value), depth(&value));
            assert!(nodes <= bound.tree, "{nodes} nodes, bound {}:\n{text}", bound.tree);
            assert!(levels <= bound.depth, "{levels} levels, bound {}:\n{text}", bound.depth);
            largest = largest.max(nodes);
        }
        if largest == 0 || largest > 100_000 {
            break;
        }
        compared += 1;
    }
    compared
}

/// The value that the interpreter computes, if any.
fn interpreted(engine: &mut Engine, at: usize) -> Option<Value> {
    let results = engine
        .eval_query(format!("data.tollgate.extensions.x{at}"), false)
        .ok()?;
    let value = results.result.first()?.expressions.first()?.value.clone();
    (value != Value::Undefined).then_some(value)
}

#[test]
fn no_value_is_larger_than_its_bound() {
    let without_value: Vec<&&str> = FORMS.iter().filter(|form| compare(&[form]) == 0).collect();
    assert!(
        without_value.len() <= 4,
        "refused, or without a value: {without_value:#?}"
    );
    for first in FORMS {
        for second in FORMS {
            compare(&[first, second]);
        }
    }
}

#[test]
fn no_value_of_a_long_chain_is_larger_than_its_bound() {
    let mut state = 42_u64;
    let mut next = |below: usize| {
        state = state
            .wrapping_mul(6_364_136_223_846_793_005)
            .wrapping_add(1_442_695_040_888_963_407);
        (state >> 33) as usize % below
    };
    let mut compared = 0;
    for _ in 0..300 {
        let forms: Vec<&str> = (0..3 + next(3)).map(|_| FORMS[next(FORMS.len())]).collect();
        compared += compare(&forms);
    }
    assert!(compared > 500, "too few values were compared: {compared}");
}
