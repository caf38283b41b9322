//! Authorizes an open call of an extension again. The call stays open only if a newer snapshot
//! gives the same permit: the same backend, and the same headers about the caller and the object.

use std::hash::{Hash, Hasher};
use std::sync::Arc;

use http::Method;

use crate::extensions::call::ExtensionAttributes;
use crate::extensions::permit::{ExtensionPermit, reauthorize};
use crate::open_exchanges::{Change, Reauthorize};
use crate::snapshot::Snapshot;
use tollgate_identity::authenticate::Principal;

/// A permitted call, to be authorized again after a change.
#[derive(Debug)]
pub(crate) struct ExtensionReauthorization(pub(super) Arc<ExtensionPermit>);

impl Reauthorize for ExtensionReauthorization {
    fn front(&self) -> &'static str {
        "extensions"
    }

    fn principal(&self) -> Option<&Principal> {
        Some(&self.0.caller().principal)
    }

    /// Whether `now` permits the call, to the same backend with the same headers.
    fn is_allowed_by(&self, now: &Snapshot) -> bool {
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

    fn inputs_unchanged(&self, change: &Change<'_>) -> bool {
        let (before, now) = (change.before, change.now);
        change.same_permissions()
            && change.same_resources()
            && Arc::ptr_eq(&before.extensions, &now.extensions)
            && Arc::ptr_eq(&before.plugins, &now.plugins)
            && Arc::ptr_eq(&before.policies.extensions, &now.policies.extensions)
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

/// What a caller asked.
#[derive(PartialEq, Eq, Hash)]
struct Question<'a> {
    principal: *const Principal,
    attributes: &'a ExtensionAttributes,
    method: &'a Method,
    rest: &'a str,
    query: Option<&'a str>,
}

impl ExtensionReauthorization {
    fn question(&self) -> Question<'_> {
        let call = self.0.call();
        Question {
            principal: Arc::as_ptr(&self.0.caller().principal),
            attributes: &call.attributes,
            method: &call.method,
            rest: &call.rest,
            query: call.query.as_deref(),
        }
    }
}

impl PartialEq for ExtensionReauthorization {
    fn eq(&self, other: &Self) -> bool {
        self.question() == other.question() && is_same_way(&self.0, &other.0)
    }
}

impl Eq for ExtensionReauthorization {}

impl Hash for ExtensionReauthorization {
    fn hash<H: Hasher>(&self, state: &mut H) {
        // One question seldom has two permits that lead to different places.
        self.question().hash(state);
    }
}
