//! Hostile policies and expressions: each is refused or stopped within its bounds, with a reason,
//! while another bundle keeps deciding.

use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use regorus::Value;
use serde_json::json;
use tollgate_core::diagnostic::{Diagnostic, Loaded};
use tollgate_policy::cel::{self, Expression};
use tollgate_rego::{
    Bundle, Checker, DECISION_TIME_LIMIT, Error, Front, MAX_CALL_DEPTH, MAX_STACK_BYTES, WorkerLimits,
};

fn checker() -> Checker {
    let limits = WorkerLimits {
        time: Duration::from_secs(20),
        cpu_seconds: 3,
        memory_bytes: 2 * 1024 * 1024 * 1024,
    };
    Checker::new(PathBuf::from(env!("CARGO_BIN_EXE_tollgate"))).with_limits(limits)
}

const CASES: &str = r#"
base:
  principal: {id: a, username: a, groups: [x], issuer: i, kind: oidc}
  request: {method: GET, path: /}
  extension: {name: e, scope: global}
  rbac: {extensions_invoke: {allow: true, why: w}, candidates: []}
cases:
  - {note: get, want: {allow: true}}
  - {note: post, input: {request: {method: POST}}, want: {allow: false}}
"#;

const HEAD: &str = "package tollgate.extensions\n\ndefault decision := {\"allow\": false, \"reason\": \"no\"}\n";

/// A policy that allows GET when `condition` holds, with more rules.
fn policy(condition: &str, rules: &str) -> String {
    format!(
        "{HEAD}\ndecision := {{\"allow\": true, \"reason\": \"yes\"}} if {{\n\tinput.request.method == \"GET\"\n\t{condition}\n}}\n\n{rules}\n"
    )
}

fn load(policy: &str, more: &[(&str, &str)]) -> Loaded<Bundle> {
    let folder = tempfile::tempdir().unwrap();
    std::fs::create_dir(folder.path().join("data")).unwrap();
    for (name, text) in [("policy.rego", policy), ("cases.yaml", CASES)].iter().chain(more) {
        std::fs::write(folder.path().join(name), text).unwrap();
    }
    Bundle::load(folder.path(), Front::Extensions, &checker())
}

fn input(method: &str, groups: &[String]) -> Value {
    Value::from(json!({
        "principal": {"id": "a", "username": "a", "groups": groups, "issuer": "i", "kind": "oidc"},
        "request": {"method": method, "path": "/"},
        "extension": {"name": "e", "scope": "global"},
        "rbac": {"extensions_invoke": {"allow": true, "why": "w"}, "candidates": []},
    }))
}

/// Runs `hostile` while a good bundle decides on another thread. The good bundle must make
/// progress, and its decisions must be right.
fn beside_good_bundle<T>(hostile: impl FnOnce() -> T) -> T {
    let good = load(&policy("true", ""), &[]).value.expect("the good bundle loads");
    let (stop, decided) = (AtomicBool::new(false), AtomicUsize::new(0));
    std::thread::scope(|scope| {
        scope.spawn(|| {
            while !stop.load(Ordering::Relaxed) {
                assert!(good.decide(input("GET", &[])).unwrap().allow);
                assert!(!good.decide(input("PUT", &[])).unwrap().allow);
                decided.fetch_add(1, Ordering::Relaxed);
            }
        });
        // Stops the thread even if `hostile` panics; otherwise the scope would never end.
        let _stop = SetOnDrop(&stop);
        let before = decided.load(Ordering::Relaxed);
        let result = hostile();
        while decided.load(Ordering::Relaxed) <= before {
            std::thread::yield_now();
        }
        result
    })
}

/// Sets the flag when dropped.
struct SetOnDrop<'a>(&'a AtomicBool);

impl Drop for SetOnDrop<'_> {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Relaxed);
    }
}

#[track_caller]
fn refused(name: &str, policy: &str, more: &[(&str, &str)], because: &str) {
    let started = Instant::now();
    let loaded = load(policy, more);
    let took = started.elapsed();
    let errors: Vec<String> = loaded
        .diagnostics
        .iter()
        .filter(|finding| finding.is_error())
        .map(Diagnostic::to_string)
        .collect();
    assert!(loaded.value.is_none(), "{name} was accepted");
    assert!(
        errors.iter().any(|error| error.contains(because)),
        "{name}: wanted `{because}`, got {errors:#?}"
    );
    assert!(
        errors
            .iter()
            .all(|error| error.len() < 800 && !error.contains("panicked")),
        "{name}: {errors:#?}"
    );
    assert!(took < Duration::from_secs(15), "{name} took {took:?}");
}

#[test]
fn files_over_static_bounds_are_refused_before_parsing() {
    beside_good_bundle(|| {
        for depth in [9, 12, 18, 32, 500] {
            let (open, close) = ("[".repeat(depth), "]".repeat(depth));
            let literal = policy(&format!("count({open}1{close}) == 1"), "");
            refused("nested arrays", &literal, &[], "policy.rego:7:");
            let (open, close) = ("{".repeat(depth), "}".repeat(depth));
            refused(
                "nested sets",
                &policy(&format!("count({open}1{close}) == 1"), ""),
                &[],
                "nested more than 8 deep",
            );
            let (open, close) = ("(".repeat(depth), ")".repeat(depth));
            refused(
                "parentheses",
                &policy(&format!("{open}1{close} == 1"), ""),
                &[],
                "nested more than 8 deep",
            );
        }
        refused(
            "a long line",
            &policy(&format!("{} == 1", "a".repeat(2000)), ""),
            &[],
            "bytes, 1000 are allowed",
        );
        refused(
            "many lines",
            &policy("true", &"# x\n".repeat(6000)),
            &[],
            "lines, 5000 are allowed",
        );
        refused(
            "a large file",
            &policy(
                "true",
                &"# xxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxx\n".repeat(6000),
            ),
            &[],
            "more than 262144 bytes",
        );
        refused(
            "deep in a second file",
            &policy("true", ""),
            &[("b.rego", "package b\n\nx := [[[[[[[[[1]]]]]]]]]\n")],
            "b.rego:3:",
        );
    });
}

#[test]
fn recursion_is_refused() {
    beside_good_bundle(|| {
        refused(
            "function recursion",
            &policy("f(3) == 0", "f(n) := f(n - 1)"),
            &[],
            "policy.rego:10:",
        );
        refused(
            "function recursion",
            &policy("f(3) == 0", "f(n) := f(n - 1)"),
            &[],
            "in a circle: `tollgate.extensions.f` → `tollgate.extensions.f`",
        );
        refused("rule cycle", &policy("x", "x := y\n\ny := x"), &[], "in a circle");
        refused(
            "unused recursion",
            &policy("true", "f(n) := f(n - 1)"),
            &[],
            "in a circle",
        );
        refused(
            "cycle over packages",
            &policy("data.b.f(1)", "g(n) := data.b.f(n)"),
            &[("b.rego", "package b\n\nf(n) := data.tollgate.extensions.g(n)\n")],
            "in a circle",
        );
        refused(
            "cycle over an import",
            &policy("lib.f(1)", "g(n) := lib.f(n)").replace("\n\ndefault", "\n\nimport data.b as lib\n\ndefault"),
            &[(
                "b.rego",
                "package b\n\nimport data.tollgate.extensions.g as other\n\nf(n) := other(n)\n",
            )],
            "in a circle",
        );
        refused(
            "cycle over an import that another file of the package has",
            &policy("data.b.f(1)", "g(n) := data.b.f(n)"),
            &[
                ("b.rego", "package b\n\nf(n) := other(n)\n"),
                (
                    "imports.rego",
                    "package b\n\nimport data.tollgate.extensions.g as other\n",
                ),
            ],
            "in a circle",
        );
        refused(
            "one name for two imports of a package",
            &policy("data.b.f(1)", ""),
            &[
                ("b.rego", "package b\n\nimport data.c as lib\n\nf(n) := lib.f(n)\n"),
                ("c.rego", "package c\n\nf(n) := n\n"),
                ("imports.rego", "package b\n\nimport data.tollgate.extensions as lib\n"),
            ],
            "`lib` is imported for `data.tollgate.extensions`, and in the same package it is also an import of `data.c`",
        );
        refused(
            "one name for an import and a rule",
            &policy("g(1)", "g(n) := n").replace("\n\ndefault", "\n\nimport data.b.f as g\n\ndefault"),
            &[("b.rego", "package b\n\nf(n) := n\n")],
            "`g` is imported for `data.b.f`, and in the same package it is also a rule",
        );
        refused(
            "cycle over the package",
            &policy("x", "x := count(data.tollgate)"),
            &[],
            "in a circle",
        );
        refused(
            "cycle over a dynamic path",
            &policy("x", "x := data.tollgate[input.request.method]"),
            &[],
            "in a circle",
        );
        refused(
            "cycle in a comprehension",
            &policy("x", "x := {y | y := x}"),
            &[],
            "in a circle",
        );
        refused(
            "cycle in a head",
            &policy("p", "p contains z if some z in p"),
            &[],
            "in a circle",
        );
        refused(
            "cycle behind every",
            &policy("x", "x if every y in [1] { x == y }"),
            &[],
            "in a circle",
        );
        refused(
            "cycle behind else",
            &policy("x", "x := 1 if false\nelse := x"),
            &[],
            "in a circle",
        );
        let chain = |length: usize| {
            (0..length)
                .map(|at| format!("f{at}(n) := f{}(n) + 1\n\n", at + 1))
                .collect::<String>()
                + &format!("f{length}(n) := n\n")
        };
        refused(
            "a long chain",
            &policy("f0(1) > 0", &chain(100)),
            &[],
            "a chain of more than 32 rules",
        );
    });
}

#[test]
fn the_deepest_call_chain_fits_the_stack() {
    let chain = |length: usize| {
        (0..length)
            .map(|at| format!("f{at}(n) := [x | some y in [n]; x := f{}(y)][0]\n\n", at + 1))
            .collect::<String>()
            + &format!("f{length}(n) := n\n")
    };
    let loaded = load(&policy("f0(1) == 1", &chain(MAX_CALL_DEPTH - 2)), &[]);
    let bundle = loaded.value.unwrap_or_else(|| panic!("{:?}", loaded.diagnostics));
    let decide = move || bundle.decide(input("GET", &[])).unwrap().allow;
    let thread = std::thread::Builder::new()
        .stack_size(MAX_STACK_BYTES)
        .spawn(decide)
        .unwrap();
    assert!(thread.join().unwrap());
}

#[test]
fn functions_with_side_effects_or_large_results_are_refused() {
    beside_good_bundle(|| {
        for (name, call) in [
            (
                "http.send",
                r#"http.send({"method": "GET", "url": "http://127.0.0.1"})"#,
            ),
            ("io.jwt.decode", r#"io.jwt.decode("a.b.c")"#),
            (
                "crypto.x509.parse_certificates",
                r#"crypto.x509.parse_certificates("a")"#,
            ),
            ("time.now_ns", "time.now_ns() > 0"),
            ("rand.intn", r#"rand.intn("a", 5) > 0"#),
            ("opa.runtime", "opa.runtime()"),
            ("json.unmarshal", r#"json.unmarshal("1") == 1"#),
            ("walk", "walk(input, [_, 1])"),
            ("yaml.marshal", r#"yaml.marshal(input) != """#),
            ("product", "product([1]) == 1"),
            ("print", r#"print("x")"#),
            ("nothing.such", "nothing.such(1)"),
        ] {
            refused(
                name,
                &policy(call, ""),
                &[],
                &format!("error: function `{name}` cannot be used in a policy"),
            );
        }
        for pairs in [
            r#"{"a": "aaaaaaaaa"}"#,
            r#"{"": "a"}"#,
            r#"{input.request.method: "a"}"#,
            "input.principal",
        ] {
            let call = format!("strings.replace_n({pairs}, \"a\") != \"\"");
            refused(pairs, &policy(&call, ""), &[], "error: `strings.replace_n`");
        }
        refused(
            "a call in line 7",
            &policy("http.send({})", ""),
            &[],
            "policy.rego:7:5: error: function `http.send`",
        );
        for call in [
            "count(input.request.path, 1) == 1",
            "not count(input.request.path, 1, 1)",
        ] {
            let because = "error: `count` takes 1 argument, this call has ";
            refused("too many arguments", &policy(call, ""), &[], because);
        }
        // The last argument may take the result.
        assert!(load(&policy("count(input.request.path, 1)", ""), &[]).value.is_some());
        let doubling =
            "s := input.request.path\n\nt := replace(s, \"/\", \"//////////////////////////////////////////////\")";
        refused(
            "replace growth",
            &policy("t != \"\"", doubling),
            &[],
            "grow by more than 8 times",
        );
        refused(
            "replace with itself",
            &policy("t != \"\"", "t := replace(\"aaaa\", \"a\", input.request.path)"),
            &[],
            "not literal texts",
        );
        refused(
            "dynamic pattern",
            &policy("regex.match(input.request.path, \"a\")", ""),
            &[],
            "is not a literal text",
        );
        refused(
            "dynamic glob",
            &policy("glob.match(input.request.path, [], \"a\")", ""),
            &[],
            "is not a literal text",
        );
        refused(
            "dynamic format",
            &policy("sprintf(input.request.path, [1]) != \"\"", ""),
            &[],
            "a literal format",
        );
        refused(
            "wide format",
            &policy("sprintf(\"%0999999999d\", [1]) != \"\"", ""),
            &[],
            "in the format of `sprintf` is not supported",
        );
        refused(
            "concat of copies",
            &policy("concat(\"\", [input.request.path | some x in data.a.b]) != \"\"", ""),
            &[],
            "hold one text many times",
        );
        for replacement in [
            "input.request.path",
            "\"$name\"",
            "\"a-replacement-of-more-than-32-bytes\"",
        ] {
            let call = format!("regex.replace(input.request.path, \"a\", {replacement}) != \"\"");
            let because = "error: the replacement of `regex.replace` is not a literal text";
            refused(replacement, &policy(&call, ""), &[], because);
        }
        refused(
            "dynamic pattern of a replacement",
            &policy(
                "regex.replace(input.request.path, input.request.path, \"a\") != \"\"",
                "",
            ),
            &[],
            "is not a literal text",
        );
        refused(
            "trim with a long set",
            &policy("trim(input.request.path, input.request.path) != \"a\"", ""),
            &[],
            "is not a literal text",
        );
        refused(
            "a rule that hides a function",
            &policy("count(1)", "count(x) := x"),
            &[],
            "hides a built-in",
        );
        refused(
            "with",
            &policy("x with input as {}", "x := 1"),
            &[],
            "`with` cannot be used",
        );
    });
}

#[test]
fn bounds_at_run_time_are_checked_by_running_the_cases() {
    beside_good_bundle(|| {
        let numbers = format!(
            "x: [{}]\n",
            (0..208).map(|n| n.to_string()).collect::<Vec<_>>().join(", ")
        );
        let data = [("data/n.yaml", numbers.as_str())];
        let nested = "count([1 | some a in data.n.x; some b in data.n.x; some c in data.n.x; a + b + c == 7]) > 0";
        refused(
            "9 million turns",
            &policy(nested, ""),
            &data,
            "the policy ran longer than 50ms",
        );
        refused(
            "conflicting rules",
            &policy("x == 1", "x := 1\n\nx := 2"),
            &[],
            ": the rule has a value that conflicts with that of another rule",
        );
        refused(
            "to_number",
            &policy("to_number(\"abc\") == 1", ""),
            &[],
            "policy.rego:7: `to_number` failed, given string",
        );
        refused(
            "regex bomb",
            &policy("regex.match(\"(a{1000}){1000}\", \"a\")", ""),
            &[],
            "the pattern of `regex.match` is no regular expression",
        );
        for (name, call) in [
            ("numbers.range", "numbers.range(1, 20000000)"),
            ("numbers.range_step", "numbers.range_step(20000000, 1, 7)"),
            ("bits.lsh", "[bits.lsh(1, 1000000000)]"),
        ] {
            refused(
                name,
                &policy(&format!("count({call}) > 0"), ""),
                &[],
                &format!("`{name}` failed, given number"),
            );
        }
        let row = |of: &str, level: usize| {
            format!(
                "{of}{} := concat(\"\", [{}])\n\n",
                level + 1,
                vec![format!("{of}{level}"); 12].join(", ")
            )
        };
        let growth = |of: &str| {
            format!(
                "{of}0 := \"{}\"\n\n{}",
                "a".repeat(900),
                (0..3).map(|level| row(of, level)).collect::<String>()
            )
        };
        refused(
            "growth by concat",
            &policy("s3 != t3", &(growth("s") + &growth("t"))),
            &[],
            "bytes, 2097152 are allowed",
        );
    });
}

/// A policy, cases and data whose evaluation takes some milliseconds a case, so that most of a
/// check is spent there.
fn slow_cases(cases: usize) -> (String, String, String) {
    let numbers = (0..80).map(|n| n.to_string()).collect::<Vec<_>>().join(", ");
    let condition = "count([1 | some a in data.n.x; some b in data.n.x; a + b == 7]) > 0";
    let mut text = CASES.to_owned();
    for n in 0..cases {
        text.push_str(&format!("  - {{note: get {n}, want: {{allow: true}}}}\n"));
    }
    (policy(condition, ""), text, format!("x: [{numbers}]\n"))
}

/// The checking process is suspended repeatedly, each time for longer than a case may take, as on a
/// busy machine.
#[test]
fn a_suspended_check_does_not_refuse_the_bundle() {
    let folder = tempfile::tempdir().unwrap();
    let (script, pid) = (folder.path().join("checker"), folder.path().join("pid"));
    let text = format!(
        "#!/bin/sh\necho $$ > '{}.part'\n/bin/mv '{0}.part' '{0}'\nexec '{1}' \"$@\"\n",
        pid.display(),
        env!("CARGO_BIN_EXE_tollgate")
    );
    std::fs::write(&script, text).unwrap();
    std::fs::set_permissions(
        &script,
        <std::fs::Permissions as std::os::unix::fs::PermissionsExt>::from_mode(0o755),
    )
    .unwrap();
    let (policy, cases, numbers) = slow_cases(20);
    let bundle = folder.path().join("bundle");
    std::fs::create_dir_all(bundle.join("data")).unwrap();
    for (name, text) in [("policy.rego", policy), ("cases.yaml", cases), ("data/n.yaml", numbers)] {
        std::fs::write(bundle.join(name), text).unwrap();
    }
    let done = AtomicBool::new(false);
    let stops = AtomicUsize::new(0);
    let loaded = std::thread::scope(|scope| {
        scope.spawn(|| {
            let signal = |name: &str, pid: &str| {
                let mut kill = std::process::Command::new("kill");
                kill.args([name, pid]).stderr(std::process::Stdio::null());
                kill.status().unwrap().success()
            };
            while !done.load(Ordering::Relaxed) {
                let Ok(pid) = std::fs::read_to_string(&pid) else {
                    std::thread::yield_now();
                    continue;
                };
                if signal("-STOP", pid.trim()) {
                    stops.fetch_add(1, Ordering::Relaxed);
                    // The test is about time that passes.
                    std::thread::sleep(DECISION_TIME_LIMIT * 3 / 2);
                    signal("-CONT", pid.trim());
                }
            }
        });
        let _done = SetOnDrop(&done);
        Bundle::load(&bundle, Front::Extensions, &Checker::new(script.clone()))
    });
    assert!(stops.load(Ordering::Relaxed) > 1);
    assert!(loaded.value.is_some(), "{:?}", loaded.diagnostics);
}

/// A bundle is refused if one case, or all of them together, use too much CPU time.
#[test]
fn a_policy_that_uses_its_cpu_time_is_refused() {
    let numbers = (0..3_000).map(|n| n.to_string()).collect::<Vec<_>>().join(", ");
    let few = (0..250).map(|n| n.to_string()).collect::<Vec<_>>().join(", ");
    let data = [("data/n.yaml", format!("x: [{few}]\ny: [{numbers}]\n"))];
    let data = [(data[0].0, data[0].1.as_str())];
    let sorting = "count([1 | some a in data.n.x; some b in data.n.x; count(sort(data.n.y)) == a + b]) == 0";
    refused("sorting", &policy(sorting, ""), &data, "ran longer than 50ms");

    let (policy, cases, numbers) = slow_cases(1_900);
    let folder = tempfile::tempdir().unwrap();
    std::fs::create_dir(folder.path().join("data")).unwrap();
    for (name, text) in [("policy.rego", policy), ("cases.yaml", cases), ("data/n.yaml", numbers)] {
        std::fs::write(folder.path().join(name), text).unwrap();
    }
    let limits = WorkerLimits {
        cpu_seconds: 1,
        ..WorkerLimits::default()
    };
    let loaded = Bundle::load(folder.path(), Front::Extensions, &checker().with_limits(limits));
    assert!(
        loaded.value.is_none()
            && loaded.diagnostics[0]
                .message
                .ends_with("run out of its 1 s of CPU time"),
        "{:?}",
        loaded.diagnostics.first()
    );
    // The limit of elapsed time leaves room for a process that gets a tenth of a CPU.
    assert!(WorkerLimits::default().time >= Duration::from_secs(10 * WorkerLimits::default().cpu_seconds));
}

#[test]
fn hostile_data_and_cases_are_refused() {
    beside_good_bundle(|| {
        let mut bomb = "a0: &a0 [x, x, x, x, x, x, x, x, x, x]\n".to_owned();
        for level in 1..12 {
            let row = vec![format!("*a{}", level - 1); 10].join(", ");
            bomb.push_str(&format!("a{level}: &a{level} [{row}]\n"));
        }
        refused("alias bomb", &policy("true", ""), &[("data/bomb.yaml", &bomb)], "");
        let deep = "[".repeat(20_000) + &"]".repeat(20_000);
        refused("deep data", &policy("true", ""), &[("data/deep.yaml", &deep)], "");
        refused("deep cases", &policy("true", ""), &[("cases.yaml", &deep)], "");
    });
}

/// Loads a bundle whose small cases pass, and returns the error of its decision about a large
/// request.
#[track_caller]
fn stopped(name: &str, condition: &str, groups: &[String]) -> Error {
    let loaded = load(&policy(condition, ""), &[]);
    let bundle = loaded
        .value
        .unwrap_or_else(|| panic!("{name}: {:?}", loaded.diagnostics));
    let large = input("GET", groups);
    beside_good_bundle(|| {
        let started = Instant::now();
        let error = bundle.decide(large).expect_err(name);
        let took = started.elapsed();
        assert!(took < Duration::from_secs(2), "{name} took {took:?}");
        // The bundle decides the next requests.
        assert!(bundle.decide(input("GET", &["x".into()])).unwrap().allow, "{name}");
        assert!(!bundle.decide(input("PUT", &["x".into()])).unwrap().allow, "{name}");
        error
    })
}

#[test]
fn a_large_request_is_stopped() {
    let many: Vec<String> = (0..1000).map(|n| format!("group-{n}")).collect();
    let loops = "count([1 | some a in input.principal.groups; some b in input.principal.groups; a == b]) > 0";
    assert_eq!(stopped("loops", loops, &many), Error::Time);
    for (name, bomb) in [
        (
            "lists",
            "count([[a, b] | some a in input.principal.groups; some b in input.principal.groups]) > 0",
        ),
        (
            "sets",
            "count([s | some a in input.principal.groups; s := {b | some b in input.principal.groups} | {a}]) > 0",
        ),
        (
            "objects",
            "count([{a: b, \"c\": [b, a]} | some a in input.principal.groups; some b in input.principal.groups]) > 0",
        ),
    ] {
        let error = stopped(name, bomb, &many);
        assert!(matches!(error, Error::Memory { .. } | Error::Time), "{name}: {error}");
    }
    let long = vec!["y".repeat(60_000)];
    let text = "input.principal.groups[0]";
    let sixteen = vec![text; 16].join(", ");
    let growth = format!(
        "a := concat(\"\", [{sixteen}]); b := concat(\"\", [a, a, a, a]); c := concat(\"\", [b, b, b, b]); c != \"\""
    );
    assert!(matches!(
        stopped("growth", &growth, &long),
        Error::Memory { limit: 2_097_152, .. }
    ));
}

/// A built-in that fails ends the evaluation.
#[test]
fn a_failing_built_in_is_not_an_allow() {
    let condition = "count({1 | some g in input.principal.groups; g != \"x\"; to_number(g) == 1}) >= 0";
    let loaded = load(&policy(condition, ""), &[]);
    let bundle = loaded.value.unwrap_or_else(|| panic!("{:?}", loaded.diagnostics));
    assert!(bundle.decide(input("GET", &["x".into()])).unwrap().allow);
    let failed = bundle.decide(input("GET", &["abc".into()])).unwrap_err().to_string();
    assert!(
        failed.starts_with("the policy failed: ")
            && failed.ends_with("policy.rego:7: `to_number` failed, given string"),
        "{failed}"
    );
}

#[test]
fn the_largest_single_call_is_fast() {
    let letters = "a".repeat(60_000);
    // The engine for expressions keeps no table of states for such a text, and so takes a step for each.
    let mut state = 1_u32;
    let mixed: String = std::iter::repeat_with(|| {
        state = state.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
        if state >> 31 == 0 { 'a' } else { 'b' }
    })
    .take(5_000)
    .collect();
    for (condition, text) in [
        (
            "count(regex.find_n(\"(a|b)*a(a|b){400}c|a\", input.principal.groups[0], -1)) > 0",
            mixed.as_str(),
        ),
        (
            "object.subset(split(input.principal.groups[0], \"\"), \
             array.concat(split(substring(input.principal.groups[0], 0, 2000), \"\"), [\"c\"]))",
            &mixed,
        ),
        (
            "glob.match(\"*a*b*c*d*e*f*a*a*a*a*a*a*a*a*a\", [], input.principal.groups[0])",
            letters.as_str(),
        ),
        ("regex.match(\"(a*)*(a|aa)*b\", input.principal.groups[0])", &letters),
        (
            "count(regex.find_n(\"a.*b|a\", input.principal.groups[0], -1)) > 0",
            &letters,
        ),
        (
            "count(regex.split(\"a.*b|a\", input.principal.groups[0])) > 0",
            &letters,
        ),
        (
            "count(regex.find_all_string_submatch_n(\"(a.*b)|a\", input.principal.groups[0], -1)) > 0",
            &letters,
        ),
        (
            "regex.replace(input.principal.groups[0], \"((a*)*)*b|(a.*b)|a\", \"$2\") != \"\"",
            &letters,
        ),
        ("count(split(input.principal.groups[0], \"a\")) > 0", &letters),
        ("count(split(input.principal.groups[0], \"\")) > 0", &letters),
        (
            "json.marshal([input.principal.groups]) != \"\"",
            &"\u{1}".repeat(60_000),
        ),
        ("uri.is_valid(input.principal.groups[0])", &letters),
        (
            "replace(input.principal.groups[0], \"a\", \"bbbbbbbb\") != \"\"",
            &letters,
        ),
        (
            "contains(input.principal.groups[0], concat(\"\", [input.principal.groups[0], \"b\"]))",
            &letters,
        ),
        (
            "indexof(input.principal.groups[0], \"aaaaaaaaaaaaaaaaaaaab\") < 0",
            &letters,
        ),
        (
            "to_number(sprintf(\"%s\", [input.principal.groups[0]])) > 0",
            &"9".repeat(60_000),
        ),
        ("to_number(input.principal.groups[0]) > 0", "1e999999999"),
        ("time.parse_rfc3339_ns(input.principal.groups[0]) > 0", &letters),
        ("semver.compare(input.principal.groups[0], \"1.0.0\") == 0", &letters),
    ] {
        let rules = format!(
            "ok if input.principal.groups == [\"x\"]\n\nok if {{\n\tinput.principal.groups != [\"x\"]\n\t{condition}\n}}"
        );
        let loaded = load(&policy("ok", &rules), &[]);
        let bundle = loaded
            .value
            .unwrap_or_else(|| panic!("{condition}: {:?}", loaded.diagnostics));
        let large = input("GET", &[text.to_owned()]);
        let started = Instant::now();
        let result = bundle.decide(large);
        let took = started.elapsed();
        assert!(took < Duration::from_secs(2), "{condition} took {took:?}: {result:?}");
        println!(
            "{took:>12.1?} {condition}: {}",
            result.map_or_else(|error| error.to_string(), |decision| decision.allow.to_string())
        );
    }
}

#[test]
fn a_checker_that_cannot_run_refuses_the_bundle() {
    let folder = tempfile::tempdir().unwrap();
    std::fs::write(folder.path().join("policy.rego"), policy("true", "")).unwrap();
    std::fs::write(folder.path().join("cases.yaml"), CASES).unwrap();
    for (exe, because) in [
        ("/nowhere/tollgate", "cannot be started"),
        ("/bin/false", "failed with"),
        ("/bin/true", "gave no answer"),
    ] {
        let loaded = Bundle::load(folder.path(), Front::Extensions, &Checker::new(PathBuf::from(exe)));
        assert!(loaded.value.is_none());
        assert!(
            loaded
                .diagnostics
                .iter()
                .any(|finding| finding.message.contains(because)),
            "{:?}",
            loaded.diagnostics
        );
    }
    let slow = WorkerLimits {
        time: Duration::from_millis(1),
        ..WorkerLimits::default()
    };
    let checker = checker().with_limits(slow);
    let loaded = Bundle::load(folder.path(), Front::Extensions, &checker);
    assert!(
        loaded.value.is_none() && loaded.diagnostics[0].message.contains("took longer than 1ms"),
        "{:?}",
        loaded.diagnostics
    );
}

#[test]
fn hostile_expressions_are_refused_or_bounded() {
    beside_good_bundle(|| {
        for source in [
            format!("1{}", "+1".repeat(50_000)),
            format!("l{}", ".a".repeat(50_000)),
            "(".repeat(100_000),
            format!("l{}", ".a".repeat(2_000)),
            "l.all(a, l.all(b, l.all(c, l.all(d, a + b + c + d < 1))))".to_owned(),
            format!("l{} == []", ".map(x, x + x)".repeat(20)),
            "[{[{[{[{[{[{".repeat(10),
            "l.exists(x, x.matches(x))".to_owned(),
        ] {
            let started = Instant::now();
            Expression::compile(&source, &["l"]).expect_err(&source);
            assert!(started.elapsed() < Duration::from_secs(3));
        }
        let nested = Expression::compile("l.all(a, l.all(b, a + b != 1))", &["l"]).unwrap();
        let long = json!(vec![7; 10_000]);
        assert!(matches!(
            nested.eval_bool(&[("l", &long)]),
            Err(cel::Error::TooManyItems { .. })
        ));
        assert_eq!(nested.eval_bool(&[("l", &json!([7, 8]))]), Ok(true));
    });
}
