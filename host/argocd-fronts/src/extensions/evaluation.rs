//! Caches an [`ExtensionEvaluation`] for each caller and the attributes of a call: the facts, and
//! the policy's decision where requests cannot differ. The cache lives as long as its snapshot.
//!
//! Security: an entry belongs to one caller and one snapshot. Errors are not cached.

use std::hash::{BuildHasher, RandomState};
use std::sync::{Arc, OnceLock};

use http::Method;
use rustc_hash::FxBuildHasher;

use crate::extensions::call::{Call, ExtensionAttributes};
use crate::extensions::facts::Facts;
use tollgate_front::caller::Caller;
use tollgate_front::policies::Policies;
use tollgate_identity::authenticate::VERIFIED_TOKEN_TTL;
use tollgate_proxy::record::METHOD_BYTES;
use tollgate_rego::{self as rego, Bundle, Decision, RequestParts};

/// Size of the cache in KiB, approximately.
const CACHE_KIB: u64 = 50_000;

/// Longest obligations of a cached decision, in bytes. Few are longer, and each caller and object
/// has its own.
const OBLIGATION_BYTES: usize = 1_024;

#[derive(Debug)]
pub(crate) struct ExtensionEvaluationCache {
    cache: moka::sync::Cache<u64, Arc<ExtensionEvaluation>, FxBuildHasher>,
    /// Hashes with a random key, so that callers cannot provoke collisions with others.
    hasher: RandomState,
}

#[derive(Debug)]
pub(crate) struct ExtensionEvaluation {
    pub(crate) caller: Arc<Caller>,
    attributes: ExtensionAttributes,
    /// Present only if the policy reads it.
    method: Option<Method>,
    pub(crate) facts: Facts,
    /// Set only if the policy reads neither path nor query.
    decision: OnceLock<Arc<Decision>>,
}

impl Default for ExtensionEvaluationCache {
    fn default() -> Self {
        Self {
            cache: moka::sync::Cache::builder()
                .weigher(|_, evaluation: &Arc<ExtensionEvaluation>| evaluation.size_kib())
                .max_capacity(CACHE_KIB)
                // Callers are verified again every few minutes, which makes a new entry.
                .time_to_live(VERIFIED_TOKEN_TTL)
                // The keys are already hashes.
                .build_with_hasher(FxBuildHasher),
            hasher: RandomState::new(),
        }
    }
}

impl ExtensionEvaluationCache {
    pub(crate) fn get_or_evaluate(
        &self,
        policies: &Policies,
        bundle: &Bundle,
        caller: &Arc<Caller>,
        call: &Call,
    ) -> Arc<ExtensionEvaluation> {
        let method = (bundle.dependencies().request == RequestParts::Method).then_some(&call.method);
        let key = self
            .hasher
            .hash_one((Arc::as_ptr(caller) as usize, &call.attributes, method));
        // INVARIANT: an entry keeps its caller alive, so no other caller can
        // have the same address while the entry exists.
        if let Some(cached) = self.cache.get(&key)
            && Arc::ptr_eq(&cached.caller, caller)
            && cached.attributes == call.attributes
            && cached.method.as_ref() == method
        {
            return cached;
        }
        let evaluation = Arc::new(ExtensionEvaluation {
            caller: Arc::clone(caller),
            attributes: call.attributes.clone(),
            method: method.cloned(),
            facts: Facts::gather(policies, bundle, caller, call),
            decision: OnceLock::new(),
        });
        // Callers may invent any number of methods.
        if method.is_none_or(|method| method.as_str().len() <= METHOD_BYTES) {
            self.cache.insert(key, Arc::clone(&evaluation));
        }
        evaluation
    }
}

impl ExtensionEvaluation {
    /// Memory that it holds and keeps alive, approximately, in KiB.
    pub(super) fn size_kib(&self) -> u32 {
        self.facts.size_kib.saturating_add(self.caller.size_kib)
    }

    /// The policy's decision about `call`, whose attributes this evaluation is for.
    ///
    /// - `time`: when the call is judged, if the policy reads it.
    ///
    /// # Errors
    /// Every [`rego::Error`] is a denial. None is cached: the next call tries again. A bundle that
    /// is stuck denies, regardless of its earlier decisions.
    pub(crate) fn decide(
        &self,
        bundle: &Bundle,
        call: &Call,
        time: Option<&str>,
    ) -> Result<Arc<Decision>, rego::Error> {
        let decide = || {
            let input = self.facts.input(&self.caller, call.as_input(), time);
            bundle.decide(input).map(Arc::new)
        };
        // The next request may differ in what the policy reads, so nothing is kept.
        if bundle.dependencies().request == RequestParts::All {
            return decide();
        }
        if let Some(decision) = self.decision.get() {
            bundle.check_stuck()?;
            return Ok(Arc::clone(decision));
        }
        let decision = decide()?;
        if decision.obligation_bytes() > OBLIGATION_BYTES {
            return Ok(decision);
        }
        Ok(Arc::clone(self.decision.get_or_init(|| decision)))
    }
}
