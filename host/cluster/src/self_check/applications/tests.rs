//! Which checks clusters get, how many, and what is made of the results.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};

use serde_json::json;

use super::plan::{AccountPlan, ClusterAccounts};
use super::report::AccountsReport;
use super::survey::{AccountExistence, AccountImpersonation, MAX_ACCOUNTS_PER_ROUND, SurveyResult};
use super::warnings::ClusterWarnings;
use super::*;
use crate::self_check::FULL_CHECK_INTERVAL;
use crate::self_check::extras::ExtraGrants;
use tollgate_config::ImpersonationMode;
use tollgate_policy::gateway_rights::accounts::ActingApplications;

/// A cluster with scripted rights and accounts, which records its checks.
#[derive(Default)]
struct FakeReviewer {
    /// As `verb namespace name`, or `extra key`; the namespace and name of all are `*`.
    allowed: BTreeSet<String>,
    existing: BTreeSet<String>,
    problem: Option<CheckError>,
    checks: Mutex<Vec<String>>,
    in_flight: AtomicUsize,
    max_in_flight: AtomicUsize,
}

impl FakeReviewer {
    fn new(allowed: &[&str], existing: &[&str]) -> Self {
        let owned = |texts: &[&str]| texts.iter().map(|text| (*text).to_owned()).collect();
        Self {
            allowed: owned(allowed),
            existing: owned(existing),
            ..Self::default()
        }
    }

    async fn record(&self, check: String) -> Result<String, CheckError> {
        let in_flight = self.in_flight.fetch_add(1, Ordering::Relaxed) + 1;
        self.max_in_flight.fetch_max(in_flight, Ordering::Relaxed);
        tokio::task::yield_now().await;
        self.in_flight.fetch_sub(1, Ordering::Relaxed);
        self.checks.lock().unwrap().push(check.clone());
        self.problem.clone().map_or(Ok(check), Err)
    }

    fn checks(&self) -> Vec<String> {
        let mut checks = self.checks.lock().unwrap().clone();
        checks.sort();
        checks
    }
}

impl AccessReviewer for FakeReviewer {
    async fn is_allowed(&self, check: AccessCheck<'_>) -> Result<bool, CheckError> {
        let text = match check {
            AccessCheck::Extra(key) => format!("extra {key}"),
            AccessCheck::Accounts(right, scope) => {
                let verb = match right {
                    AccountRight::Impersonate(ImpersonationKind::Classic) => "classic",
                    AccountRight::Impersonate(ImpersonationKind::Constrained) => "constrained",
                    AccountRight::Get => "get",
                };
                match scope {
                    AccountScope::All => format!("{verb} * *"),
                    AccountScope::Namespace(namespace) => format!("{verb} {namespace} *"),
                    AccountScope::One(ServiceAccountName { namespace, name }) => format!("{verb} {namespace} {name}"),
                }
            }
        };
        Ok(self.allowed.contains(&self.record(text).await?))
    }

    async fn exists(&self, ServiceAccountName { namespace, name }: &ServiceAccountName) -> Result<bool, CheckError> {
        let name = format!("{namespace} {name}");
        self.record(format!("look {name}")).await?;
        Ok(self.existing.contains(&name))
    }
}

fn account(text: &str) -> ServiceAccountName {
    let (namespace, name) = text.split_once(' ').unwrap();
    ServiceAccountName {
        namespace: namespace.to_owned(),
        name: name.to_owned(),
    }
}

fn accounts(texts: &[&str]) -> Vec<ServiceAccountName> {
    texts.iter().map(|text| account(text)).collect()
}

fn cluster_accounts(accounts: &[ServiceAccountName]) -> ClusterAccounts {
    let acting = || ActingApplications {
        count: 1,
        first: vec!["argocd/cart".to_owned()],
    };
    ClusterAccounts {
        label: "one".into(),
        access: None,
        accounts: accounts.iter().map(|account| (account.clone(), acting())).collect(),
    }
}

const KEYS: [&str; 2] = ["t.example/application", "t.example/user"];

fn keys() -> Vec<String> {
    KEYS.map(str::to_owned).to_vec()
}

/// A round with enough time.
async fn survey(
    fake: &FakeReviewer,
    accounts: &[ServiceAccountName],
    keys: &[String],
    before: Option<SurveyResult>,
) -> SurveyResult {
    super::survey(fake, accounts, keys, before, after(ROUND_TIMEOUT)).await
}

/// Runs a round and compares impersonation and existence of each account.
async fn expect_results(
    fake: &FakeReviewer,
    due: &[&str],
    expected: &[(&str, AccountImpersonation, AccountExistence)],
) -> SurveyResult {
    let result = survey(fake, &accounts(due), &keys(), None).await;
    let found: BTreeMap<_, _> = result
        .accounts
        .iter()
        .map(|(account, account_result)| {
            (
                account.clone(),
                (account_result.impersonation.clone(), account_result.existence.clone()),
            )
        })
        .collect();
    let expected = expected
        .iter()
        .map(|(text, impersonation, existence)| (account(text), (impersonation.clone(), existence.clone())))
        .collect();
    assert_eq!(found, expected);
    result
}

const CLASSIC: AccountImpersonation = AccountImpersonation::Granted(ImpersonationKind::Classic);
const CONSTRAINED: AccountImpersonation = AccountImpersonation::Granted(ImpersonationKind::Constrained);

#[tokio::test]
async fn permission_for_all_accounts_replaces_checks_of_single_accounts() {
    let fake = FakeReviewer::new(&["classic * *", "get * *"], &["a x"]);
    let result = expect_results(
        &fake,
        &["a x", "b y"],
        &[
            ("a x", CLASSIC, AccountExistence::Present),
            ("b y", CLASSIC, AccountExistence::Absent),
        ],
    )
    .await;
    assert_eq!(result.all, Some(ImpersonationKind::Classic));
    let expected = [
        "classic * *",
        "extra t.example/application",
        "extra t.example/user",
        "get * *",
        "look a x",
        "look b y",
    ];
    assert_eq!(fake.checks(), expected);
}

#[tokio::test]
async fn accounts_are_checked_one_by_one_and_not_read_without_permission() {
    let fake = FakeReviewer::new(&["classic a x", "extra t.example/user"], &["a x", "a y"]);
    let result = expect_results(
        &fake,
        &["a x", "a y"],
        &[
            ("a x", CLASSIC, AccountExistence::Hidden),
            ("a y", AccountImpersonation::Missing, AccountExistence::Hidden),
        ],
    )
    .await;
    assert_eq!(result.all, None);
    let extra = [Ok(false), Ok(true)];
    assert_eq!(result.extra, keys().into_iter().zip(extra).collect());
    let checks = fake.checks();
    assert!(!checks.iter().any(|check| check.starts_with("look")), "{checks:?}");
    // What is granted in one mode is not checked in the other.
    assert!(!checks.contains(&"constrained a x".to_owned()), "{checks:?}");
    assert!(checks.contains(&"constrained a y".to_owned()), "{checks:?}");
}

#[tokio::test]
async fn namespaces_with_several_accounts_are_first_checked_as_a_whole() {
    let fake = FakeReviewer::new(&["constrained a *", "classic a x", "get a x"], &["a x"]);
    expect_results(
        &fake,
        &["a x", "a y", "a z", "b x"],
        &[
            ("a x", CLASSIC, AccountExistence::Present),
            ("a y", CONSTRAINED, AccountExistence::Hidden),
            ("a z", CONSTRAINED, AccountExistence::Hidden),
            ("b x", AccountImpersonation::Missing, AccountExistence::Hidden),
        ],
    )
    .await;
    let checks = fake.checks();
    assert!(checks.contains(&"constrained a *".to_owned()), "{checks:?}");
    let needless = ["constrained a y", "constrained a x", "classic b *", "get b *"];
    assert!(
        !checks.iter().any(|check| needless.contains(&check.as_str())),
        "{checks:?}"
    );
}

#[tokio::test]
async fn invalid_account_names_are_not_checked() {
    let fake = FakeReviewer::new(&["classic * *", "get * *"], &[]);
    expect_results(
        &fake,
        &["a b:c"],
        &[("a b:c", AccountImpersonation::Impossible, AccountExistence::Absent)],
    )
    .await;
    assert!(fake.checks().iter().all(|check| !check.contains("b:c")));
}

#[tokio::test]
async fn a_failed_check_makes_the_cluster_unknown_and_grants_nothing() {
    let mut fake = FakeReviewer::new(&["classic * *", "extra t.example/user"], &[]);
    let due = accounts(&["a x"]);
    let before = survey(&fake, &due, &keys(), None).await;
    assert_eq!(granted(&before).accounts, GrantedAccounts::All);
    fake.problem = Some(CheckError::Answer);
    let result = survey(&fake, &due, &keys(), Some(before)).await;
    assert_eq!(result.problem, Some(CheckError::Answer));
    assert!(granted(&result).keys.is_empty());
    assert_eq!(result.accounts, BTreeMap::new());
    // The failure of one check is enough.
    assert_eq!(fake.checks().iter().filter(|check| *check == "classic * *").count(), 2);
}

#[tokio::test]
async fn concurrent_checks_are_bounded() {
    let fake = FakeReviewer::default();
    let due: Vec<ServiceAccountName> = (0..40).map(|n| account(&format!("a x{n}"))).collect();
    survey(&fake, &due, &keys(), None).await;
    assert_eq!(fake.max_in_flight.load(Ordering::Relaxed), 4);
}

/// Never answers.
struct SilentReviewer;

impl AccessReviewer for SilentReviewer {
    async fn is_allowed(&self, _: AccessCheck<'_>) -> Result<bool, CheckError> {
        std::future::pending().await
    }

    async fn exists(&self, _: &ServiceAccountName) -> Result<bool, CheckError> {
        std::future::pending().await
    }
}

/// Clusters that hang do not keep others from being asked about new accounts.
#[test]
fn a_cluster_that_does_not_answer_is_asked_less_and_less() {
    let failed = |failures| SurveyResult {
        failures,
        ..SurveyResult::without_answers(CheckError::Answer)
    };
    for (failures, seconds) in [(1, 60), (2, 120), (3, 240), (4, 480), (5, 900), (50, 900)] {
        let expected = Some(std::time::Duration::from_secs(seconds));
        assert_eq!(failed(failures).retry_interval(), expected, "{failures}");
    }
    assert_eq!(SurveyResult::default().retry_interval(), None);
    assert!(failed(1).next_timeout() < SurveyResult::default().next_timeout());
}

#[tokio::test]
async fn a_round_times_out() {
    let due = accounts(&["a x"]);
    let result = super::survey(&SilentReviewer, &due, &keys(), None, Instant::now()).await;
    assert!(matches!(result.problem, Some(CheckError::Time(_))), "{result:?}");
}

#[tokio::test]
async fn rounds_are_bounded_and_start_with_the_accounts_that_waited_longest() {
    let all: Vec<ServiceAccountName> = (0..=MAX_ACCOUNTS_PER_ROUND)
        .map(|n| account(&format!("a x{n:04}")))
        .collect();
    let cluster = cluster_accounts(&all);
    let fake = FakeReviewer::new(&["classic * *"], &[]);
    let first = cluster.due_accounts(None, &keys(), Instant::now()).unwrap();
    assert_eq!(first, all[..MAX_ACCOUNTS_PER_ROUND]);
    let result = survey(&fake, &first, &keys(), None).await;
    assert_eq!(cluster.unasked(&result), 1);
    let second = cluster.due_accounts(Some(&result), &keys(), Instant::now()).unwrap();
    assert_eq!(second, all[MAX_ACCOUNTS_PER_ROUND..]);
    let result = survey(&fake, &second, &keys(), Some(result)).await;
    assert_eq!(cluster.unasked(&result), 0);
    assert_eq!(cluster.due_accounts(Some(&result), &keys(), Instant::now()), None);
    // A new key is due at once.
    let more = [keys(), vec!["t.example/z".to_owned()]].concat();
    assert_eq!(
        cluster.due_accounts(Some(&result), &more, Instant::now()),
        Some(Vec::new())
    );
    // Good results are refreshed later than others.
    assert_eq!(
        cluster.due_accounts(Some(&result), &keys(), after(RETRY_INTERVAL)),
        None
    );
    let again = cluster
        .due_accounts(Some(&result), &keys(), after(FULL_CHECK_INTERVAL))
        .unwrap();
    assert_eq!(again.len(), MAX_ACCOUNTS_PER_ROUND);
    assert!(!again.contains(&all[MAX_ACCOUNTS_PER_ROUND]), "it was checked last");
}

#[tokio::test]
async fn missing_accounts_and_failed_clusters_are_checked_again_soon() {
    let all = accounts(&["a x", "a y"]);
    let cluster = cluster_accounts(&all);
    let result = survey(&FakeReviewer::new(&["classic a x"], &[]), &all, &keys(), None).await;
    assert_eq!(cluster.due_accounts(Some(&result), &keys(), Instant::now()), None);
    assert_eq!(
        cluster.due_accounts(Some(&result), &keys(), after(RETRY_INTERVAL)),
        Some(accounts(&["a y"]))
    );

    let result = SurveyResult::without_answers(CheckError::NoCluster);
    assert_eq!(cluster.due_accounts(Some(&result), &keys(), Instant::now()), None);
    assert_eq!(
        cluster.due_accounts(Some(&result), &keys(), after(RETRY_INTERVAL)),
        Some(all)
    );
}

#[tokio::test]
async fn extra_is_granted_only_with_classic_impersonation() {
    let fake = FakeReviewer::new(&["classic a x", "constrained a y", "extra t.example/user"], &[]);
    let result = survey(&fake, &accounts(&["a x", "a y", "a z"]), &keys(), None).await;
    let granted = granted(&result);
    let (grants, _reports) = ExtraGrants::new();
    grants.set([("https://one.example".to_owned(), granted.clone())]);
    let keys_of = |name: &str| {
        let granted = grants.granted("https://one.example", &account(name));
        granted.map(|granted| KEYS.map(|key| granted.has(key)))
    };
    assert_eq!(keys_of("a x"), Some([false, true]));
    assert_eq!(keys_of("a y"), None);
    assert_eq!(keys_of("a z"), None);

    assert_eq!(still_granted(&fake, &granted, &account("a x")).await, Ok(true));
    assert_eq!(still_granted(&fake, &granted, &account("a y")).await, Ok(false));
    let fewer = FakeReviewer::new(&["classic a x"], &[]);
    assert_eq!(still_granted(&fewer, &granted, &account("a x")).await, Ok(false));
}

#[tokio::test]
async fn reports_list_problems_first() {
    let all = accounts(&["a x", "b y", "c z", "d q:r"]);
    let cluster = cluster_accounts(&all);
    let fake = FakeReviewer::new(&["classic a x", "get a x", "get b y", "extra t.example/user"], &["a x"]);
    let result = survey(&fake, &accounts(&["a x", "b y", "d q:r"]), &keys(), None).await;
    let plan = AccountPlan {
        mode: ImpersonationMode::Audit,
        clusters: BTreeMap::from([("https://one.example".to_owned(), cluster)]),
        keys: keys(),
    };
    let surveys = BTreeMap::from([("https://one.example".to_owned(), Arc::new(result))]);
    let report = serde_json::to_value(AccountsReport::of(&plan, &surveys)).unwrap();
    let account = |namespace: &str, name: &str, impersonation: serde_json::Value, existence: serde_json::Value| {
        json!({
            "namespace": namespace, "name": name, "impersonation": impersonation, "existence": existence,
            "applications": {"count": 1, "first": ["argocd/cart"]},
        })
    };
    let state = |state: &str| json!({"state": state});
    let unasked = json!({"state": "unknown", "problem": "it was not asked about yet"});
    let expected = json!({
        "mode": "audit",
        "clusters": [{
            "cluster": "one",
            "server": "https://one.example",
            "impersonation": {"granted": 1, "missing": 2, "unknown": 1},
            "existence": {"granted": 1, "missing": 2, "unknown": 1},
            "command": "tollgate rbac manifest --applications --cluster one",
            "accounts": [
                account("b", "y", state("missing"), state("missing")),
                account("c", "z", unasked.clone(), unasked),
                account("d", "q:r", state("impossible"), state("missing")),
                account("a", "x", json!({"state": "granted", "mode": "classic"}), state("exists")),
            ],
            "accounts_left_out": 0,
            "extra": [
                {"key": "t.example/application", "state": "missing"},
                {"key": "t.example/user", "state": "granted"},
            ],
        }],
    });
    assert_eq!(report, expected);
}

#[tokio::test]
async fn nothing_is_checked_if_impersonation_is_off() {
    let index = tollgate_policy::applications::ApplicationIndex::default();
    assert_eq!(index.mode, ImpersonationMode::Off);
    let clusters = crate::access::Clusters::default();
    let plan = AccountPlan::of(&index, keys().into_iter(), &clusters);
    assert!(plan.clusters.is_empty());
    let report = serde_json::to_value(AccountsReport::of(&plan, &BTreeMap::new())).unwrap();
    assert_eq!(report, json!({"mode": "off", "clusters": []}));
}

/// Lines of the log while `work` runs.
fn logged(work: impl FnOnce()) -> Vec<String> {
    use std::io::Write;
    use std::sync::Arc;

    #[derive(Clone, Default)]
    struct Lines(Arc<Mutex<Vec<u8>>>);
    impl Write for Lines {
        fn write(&mut self, bytes: &[u8]) -> std::io::Result<usize> {
            self.0.lock().unwrap().extend_from_slice(bytes);
            Ok(bytes.len())
        }

        fn flush(&mut self) -> std::io::Result<()> {
            Ok(())
        }
    }
    let lines = Lines::default();
    let writer = lines.clone();
    let subscriber = tracing_subscriber::fmt()
        .with_ansi(false)
        .with_writer(move || writer.clone())
        .finish();
    tracing::subscriber::with_default(subscriber, work);
    let bytes = lines.0.lock().unwrap().clone();
    String::from_utf8(bytes).unwrap().lines().map(str::to_owned).collect()
}

#[tokio::test]
async fn changes_are_logged_once() {
    let names: Vec<String> = (0..7).map(|n| format!("a x{n}")).collect();
    let names: Vec<&str> = names.iter().map(String::as_str).collect();
    let all = accounts(&names);
    let cluster = cluster_accounts(&all);
    let before = survey(&FakeReviewer::default(), &all, &keys(), None).await;
    let before = ClusterWarnings::of(&cluster, &before);
    let lines = logged(|| before.log_changes(&cluster, None));
    assert_eq!(lines.len(), 2, "{lines:?}");
    assert!(lines[0].contains("WARN") && lines[0].contains("count=7"), "{lines:?}");
    assert!(
        lines[0].contains("a:x0, a:x1, a:x2, a:x3, a:x4 and 2 more"),
        "{lines:?}"
    );
    assert!(
        lines[0].contains("`tollgate rbac manifest --applications --cluster one`"),
        "{lines:?}"
    );
    assert!(lines[1].contains("t.example/application, t.example/user"), "{lines:?}");
    assert_eq!(
        logged(|| before.log_changes(&cluster, Some(&before))),
        Vec::<String>::new()
    );

    let fake = FakeReviewer::new(
        &["classic * *", "extra t.example/user", "extra t.example/application"],
        &[],
    );
    let now = ClusterWarnings::of(&cluster, &survey(&fake, &all, &keys(), None).await);
    let lines = logged(|| now.log_changes(&cluster, Some(&before)));
    assert_eq!(lines.len(), 2, "{lines:?}");
    assert!(lines[0].contains("WARN") && lines[0].contains("every service account of the cluster"));
    assert!(lines[1].contains("INFO"), "{lines:?}");
}
