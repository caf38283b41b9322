//! Asks one cluster what the gateway may do with the accounts and keys of `extra` that are used
//! there, and updates its [`SurveyResult`]. One round asks about at most [`MAX_ACCOUNTS_PER_ROUND`]
//! accounts, with at most [`MAX_IN_FLIGHT`] requests at once.
//!
//! Rights on all accounts are checked first, then those on namespaces with several accounts, then
//! those on single accounts. A gateway with broad rights therefore needs fewer checks.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use futures_util::StreamExt as _;
use tokio::time::{Instant, timeout_at};

use super::super::review::CheckError;
use super::super::rights::{AccessCheck, AccessReviewer, AccountScope};
use super::super::{FULL_CHECK_INTERVAL, RETRY_INTERVAL};
use tollgate_policy::gateway_rights::grants::{AccountRight, ImpersonationKind};
use tollgate_policy::impersonate::service_account::ServiceAccountName;

/// Most accounts asked about in one round. Each takes at most four requests.
pub(super) const MAX_ACCOUNTS_PER_ROUND: usize = 256;
const MAX_IN_FLIGHT: usize = 4;
pub(super) const ROUND_TIMEOUT: Duration = Duration::from_secs(60);
/// Longest time in which a cluster that did not answer before is asked again.
const TIMEOUT_AFTER_PROBLEM: Duration = Duration::from_secs(10);
/// How often the pause after a problem is doubled at most.
const MAX_DOUBLINGS: u32 = 4;
/// Fewest accounts of a namespace for which rights on the whole namespace are checked.
const MIN_NAMESPACE_ACCOUNTS: usize = 3;

#[derive(Clone, Debug, Default, PartialEq)]
pub(super) struct SurveyResult {
    pub(super) accounts: BTreeMap<ServiceAccountName, AccountResult>,
    /// Whether each key of `extra` may be sent, with any value.
    pub(super) extra: BTreeMap<String, Result<bool, CheckError>>,
    /// The mode in which every account of the cluster may be impersonated, including those that no
    /// Application acts as.
    pub(super) all: Option<ImpersonationKind>,
    /// When the cluster was last asked, successfully or not.
    pub(super) at: Option<Instant>,
    pub(super) problem: Option<CheckError>,
    /// How many rounds in a row had a problem.
    pub(super) failures: u32,
}

#[derive(Clone, Debug, PartialEq)]
pub(super) struct AccountResult {
    pub(super) impersonation: AccountImpersonation,
    pub(super) existence: AccountExistence,
    pub(super) at: Instant,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum AccountImpersonation {
    Granted(ImpersonationKind),
    Missing,
    /// No cluster can have an account of this name.
    Impossible,
    Unknown(CheckError),
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum AccountExistence {
    Present,
    Absent,
    /// The gateway may not check, and does not need to.
    Hidden,
    Unknown(CheckError),
}

impl AccountResult {
    pub(super) fn is_good(&self) -> bool {
        let may_impersonate = matches!(self.impersonation, AccountImpersonation::Granted(_));
        let exists = matches!(self.existence, AccountExistence::Present | AccountExistence::Hidden);
        may_impersonate && exists
    }
}

#[derive(Debug, Default)]
struct BroadRights {
    all: BTreeSet<AccountRight>,
    namespaces: BTreeMap<AccountRight, BTreeSet<String>>,
}

impl BroadRights {
    fn covers(&self, right: AccountRight, namespace: &str) -> bool {
        let granted = self.namespaces.get(&right);
        self.all.contains(&right) || granted.is_some_and(|namespaces| namespaces.contains(namespace))
    }
}

/// Asks about `due` accounts and every key, and keeps the results of the other accounts. What is
/// not asked before `deadline` keeps its result.
///
/// Cancel safe.
pub(super) async fn survey(
    cluster: &impl AccessReviewer,
    due: &[ServiceAccountName],
    keys: &[String],
    before: Option<SurveyResult>,
    deadline: Instant,
) -> SurveyResult {
    let begun = Instant::now();
    let mut result = before.unwrap_or_default();
    let asking = async {
        let broad = ask_broad_rights(cluster, due).await?;
        let mut extra = BTreeMap::new();
        for key in keys {
            extra.insert(key.clone(), cluster.is_allowed(AccessCheck::Extra(key)).await);
        }
        Ok((broad, extra))
    };
    let (broad, extra) = match timeout_at(deadline, asking).await {
        Ok(Ok(answers)) => answers,
        Ok(Err(problem)) => return SurveyResult::without_answers(problem),
        Err(_) => return SurveyResult::without_answers(CheckError::Time(deadline.duration_since(begun))),
    };
    result.problem = None;
    result.at = Some(Instant::now());
    result.extra = extra;
    result.all = [ImpersonationKind::Classic, ImpersonationKind::Constrained]
        .into_iter()
        .find(|mode| broad.all.contains(&AccountRight::Impersonate(*mode)));
    let accounts = due.iter().map(|account| ask_one(cluster, &broad, account));
    let mut answers = futures_util::stream::iter(accounts.collect::<Vec<_>>()).buffer_unordered(MAX_IN_FLIGHT);
    while let Ok(Some((account, account_result))) = timeout_at(deadline, answers.next()).await {
        result.accounts.insert(account, account_result);
    }
    result
}

impl SurveyResult {
    /// How long the cluster is left alone after a problem: longer after each one in a row.
    pub(super) fn retry_interval(&self) -> Option<Duration> {
        let interval = self.problem.as_ref()?.retry_interval();
        if interval < RETRY_INTERVAL {
            return Some(interval);
        }
        let doublings = self.failures.saturating_sub(1).min(MAX_DOUBLINGS);
        Some(interval.saturating_mul(1 << doublings).min(FULL_CHECK_INTERVAL))
    }

    /// How long the next round may ask the cluster: for a moment if it did not answer before.
    pub(super) fn next_timeout(&self) -> Duration {
        match self.problem {
            Some(_) => TIMEOUT_AFTER_PROBLEM,
            None => ROUND_TIMEOUT,
        }
    }

    /// The result of a cluster that did not answer: it grants nothing.
    pub(super) fn without_answers(problem: CheckError) -> Self {
        Self {
            at: Some(Instant::now()),
            problem: Some(problem),
            ..Self::default()
        }
    }
}

/// Checks rights on all accounts, then on namespaces with several accounts, one after the other.
/// What is granted in one mode is not checked in the other.
async fn ask_broad_rights(
    cluster: &impl AccessReviewer,
    due: &[ServiceAccountName],
) -> Result<BroadRights, CheckError> {
    let mut broad = BroadRights::default();
    let mut sizes: BTreeMap<&str, usize> = BTreeMap::new();
    for account in due.iter().filter(|account| account.is_valid()) {
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
        let is_constrained = right == AccountRight::Impersonate(ImpersonationKind::Constrained);
        let classic = AccountRight::Impersonate(ImpersonationKind::Classic);
        if is_constrained && broad.all.contains(&classic) {
            continue;
        }
        if cluster
            .is_allowed(AccessCheck::Accounts(right, AccountScope::All))
            .await?
        {
            broad.all.insert(right);
            continue;
        }
        for namespace in &several {
            if is_constrained && broad.covers(classic, namespace) {
                continue;
            }
            let check = AccessCheck::Accounts(right, AccountScope::Namespace(namespace));
            if cluster.is_allowed(check).await? {
                let granted = broad.namespaces.entry(right).or_default();
                granted.insert((*namespace).to_owned());
            }
        }
    }
    Ok(broad)
}

async fn ask_one(
    cluster: &impl AccessReviewer,
    broad: &BroadRights,
    account: &ServiceAccountName,
) -> (ServiceAccountName, AccountResult) {
    let (impersonation, existence) = if account.is_valid() {
        (
            ask_impersonation(cluster, broad, account).await,
            ask_existence(cluster, broad, account).await,
        )
    } else {
        (AccountImpersonation::Impossible, AccountExistence::Absent)
    };
    let account_result = AccountResult {
        impersonation,
        existence,
        at: Instant::now(),
    };
    (account.clone(), account_result)
}

async fn ask_impersonation(
    cluster: &impl AccessReviewer,
    broad: &BroadRights,
    account: &ServiceAccountName,
) -> AccountImpersonation {
    for mode in [ImpersonationKind::Classic, ImpersonationKind::Constrained] {
        match has_right(cluster, broad, AccountRight::Impersonate(mode), account).await {
            Ok(true) => return AccountImpersonation::Granted(mode),
            Ok(false) => {}
            Err(problem) => return AccountImpersonation::Unknown(problem),
        }
    }
    AccountImpersonation::Missing
}

async fn ask_existence(
    cluster: &impl AccessReviewer,
    broad: &BroadRights,
    account: &ServiceAccountName,
) -> AccountExistence {
    match has_right(cluster, broad, AccountRight::Get, account).await {
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

/// Whether the gateway has a right on an account. Asks only if the broad rights do not cover it.
async fn has_right(
    cluster: &impl AccessReviewer,
    broad: &BroadRights,
    right: AccountRight,
    account: &ServiceAccountName,
) -> Result<bool, CheckError> {
    if broad.covers(right, &account.namespace) {
        return Ok(true);
    }
    cluster
        .is_allowed(AccessCheck::Accounts(right, AccountScope::One(account)))
        .await
}
