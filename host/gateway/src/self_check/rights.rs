//! The [`Question`]s a cluster can be asked about the service accounts of Applications and their
//! keys of `extra`. All are about the gateway's own rights.
//!
//! Source: kube-apiserver, `endpoints/filters/impersonation/mode.go`: the attributes
//! it looks impersonation up by.

use std::future::Future;

use serde_json::{Value, json};

use super::grants::{AUTHENTICATION_GROUP, ImpersonationKind};
use super::review::CheckError;
use tollgate_policy::impersonate::service_account::Account;

/// A right the gateway's identity may have on service accounts.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum AccountRight {
    /// Impersonate them.
    Impersonate(ImpersonationKind),
    /// Check whether they exist.
    Get,
}

/// The service accounts a question is about.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum AccountScope<'a> {
    /// All accounts of the cluster.
    All,
    /// The accounts of a namespace.
    Namespace(&'a str),
    /// This account.
    One(&'a Account),
}

/// One question about a right.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Question<'a> {
    /// Whether service accounts may be impersonated or read.
    Accounts(AccountRight, AccountScope<'a>),
    /// Whether a key of `extra` may be sent with any value. Constrained impersonation of service
    /// accounts never allows it.
    Extra(&'a str),
}

/// A cluster that answers questions.
pub(super) trait AccessReviewer: Sync {
    /// Whether the gateway's identity has this right.
    ///
    /// # Errors
    /// [`CheckError`]: the cluster did not answer.
    fn is_allowed(&self, question: Question<'_>) -> impl Future<Output = Result<bool, CheckError>> + Send;

    /// Whether an account exists. Asked only if the identity may read it.
    ///
    /// # Errors
    /// [`CheckError`]: the cluster did not answer.
    fn exists(&self, account: &Account) -> impl Future<Output = Result<bool, CheckError>> + Send;
}

impl AccountRight {
    fn verb(self) -> &'static str {
        match self {
            Self::Impersonate(ImpersonationKind::Classic) => "impersonate",
            Self::Impersonate(ImpersonationKind::Constrained) => "impersonate:serviceaccount",
            Self::Get => "get",
        }
    }

    fn api_group(self) -> &'static str {
        match self {
            Self::Impersonate(ImpersonationKind::Classic) | Self::Get => "",
            Self::Impersonate(ImpersonationKind::Constrained) => AUTHENTICATION_GROUP,
        }
    }
}

impl Question<'_> {
    /// The `spec` of the review.
    pub(super) fn spec(self) -> Value {
        let attributes = match self {
            Question::Accounts(right, about) => {
                let (namespace, name) = match about {
                    AccountScope::All => ("", ""),
                    AccountScope::Namespace(namespace) => (namespace, ""),
                    AccountScope::One(Account { namespace, name }) => (namespace.as_str(), name.as_str()),
                };
                json!({
                    "group": right.api_group(), "resource": "serviceaccounts", "verb": right.verb(),
                    "namespace": namespace, "name": name,
                })
            }
            Question::Extra(key) => json!({
                "group": AUTHENTICATION_GROUP, "resource": "userextras", "subresource": key, "verb": ImpersonationKind::Classic.verb(),
            }),
        };
        json!({ "resourceAttributes": attributes })
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::{AccountRight, AccountScope, Question};
    use crate::self_check::grants::ImpersonationKind;
    use tollgate_policy::impersonate::service_account::Account;

    #[test]
    fn questions_are_as_the_api_server_looks_impersonation_up() {
        let account = Account {
            namespace: "shop".to_owned(),
            name: "deployer".to_owned(),
        };
        let attributes = |question: Question<'_>| question.spec()["resourceAttributes"].clone();
        let accounts = |group: &str, verb: &str, namespace: &str, name: &str| {
            json!({
                "group": group, "resource": "serviceaccounts", "verb": verb, "namespace": namespace, "name": name,
            })
        };
        let classic = AccountRight::Impersonate(ImpersonationKind::Classic);
        assert_eq!(
            attributes(Question::Accounts(classic, AccountScope::One(&account))),
            accounts("", "impersonate", "shop", "deployer")
        );
        assert_eq!(
            attributes(Question::Accounts(classic, AccountScope::All)),
            accounts("", "impersonate", "", "")
        );
        assert_eq!(
            attributes(Question::Accounts(
                AccountRight::Impersonate(ImpersonationKind::Constrained),
                AccountScope::Namespace("shop")
            )),
            accounts("authentication.k8s.io", "impersonate:serviceaccount", "shop", "")
        );
        assert_eq!(
            attributes(Question::Accounts(AccountRight::Get, AccountScope::One(&account))),
            accounts("", "get", "shop", "deployer")
        );
        assert_eq!(
            attributes(Question::Extra("t.example/user")),
            json!({
                "group": "authentication.k8s.io", "resource": "userextras", "subresource": "t.example/user",
                "verb": "impersonate",
            })
        );
    }
}
