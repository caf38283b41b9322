//! What clusters are asked, how much of it, and what is made of the answers.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering};

use serde_json::json;

use super::plan::{AccountPlan, ClusterAccounts};
use super::report::AccountsReport;
use super::say::ClusterWarnings;
use super::survey::{AccountExistence, AccountImpersonation, Extra, MAX_ACCOUNTS_PER_ROUND, SurveyResult};
use super::*;
use crate::self_check::accounts::ActingApplications;
use tollgate_config::ImpersonationMode as Switch;

/// A cluster in which some things are allowed, and which remembers its questions.
#[derive(Default)]
struct FakeReviewer {
    /// As `verb namespace name`, or `extra key`; the namespace and name of all are `*`.
    allowed: BTreeSet<String>,
    there: BTreeSet<String>,
    problem: Option<CheckError>,
    asked: Mutex<Vec<String>>,
    now: AtomicUsize,
    most: AtomicUsize,
}

impl FakeReviewer {
    fn new(allowed: &[&str], there: &[&str]) -> Self {
        let owned = |texts: &[&str]| texts.iter().map(|text| (*text).to_owned()).collect();
        Self {
            allowed: owned(allowed),
            there: owned(there),
            ..Self::default()
        }
    }

    async fn hears(&self, question: String) -> Result<String, CheckError> {
        let now = self.now.fetch_add(1, Ordering::Relaxed) + 1;
        self.most.fetch_max(now, Ordering::Relaxed);
        tokio::task::yield_now().await;
        self.now.fetch_sub(1, Ordering::Relaxed);
        self.asked.lock().unwrap().push(question.clone());
        self.problem.clone().map_or(Ok(question), Err)
    }

    fn asked(&self) -> Vec<String> {
        let mut asked = self.asked.lock().unwrap().clone();
        asked.sort();
        asked
    }
}

impl AccessReviewer for FakeReviewer {
    async fn is_allowed(&self, question: Question<'_>) -> Result<bool, CheckError> {
        let text = match question {
            Question::Extra(key) => format!("extra {key}"),
            Question::Accounts(right, about) => {
                let verb = match right {
                    AccountRight::Impersonate(ImpersonationKind::Classic) => "classic",
                    AccountRight::Impersonate(ImpersonationKind::Constrained) => "constrained",
                    AccountRight::Get => "get",
                };
                match about {
                    AccountScope::All => format!("{verb} * *"),
                    AccountScope::Namespace(namespace) => format!("{verb} {namespace} *"),
                    AccountScope::One(Account { namespace, name }) => format!("{verb} {namespace} {name}"),
                }
            }
        };
        Ok(self.allowed.contains(&self.hears(text).await?))
    }

    async fn exists(&self, Account { namespace, name }: &Account) -> Result<bool, CheckError> {
        let name = format!("{namespace} {name}");
        self.hears(format!("look {name}")).await?;
        Ok(self.there.contains(&name))
    }
}

fn account(text: &str) -> Account {
    let (namespace, name) = text.split_once(' ').unwrap();
    Account {
        namespace: namespace.to_owned(),
        name: name.to_owned(),
    }
}

fn accounts(texts: &[&str]) -> Vec<Account> {
    texts.iter().map(|text| account(text)).collect()
}

fn asked(accounts: &[Account]) -> ClusterAccounts {
    let uses = || ActingApplications {
        count: 1,
        first: vec!["argocd/cart".to_owned()],
    };
    ClusterAccounts {
        label: "one".into(),
        access: None,
        accounts: accounts.iter().map(|account| (account.clone(), uses())).collect(),
    }
}

const KEYS: [&str; 2] = ["t.example/application", "t.example/user"];

fn keys() -> Vec<String> {
    KEYS.map(str::to_owned).to_vec()
}

/// A round with time enough.
async fn survey(fake: &FakeReviewer, wanted: (&[Account], &[String]), before: Option<SurveyResult>) -> SurveyResult {
    super::survey(fake, wanted, before, after(ROUND_TIMEOUT)).await
}

/// What is found out, as `impersonation existence` by account.
async fn check(
    fake: &FakeReviewer,
    turn: &[&str],
    expected: &[(&str, AccountImpersonation, AccountExistence)],
) -> SurveyResult {
    let known = survey(fake, (&accounts(turn), &keys()), None).await;
    let found: BTreeMap<_, _> = known
        .accounts
        .iter()
        .map(|(account, seen)| (account.clone(), (seen.impersonation.clone(), seen.existence.clone())))
        .collect();
    let expected = expected
        .iter()
        .map(|(text, acts, there)| (account(text), (acts.clone(), there.clone())))
        .collect();
    assert_eq!(found, expected);
    known
}

const CLASSIC: AccountImpersonation = AccountImpersonation::Granted(ImpersonationKind::Classic);
const CONSTRAINED: AccountImpersonation = AccountImpersonation::Granted(ImpersonationKind::Constrained);

#[tokio::test]
async fn who_may_act_as_all_is_asked_about_nobody() {
    let fake = FakeReviewer::new(&["classic * *", "get * *"], &["a x"]);
    let known = check(
        &fake,
        &["a x", "b y"],
        &[
            ("a x", CLASSIC, AccountExistence::Present),
            ("b y", CLASSIC, AccountExistence::Absent),
        ],
    )
    .await;
    assert_eq!(known.all, Some(ImpersonationKind::Classic));
    let expected = [
        "classic * *",
        "extra t.example/application",
        "extra t.example/user",
        "get * *",
        "look a x",
        "look b y",
    ];
    assert_eq!(fake.asked(), expected);
}

#[tokio::test]
async fn names_are_asked_about_one_by_one_and_never_looked_at_in_vain() {
    let fake = FakeReviewer::new(&["classic a x", "extra t.example/user"], &["a x", "a y"]);
    let known = check(
        &fake,
        &["a x", "a y"],
        &[
            ("a x", CLASSIC, AccountExistence::Hidden),
            ("a y", AccountImpersonation::Missing, AccountExistence::Hidden),
        ],
    )
    .await;
    assert_eq!(known.all, None);
    let extra = [Extra::Missing, Extra::Granted];
    assert_eq!(known.extra, keys().into_iter().zip(extra).collect());
    let asked = fake.asked();
    assert!(!asked.iter().any(|question| question.starts_with("look")), "{asked:?}");
    // What is granted in one way is not asked for in the other.
    assert!(!asked.contains(&"constrained a x".to_owned()), "{asked:?}");
    assert!(asked.contains(&"constrained a y".to_owned()), "{asked:?}");
}

#[tokio::test]
async fn namespaces_of_several_are_asked_about_as_a_whole_first() {
    let fake = FakeReviewer::new(&["constrained a *", "classic a x", "get a x"], &["a x"]);
    check(
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
    let asked = fake.asked();
    assert!(asked.contains(&"constrained a *".to_owned()), "{asked:?}");
    let needless = ["constrained a y", "constrained a x", "classic b *", "get b *"];
    assert!(
        !asked.iter().any(|question| needless.contains(&question.as_str())),
        "{asked:?}"
    );
}

#[tokio::test]
async fn names_no_cluster_can_have_are_not_asked_about() {
    let fake = FakeReviewer::new(&["classic * *", "get * *"], &[]);
    check(
        &fake,
        &["a b:c"],
        &[("a b:c", AccountImpersonation::Impossible, AccountExistence::Absent)],
    )
    .await;
    assert!(fake.asked().iter().all(|question| !question.contains("b:c")));
}

#[tokio::test]
async fn a_cluster_that_does_not_say_is_unknown_and_takes_nothing() {
    let mut fake = FakeReviewer::new(&["classic * *", "extra t.example/user"], &[]);
    let turn = accounts(&["a x"]);
    let before = survey(&fake, (&turn, &keys()), None).await;
    assert_eq!(granted(&before).accounts, Accounts::All);
    fake.problem = Some(CheckError::Answer);
    let known = survey(&fake, (&turn, &keys()), Some(before)).await;
    assert_eq!(known.problem, Some(CheckError::Answer));
    assert!(granted(&known).keys.is_empty());
    assert_eq!(known.accounts, BTreeMap::new());
    // One question told enough.
    assert_eq!(
        fake.asked()
            .iter()
            .filter(|question| *question == "classic * *")
            .count(),
        2
    );
}

#[tokio::test]
async fn few_questions_are_open_at_once() {
    let fake = FakeReviewer::default();
    let turn: Vec<Account> = (0..40).map(|n| account(&format!("a x{n}"))).collect();
    survey(&fake, (&turn, &keys()), None).await;
    assert_eq!(fake.most.load(Ordering::Relaxed), 4);
}

/// Never answers.
struct Silent;

impl AccessReviewer for Silent {
    async fn is_allowed(&self, _: Question<'_>) -> Result<bool, CheckError> {
        std::future::pending().await
    }

    async fn exists(&self, _: &Account) -> Result<bool, CheckError> {
        std::future::pending().await
    }
}

#[tokio::test]
async fn a_round_ends() {
    let turn = accounts(&["a x"]);
    let known = super::survey(&Silent, (&turn, &keys()), None, Instant::now()).await;
    assert!(matches!(known.problem, Some(CheckError::Time(_))), "{known:?}");
}

#[tokio::test]
async fn turns_are_bounded_and_begin_with_who_waited_longest() {
    let all: Vec<Account> = (0..=MAX_ACCOUNTS_PER_ROUND)
        .map(|n| account(&format!("a x{n:04}")))
        .collect();
    let asked = asked(&all);
    let fake = FakeReviewer::new(&["classic * *"], &[]);
    let first = asked.due_accounts(None, &keys(), Instant::now()).unwrap();
    assert_eq!(first, all[..MAX_ACCOUNTS_PER_ROUND]);
    let known = survey(&fake, (&first, &keys()), None).await;
    assert_eq!(asked.unasked(&known), 1);
    let second = asked.due_accounts(Some(&known), &keys(), Instant::now()).unwrap();
    assert_eq!(second, all[MAX_ACCOUNTS_PER_ROUND..]);
    let known = survey(&fake, (&second, &keys()), Some(known)).await;
    assert_eq!(asked.unasked(&known), 0);
    assert_eq!(asked.due_accounts(Some(&known), &keys(), Instant::now()), None);
    // A key that is new does not wait.
    let more = [keys(), vec!["t.example/z".to_owned()]].concat();
    assert_eq!(
        asked.due_accounts(Some(&known), &more, Instant::now()),
        Some(Vec::new())
    );
    // What is good waits longer than what is not.
    assert_eq!(asked.due_accounts(Some(&known), &keys(), after(RETRY_INTERVAL)), None);
    let again = asked
        .due_accounts(Some(&known), &keys(), after(FULL_CHECK_INTERVAL))
        .unwrap();
    assert_eq!(again.len(), MAX_ACCOUNTS_PER_ROUND);
    assert!(!again.contains(&all[MAX_ACCOUNTS_PER_ROUND]), "it was asked about last");
}

#[tokio::test]
async fn what_is_missing_is_asked_again_soon_and_a_silent_cluster_too() {
    let all = accounts(&["a x", "a y"]);
    let asked = asked(&all);
    let known = survey(&FakeReviewer::new(&["classic a x"], &[]), (&all, &keys()), None).await;
    assert_eq!(asked.due_accounts(Some(&known), &keys(), Instant::now()), None);
    assert_eq!(
        asked.due_accounts(Some(&known), &keys(), after(RETRY_INTERVAL)),
        Some(accounts(&["a y"]))
    );

    let known = SurveyResult::without_answers(CheckError::NoCluster);
    assert_eq!(asked.due_accounts(Some(&known), &keys(), Instant::now()), None);
    assert_eq!(
        asked.due_accounts(Some(&known), &keys(), after(RETRY_INTERVAL)),
        Some(all)
    );
}

#[tokio::test]
async fn extra_goes_with_accounts_of_the_classic_way_alone() {
    let fake = FakeReviewer::new(&["classic a x", "constrained a y", "extra t.example/user"], &[]);
    let known = survey(&fake, (&accounts(&["a x", "a y", "a z"]), &keys()), None).await;
    let granted = granted(&known);
    let (grants, _doubts) = ExtraGrants::new();
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
async fn operators_see_what_is_wrong_first() {
    let all = accounts(&["a x", "b y", "c z", "d q:r"]);
    let asked = asked(&all);
    let fake = FakeReviewer::new(&["classic a x", "get a x", "get b y", "extra t.example/user"], &["a x"]);
    let known = survey(&fake, (&accounts(&["a x", "b y", "d q:r"]), &keys()), None).await;
    let plan = AccountPlan {
        mode: Switch::Audit,
        clusters: BTreeMap::from([("https://one.example".to_owned(), asked)]),
        keys: keys(),
    };
    let report = serde_json::to_value(AccountsReport::of(&plan, |_| Some(&known))).unwrap();
    let account = |namespace: &str, name: &str, acts: serde_json::Value, there: serde_json::Value| {
        json!({
            "namespace": namespace, "name": name, "impersonation": acts, "existence": there,
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
async fn off_asks_nobody() {
    let index = tollgate_policy::applications::Applications::default();
    assert_eq!(index.mode, Switch::Off);
    let clusters = crate::cluster_access::Clusters::default();
    let plan = AccountPlan::of(&index, keys().into_iter(), (&clusters, &[]));
    assert!(plan.clusters.is_empty());
    let report = serde_json::to_value(AccountsReport::of(&plan, |_| None)).unwrap();
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
async fn the_log_says_each_thing_once() {
    let names: Vec<String> = (0..7).map(|n| format!("a x{n}")).collect();
    let names: Vec<&str> = names.iter().map(String::as_str).collect();
    let all = accounts(&names);
    let asked = asked(&all);
    let before = survey(&FakeReviewer::default(), (&all, &keys()), None).await;
    let before = ClusterWarnings::of(&asked, &before);
    let lines = logged(|| before.say(&asked, None));
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
    assert_eq!(logged(|| before.say(&asked, Some(&before))), Vec::<String>::new());

    let fake = FakeReviewer::new(
        &["classic * *", "extra t.example/user", "extra t.example/application"],
        &[],
    );
    let now = ClusterWarnings::of(&asked, &survey(&fake, (&all, &keys()), None).await);
    let lines = logged(|| now.say(&asked, Some(&before)));
    assert_eq!(lines.len(), 2, "{lines:?}");
    assert!(lines[0].contains("WARN") && lines[0].contains("every service account of the cluster"));
    assert!(lines[1].contains("INFO"), "{lines:?}");
}
