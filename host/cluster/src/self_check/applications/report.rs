//! Reports the accounts that Applications act as to operators: an [`AccountsReport`] for the admin
//! listener, and counts. It shows at most [`MAX_SHOWN_ACCOUNTS`] accounts of one cluster.

use std::collections::BTreeMap;
use std::sync::Arc;

use serde::Serialize;

use super::super::review::CheckError;
use super::plan::{AccountPlan, ClusterAccounts};
use super::survey::{AccountExistence, AccountImpersonation, AccountResult, SurveyResult};
use tollgate_config::ImpersonationMode;
use tollgate_policy::gateway_rights::accounts::ActingApplications;
use tollgate_policy::impersonate::service_account::ServiceAccountName;

/// Most accounts that are shown of one cluster. Those with missing or unknown results come first.
const MAX_SHOWN_ACCOUNTS: usize = 1_000;

const HIDDEN: &str =
    "the gateway may not `get` it; `tollgate rbac manifest --applications --with-account-check` prints roles with that";
const NOT_ASKED: &str = "it was not asked about yet";

/// What was found about the service accounts of Applications, for operators.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct AccountsReport {
    /// `off`, `audit` or `enforce`. Nothing is asked while it is off.
    mode: &'static str,
    clusters: Vec<ClusterReport>,
}

impl Default for AccountsReport {
    fn default() -> Self {
        Self {
            mode: ImpersonationMode::Off.as_ref(),
            clusters: Vec::new(),
        }
    }
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
struct ClusterReport {
    /// Its name, or its server if the name is not unique.
    cluster: String,
    server: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    problem: Option<String>,
    /// The mode in which the gateway may impersonate every account of the cluster, including those
    /// no Application needs. Anyone who has its credential controls the cluster.
    #[serde(skip_serializing_if = "Option::is_none")]
    acts_as_all: Option<&'static str>,
    impersonation: Counts,
    existence: Counts,
    #[serde(skip_serializing_if = "Option::is_none")]
    command: Option<String>,
    /// The accounts, those with missing or unknown results first, then by name.
    accounts: Vec<AccountReport>,
    accounts_left_out: usize,
    extra: Vec<ExtraReport>,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub(super) struct Counts {
    granted: usize,
    missing: usize,
    unknown: usize,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
struct AccountReport {
    namespace: String,
    name: String,
    impersonation: AccountAnswer,
    existence: AccountAnswer,
    applications: ActingApplications,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(tag = "state", rename_all = "snake_case")]
enum AccountAnswer {
    Granted {
        mode: &'static str,
    },
    Exists,
    Missing,
    /// No cluster can have an account of this name.
    Impossible,
    Unknown {
        problem: String,
    },
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
struct ExtraReport {
    key: String,
    /// `granted`, `missing` or `unknown`.
    state: &'static str,
    #[serde(skip_serializing_if = "Option::is_none")]
    problem: Option<String>,
}

impl AccountsReport {
    pub(super) fn of(plan: &AccountPlan, surveys: &BTreeMap<String, Arc<SurveyResult>>) -> Self {
        let no_survey = SurveyResult::default();
        let clusters = plan.clusters.iter().map(|(server, cluster)| {
            ClusterReport::of(
                server,
                cluster,
                surveys.get(server).map_or(&no_survey, |result| &**result),
                &plan.keys,
            )
        });
        Self {
            mode: plan.mode.into(),
            clusters: clusters.collect(),
        }
    }
}

impl ClusterReport {
    fn of(server: &str, cluster: &ClusterAccounts, result: &SurveyResult, keys: &[String]) -> Self {
        let impersonation = Counts::of_impersonation(cluster, result);
        let result_of = |account: &ServiceAccountName| result.accounts.get(account);
        let mut accounts: Vec<_> = cluster.accounts.iter().collect();
        accounts.sort_by_key(|(account, _)| result_of(account).is_some_and(AccountResult::is_good));
        let accounts_left_out = accounts.len().saturating_sub(MAX_SHOWN_ACCOUNTS);
        accounts.truncate(MAX_SHOWN_ACCOUNTS);
        Self {
            cluster: cluster.label.to_string(),
            server: server.to_owned(),
            problem: result.problem.as_ref().map(ToString::to_string),
            acts_as_all: result.all.map(Into::into),
            impersonation,
            existence: Counts::of_existence(cluster, result),
            command: (impersonation.missing > 0).then(|| cluster.command()),
            accounts: accounts
                .into_iter()
                .map(|(account, acting)| AccountReport::of(account, acting, result_of(account)))
                .collect(),
            accounts_left_out,
            extra: keys
                .iter()
                .map(|key| ExtraReport::of(key, result.extra.get(key)))
                .collect(),
        }
    }
}

impl Counts {
    pub(super) fn of_impersonation(cluster: &ClusterAccounts, result: &SurveyResult) -> Self {
        let results = cluster.accounts.keys().map(|account| result.accounts.get(account));
        let answer = |result: Option<&AccountResult>| match result?.impersonation {
            AccountImpersonation::Granted(_) => Some(true),
            AccountImpersonation::Missing | AccountImpersonation::Impossible => Some(false),
            AccountImpersonation::Unknown(_) => None,
        };
        results.map(answer).collect()
    }

    pub(super) fn of_existence(cluster: &ClusterAccounts, result: &SurveyResult) -> Self {
        let results = cluster.accounts.keys().map(|account| result.accounts.get(account));
        let answer = |result: Option<&AccountResult>| match result?.existence {
            AccountExistence::Present => Some(true),
            AccountExistence::Absent => Some(false),
            AccountExistence::Hidden | AccountExistence::Unknown(_) => None,
        };
        results.map(answer).collect()
    }

    pub(super) fn of_extra(keys: &[String], result: &SurveyResult) -> Self {
        let answers = keys.iter().map(|key| result.extra.get(key)?.as_ref().ok().copied());
        answers.collect()
    }

    pub(super) fn to_array(self) -> [usize; 3] {
        [self.granted, self.missing, self.unknown]
    }
}

impl FromIterator<Option<bool>> for Counts {
    fn from_iter<I: IntoIterator<Item = Option<bool>>>(answers: I) -> Self {
        let mut counts = Self::default();
        for answer in answers {
            let count = match answer {
                Some(true) => &mut counts.granted,
                Some(false) => &mut counts.missing,
                None => &mut counts.unknown,
            };
            *count = count.saturating_add(1);
        }
        counts
    }
}

impl AccountReport {
    fn of(account: &ServiceAccountName, acting: &ActingApplications, result: Option<&AccountResult>) -> Self {
        let ServiceAccountName { namespace, name } = account;
        Self {
            namespace: namespace.clone(),
            name: name.clone(),
            impersonation: match result.map(|result| &result.impersonation) {
                Some(AccountImpersonation::Granted(mode)) => AccountAnswer::Granted { mode: mode.into() },
                Some(AccountImpersonation::Missing) => AccountAnswer::Missing,
                Some(AccountImpersonation::Impossible) => AccountAnswer::Impossible,
                Some(AccountImpersonation::Unknown(problem)) => AccountAnswer::unknown(problem),
                None => AccountAnswer::unknown(&NOT_ASKED),
            },
            existence: match result.map(|result| &result.existence) {
                Some(AccountExistence::Present) => AccountAnswer::Exists,
                Some(AccountExistence::Absent) => AccountAnswer::Missing,
                Some(AccountExistence::Hidden) => AccountAnswer::unknown(&HIDDEN),
                Some(AccountExistence::Unknown(problem)) => AccountAnswer::unknown(problem),
                None => AccountAnswer::unknown(&NOT_ASKED),
            },
            applications: acting.clone(),
        }
    }
}

impl AccountAnswer {
    fn unknown(problem: &impl ToString) -> Self {
        Self::Unknown {
            problem: problem.to_string(),
        }
    }
}

impl ExtraReport {
    fn of(key: &str, is_granted: Option<&Result<bool, CheckError>>) -> Self {
        let (state, problem) = match is_granted {
            Some(Ok(true)) => ("granted", None),
            Some(Ok(false)) => ("missing", None),
            Some(Err(problem)) => ("unknown", Some(problem.to_string())),
            None => ("unknown", Some("the cluster did not say".to_owned())),
        };
        Self {
            key: key.to_owned(),
            state,
            problem,
        }
    }
}
