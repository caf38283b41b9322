//! Logs warnings about the accounts of one cluster. A warning is repeated only when something
//! changed, and thousands of accounts do not make thousands of lines.

use super::plan::ClusterAccounts;
use super::survey::{AccountExistence, AccountImpersonation, SurveyResult};
use tollgate_policy::gateway_rights::grants::ImpersonationKind;
use tollgate_policy::impersonate::service_account::ServiceAccountName;

const MAX_NAMED: usize = 5;

#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct ClusterWarnings {
    problem: Option<String>,
    missing: Vec<ServiceAccountName>,
    impossible: Vec<ServiceAccountName>,
    absent: Vec<ServiceAccountName>,
    extra: Vec<String>,
    all: Option<ImpersonationKind>,
}

impl ClusterWarnings {
    pub(super) fn of(cluster: &ClusterAccounts, result: &SurveyResult) -> Self {
        let mut warnings = Self {
            problem: result.problem.as_ref().map(ToString::to_string),
            all: result.all,
            ..Self::default()
        };
        for account in cluster.accounts.keys() {
            let Some(account_result) = result.accounts.get(account) else {
                continue;
            };
            match account_result.impersonation {
                AccountImpersonation::Missing => warnings.missing.push(account.clone()),
                AccountImpersonation::Impossible => warnings.impossible.push(account.clone()),
                AccountImpersonation::Granted(_) | AccountImpersonation::Unknown(_) => {}
            }
            let is_absent = account_result.existence == AccountExistence::Absent
                && account_result.impersonation != AccountImpersonation::Impossible;
            if is_absent {
                warnings.absent.push(account.clone());
            }
        }
        let missing = result.extra.iter().filter(|(_, granted)| **granted == Ok(false));
        warnings.extra = missing.map(|(key, _)| key.clone()).collect();
        warnings
    }

    pub(super) fn log_changes(&self, accounts: &ClusterAccounts, before: Option<&Self>) {
        let cluster = &*accounts.label;
        let no_warnings = Self::default();
        let before = before.unwrap_or(&no_warnings);
        if let Some(problem) = self.problem.as_ref().filter(|_| self.problem != before.problem) {
            tracing::warn!(
                cluster, %problem,
                "the cluster does not say whether the gateway may act as the service accounts of Applications"
            );
        }
        let missing = format!(
            "the gateway may not act as these service accounts, so what Applications do as them is refused there; \
             `{}` prints the roles it needs",
            accounts.command()
        );
        let impossible =
            "projects name service accounts no cluster can have, so what Applications do as them is refused";
        let absent = "these service accounts of Applications are not there; nothing gave them rights by name";
        for (names, before, message) in [
            (&self.missing, &before.missing, &*missing),
            (&self.impossible, &before.impossible, impossible),
            (&self.absent, &before.absent, absent),
        ] {
            if !names.is_empty() && names != before {
                tracing::warn!(cluster, count = names.len(), accounts = named(names), "{message}");
            }
        }
        if !self.extra.is_empty() && self.extra != before.extra {
            tracing::warn!(
                cluster,
                keys = self.extra.join(", "),
                "the gateway may not say there who acts through an Application, so it does not; `{}` prints the role \
                 it needs",
                accounts.command()
            );
        }
        if self.all.is_some() && self.all != before.all {
            tracing::warn!(
                cluster,
                "the gateway may act as every service account of the cluster, those of Kubernetes' own among them: \
                 anyone who has its credential controls the cluster; `{}` prints roles with the names that are used",
                accounts.command()
            );
        }
        if self.is_good() && !before.is_good() && self != before {
            tracing::info!(cluster, "the gateway may act as every service account of Applications");
        }
    }

    fn is_good(&self) -> bool {
        self.problem.is_none() && self.missing.is_empty() && self.impossible.is_empty() && self.absent.is_empty()
    }
}

fn named(accounts: &[ServiceAccountName]) -> String {
    let shown = |ServiceAccountName { namespace, name }: &_| format!("{namespace}:{name}");
    let names: Vec<String> = accounts.iter().take(MAX_NAMED).map(shown).collect();
    match accounts.len().saturating_sub(MAX_NAMED) {
        0 => names.join(", "),
        more => format!("{} and {more} more", names.join(", ")),
    }
}
