//! Costs of plugins for a request: a static plan, and a call of a guest in a fresh instance, with
//! one and with two threads. Also the cost of loading plugins.
//!
//! Needs the built guests: `cargo xtask plugins`. Reuse of instances is not measured, because the
//! gateway never reuses one: a guest would see other callers' requests.

#![expect(clippy::expect_used, reason = "a bench that cannot run panics")]

use std::collections::BTreeMap;
use std::future::Future;
use std::hint::black_box;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, Instant};

use criterion::{Criterion, criterion_group, criterion_main};
use http::{HeaderMap, HeaderName, HeaderValue};
use tokio::runtime::Runtime;
use tollgate_config::{PluginGrant, Plugins};
use tollgate_plugin::{FilterContext, HeaderFilter, PluginSet};

/// Header fields of a browser's request.
const FIELDS: [(&str, &str); 12] = [
    ("accept", "application/json, text/plain, */*"),
    ("accept-encoding", "gzip, deflate, br"),
    ("accept-language", "en-US,en;q=0.9"),
    ("cache-control", "no-cache"),
    ("content-type", "application/json"),
    ("origin", "https://argocd.example.com"),
    ("referer", "https://argocd.example.com/applications/argocd/shop"),
    ("sec-fetch-mode", "cors"),
    ("user-agent", "Mozilla/5.0 (X11; Linux x86_64) AppleWebKit/537.36"),
    ("x-api-key", "0123456789abcdef"),
    ("x-request-id", "018f3c2a-5a5e-7cc1-9c0f-000000000000"),
    ("x-scope-orgid", "a"),
];

fn fields() -> HeaderMap {
    let pair = |(name, value)| (HeaderName::from_static(name), HeaderValue::from_static(value));
    FIELDS.into_iter().map(pair).collect()
}

fn guests() -> PathBuf {
    let folder = std::env::var_os("TOLLGATE_GUESTS").map_or_else(
        || Path::new(env!("CARGO_MANIFEST_DIR")).join("target/guests"),
        PathBuf::from,
    );
    assert!(
        folder.join("baseline.wasm").exists(),
        "no guests in {}: run `cargo xtask plugins`",
        folder.display()
    );
    folder
}

/// Settings with a folder of only the measured plugins, and their grants.
fn settings(root: &Path) -> Plugins {
    let directory = root.join("plugins");
    std::fs::create_dir(&directory).expect("a folder");
    for name in ["baseline", "tenant-router"] {
        for extension in ["wasm", "yaml"] {
            let file = format!("{name}.{extension}");
            std::fs::copy(guests().join(&file), directory.join(&file)).expect("a guest");
        }
    }
    let config = serde_json::json!({ "groups": { "team-a": "a" } });
    let grants = BTreeMap::from([(
        "tenant-router".to_owned(),
        PluginGrant {
            config,
            ..PluginGrant::default()
        },
    )]);
    Plugins {
        directory: Some(directory),
        cache: Some(root.join("cache")),
        grants,
        ..Plugins::default()
    }
}

fn load(settings: &Plugins) -> PluginSet {
    let (set, diagnostics) = tollgate_plugin::Runtime::new(settings).expect("an engine").load(None);
    assert!(diagnostics.is_empty(), "{diagnostics:?}");
    set
}

async fn filter_request(filter: &HeaderFilter, groups: &[String], template: &HeaderMap) -> HeaderMap {
    let context = FilterContext {
        extension: "metrics",
        method: "GET",
        path: "/api",
        groups,
        ..FilterContext::default()
    };
    let mut headers = template.clone();
    filter.filter_request(&context, &mut headers).await.expect("edits");
    headers
}

fn plans(criterion: &mut Criterion, set: &PluginSet) {
    let filter = set.header_filter("baseline").expect("the baseline");
    let template = fields();
    criterion.bench_function("plan/clone of 12 fields alone", |bencher| {
        bencher.iter(|| black_box(template.clone()))
    });
    criterion.bench_function("plan/request, 12 fields", |bencher| {
        bencher.iter_batched_ref(
            || template.clone(),
            |headers| filter.request_plan().apply(headers),
            criterion::BatchSize::SmallInput,
        );
    });
    criterion.bench_function("plan/response, 12 fields", |bencher| {
        bencher.iter_batched_ref(
            || template.clone(),
            |headers| filter.response_plan().apply(headers),
            criterion::BatchSize::SmallInput,
        );
    });
}

/// Aligned to a cache line, so that its position in memory does not affect the time.
#[repr(align(64))]
struct Words([u64; 512]);

/// Some microseconds of arithmetic on 4 KiB that no other thread uses.
fn arithmetic(state: &mut Words) {
    for _ in 0..64 {
        for word in &mut state.0 {
            *word ^= *word << 13;
            *word ^= *word >> 7;
            *word ^= *word << 17;
        }
    }
}

/// Distributes `iterations` of `work` over all threads of a runtime; returns the total time.
fn run_on_threads<F: Future<Output = ()> + Send + 'static>(
    (runtime, threads): (&Runtime, usize),
    iterations: u64,
    work: impl Fn(u64) -> F,
) -> Duration {
    let each = iterations.div_ceil(u64::try_from(threads).unwrap_or(1));
    let start = Instant::now();
    let tasks: Vec<_> = (0..threads).map(|_| runtime.spawn(work(each))).collect();
    runtime.block_on(async {
        for task in tasks {
            task.await.expect("the work is done");
        }
    });
    start.elapsed()
}

fn calls(criterion: &mut Criterion, set: &PluginSet) {
    let filter = set.header_filter("tenant-router").expect("the tenant router").clone();
    let groups: Arc<[String]> = vec!["team-a".to_owned(), "everyone".to_owned()].into();
    let template = fields();
    for threads in [1_usize, 2] {
        let runtime = tokio::runtime::Builder::new_multi_thread()
            .worker_threads(threads)
            .enable_time()
            .build();
        let runtime = runtime.expect("a runtime");
        // Total time divided by the calls of all threads. Two threads take half the time of one
        // if they do not block each other and the machine has two free cores.
        criterion.bench_function(&format!("call/fresh instance, {threads} threads"), |bencher| {
            bencher.iter_custom(|iterations| {
                run_on_threads((&runtime, threads), iterations, |each| {
                    let (filter, groups, template) = (filter.clone(), groups.clone(), template.clone());
                    async move {
                        for _ in 0..each {
                            black_box(filter_request(&filter, &groups, &template).await);
                        }
                    }
                })
            });
        });
        criterion.bench_function(&format!("call/control, {threads} threads"), |bencher| {
            bencher.iter_custom(|iterations| {
                run_on_threads((&runtime, threads), iterations, |each| async move {
                    let mut state = Words([1; 512]);
                    for _ in 0..each {
                        arithmetic(black_box(&mut state));
                    }
                })
            });
        });
    }
}

fn loads(criterion: &mut Criterion, settings: &Plugins) {
    let cache = settings.cache.clone().expect("a cache folder");
    let mut group = criterion.benchmark_group("load");
    group.sample_size(10).measurement_time(Duration::from_secs(5));
    group.bench_function("two plugins, cold", |bencher| {
        bencher.iter_batched(
            || std::fs::remove_dir_all(&cache),
            |_| load(settings),
            criterion::BatchSize::PerIteration,
        );
    });
    group.bench_function("two plugins, compiled before", |bencher| {
        bencher.iter(|| load(settings))
    });
    group.finish();
}

fn all(criterion: &mut Criterion) {
    let root = tempfile::tempdir().expect("a folder");
    let settings = settings(root.path());
    let set = load(&settings);
    plans(criterion, &set);
    calls(criterion, &set);
    loads(criterion, &settings);
}

criterion_group!(benches, all);
criterion_main!(benches);
