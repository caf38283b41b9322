//! The static bounds on the size of a policy's values: policies over them are refused when a bundle
//! is loaded, and ordinary policies are accepted.

use std::path::PathBuf;
use std::time::{Duration, Instant};

use tollgate_core::diagnostic::{Diagnostic, Loaded};
use tollgate_rego::{Bundle, Checker, Front};

const CASES: &str = r#"
base:
  principal: {id: ann, username: ann@example.org, groups: [dev, ops, "team:blue"], issuer: https://idp, kind: oidc}
  request: {method: GET, path: /api/v1/series, query: "a=b&c=d", project: shop}
  extension: {name: metrics, scope: application}
  rbac:
    applications_get: {allow: true, why: row, rule: "policy.csv:3"}
    extensions_invoke: {allow: true, why: row}
    candidates:
      - {subject: "role:dev", resource: applications, action: get, object: "shop/*", effect: allow}
      - {subject: "role:dev", resource: extensions, action: invoke, object: metrics, effect: allow}
      - {subject: "role:all", resource: applications, action: delete, object: "*", effect: deny}
  project:
    name: shop
    destinations: [{name: prod, server: "https://prod", namespace: shop}, {name: test, server: "https://test", namespace: "*"}]
    source_namespaces: [argocd]
  application:
    namespace: argocd
    name: cart
    project: shop
    destination: {name: prod, server: "https://prod", namespace: shop}
    labels: {team: blue, tier: web}
  destination: {name: prod, server: "https://prod", namespace: shop, permitted: true}
cases:
  - {note: get, want: {allow: true}}
  - {note: post, input: {request: {method: POST}}, want: {allow: false}}
"#;

const DATA: &str = r"
roles:
  dev: {permissions: [{action: get, on: [cart, pay]}, {action: list, on: ['*']}], parents: [all]}
  ops: {permissions: [{action: delete, on: ['*']}], parents: [dev]}
  all: {permissions: [], parents: []}
owners: {cart: [blue, red], pay: [green]}
windows: [{days: [Monday, Tuesday], from: 8, to: 18}, {days: [Friday], from: 9, to: 12}]
members: [{name: ann, team: blue}, {name: bob, team: blue}, {name: eve, team: red}]
numbers: [0, 1, 2, 3, 4, 5, 6, 7, 8, 9]
";

fn load(condition: &str, rules: &str) -> Loaded<Bundle> {
    let policy = format!(
        "package tollgate.extensions\n\ndefault decision := {{\"allow\": false, \"reason\": \"no\"}}\n\ndecision := \
         {{\"allow\": true, \"reason\": \"yes\"}} if {{\n\tinput.request.method == \"GET\"\n\t{condition}\n}}\n\n{rules}\n"
    );
    let folder = tempfile::tempdir().unwrap();
    std::fs::create_dir(folder.path().join("data")).unwrap();
    for (name, text) in [
        ("policy.rego", policy.as_str()),
        ("cases.yaml", CASES),
        ("data/t.yaml", DATA),
    ] {
        std::fs::write(folder.path().join(name), text).unwrap();
    }
    let checker = Checker::new(PathBuf::from(env!("CARGO_BIN_EXE_tollgate")));
    Bundle::load(folder.path(), Front::Extensions, &checker)
}

#[track_caller]
fn accepted(condition: &str, rules: &str) {
    let loaded = load(condition, rules);
    assert!(
        loaded.value.is_some(),
        "{condition}\n{rules}\n{:#?}",
        loaded.diagnostics
    );
}

/// The bundle is refused quickly, by static analysis, before any case runs.
#[track_caller]
fn refused(condition: &str, rules: &str, because: &str) {
    let started = Instant::now();
    let loaded = load(condition, rules);
    let took = started.elapsed();
    assert!(loaded.value.is_none(), "accepted: {condition}\n{rules}");
    let errors: Vec<&Diagnostic> = loaded.diagnostics.iter().filter(|finding| finding.is_error()).collect();
    let [error] = errors.as_slice() else {
        panic!("expected one error, got {errors:#?}")
    };
    assert!(error.message.contains(because), "wanted `{because}`, got {error:#?}");
    let place = error
        .location
        .as_ref()
        .unwrap_or_else(|| panic!("no location: {error}"));
    assert!(
        place.file.ends_with("policy.rego") && place.line > 5 && place.column > 0,
        "{place}"
    );
    assert!(error.hint.is_some(), "{error}");
    assert!(took < Duration::from_secs(5), "took {took:?}: {condition}");
}

/// Rules `x0` to `x{levels}`, each of which refers to the one before.
fn nested_rules(levels: usize, first: &str, level: &dyn Fn(&str) -> String) -> String {
    let rows = (0..levels).map(|at| level(&format!("x{at}")).replace("NEW", &format!("x{}", at + 1)));
    format!("x0 := {first}\n\n{}", rows.collect::<String>())
}

const TOO_LARGE: &str = "10000000 are allowed";

#[test]
fn doubling_is_refused_in_every_form() {
    for level in [
        "NEW := [X, X]\n",
        "NEW := {\"a\": X, \"b\": X}\n",
        "NEW := {[X, 1]: X}\n",
        "NEW := {[X], [X, 1]}\n",
        "NEW contains y if some y in [[X, 1], [X, 2]]\n",
        "NEW[k] := y if {\n\ty := X\n\tsome k in [\"a\", \"b\"]\n}\n",
        "NEW := [X | some _ in data.t.numbers]\n",
        "NEW := [X | data.t.numbers[_]]\n",
        "NEW := [X | data.t.numbers[i]]\n",
        "NEW := {i: X | some i in data.t.numbers}\n",
        "NEW := {[i, X] | some i in data.t.numbers}\n",
        "NEW := [[X, y] | some y in data.t.numbers]\n",
        "NEW := y if y := [X, X]\n",
        "NEW := y if y = [X, X]\n",
        "NEW := z if {\n\ty := X\n\tz := [y, y]\n}\n",
        "NEW := 1 if {\n\tX == 1\n} else := [X, X]\n",
        "default NEW := 1\n\nNEW := [X, X]\n",
        "NEW := array.concat([X], [X])\n",
        "NEW := object.union({\"a\": X}, {\"b\": X})\n",
        "NEW := {[X]} | {[X, 1]}\n",
        "NEW := union({{[X]}, {[X, 1]}})\n",
        "NEW := sort([X, X])\n",
        "NEW := array.reverse([X, X])\n",
        "NEW := array.slice([X, X, X], 0, 2)\n",
        "NEW := object.get({\"a\": [X, X]}, \"a\", 1)\n",
        "NEW := object.get({}, \"a\", [X, X])\n",
        "NEW := min([[X, X]])\n",
        "NEW := [y | y := [X, X]][0]\n",
        "NEW := {\"a\": [X, X]}.a\n",
        "NEW := y if some y in [[X, X]]\n",
        "NEW := y if some y, _ in {[X, X]: 1}\n",
        "NEW := y if {[X, X]: 1}[y]\n",
        "NEW := y if [y, _] := [[X, X], 1]\n",
        "NEW := y if {\"a\": y} = {\"a\": [X, X]}\n",
        "NEW := y if {\n\ty = z\n\tz = w\n\tw = [X, X]\n}\n",
        "NEW := concat(\"\", [\"aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa\", X, X])\n",
    ] {
        let rules = nested_rules(26, "input.request.path", &|name| level.replace('X', name));
        refused("x26 != 1", &rules, "are allowed");
        // Three levels are small enough.
        let loaded = load(
            "true",
            &nested_rules(3, "input.request.path", &|name| level.replace('X', name)),
        );
        assert!(loaded.value.is_some(), "{level}: {:#?}", loaded.diagnostics);
    }
}

#[test]
fn names_do_not_hide_doubling() {
    for level in [
        // The inner `y` shadows the outer one.
        "NEW := y if y := [[y, y] | some y in [X]]\n",
        "NEW := [y | y := [[y, y] | some y in [X]]]\n",
        "NEW := y if {\n\ty := X\n\tz := [y | y := [y, y]]\n\tcount(z) > 0\n} else := [X, X]\n",
        // The inner `i` is a new variable, because the outer one is declared after it.
        "NEW := z if {\n\tz := [X | t[i]]\n\ti := 1\n\ti == 1\n}\n",
        // An index with the name of another function's argument.
        "NEW := [X | t[n]]\n\nother_NEW(n) := n\n",
        "NEW := z if {\n\tevery i in [1] {\n\t\ti == 1\n\t}\n\tz := [X | t[i]]\n}\n",
    ] {
        let rules = nested_rules(26, "input.request.path", &|name| level.replace('X', name));
        let rules = format!("t := data.t.numbers\n\n{rules}");
        let loaded = load("x26 != 1", &rules);
        assert!(loaded.value.is_none(), "accepted: {rules}");
        // Some of them are unclear for another reason.
        let is_known = |finding: &Diagnostic| [TOO_LARGE, "is used"].iter().any(|part| finding.message.contains(part));
        assert!(loaded.diagnostics.iter().all(is_known), "{:#?}", loaded.diagnostics);
    }
    let level = "NEW := y if y = [[y, y] | [y] = [X]]\n";
    let rules = nested_rules(1, "input.request.path", &|name| level.replace('X', name));
    refused("x1 != 1", &rules, "`y` is unsafe");
}

#[test]
fn functions_are_analyzed_with_their_arguments() {
    let nested_rules = |body: &str| {
        let rows = (0..5).map(|at| {
            let (next, name) = (format!("f{}(a)", at + 1), format!("f{at}"));
            format!("{next} := {}\n\n", body.replace('F', &name))
        });
        format!("f0(a) := [a, a]\n\n{}", rows.collect::<String>())
    };
    refused("f5(input.request.path) != 1", &nested_rules("F(F(F(F(a))))"), TOO_LARGE);
    refused(
        "f5(input.request.path) != 1",
        &nested_rules("y if {\n\tF(a, b)\n\tF(b, c)\n\tF(c, d)\n\tF(d, y)\n}"),
        TOO_LARGE,
    );
    accepted("f5(input.request.path) != 1", &nested_rules("[F(a)][0]"));
    let nothing = (0..26).map(|at| format!("g{}() := [g{at}(), g{at}()]\n\n", at + 1));
    let nothing = format!("g0() := input\n\n{}", nothing.collect::<String>());
    refused("g26() != 1", &nothing, TOO_LARGE);
    let local = (0..26).map(|at| format!("\tx{} := [x{at}, x{at}]\n", at + 1));
    let local = format!("f(x0) := x26 if {{\n{}}}\n", local.collect::<String>());
    refused("f(1) != 1", &local, TOO_LARGE);
    // Without a call, the function does not count.
    accepted("true", &local);
    // The sizes of the arguments vary, but there are few different ones, so the analysis stays
    // fast.
    let fan = |levels: usize| {
        let rows = (0..levels).map(|at| {
            format!(
                "h{}(a, b) := [h{at}(a, [b]), h{at}([a], b), h{at}(b, a)][0]\n\n",
                at + 1
            )
        });
        format!("h0(a, b) := 1\n\n{}", rows.collect::<String>())
    };
    accepted("h6(1, [2]) == 1", &fan(6));
    let started = Instant::now();
    drop(load("h28(1, [2]) == 1", &fan(28)));
    assert!(started.elapsed() < Duration::from_secs(5), "{:?}", started.elapsed());
}

#[test]
fn nested_loops_over_shared_values_are_refused() {
    let nest = |term: &str, loops: usize| {
        (0..loops).fold(term.to_owned(), |term, _| {
            format!("[{term} | some _ in data.t.numbers]")
        })
    };
    refused("count(x) > 0", &format!("x := {}", nest("data.t", 7)), TOO_LARGE);
    accepted("count(x) > 0", &format!("x := {}", nest("input.principal.id", 3)));
}

#[test]
fn texts_numbers_and_depth_are_bounded() {
    let all = "x := [r | some r in input.rbac.candidates]\n\ny := [[x, i, j, k] | some i in data.t.numbers; some j in \
               data.t.numbers; some k in data.t.numbers]";
    refused("sprintf(\"%v\", [y]) != \"\"", all, "written out");
    accepted("sprintf(\"%v %v\", [input.rbac, input.principal.groups]) != \"\"", "");
    // A function that expects text formats any other value for its error.
    let rows =
        "x := [[r, r, i, j] | some r in input.rbac.candidates; some i in data.t.numbers; some j in data.t.numbers]";
    refused("not startswith(x, \"a\")", rows, "written out");
    accepted("count(x) > 0", rows);
    // A key that is not text is formatted as text, which escapes its quotes. Nested keys are
    // escaped again at each level.
    let keys = |levels| nested_rules(levels, "{\"a\": 1}", &|name| format!("NEW := {{{name}: 1}}\n"));
    refused("key := x24\n\tnot startswith(key, \"a\")", &keys(24), "written out");
    accepted("count(x24) == 1\n\tsprintf(\"%v\", [x4]) != \"\"", &keys(24));
    let squares = nested_rules(20, "1234567", &|name| format!("NEW := {name} * {name}\n"));
    refused("x20 > 0", &squares, "digits");
    accepted(
        "x3 > 0",
        &nested_rules(3, "1234567", &|name| format!("NEW := {name} * {name}\n")),
    );
    let deep = nested_rules(28, "1", &|name| {
        format!("NEW := [[[[[[[f([[[[[[[{name}]]]]]]])]]]]]]]\n")
    });
    refused("x28 != 1", &format!("{deep}\nf(a) := [[[[[[[a]]]]]]]\n"), "nested");
    accepted(
        "x28 != 1",
        &nested_rules(28, "1", &|name| format!("NEW := [[[{name}]]]\n")),
    );
}

/// Conditions that hold for the base input of [`CASES`], each with the rules it refers to.
const ORDINARY: &[(&str, &str)] = &[
    // Roles of groups, with a helper and a default.
    (
        "allowed",
        "default allowed := false\n\nallowed if {\n\tsome role in roles\n\tgrants(role, \"get\", input.application.name)\n}\n\n\
             roles contains group if {\n\tsome group in input.principal.groups\n\tdata.t.roles[group]\n}\n\n\
             roles contains parent if {\n\tsome group in input.principal.groups\n\tsome parent in data.t.roles[group].parents\n}\n\n\
             grants(role, action, name) if {\n\tsome permission in data.t.roles[role].permissions\n\tpermission.action == action\n\tname in permission.on\n}",
    ),
    // Rows by group, in one comprehension and in two.
    (
        "count(by_team.blue) == 2",
        "by_team := {team: names |\n\tsome member in data.t.members\n\tteam := member.team\n\tnames := {other.name | some other in data.t.members; other.team == team}\n}",
    ),
    (
        "count(groups.applications) == 2",
        "groups := {kind: [row | some row in input.rbac.candidates; row.resource == kind] | some kind in {r.resource | some r in input.rbac.candidates}}",
    ),
    // Denials as a partial set with formatted texts, joined.
    (
        "count(deny) == 0\n\tmessage == \"\"",
        "deny contains text if {\n\tsome group in input.principal.groups\n\tgroup == \"blocked\"\n\ttext := sprintf(\"%s of %s may not use %s\", [input.principal.username, group, input.extension.name])\n}\n\n\
             message := concat(\", \", {text | some text in deny})",
    ),
    // An else-chain with objects as values.
    (
        "verdict.allow",
        "verdict := {\"allow\": false, \"why\": \"kind\"} if {\n\tinput.principal.kind == \"local\"\n} else := {\"allow\": false, \"why\": \"path\"} if {\n\tstartswith(input.request.path, \"/admin\")\n} else := {\"allow\": true, \"why\": \"else\"}",
    ),
    // Every, not, and membership.
    (
        "safe\n\tnot dangerous",
        "safe if {\n\tevery destination in input.project.destinations {\n\t\tdestination.server != \"https://kubernetes.default.svc\"\n\t}\n\tevery key, value in input.application.labels {\n\t\tkey != value\n\t}\n}\n\n\
             dangerous if \"admin\" in input.principal.groups\n\ndangerous if {\n\tsome row in input.rbac.candidates\n\trow.effect == \"deny\"\n\tnot row.action in {\"delete\", \"get\"}\n}",
    ),
    // Parts of a path, by index and by pattern.
    (
        "parts[1] == \"v1\"\n\tresource == \"series\"",
        "parts := split(trim_prefix(input.request.path, \"/\"), \"/\")\n\nresource := last if [\"api\", \"v1\", last] = parts",
    ),
    // A query as an object.
    (
        "query.a == \"b\"",
        "query := {key: value |\n\tsome pair in split(input.request.query, \"&\")\n\t[key, value] := split(pair, \"=\")\n}",
    ),
    // Objects merged several times.
    (
        "limits.rate == 5",
        "defaults := {\"rate\": 1, \"burst\": 2, \"teams\": {\"blue\": {\"rate\": 5}}}\n\nteam := input.application.labels.team\n\n\
             limits := object.union(object.union(defaults, object.get(defaults.teams, team, {})), {\"team\": team})",
    ),
    // Partial objects, and one built from another.
    (
        "scores.ann == 3\n\tcount(ranked) > 0",
        "scores[name] := count(name) if {\n\tsome member in data.t.members\n\tname := member.name\n}\n\n\
             ranked := [{\"name\": name, \"score\": score} | some name, score in scores; score > 1]",
    ),
    // A table of facts that several rules refer to.
    (
        "facts.team == \"blue\"\n\tsummary.facts.name == \"cart\"\n\tcount(reports) == 3",
        "facts := {\"name\": input.application.name, \"team\": input.application.labels.team, \"groups\": input.principal.groups, \"destination\": input.destination}\n\n\
             summary := {\"facts\": facts, \"rows\": input.rbac.candidates, \"project\": input.project}\n\n\
             reports := [{\"group\": group, \"summary\": summary} | some group in input.principal.groups]",
    ),
    // Numbers: hours, sums, averages.
    (
        "total == 45\n\ttotal / count(data.t.numbers) == 4.5\n\topen",
        "total := sum(data.t.numbers)\n\nhours[day] := {\"from\": from, \"to\": to} if {\n\tsome window in data.t.windows\n\tsome day in window.days\n\tfrom := window.from * 60\n\tto := window.to * 60\n}\n\n\
             open if hours.Monday.from < 9 * 60",
    ),
    // Old-fashioned loops with indices.
    (
        "owner\n\tcount(pairs) > 0",
        "owner if data.t.owners[input.application.name][_] == input.application.labels.team\n\n\
             pairs := [[data.t.members[i].name, data.t.members[j].name] | data.t.members[i].team == data.t.members[j].team; i < j]",
    ),
    // Helpers that call helpers, with objects as arguments.
    (
        "ok({\"name\": input.application.name, \"labels\": input.application.labels})",
        "ok(app) if owned(app, owners(app.name))\n\nowned(app, teams) if app.labels.team in teams\n\n\
             owners(name) := data.t.owners[name]\n\ndefault owned(_, _) := false",
    ),
    // Set operations.
    (
        "count(both) == 1\n\tcount(all - both) >= 1",
        "mine := {group | some group in input.principal.groups}\n\nboth := mine & {\"dev\", \"qa\"}\n\nall := mine | {\"dev\", \"qa\"}",
    ),
    // Names used again in other scopes.
    (
        "names == [\"ann\", \"bob\"]\n\tcount([x | some x in names]) == 2\n\tcount([x | some x in groups]) == 3",
        "groups := [x | some x in input.principal.groups]\n\nnames := [name | some m in data.t.members; m.team == \"blue\"; name := m.name]",
    ),
    // The whole input in the log and in conditions.
    (
        "record.input.request.method == \"GET\"\n\trecord.input == input",
        "record := {\"input\": input, \"roles\": data.t.roles}",
    ),
];

#[test]
fn ordinary_policies_are_accepted() {
    for (condition, rules) in ORDINARY {
        accepted(condition, rules);
    }
}
