//! Costs of RBAC that `compare.rs` does not measure: decisions by the kind of the row that
//! decides, identifying a caller, and loading a policy.

#![expect(clippy::panic, reason = "a bench that cannot run panics")]

use std::hint::black_box;

use criterion::{BenchmarkId, Criterion, criterion_group, criterion_main};
use serde_json::{Map, Value, json};
use tollgate_core::diagnostic::Location;
use tollgate_objects::Text;
use tollgate_policy::rbac::{PolicySource, Rbac, RbacRequest};

/// Rows of the policy in benches that do not vary the number.
const ROWS: usize = 10_000;

/// A policy of `rows` rows, a fifth of each kind: exact objects, whole projects and patterns with
/// both ends in one team's role, rows of other roles, and denies.
fn policy(rows: usize) -> PolicySource {
    let mut text = String::from("g, team, role:team\ng, other, role:other\n");
    for row in 0..rows {
        let line = match row % 5 {
            0 => format!("p, role:team, applications, get, project-{row}/app-{row}, allow\n"),
            1 => format!("p, role:team, applications, get, project-{row}/*, allow\n"),
            2 => format!("p, role:team, applications, sync, project-{row}/*-web, allow\n"),
            3 => format!("p, role:other-{row}, applications, *, project-{row}/*, allow\n"),
            _ => format!("p, role:team, applications, delete, project-{row}/*, deny\n"),
        };
        text.push_str(&line);
    }
    let text = Text {
        value: text.into(),
        location: Location::new("policy.csv", 1),
    };
    PolicySource {
        texts: vec![text],
        ..PolicySource::default()
    }
}

fn compile(source: &PolicySource) -> Rbac {
    let loaded = Rbac::compile(source);
    loaded
        .value
        .unwrap_or_else(|| panic!("the policy is refused: {:?}", loaded.diagnostics))
}

fn claims() -> Map<String, Value> {
    let mut claims = Map::new();
    claims.insert("sub".to_owned(), json!("CgNqYW4SBGxkYXA"));
    claims.insert("groups".to_owned(), json!(["everyone", "team", "readers"]));
    claims
}

fn decide(c: &mut Criterion) {
    let rbac = compile(&policy(ROWS));
    let who = rbac.identify(&claims());
    let questions = [
        ("exact object", "get", "project-5000/app-5000", true),
        ("object by its beginning", "get", "project-5001/app-7", true),
        ("object by both ends", "sync", "project-5002/app-7-web", true),
        ("denied by a row", "delete", "project-5004/app-7", false),
        ("row of another role", "get", "project-5003/app-7", false),
    ];
    for (name, action, object, expected) in questions {
        let tuple = RbacRequest {
            resource: "applications",
            action,
            object,
        };
        assert_eq!(rbac.decide(&who, tuple).is_allowed(), expected, "{name}");
        c.bench_function(&format!("rbac_decide/{name}"), |bencher| {
            bencher.iter(|| rbac.decide(black_box(&who), black_box(tuple)));
        });
    }
}

fn identify(c: &mut Criterion) {
    let rbac = compile(&policy(ROWS));
    let claims = claims();
    c.bench_function("rbac_identify/cached", |bencher| {
        bencher.iter(|| rbac.identify(black_box(&claims)))
    });
}

fn load(c: &mut Criterion) {
    let mut group = c.benchmark_group("rbac_load");
    group.sample_size(10);
    for rows in [1_000, 100_000] {
        group.bench_with_input(BenchmarkId::from_parameter(rows), &rows, |bencher, rows| {
            let source = policy(*rows);
            bencher.iter(|| compile(&source));
        });
    }
    group.finish();
}

criterion_group!(benches, decide, identify, load);
criterion_main!(benches);
