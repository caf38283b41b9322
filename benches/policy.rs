//! What a policy decision costs.
//!
//! One question each: a hit and a miss at 10 to 100,000 rows, a list of 10,000
//! Applications, the making of an identity, the loading of a policy.

use std::hint::black_box;

use criterion::{BenchmarkId, Criterion, Throughput, criterion_group, criterion_main};
use serde_json::{Map, Value, json};
use tollgate::authorize::rbac::{PolicySource, Rbac, Tuple};
use tollgate::diagnostic::Location;
use tollgate::state::Text;

const ROWS: [usize; 4] = [10, 1_000, 10_000, 100_000];
const LIST: usize = 10_000;

/// A policy of `rows` rows: a fifth each of exact objects, whole projects and
/// patterns with both ends in one team's role, rows of other roles, and denies.
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

fn compile(rows: usize) -> Rbac {
    match Rbac::compile(&policy(rows)).value {
        Some(rbac) => rbac,
        None => unreachable_policy(),
    }
}

fn unreachable_policy() -> Rbac {
    // The policy above has no broken line; an empty one makes the bench tell.
    Rbac::compile(&PolicySource::default())
        .value
        .unwrap_or_else(|| std::process::abort())
}

fn claims() -> Map<String, Value> {
    let mut claims = Map::new();
    claims.insert("sub".to_owned(), json!("CgNqYW4SBGxkYXA"));
    claims.insert("groups".to_owned(), json!(["everyone", "team", "readers"]));
    claims
}

fn decide(c: &mut Criterion) {
    let mut group = c.benchmark_group("rbac_decide");
    for rows in ROWS {
        let rbac = compile(rows);
        let who = rbac.identify(&claims());
        let row = rows / 2 - (rows / 2) % 5;
        let exact = format!("project-{row}/app-{row}");
        let prefix = format!("project-{}/app-7", row + 1);
        for (name, object) in [
            ("hit-exact", exact.as_str()),
            ("hit-prefix", &prefix),
            ("miss", "unknown/app-1"),
        ] {
            let tuple = Tuple {
                resource: "applications",
                action: "get",
                object,
            };
            assert_eq!(rbac.decide(&who, tuple).is_allowed(), name != "miss");
            group.bench_with_input(BenchmarkId::new(name, rows), &tuple, |bencher, tuple| {
                bencher.iter(|| rbac.decide(black_box(&who), black_box(*tuple)));
            });
        }
    }
    group.finish();
}

fn list(c: &mut Criterion) {
    let mut group = c.benchmark_group("rbac_list");
    let rbac = compile(10_000);
    let who = rbac.identify(&claims());
    let objects: Vec<String> = (0..LIST)
        .map(|app| format!("project-{}/app-{app}", app % 10_000))
        .collect();
    group.throughput(Throughput::Elements(LIST as u64));
    group.bench_function("10000-applications", |bencher| {
        bencher.iter(|| rbac.decide_each(&who, "applications", "get", objects.iter().map(String::as_str)));
    });
    group.finish();
}

fn identify(c: &mut Criterion) {
    let rbac = compile(10_000);
    let claims = claims();
    c.bench_function("rbac_identify/cached", |bencher| {
        bencher.iter(|| rbac.identify(black_box(&claims)))
    });
}

fn load(c: &mut Criterion) {
    let mut group = c.benchmark_group("rbac_load");
    group.sample_size(10);
    for rows in [1_000, 100_000] {
        let source = policy(rows);
        group.bench_with_input(BenchmarkId::from_parameter(rows), &source, |bencher, source| {
            bencher.iter(|| Rbac::compile(source));
        });
    }
    group.finish();
}

criterion_group!(benches, decide, list, identify, load);
criterion_main!(benches);
