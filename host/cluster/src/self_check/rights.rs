//! The [`AccessCheck`]s that a cluster is asked to review, about the service accounts of
//! Applications and their keys of `extra`. All are about the gateway's own rights.
//!
//! Source: kube-apiserver, `endpoints/filters/impersonation/mode.go`: the attributes by which it
//! authorizes impersonation.

use std::future::Future;

use serde_json::{Value, json};

use super::review::CheckError;
use tollgate_policy::gateway_rights::grants::{AUTHENTICATION_GROUP, AccountRight, ImpersonationKind};
use tollgate_policy::impersonate::service_account::ServiceAccountName;

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum AccountScope<'a> {
    All,
    Namespace(&'a str),
    One(&'a ServiceAccountName),
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum AccessCheck<'a> {
    /// Whether service accounts may be impersonated or read.
    Accounts(AccountRight, AccountScope<'a>),
    /// Whether a key of `extra` may be sent with any value. Constrained impersonation of service
    /// accounts never allows it.
    Extra(&'a str),
}

pub(super) trait AccessReviewer: Sync {
    fn is_allowed(&self, check: AccessCheck<'_>) -> impl Future<Output = Result<bool, CheckError>> + Send;

    /// Whether an account exists. Called only if the gateway's identity may read it.
    fn exists(&self, account: &ServiceAccountName) -> impl Future<Output = Result<bool, CheckError>> + Send;
}

impl AccessCheck<'_> {
    pub(super) fn spec(self) -> Value {
        let attributes = match self {
            AccessCheck::Accounts(right, scope) => {
                let (namespace, name) = match scope {
                    AccountScope::All => ("", ""),
                    AccountScope::Namespace(namespace) => (namespace, ""),
                    AccountScope::One(ServiceAccountName { namespace, name }) => (namespace.as_str(), name.as_str()),
                };
                json!({
                    "group": right.api_group(), "resource": "serviceaccounts", "verb": right.verb(),
                    "namespace": namespace, "name": name,
                })
            }
            AccessCheck::Extra(key) => json!({
                "group": AUTHENTICATION_GROUP, "resource": "userextras", "subresource": key, "verb": ImpersonationKind::Classic.verb(),
            }),
        };
        json!({ "resourceAttributes": attributes })
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::{AccessCheck, AccountScope};
    use tollgate_policy::gateway_rights::grants::{AccountRight, ImpersonationKind};
    use tollgate_policy::impersonate::service_account::ServiceAccountName;

    #[test]
    fn checks_have_the_attributes_of_the_api_servers_own_checks() {
        let account = ServiceAccountName {
            namespace: "shop".to_owned(),
            name: "deployer".to_owned(),
        };
        let attributes = |check: AccessCheck<'_>| check.spec()["resourceAttributes"].clone();
        let accounts = |group: &str, verb: &str, namespace: &str, name: &str| {
            json!({
                "group": group, "resource": "serviceaccounts", "verb": verb, "namespace": namespace, "name": name,
            })
        };
        let classic = AccountRight::Impersonate(ImpersonationKind::Classic);
        assert_eq!(
            attributes(AccessCheck::Accounts(classic, AccountScope::One(&account))),
            accounts("", "impersonate", "shop", "deployer")
        );
        assert_eq!(
            attributes(AccessCheck::Accounts(classic, AccountScope::All)),
            accounts("", "impersonate", "", "")
        );
        assert_eq!(
            attributes(AccessCheck::Accounts(
                AccountRight::Impersonate(ImpersonationKind::Constrained),
                AccountScope::Namespace("shop")
            )),
            accounts("authentication.k8s.io", "impersonate:serviceaccount", "shop", "")
        );
        assert_eq!(
            attributes(AccessCheck::Accounts(AccountRight::Get, AccountScope::One(&account))),
            accounts("", "get", "shop", "deployer")
        );
        assert_eq!(
            attributes(AccessCheck::Extra("t.example/user")),
            json!({
                "group": "authentication.k8s.io", "resource": "userextras", "subresource": "t.example/user",
                "verb": "impersonate",
            })
        );
    }
}
