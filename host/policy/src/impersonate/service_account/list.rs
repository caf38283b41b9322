//! Compiles a project's list of service accounts once, and evaluates it for an Application.
//!
//! Invariant: entries are evaluated in order. An entry that matches or does not compile ends the
//! evaluation.

use std::sync::Arc;

use serde::Serialize;

use super::account::{self, AccountName};
use super::{AccountSource, DerivedAccount, Error, Fallback, RESERVED_NAMESPACES, ServiceAccountName};
use crate::impersonate::{Impersonation, MAX_VALUE_BYTES};
use tollgate_config::ServiceAccountSemantics;
use tollgate_core::diagnostic::{Diagnostic, Location};
use tollgate_core::dns::is_label;
use tollgate_core::glob::{self, Pattern};
use tollgate_core::user::Identity;
use tollgate_objects::{Cluster, DestinationServiceAccount};

/// `destinationServiceAccounts` of a project, followed by those of its global projects.
#[derive(Debug)]
pub struct DestinationServiceAccounts {
    semantics: ServiceAccountSemantics,
    entries: Vec<Entry>,
}

#[derive(Debug)]
pub(super) struct Entry {
    pub(super) written: DestinationServiceAccount,
    pub(super) server: Result<Pattern, glob::Error>,
    pub(super) namespace: Result<Pattern, glob::Error>,
    pub(super) account: AccountName,
}

/// Where an Application deploys to, and from.
#[derive(Clone, Copy, Debug)]
pub struct DeployTarget<'a> {
    /// The cluster its destination resolves to.
    pub cluster: &'a Cluster,
    /// `spec.destination.namespace`; may be empty.
    pub namespace: &'a str,
    /// The namespace of the Application itself.
    pub application_namespace: &'a str,
    /// The namespace of Argo CD and of the gateway.
    pub control_plane_namespace: &'a str,
}

/// How a pattern matched a value.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum PatternMatch {
    /// It matches.
    Yes,
    /// It does not.
    No,
    /// It does not compile, which ends the evaluation.
    Broken,
}

/// An entry that was evaluated on the way to an account.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct EvaluatedEntry {
    /// Its index, from 0.
    pub index: usize,
    /// Its server pattern as written.
    pub server: String,
    /// Its namespace pattern as written.
    pub namespace: String,
    /// Its account as written.
    pub account: String,
    /// Where it stands.
    pub location: Location,
    /// How the server pattern matched.
    pub server_matched: PatternMatch,
    /// How the namespace pattern matched. It is evaluated even if the server's did not match, as a
    /// pattern that does not compile ends the evaluation.
    pub namespace_matched: PatternMatch,
}

impl EvaluatedEntry {
    /// Whether the evaluation ends here: the entry matches, or is broken.
    pub fn decides(&self) -> bool {
        match (self.server_matched, self.namespace_matched) {
            (PatternMatch::Broken, _) | (_, PatternMatch::Broken) | (PatternMatch::Yes, PatternMatch::Yes) => true,
            (PatternMatch::Yes | PatternMatch::No, PatternMatch::No) | (PatternMatch::No, PatternMatch::Yes) => false,
        }
    }

    /// Why it decided or not, as a text.
    pub fn why(&self) -> &'static str {
        match (self.server_matched, self.namespace_matched) {
            (PatternMatch::Broken, _) => "the server pattern does not compile",
            (PatternMatch::Yes | PatternMatch::No, PatternMatch::Broken) => "the namespace pattern does not compile",
            (PatternMatch::Yes, PatternMatch::Yes) => "server and namespace match",
            (PatternMatch::Yes, PatternMatch::No) => "the namespace does not match",
            (PatternMatch::No, PatternMatch::Yes) => "the server does not match",
            (PatternMatch::No, PatternMatch::No) => "neither server nor namespace matches",
        }
    }
}

impl DestinationServiceAccounts {
    /// Compiles every entry. An entry that does not compile is kept: it is an error only if the
    /// evaluation reaches it.
    pub fn compile(entries: &[DestinationServiceAccount], semantics: ServiceAccountSemantics) -> Self {
        Self {
            semantics,
            entries: entries.iter().map(|entry| Entry::compile(entry, semantics)).collect(),
        }
    }

    /// Derives the account that acts for an Application that deploys to `target`.
    ///
    /// Entries are evaluated in order; the first whose patterns both match decides.
    ///
    /// - `fallback`: who acts when none matches.
    ///
    /// # Errors
    /// Every [`Error`] but [`Error::Project`] and [`Error::Destination`]; each denies.
    ///
    /// Source: Argo CD, `DeriveServiceAccountToImpersonate`.
    pub fn derive_account(&self, target: &DeployTarget<'_>, fallback: Fallback) -> Result<DerivedAccount, Error> {
        let server = target.cluster.server.trim_end_matches('/');
        for (index, entry) in self.entries.iter().enumerate() {
            let location = &entry.written.location;
            match entry.matched(target, self.semantics) {
                (PatternMatch::Broken, _) => {
                    return Err(Error::ServerPattern {
                        pattern: entry.written.server.clone(),
                        location: location.clone(),
                    });
                }
                (PatternMatch::Yes | PatternMatch::No, PatternMatch::Broken) => {
                    return Err(Error::NamespacePattern {
                        pattern: entry.written.namespace.clone(),
                        location: location.clone(),
                    });
                }
                (PatternMatch::Yes, PatternMatch::Yes) => {
                    let by = AccountSource::Entry {
                        index,
                        location: location.clone(),
                    };
                    return self.account(entry, target).map(|account| derived_account(account, by));
                }
                (PatternMatch::Yes | PatternMatch::No, PatternMatch::No) | (PatternMatch::No, PatternMatch::Yes) => {}
            }
        }
        match fallback {
            Fallback::Deny => Err(Error::NoMatch {
                server: server.to_owned(),
                namespace: target.namespace.to_owned(),
            }),
            Fallback::Controller => Ok(DerivedAccount {
                account: None,
                impersonation: Arc::new(Impersonation::Nobody),
                by: AccountSource::Fallback(fallback),
            }),
            Fallback::DefaultServiceAccount => {
                // SECURITY: no entry names this account, so both semantics are strict here.
                let namespace = checked_namespace(target.account_namespace())?;
                if namespace == target.control_plane_namespace {
                    return Err(Error::Reserved(namespace));
                }
                let account = ServiceAccountName {
                    namespace,
                    name: "default".to_owned(),
                };
                Ok(derived_account(account, AccountSource::Fallback(fallback)))
            }
        }
    }

    /// How every evaluated entry matched; the entry that decided is last.
    pub fn explain(&self, target: &DeployTarget<'_>) -> Vec<EvaluatedEntry> {
        let mut evaluated = Vec::new();
        for (index, entry) in self.entries.iter().enumerate() {
            let (server_matched, namespace_matched) = entry.matched(target, self.semantics);
            let current = EvaluatedEntry {
                index,
                server: entry.written.server.clone(),
                namespace: entry.written.namespace.clone(),
                account: entry.written.default_service_account.clone(),
                location: entry.written.location.clone(),
                server_matched,
                namespace_matched,
            };
            let last = current.decides();
            evaluated.push(current);
            if last {
                break;
            }
        }
        evaluated
    }

    /// Warnings about the first `own` entries: those that are unreachable, do not compile or name
    /// no account.
    pub fn findings(&self, own: usize) -> Vec<Diagnostic> {
        super::lint::findings(self.entries.get(..own).unwrap_or(&self.entries))
    }

    fn account(&self, entry: &Entry, target: &DeployTarget<'_>) -> Result<ServiceAccountName, Error> {
        let invalid = || Error::InvalidAccount {
            account: entry.written.default_service_account.clone(),
            location: entry.written.location.clone(),
        };
        let account = match &entry.account {
            AccountName::Invalid => return Err(invalid()),
            AccountName::Qualified(account) => account.clone(),
            AccountName::Unqualified(name) => ServiceAccountName {
                namespace: match self.semantics {
                    ServiceAccountSemantics::Strict => target.namespace_of(name)?,
                    ServiceAccountSemantics::Argocd => target.account_namespace().to_owned(),
                },
                name: name.clone(),
            },
        };
        // A name that no HTTP header carries cannot be impersonated.
        let username = account.username();
        if username.len() > MAX_VALUE_BYTES || username.contains(char::is_control) {
            return Err(invalid());
        }
        Ok(account)
    }
}

impl DeployTarget<'_> {
    /// The namespace of an account whose entry names none.
    fn account_namespace(&self) -> &str {
        if self.namespace.is_empty() {
            self.application_namespace
        } else {
            self.namespace
        }
    }

    /// The namespace of an account that an entry names without one.
    // SECURITY: the control plane's own accounts may do nearly everything. A user who may choose a
    // destination namespace must not obtain them.
    fn namespace_of(&self, name: &str) -> Result<String, Error> {
        let namespace = checked_namespace(self.account_namespace())?;
        match namespace == self.control_plane_namespace && account::is_control_plane_account(name) {
            true => Err(Error::Reserved(namespace)),
            false => Ok(namespace),
        }
    }
}

impl Entry {
    fn compile(written: &DestinationServiceAccount, semantics: ServiceAccountSemantics) -> Self {
        let pattern = |text: &str| match semantics {
            ServiceAccountSemantics::Argocd => Pattern::compile(text, &[]),
            ServiceAccountSemantics::Strict => Pattern::compile_exact(text, &[]),
        };
        let server = pattern(&written.server).and_then(|compiled| match semantics {
            ServiceAccountSemantics::Argocd => Ok(compiled),
            ServiceAccountSemantics::Strict => pattern(without_slashes(&written.server)),
        });
        Self {
            server,
            namespace: pattern(&written.namespace),
            account: AccountName::read(&written.default_service_account, semantics),
            written: written.clone(),
        }
    }

    fn matched(&self, target: &DeployTarget<'_>, semantics: ServiceAccountSemantics) -> (PatternMatch, PatternMatch) {
        let Cluster { name, server, .. } = target.cluster;
        // Argo CD stores servers without trailing slashes.
        let server = server.trim_end_matches('/');
        let by_server = |pattern: &Pattern| match semantics {
            ServiceAccountSemantics::Argocd => pattern.matches(server),
            ServiceAccountSemantics::Strict => pattern.matches(server) || (!name.is_empty() && pattern.matches(name)),
        };
        let outcome = |pattern: &Result<Pattern, glob::Error>, matches: &dyn Fn(&Pattern) -> bool| match pattern {
            Ok(pattern) if matches(pattern) => PatternMatch::Yes,
            Ok(_) => PatternMatch::No,
            Err(_) => PatternMatch::Broken,
        };
        (
            outcome(&self.server, &by_server),
            outcome(&self.namespace, &|pattern| pattern.matches(target.namespace)),
        )
    }
}

/// The server pattern without trailing slashes. An escaped slash stays, as otherwise its backslash
/// would be left.
pub(super) fn without_slashes(pattern: &str) -> &str {
    let bare = pattern.trim_end_matches('/');
    if bare.ends_with('\\') { pattern } else { bare }
}

fn derived_account(account: ServiceAccountName, by: AccountSource) -> DerivedAccount {
    let identity = Identity {
        username: account.username(),
        ..Identity::default()
    };
    DerivedAccount {
        account: Some(account),
        impersonation: Arc::new(Impersonation::As(identity)),
        by,
    }
}

/// The namespace, if its accounts may act without an entry that names it.
fn checked_namespace(namespace: &str) -> Result<String, Error> {
    let owned = namespace.to_owned();
    if RESERVED_NAMESPACES.contains(&namespace) {
        Err(Error::Reserved(owned))
    } else if is_label(namespace) {
        Ok(owned)
    } else {
        Err(Error::InvalidNamespace(owned))
    }
}
