//! Whether the caller may do what the request asks.
//!
//! In: caller, call. Out: [`Permit`], which only this stage can make. Refuses:
//! 403. Never: an allow by default; a decision from anything but the snapshot the
//! request took.

use std::sync::Arc;

use crate::caller::Caller;
use crate::config::Compatibility;
use crate::forward::Backend;
use crate::front::extensions::{Call, Extension};
use crate::record::Open;
use crate::snapshot::Snapshot;
use crate::state::Cluster;

pub mod cel;
mod facts;
pub mod rbac;
pub mod rego;

pub use facts::Target;

/// Proof that policy allowed one call.
///
/// Its fields are private and [`authorize`] is its one maker, so a request
/// cannot reach its backend around this stage:
///
/// ```compile_fail,E0451
/// fn forge(caller: std::sync::Arc<tollgate::caller::Caller>) {
///     let _ = tollgate::authorize::Permit { caller, ..unreachable!() };
/// }
/// ```
#[derive(Debug)]
pub struct Permit {
    caller: Arc<Caller>,
    extension: Arc<Extension>,
    backend: Arc<Backend>,
    call: Call,
    target: Arc<Target>,
    decision: rego::Decision,
}

/// Why a call does not pass.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Error {
    /// The policy said no, with its reason for the caller.
    #[error("{reason}")]
    Denied {
        /// The policy's words.
        reason: String,
    },
    /// The caller may use an extension of this name, but there is none.
    #[error("extension `{name}` is not registered")]
    UnknownExtension {
        /// Name in the path.
        name: Arc<str>,
    },
    /// No service of the extension is for the application's cluster.
    #[error("extension `{name}` has no backend for the application's cluster")]
    NoBackend {
        /// The extension.
        name: Arc<str>,
    },
    /// The policy could not be evaluated.
    #[error("the policy could not be evaluated")]
    Policy(#[source] rego::Error),
}

/// Judges `call` by the snapshot's RBAC and policy bundle; what was looked up
/// goes into `record`.
///
/// # Errors
/// [`Error`]; each one means the request does not pass.
pub fn authorize(snapshot: &Snapshot, caller: Arc<Caller>, call: Call, record: &mut Open) -> Result<Permit, Error> {
    let facts = facts::Facts::gather(snapshot, &caller, &call);
    record.note(|record| {
        record.checks = facts.checks();
        record.destination.clone_from(&facts.target.destination);
        record.policy = Some(Arc::clone(&snapshot.policy_digest));
    });
    let decision = snapshot
        .policy
        .decide(facts.input(snapshot, &caller, &call))
        .map_err(Error::Policy)?;
    record.note(|record| record.notes.clone_from(&decision.log));
    if !decision.allow {
        return Err(Error::Denied {
            reason: decision.reason,
        });
    }
    // After the policy: only who could call an extension of that name learns
    // that there is none, as in Argo CD.
    let Some(extension) = call.extension.clone() else {
        return Err(Error::UnknownExtension { name: call.asked.name });
    };
    let target = facts.target;
    let compatibility = snapshot.config.extensions.compatibility;
    let backend = extension
        .backend(target.literal.as_ref(), target.destination.as_deref(), compatibility)
        .cloned()
        .ok_or_else(|| Error::NoBackend {
            name: Arc::clone(extension.name()),
        })?;
    Ok(Permit {
        caller,
        extension,
        backend,
        call,
        target,
        decision,
    })
}

impl Permit {
    /// Who was allowed.
    pub fn caller(&self) -> &Arc<Caller> {
        &self.caller
    }

    /// Which extension.
    pub fn extension(&self) -> &Arc<Extension> {
        &self.extension
    }

    /// Which of its backends.
    pub fn backend(&self) -> &Arc<Backend> {
        &self.backend
    }

    /// What was allowed.
    pub fn call(&self) -> &Call {
        &self.call
    }

    /// The application's cluster, when the call is about an application.
    pub fn destination(&self) -> Option<&Cluster> {
        self.target.destination.as_deref()
    }

    /// Name and server the backend is told; an empty one is not sent. Argo CD
    /// tells what the application's destination says, which is one of both.
    pub fn told_cluster(&self, compatibility: Compatibility) -> Option<(&str, &str)> {
        let cluster = self.destination()?;
        match compatibility {
            Compatibility::None => Some((cluster.name.as_str(), cluster.server.as_str())),
            Compatibility::Argocd => {
                let literal = self.target.literal.as_ref()?;
                Some((literal.name.as_str(), literal.server.as_str()))
            }
        }
    }

    /// What the policy asks of the host besides.
    pub fn decision(&self) -> &rego::Decision {
        &self.decision
    }
}
