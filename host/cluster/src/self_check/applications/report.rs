//! Reports the accounts that Applications act as to operators: an [`AccountsReport`] for the admin
//! listener, and counts. It shows at most [`MAX_SHOWN_ACCOUNTS`] accounts of one cluster.

use serde::Serialize;

use super::super::accounts::ActingApplications;
use super::plan::{AccountPlan, ClusterAccounts};
use super::survey::{AccountExistence, AccountImpersonation, AccountResult, ExtraStatus, SurveyResult};
use tollgate_config::ImpersonationMode;
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
    pub(crate) mode: &'static str,
    pub(crate) clusters: Vec<ClusterReport>,
}

impl Default for AccountsReport {
    fn default() -> Self {
        Self {
            mode: mode_name(ImpersonationMode::Off),
            clusters: Vec::new(),
        }
    }
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub(crate) struct ClusterReport {
    /// Its name, or its server if the name is not unique.
    pub(crate) cluster: String,
    pub(crate) server: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) problem: Option<String>,
    /// The mode in which the gateway may impersonate every account of the cluster, including those
    /// no Application needs. Whoever has its credential controls the cluster.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) acts_as_all: Option<&'static str>,
    pub(crate) impersonation: Counts,
    pub(crate) existence: Counts,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) command: Option<String>,
    /// The accounts, those with missing or unknown results first, then by name.
    pub(crate) accounts: Vec<AccountReport>,
    pub(crate) accounts_left_out: usize,
    pub(crate) extra: Vec<ExtraReport>,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub(crate) struct Counts {
    pub(crate) granted: usize,
    pub(crate) missing: usize,
    pub(crate) unknown: usize,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub(crate) struct AccountReport {
    pub(crate) namespace: String,
    pub(crate) name: String,
    pub(crate) impersonation: AccountAnswer,
    pub(crate) existence: AccountAnswer,
    pub(crate) applications: ActingApplications,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(tag = "state", rename_all = "snake_case")]
pub(crate) enum AccountAnswer {
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
pub(crate) struct ExtraReport {
    pub(crate) key: String,
    /// `granted`, `missing` or `unknown`.
    pub(crate) state: &'static str,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) problem: Option<String>,
}

pub(super) fn mode_name(mode: ImpersonationMode) -> &'static str {
    match mode {
        ImpersonationMode::Off => "off",
        ImpersonationMode::Audit => "audit",
        ImpersonationMode::Enforce => "enforce",
    }
}

impl AccountsReport {
    pub(super) fn of<'a>(plan: &AccountPlan, result_of: impl Fn(&str) -> Option<&'a SurveyResult>) -> Self {
        let no_survey = SurveyResult::default();
        let clusters = plan.clusters.iter().map(|(server, cluster)| {
            ClusterReport::of(server, cluster, (result_of(server).unwrap_or(&no_survey), &plan.keys))
        });
        Self {
            mode: mode_name(plan.mode),
            clusters: clusters.collect(),
        }
    }
}

impl ClusterReport {
    fn of(server: &str, cluster: &ClusterAccounts, (result, keys): (&SurveyResult, &[String])) -> Self {
        let impersonation = Counts::of_impersonation(cluster, result);
        let mut accounts: Vec<(&ServiceAccountName, &ActingApplications, Option<&AccountResult>)> = cluster
            .accounts
            .iter()
            .map(|(account, acting)| (account, acting, result.accounts.get(account)))
            .collect();
        accounts.sort_by_key(|(_, _, account_result)| account_result.is_some_and(AccountResult::is_good));
        let accounts_left_out = accounts.len().saturating_sub(MAX_SHOWN_ACCOUNTS);
        accounts.truncate(MAX_SHOWN_ACCOUNTS);
        Self {
            cluster: cluster.label.to_string(),
            server: server.to_owned(),
            problem: result.problem.as_ref().map(ToString::to_string),
            acts_as_all: result.all.map(super::super::grants::ImpersonationKind::as_str),
            impersonation,
            existence: Counts::of_existence(cluster, result),
            command: (impersonation.missing > 0).then(|| cluster.command()),
            accounts: accounts
                .into_iter()
                .map(|(account, acting, account_result)| AccountReport::of(account, acting, account_result))
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
        let answer = |key: &String| match result.extra.get(key)? {
            ExtraStatus::Granted => Some(true),
            ExtraStatus::Missing => Some(false),
            ExtraStatus::Unknown(_) => None,
        };
        keys.iter().map(answer).collect()
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
                Some(AccountImpersonation::Granted(mode)) => AccountAnswer::Granted { mode: mode.as_str() },
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
    fn of(key: &str, status: Option<&ExtraStatus>) -> Self {
        let (state, problem) = match status {
            Some(ExtraStatus::Granted) => ("granted", None),
            Some(ExtraStatus::Missing) => ("missing", None),
            Some(ExtraStatus::Unknown(problem)) => ("unknown", Some(problem.to_string())),
            None => ("unknown", Some("the cluster did not say".to_owned())),
        };
        Self {
            key: key.to_owned(),
            state,
            problem,
        }
    }
}
