//! Asks a cluster, before Argo CD reaches it through the gateway, whether the gateway may act there as
//! the service accounts that this needs.

use tollgate_policy::impersonate::service_account::ServiceAccountName;

use super::super::cluster_reviewer::ClusterReviewer;
use super::survey::{AccountExistence, AccountImpersonation, AccountResult, ROUND_TIMEOUT, survey};
use crate::access::{ClusterAccess, after};

/// What a cluster answered about accounts.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct AccountFindings {
    /// Those that the gateway may not impersonate.
    pub not_granted: Vec<ServiceAccountName>,
    /// Those whose names no cluster can have.
    pub impossible: Vec<ServiceAccountName>,
    /// Those that do not exist. Only known if the gateway may read them.
    pub absent: Vec<ServiceAccountName>,
    /// Those that the cluster did not answer about, and why.
    pub unknown: Vec<(ServiceAccountName, String)>,
}

/// Asks about each account, for at most 60 s. Cancel safe.
///
/// # Errors
/// Why the cluster does not answer, such as that it refuses the credential.
pub async fn check_accounts(
    access: &ClusterAccess,
    accounts: &[ServiceAccountName],
) -> Result<AccountFindings, String> {
    let result = survey(&ClusterReviewer(access), accounts, &[], None, after(ROUND_TIMEOUT)).await;
    if let Some(problem) = result.problem {
        return Err(problem.to_string());
    }
    let mut findings = AccountFindings::default();
    for account in accounts {
        findings.add(account, result.accounts.get(account));
    }
    Ok(findings)
}

impl AccountFindings {
    fn add(&mut self, account: &ServiceAccountName, result: Option<&AccountResult>) {
        let account = account.clone();
        let Some(result) = result else {
            let problem = format!("there was no answer within {} s", ROUND_TIMEOUT.as_secs());
            return self.unknown.push((account, problem));
        };
        match (&result.impersonation, &result.existence) {
            (AccountImpersonation::Missing, _) => self.not_granted.push(account),
            (AccountImpersonation::Impossible, _) => self.impossible.push(account),
            (AccountImpersonation::Unknown(problem), _) => self.unknown.push((account, problem.to_string())),
            (AccountImpersonation::Granted(_), AccountExistence::Absent) => self.absent.push(account),
            (
                AccountImpersonation::Granted(_),
                AccountExistence::Present | AccountExistence::Hidden | AccountExistence::Unknown(_),
            ) => {}
        }
    }
}

#[cfg(test)]
mod tests {
    use tokio::time::Instant;

    use super::{AccountExistence, AccountFindings, AccountImpersonation, AccountResult};
    use crate::self_check::review::CheckError;
    use tollgate_policy::gateway_rights::grants::ImpersonationKind;
    use tollgate_policy::impersonate::service_account::ServiceAccountName;

    #[test]
    fn only_a_granted_account_has_no_finding() {
        let account = ServiceAccountName {
            namespace: "shop".to_owned(),
            name: "deployer".to_owned(),
        };
        let findings = |result: Option<(AccountImpersonation, AccountExistence)>| {
            let result = result.map(|(impersonation, existence)| AccountResult {
                impersonation,
                existence,
                at: Instant::now(),
            });
            let mut findings = AccountFindings::default();
            findings.add(&account, result.as_ref());
            findings
        };
        let granted = || AccountImpersonation::Granted(ImpersonationKind::Classic);
        for existence in [AccountExistence::Present, AccountExistence::Hidden] {
            assert_eq!(findings(Some((granted(), existence))), AccountFindings::default());
        }
        let absent = findings(Some((granted(), AccountExistence::Absent)));
        assert_eq!(absent.absent, std::slice::from_ref(&account));
        let missing = findings(Some((AccountImpersonation::Missing, AccountExistence::Present)));
        assert_eq!(missing.not_granted, std::slice::from_ref(&account));
        let impossible = findings(Some((AccountImpersonation::Impossible, AccountExistence::Absent)));
        assert_eq!(impossible.impossible, std::slice::from_ref(&account));
        let unknown = AccountImpersonation::Unknown(CheckError::Answer);
        assert_eq!(findings(Some((unknown, AccountExistence::Hidden))).unknown.len(), 1);
        assert_eq!(findings(None).unknown.len(), 1);
    }
}
