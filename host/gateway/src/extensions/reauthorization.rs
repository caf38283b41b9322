//! Authorizes an open call of an extension again. The call stays open only if a newer snapshot
//! gives the same permit: the same backend, and the same headers about the caller and the object.

use std::hash::{Hash, Hasher};
use std::sync::Arc;

use crate::extensions::permit::{ExtensionPermit, reauthorize};
use crate::snapshot::Snapshot;
use tollgate_identity::authenticate::Principal;

/// A permitted call, to be authorized again after a change.
#[derive(Debug)]
pub(crate) struct ExtensionReauthorization(pub(super) Arc<ExtensionPermit>);

impl ExtensionReauthorization {
    /// Who calls.
    pub(crate) fn principal(&self) -> &Principal {
        &self.0.caller().principal
    }

    /// Whether `now` permits the call, to the same backend with the same headers.
    pub(crate) fn is_still_allowed(&self, now: &Snapshot) -> bool {
        let before = &*self.0;
        let principal = &before.caller().principal;
        if !now.authenticator.is_still_valid(principal) || !now.plugins.missing_required().is_empty() {
            return false;
        }
        let caller = now.policies.caller(principal);
        let again = reauthorize((&now.policies, &now.extensions), &caller, before);
        again.is_ok_and(|again| {
            let is_same_scope = again.extension().spec().scope == before.extension().spec().scope;
            is_same_scope && is_same_way(&again, before)
        })
    }
}

/// Whether two permits lead to the same URL, with the same headers about the caller.
fn is_same_way(one: &ExtensionPermit, other: &ExtensionPermit) -> bool {
    let (of_one, of_other) = (one.decision(), other.decision());
    one.backend().upstream().has_same_url(other.backend().upstream())
        && one.resource_headers() == other.resource_headers()
        && one.extension().spec().identity == other.extension().spec().identity
        && of_one.set_headers == of_other.set_headers
        && of_one.remove_headers == of_other.remove_headers
}

impl PartialEq for ExtensionReauthorization {
    fn eq(&self, other: &Self) -> bool {
        let (one, other) = (&*self.0, &*other.0);
        let (call, others) = (one.call(), other.call());
        Arc::ptr_eq(&one.caller().principal, &other.caller().principal)
            && call.attributes == others.attributes
            && call.method == others.method
            && call.rest == others.rest
            && call.query == others.query
            && is_same_way(one, other)
    }
}

impl Eq for ExtensionReauthorization {}

impl Hash for ExtensionReauthorization {
    fn hash<H: Hasher>(&self, state: &mut H) {
        Arc::as_ptr(&self.0.caller().principal).hash(state);
        self.0.call().attributes.hash(state);
        self.0.call().rest.hash(state);
    }
}
