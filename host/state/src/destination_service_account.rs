//! Parses `SERVER,NAMESPACE,ACCOUNT`, as commands take it, into a [`DestinationServiceAccount`].
//!
//! Invariant: parts are kept as they are, not trimmed.

use std::str::FromStr;

use crate::DestinationServiceAccount;
use tollgate_core::diagnostic::Location;

/// A text is not a [`DestinationServiceAccount`] because it does not have three parts.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("`{text}` has {observed} parts between commas, the form is SERVER,NAMESPACE,ACCOUNT")]
pub struct ParseDestinationServiceAccountError {
    /// The text.
    pub text: String,
    /// How many parts it has.
    pub observed: usize,
}

impl FromStr for DestinationServiceAccount {
    type Err = ParseDestinationServiceAccountError;

    /// Reads `SERVER,NAMESPACE,ACCOUNT`; parts may be empty and are kept as they are.
    ///
    /// Source: Argo CD, `argocd proj create --dest-service-accounts`.
    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let parts: Vec<&str> = text.split(',').collect();
        match parts.as_slice() {
            [server, namespace, account] => Ok(Self {
                server: (*server).to_owned(),
                namespace: (*namespace).to_owned(),
                default_service_account: (*account).to_owned(),
                location: Location::default(),
            }),
            parts => Err(ParseDestinationServiceAccountError {
                text: text.to_owned(),
                observed: parts.len(),
            }),
        }
    }
}
