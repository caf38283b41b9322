//! Tollgate's side of `cargo xtask compare`: the same questions as for the peers, under the same
//! names. Each answer is checked once before it is timed.

#![expect(clippy::expect_used, clippy::panic, reason = "a bench that cannot run panics")]

use std::hint::black_box;
use std::path::{Path, PathBuf};

use criterion::{BenchmarkId, Criterion, criterion_group, criterion_main};
use serde_json::{Map, Value, json};
use tollgate_config::RbacSemantics;
use tollgate_core::diagnostic::Location;
use tollgate_objects::Text;
use tollgate_policy::rbac::{Builtin, MatchMode, PolicySource, Rbac, RbacRequest};
use tollgate_rego::{Bundle, Checker, Front};

#[path = "support/rows.rs"]
mod rows;

const SIZES: [usize; 4] = [10, 1_000, 10_000, 100_000];
/// Rows of the policy and number of applications for the list.
const LISTED: usize = 10_000;

/// Compiles the policy without Argo CD's built-in rows, as for the peers.
fn compile(policy: &str) -> Rbac {
    let source = PolicySource {
        builtin: Builtin::None,
        texts: vec![Text {
            value: policy.into(),
            location: Location::new("policy.csv", 1),
        }],
        default_role: String::new(),
        default_role_location: None,
        match_mode: MatchMode::Glob,
        scopes: vec!["groups".to_owned()],
        projects: [].into(),
        accounts: [].into(),
        semantics: RbacSemantics::Argocd,
    };
    let loaded = Rbac::compile(&source);
    loaded
        .value
        .unwrap_or_else(|| panic!("the policy is refused: {:?}", loaded.diagnostics))
}

fn claims(asked: &rows::Questions) -> Map<String, Value> {
    [
        ("sub".to_owned(), json!(asked.subject)),
        ("groups".to_owned(), json!(asked.groups)),
    ]
    .into_iter()
    .collect()
}

fn tuple([resource, action, object]: &[String; 3]) -> RbacRequest<'_> {
    RbacRequest {
        resource,
        action,
        object,
    }
}

/// Times one decision, for a caller already identified and starting from a token's claims.
fn rbac(c: &mut Criterion) {
    for size in SIZES {
        let asked = rows::questions(size, 0);
        let (policy, claims) = (compile(&asked.policy), claims(&asked));
        let who = policy.identify(&claims);
        for (name, question, expected) in [("hit", &asked.hit, true), ("miss", &asked.miss, false)] {
            let question = tuple(question);
            assert_eq!(
                policy.decide(&who, question).is_allowed(),
                expected,
                "{name} at {size} rows"
            );
            c.bench_function(&format!("rbac/{name}/{size}"), |b| {
                b.iter(|| policy.decide(black_box(&who), black_box(question)));
            });
            c.bench_function(&format!("rbac/{name}-from-claims/{size}"), |b| {
                b.iter(|| policy.decide(&policy.identify(black_box(&claims)), black_box(question)));
            });
        }
    }
}

/// Times deciding which of 10,000 applications the caller may get.
fn list(c: &mut Criterion) {
    let asked = rows::questions(LISTED, LISTED);
    let policy = compile(&asked.policy);
    let who = policy.identify(&claims(&asked));
    let list = || {
        policy.decide_each(
            &who,
            "applications",
            "get",
            asked.applications.iter().map(String::as_str),
        )
    };
    let allowed = list().iter().filter(|verdict| verdict.is_allowed()).count();
    // Two of the policy's 1,000 roles, each with ten of the applications.
    assert_eq!(allowed, 20);
    c.bench_with_input(BenchmarkId::new("list", LISTED), &(), |b, ()| {
        b.iter(|| black_box(list()))
    });
}

/// Times the shipped bundle on an input built before, as for OPA.
fn rego(c: &mut Criterion) {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("policies/extensions");
    let checker = Checker::new(PathBuf::from(env!("CARGO_BIN_EXE_tollgate")));
    let loaded = Bundle::load(&folder, Front::Extensions, &checker);
    let bundle = loaded
        .value
        .unwrap_or_else(|| panic!("the shipped bundle is refused: {:?}", loaded.diagnostics));
    let input = regorus::Value::from_json_str(include_str!("support/extensions-input.json")).expect("valid JSON");
    assert!(bundle.decide(input.clone()).is_ok_and(|decision| decision.allow));
    c.bench_function("rego/extensions", |b| {
        b.iter(|| bundle.decide(black_box(input.clone())))
    });
}

criterion_group!(compare, rbac, list, rego);
criterion_main!(compare);
