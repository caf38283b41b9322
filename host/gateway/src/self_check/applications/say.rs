//! Logs warnings about the accounts of one cluster. A warning is repeated only when something
//! changed, and thousands of accounts do not make thousands of lines.

use super::super::grants::ImpersonationKind;
use super::plan::ClusterAccounts;
use super::survey::{AccountExistence, AccountImpersonation, Extra, SurveyResult};
use tollgate_policy::impersonate::service_account::Account;

/// Most accounts that a line names.
const MAX_NAMED: usize = 5;

/// The warnings about a cluster.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct ClusterWarnings {
    problem: Option<String>,
    missing: Vec<Account>,
    impossible: Vec<Account>,
    absent: Vec<Account>,
    extra: Vec<String>,
    all: Option<ImpersonationKind>,
}

impl ClusterWarnings {
    pub(super) fn of(asked: &ClusterAccounts, known: &SurveyResult) -> Self {
        let mut said = Self {
            problem: known.problem.as_ref().map(ToString::to_string),
            all: known.all,
            ..Self::default()
        };
        for account in asked.accounts.keys() {
            let Some(seen) = known.accounts.get(account) else {
                continue;
            };
            match seen.impersonation {
                AccountImpersonation::Missing => said.missing.push(account.clone()),
                AccountImpersonation::Impossible => said.impossible.push(account.clone()),
                AccountImpersonation::Granted(_) | AccountImpersonation::Unknown(_) => {}
            }
            let is_absent =
                seen.existence == AccountExistence::Absent && seen.impersonation != AccountImpersonation::Impossible;
            if is_absent {
                said.absent.push(account.clone());
            }
        }
        let missing = known.extra.iter().filter(|(_, said)| **said == Extra::Missing);
        said.extra = missing.map(|(key, _)| key.clone()).collect();
        said
    }

    /// Logs what differs from `before`.
    pub(super) fn say(&self, asked: &ClusterAccounts, before: Option<&Self>) {
        let cluster = &*asked.label;
        let nothing = Self::default();
        let before = before.unwrap_or(&nothing);
        if let Some(problem) = self.problem.as_ref().filter(|_| self.problem != before.problem) {
            tracing::warn!(
                cluster, %problem,
                "the cluster does not say whether the gateway may act as the service accounts of Applications"
            );
        }
        if !self.missing.is_empty() && self.missing != before.missing {
            tracing::warn!(
                cluster,
                count = self.missing.len(),
                accounts = named(&self.missing),
                "the gateway may not act as these service accounts, so what Applications do as them is refused \
                 there; `{}` prints the roles it needs",
                asked.command()
            );
        }
        if !self.impossible.is_empty() && self.impossible != before.impossible {
            tracing::warn!(
                cluster,
                count = self.impossible.len(),
                accounts = named(&self.impossible),
                "projects name service accounts no cluster can have, so what Applications do as them is refused"
            );
        }
        if !self.absent.is_empty() && self.absent != before.absent {
            tracing::warn!(
                cluster,
                count = self.absent.len(),
                accounts = named(&self.absent),
                "these service accounts of Applications are not there; nothing gave them rights by name"
            );
        }
        if !self.extra.is_empty() && self.extra != before.extra {
            tracing::warn!(
                cluster,
                keys = self.extra.join(", "),
                "the gateway may not say there who acts through an Application, so it does not; `{}` prints the role \
                 it needs",
                asked.command()
            );
        }
        if self.all.is_some() && self.all != before.all {
            tracing::warn!(
                cluster,
                "the gateway may act as every service account of the cluster, those of Kubernetes' own among them: \
                 whoever has its credential has the cluster; `{}` prints roles with the names that are used",
                asked.command()
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

fn named(accounts: &[Account]) -> String {
    let names = accounts.iter().take(MAX_NAMED);
    let names: Vec<String> = names
        .map(|Account { namespace, name }| format!("{namespace}:{name}"))
        .collect();
    let more = accounts.len().saturating_sub(MAX_NAMED);
    match more {
        0 => names.join(", "),
        more => format!("{} and {more} more", names.join(", ")),
    }
}
