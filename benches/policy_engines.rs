//! Costs of decisions of policies: the shipped Rego bundle with and without building its input,
//! CEL expressions, and loading and compiling with all guards.

#![expect(clippy::panic, reason = "a bench that cannot run panics")]

use std::hint::black_box;
use std::path::{Path, PathBuf};

use criterion::{Criterion, criterion_group, criterion_main};
use serde_json::json;
use tollgate_policy::cel::{Expression, Variables};
use tollgate_rego::{Bundle, Checker, Front};

use test_support::policy_input::{ROW, input, prepared, principal, verdicts};

fn rego(c: &mut Criterion) {
    let directory = Path::new(env!("CARGO_MANIFEST_DIR")).join("policies/extensions");
    let checker = Checker::new(PathBuf::from(env!("CARGO_BIN_EXE_tollgate")));
    let loaded = Bundle::load(&directory, Front::Extensions, &checker);
    let Some(bundle) = loaded.value else {
        panic!("the shipped bundle is refused: {:?}", loaded.diagnostics);
    };
    let groups: Vec<String> = (0..4).map(|n| format!("group-{n}")).collect();
    let (principal, prepared) = (principal(&groups), prepared(true));
    let (good, bad) = (verdicts(true, &[]), verdicts(false, &[]));
    let rows = vec![ROW; 64];
    let input = |verdicts| input(&principal, &prepared, verdicts);
    let ready = input(&good).to_value();
    c.bench_function("rego/decide, input built before", |b| {
        b.iter(|| bundle.decide(black_box(ready.clone())))
    });
    c.bench_function("rego/build input", |b| b.iter(|| black_box(input(&good).to_value())));
    c.bench_function("rego/build verdicts", |b| b.iter(|| verdicts(black_box(true), &[])));
    c.bench_function("rego/build verdicts, 64 candidate rows", |b| {
        b.iter(|| verdicts(black_box(true), &rows))
    });
    c.bench_function("rego/build input and decide, allowed", |b| {
        b.iter(|| bundle.decide(input(&good).to_value()))
    });
    c.bench_function("rego/build input and decide, denied", |b| {
        b.iter(|| bundle.decide(input(&bad).to_value()));
    });
    c.bench_function("rego/load: scan, child process, cases, compile", |b| {
        b.iter(|| Bundle::load(&directory, Front::Extensions, &checker).value.is_some());
    });
}

fn cel(c: &mut Criterion) {
    let claims = json!({
        "sub": "1234", "email": "ann@example.org", "email_verified": true,
        "groups": (0..200).map(|n| format!("group-{n}")).collect::<Vec<_>>(),
    });
    let small =
        json!({"sub": "1234", "email": "ann@example.org", "email_verified": true, "groups": ["a", "b", "c", "d"]});
    let cases = [
        (
            "predicate",
            "claims.email_verified && claims.email.endsWith('@example.org')",
        ),
        ("matches", "claims.email.matches('^[a-z]+@example[.]org$')"),
        ("exists", "claims.groups.exists(g, g.startsWith('x'))"),
    ];
    for (name, source) in cases {
        let Ok(expression) = Expression::compile(source, &["claims"]) else {
            panic!("{name} is refused");
        };
        c.bench_function(&format!("cel/{name}, 4 groups, with conversion"), |b| {
            b.iter(|| expression.eval_bool(black_box(&[("claims", &small)])));
        });
        let (Ok(few), Ok(many)) = (
            Variables::new([("claims", &small)]),
            Variables::new([("claims", &claims)]),
        ) else {
            panic!("the claims are refused");
        };
        c.bench_function(&format!("cel/{name}, 4 groups"), |b| {
            b.iter(|| expression.eval_bool_in(black_box(&few)))
        });
        c.bench_function(&format!("cel/{name}, 200 groups"), |b| {
            b.iter(|| expression.eval_bool_in(black_box(&many)))
        });
    }
    c.bench_function("cel/compile with all guards", |b| {
        b.iter(|| Expression::compile(black_box("claims.email_verified && claims.sub != ''"), &["claims"]).is_ok());
    });
}

criterion_group!(policy_engines, rego, cel);
criterion_main!(policy_engines);
