//! Asks one cluster what the gateway may do with the accounts and keys of `extra` that are used
//! there, and updates what is [`SurveyResult`]. One round asks about at most [`MAX_ACCOUNTS_PER_ROUND`] accounts, with at
//! most [`MAX_IN_FLIGHT`] questions at once.
//!
//! A question about all accounts comes first, then those about namespaces with several accounts,
//! then those about single accounts. A gateway that was given broad grants therefore asks fewer
//! questions.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use futures_util::StreamExt as _;
use tokio::time::{Instant, timeout_at};

use super::super::grants::ImpersonationKind;
use super::super::review::CheckError;
use super::super::rights::{AccessReviewer, AccountRight, AccountScope, Question};
use tollgate_policy::impersonate::service_account::Account;

/// Most accounts asked about in one round. Each takes at most four questions.
pub(super) const MAX_ACCOUNTS_PER_ROUND: usize = 256;
/// Most questions that one cluster has to answer at once.
const MAX_IN_FLIGHT: usize = 4;
/// Longest round.
pub(super) const ROUND_TIMEOUT: Duration = Duration::from_secs(60);
/// Fewest accounts of a namespace for which the whole namespace is asked about.
const MIN_NAMESPACE_ACCOUNTS: usize = 3;

/// What is known of a cluster.
#[derive(Clone, Debug, Default, PartialEq)]
pub(super) struct SurveyResult {
    /// Results for each account that was asked about.
    pub(super) accounts: BTreeMap<Account, AccountResult>,
    /// Results for each key of `extra`.
    pub(super) extra: BTreeMap<String, Extra>,
    /// The mode in which every account of the cluster may be impersonated, including those that no
    /// Application acts as.
    pub(super) all: Option<ImpersonationKind>,
    /// When it was last asked, successfully or not.
    pub(super) at: Option<Instant>,
    /// Why it did not answer at all.
    pub(super) problem: Option<CheckError>,
}

/// What is known of one account.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct AccountResult {
    pub(super) impersonation: AccountImpersonation,
    pub(super) existence: AccountExistence,
    /// When it was asked about.
    pub(super) at: Instant,
}

/// Whether the gateway may act as an account.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum AccountImpersonation {
    /// It may, in this mode.
    Granted(ImpersonationKind),
    /// It may not.
    Missing,
    /// No cluster can have an account of this name.
    Impossible,
    /// The cluster did not answer.
    Unknown(CheckError),
}

/// Whether an account exists.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum AccountExistence {
    /// It exists.
    Present,
    /// It does not exist.
    Absent,
    /// The gateway may not check, and does not need to.
    Hidden,
    /// The cluster did not answer.
    Unknown(CheckError),
}

/// Whether a key of `extra` may be sent.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Extra {
    /// It may, with any value.
    Granted,
    /// It may not.
    Missing,
    /// The cluster did not answer.
    Unknown(CheckError),
}

impl AccountResult {
    /// Whether nothing is left that could improve soon.
    pub(super) fn is_good(&self) -> bool {
        let acts = matches!(self.impersonation, AccountImpersonation::Granted(_));
        let is_there = matches!(self.existence, AccountExistence::Present | AccountExistence::Hidden);
        acts && is_there
    }
}

/// Results that hold for many accounts.
#[derive(Debug, Default)]
struct BroadRights {
    all: BTreeSet<AccountRight>,
    namespaces: BTreeMap<AccountRight, BTreeSet<String>>,
}

impl BroadRights {
    fn covers(&self, right: AccountRight, namespace: &str) -> bool {
        let within = self.namespaces.get(&right);
        self.all.contains(&right) || within.is_some_and(|namespaces| namespaces.contains(namespace))
    }
}

/// Asks about `turn` and every key, and keeps what is known of the other accounts. What is not
/// asked before `deadline` stays as it was known.
///
/// - `turn`: at most [`MAX_ACCOUNTS_PER_ROUND`] accounts.
/// - `deadline`: [`ROUND_TIMEOUT`] from now.
///
/// Cancel safe.
pub(super) async fn survey(
    cluster: &impl AccessReviewer,
    (turn, keys): (&[Account], &[String]),
    before: Option<SurveyResult>,
    deadline: Instant,
) -> SurveyResult {
    let mut known = before.unwrap_or_default();
    let wide = async {
        let wide = ask_broad_rights(cluster, turn).await?;
        let extra = ask_extra(cluster, keys).await;
        Ok((wide, extra))
    };
    let (wide, extra) = match timeout_at(deadline, wide).await {
        Ok(Ok(answers)) => answers,
        Ok(Err(problem)) => return SurveyResult::without_answers(problem),
        Err(_) => return SurveyResult::without_answers(CheckError::Time(ROUND_TIMEOUT)),
    };
    known.problem = None;
    known.at = Some(Instant::now());
    known.extra = extra;
    known.all = [ImpersonationKind::Classic, ImpersonationKind::Constrained]
        .into_iter()
        .find(|mode| wide.all.contains(&AccountRight::Impersonate(*mode)));
    let asking = turn.iter().map(|account| ask_one(cluster, &wide, account));
    let mut answers = futures_util::stream::iter(asking.collect::<Vec<_>>()).buffer_unordered(MAX_IN_FLIGHT);
    while let Ok(Some((account, seen))) = timeout_at(deadline, answers.next()).await {
        known.accounts.insert(account, seen);
    }
    known
}

impl SurveyResult {
    /// A cluster that does not answer grants nothing.
    pub(super) fn without_answers(problem: CheckError) -> Self {
        Self {
            at: Some(Instant::now()),
            problem: Some(problem),
            ..Self::default()
        }
    }
}

/// Asks about the whole cluster, then about namespaces with several accounts, one right after the
/// other. What is granted in one mode is not asked for in the other.
async fn ask_broad_rights(cluster: &impl AccessReviewer, turn: &[Account]) -> Result<BroadRights, CheckError> {
    let mut wide = BroadRights::default();
    let mut sizes: BTreeMap<&str, usize> = BTreeMap::new();
    for account in turn.iter().filter(|account| account.is_valid()) {
        let size = sizes.entry(&account.namespace).or_default();
        *size = size.saturating_add(1);
    }
    let several: Vec<&str> = sizes
        .iter()
        .filter_map(|(namespace, size)| (*size >= MIN_NAMESPACE_ACCOUNTS).then_some(*namespace))
        .collect();
    for right in [
        AccountRight::Impersonate(ImpersonationKind::Classic),
        AccountRight::Impersonate(ImpersonationKind::Constrained),
        AccountRight::Get,
    ] {
        let is_other = right == AccountRight::Impersonate(ImpersonationKind::Constrained);
        let classic = AccountRight::Impersonate(ImpersonationKind::Classic);
        if is_other && wide.all.contains(&classic) {
            continue;
        }
        if cluster.is_allowed(Question::Accounts(right, AccountScope::All)).await? {
            wide.all.insert(right);
            continue;
        }
        for namespace in &several {
            if is_other && wide.covers(classic, namespace) {
                continue;
            }
            let question = Question::Accounts(right, AccountScope::Namespace(namespace));
            if cluster.is_allowed(question).await? {
                let within = wide.namespaces.entry(right).or_default();
                within.insert((*namespace).to_owned());
            }
        }
    }
    Ok(wide)
}

async fn ask_extra(cluster: &impl AccessReviewer, keys: &[String]) -> BTreeMap<String, Extra> {
    let mut extra = BTreeMap::new();
    for key in keys {
        let said = match cluster.is_allowed(Question::Extra(key)).await {
            Ok(true) => Extra::Granted,
            Ok(false) => Extra::Missing,
            Err(problem) => Extra::Unknown(problem),
        };
        extra.insert(key.clone(), said);
    }
    extra
}

async fn ask_one(cluster: &impl AccessReviewer, wide: &BroadRights, account: &Account) -> (Account, AccountResult) {
    let (impersonation, existence) = if account.is_valid() {
        (
            ask_impersonation(cluster, wide, account).await,
            ask_existence(cluster, wide, account).await,
        )
    } else {
        (AccountImpersonation::Impossible, AccountExistence::Absent)
    };
    let seen = AccountResult {
        impersonation,
        existence,
        at: Instant::now(),
    };
    (account.clone(), seen)
}

async fn ask_impersonation(
    cluster: &impl AccessReviewer,
    wide: &BroadRights,
    account: &Account,
) -> AccountImpersonation {
    for mode in [ImpersonationKind::Classic, ImpersonationKind::Constrained] {
        match has_right(cluster, wide, (AccountRight::Impersonate(mode), account)).await {
            Ok(true) => return AccountImpersonation::Granted(mode),
            Ok(false) => {}
            Err(problem) => return AccountImpersonation::Unknown(problem),
        }
    }
    AccountImpersonation::Missing
}

async fn ask_existence(cluster: &impl AccessReviewer, wide: &BroadRights, account: &Account) -> AccountExistence {
    match has_right(cluster, wide, (AccountRight::Get, account)).await {
        Ok(true) => {}
        Ok(false) => return AccountExistence::Hidden,
        Err(problem) => return AccountExistence::Unknown(problem),
    }
    match cluster.exists(account).await {
        Ok(true) => AccountExistence::Present,
        Ok(false) => AccountExistence::Absent,
        Err(problem) => AccountExistence::Unknown(problem),
    }
}

async fn has_right(
    cluster: &impl AccessReviewer,
    wide: &BroadRights,
    (right, account): (AccountRight, &Account),
) -> Result<bool, CheckError> {
    if wide.covers(right, &account.namespace) {
        return Ok(true);
    }
    cluster
        .is_allowed(Question::Accounts(right, AccountScope::One(account)))
        .await
}
