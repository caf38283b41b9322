//! The host's state during one call of a provider: the permissions, the values of the cluster's
//! Secret, and the handles and secrets that the call creates.
//!
//! Invariant: nothing outlives the call except what the guest stored through `memo`.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, Mutex, PoisonError};

use secrecy::{ExposeSecret, SecretString};
use serde::Serialize;
use wasmtime::component::ResourceTable;
use zeroize::Zeroizing;

use crate::ambient::{Ambient, PodIdentities};
use crate::bindings::provider::tollgate::plugin::secrets::{Part, SecretError};
use crate::bindings::secret::{Handle, MAX_SECRET_BYTES, Secret, encode};
use crate::clock::{SystemWallClock, WallClock, milliseconds};
use crate::egress::{EgressAllowList, EgressClient};
use crate::egress_scope::EgressScope;
use crate::memo::Memo;
use crate::permissions::ResolvedPermissions;
use crate::redact::Redactor;

mod convert;

/// Maximum secrets of one call. Dropped ones count, because every response is searched for them
/// until the call ends.
const MAX_SECRETS: usize = 256;
/// Bytes of them all.
const MAX_SECRETS_BYTES: usize = 1 << 20;
pub(crate) const MAX_REQUESTS: u32 = 8;

/// The export that runs. It decides which functions the guest may call.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Phase {
    /// `check`: nothing but pure functions.
    Check,
    /// `mint`. [`MemoUse::Bypassed`] hides the memo entries.
    Mint(MemoUse),
    Revoke,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum MemoUse {
    Allowed,
    /// They may not: the cluster rejected a credential made from them.
    Bypassed,
}

/// Values of a cluster's Secret, for its provider.
#[derive(Clone, Default, derive_more::Debug)]
#[debug("SecretValues({:?}, public: {public:?})", values.keys())]
pub struct SecretValues {
    /// By name.
    pub values: BTreeMap<String, SecretString>,
    /// Names the cluster's configuration uses where a secret cannot be: in the
    /// URL, or in a condition.
    pub public: BTreeSet<String>,
}

/// The environment that all providers of a gateway share.
#[derive(Clone, Debug)]
pub struct ProviderEnvironment {
    /// Client of the network.
    pub egress_client: Arc<EgressClient>,
    /// The pod's identities.
    pub ambient: Arc<dyn Ambient>,
    /// The clock guests and expiry times see.
    pub clock: Arc<dyn WallClock>,
}

impl ProviderEnvironment {
    /// The machine's network and clock, and the identities of this pod.
    pub fn of_pod(ambient: &tollgate_config::Ambient) -> Self {
        Self {
            egress_client: Arc::default(),
            ambient: Arc::new(PodIdentities::new(ambient)),
            clock: Arc::new(SystemWallClock),
        }
    }
}

/// What the operator grants a provider beyond imports and budget.
pub(crate) struct ProviderGrant {
    pub(crate) allow_list: EgressAllowList,
    pub(crate) audiences: BTreeSet<String>,
    /// Digest of everything that is granted, for the keys of caches.
    pub(crate) digest: String,
}

/// What the host provides to the guests of one plugin, and what of it they are granted.
#[derive(Clone)]
pub(crate) struct HostServices {
    pub(crate) environment: ProviderEnvironment,
    pub(crate) grant: Arc<ProviderGrant>,
    /// Whether bodies reach the guest unchanged.
    pub(crate) reveals_bodies: bool,
}

/// One request of a call, as an operator may see it. Bodies, queries and fields
/// are not in it.
#[derive(Clone, Debug, Serialize, PartialEq, Eq)]
#[serde(rename_all = "camelCase")]
pub struct EgressRecord {
    /// Method.
    pub method: String,
    /// Host, with a port other than 443.
    pub host: String,
    /// Path.
    pub path: String,
    /// Status of the response.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub status: Option<u16>,
    /// Why there is none.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub error: Option<String>,
    /// Milliseconds it took.
    pub milliseconds: u64,
}

/// The requests that one call sent. Available even if the call was cut off.
#[derive(Clone, Debug, Default)]
pub(crate) struct EgressLog(Arc<Mutex<Vec<EgressRecord>>>);

impl EgressLog {
    pub(crate) fn records(&self) -> Vec<EgressRecord> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    pub(crate) fn push(&self, exchange: EgressRecord) {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).push(exchange);
    }
}

/// Concatenated parts, and where they may be sent: anywhere if they contain no secret.
pub(crate) type ComposedBytes = (Zeroizing<Vec<u8>>, Option<EgressScope>);

#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum HostRefusal {
    Nothing,
    /// A request, by manifest, grant or address: a code, `: ` and a sentence.
    Refused(String),
    OverBudget,
}

pub(crate) struct CallState {
    pub(crate) phase: Phase,
    pub(crate) permissions: Arc<ResolvedPermissions>,
    pub(crate) secret_values: Arc<SecretValues>,
    pub(crate) services: HostServices,
    pub(crate) memo: Arc<Memo>,
    pub(crate) redactor: Redactor,
    pub(crate) egress_log: EgressLog,
    /// What the host itself refused. It decides the class of a failure.
    pub(crate) host_refusal: HostRefusal,
    pub(crate) requests_left: u32,
    table: ResourceTable,
    secrets_left: usize,
    secret_bytes_left: usize,
}

impl CallState {
    pub(crate) fn new(
        phase: Phase,
        permissions: Arc<ResolvedPermissions>,
        secret_values: Arc<SecretValues>,
        memo: Arc<Memo>,
        services: HostServices,
    ) -> Self {
        let mut table = ResourceTable::new();
        table.set_max_capacity(MAX_SECRETS);
        let mut redactor = Redactor::default();
        // A value that the guest never asks for can still come back in a response.
        for (name, value) in &secret_values.values {
            let public = secret_values.public.contains(name)
                || permissions.secret(name).is_some_and(|permission| permission.public);
            if !public {
                redactor.add(Arc::new(Zeroizing::new(value.expose_secret().as_bytes().to_vec())));
            }
        }
        Self {
            phase,
            permissions,
            secret_values,
            services,
            memo,
            redactor,
            egress_log: EgressLog::default(),
            host_refusal: HostRefusal::Nothing,
            requests_left: MAX_REQUESTS,
            table,
            secrets_left: MAX_SECRETS,
            secret_bytes_left: MAX_SECRETS_BYTES,
        }
    }

    /// Milliseconds since 1970.
    pub(crate) fn now_ms(&self) -> u64 {
        milliseconds(self.services.environment.clock.now()).unwrap_or_default()
    }

    pub(crate) fn insert_secret(&mut self, secret: Secret) -> wasmtime::Result<Handle> {
        let left = (
            self.secrets_left.checked_sub(1),
            self.secret_bytes_left.checked_sub(secret.bytes().len()),
        );
        let (Some(secrets), Some(bytes)) = left else {
            return Err(SecretError::TooLarge.into());
        };
        (self.secrets_left, self.secret_bytes_left) = (secrets, bytes);
        // Also of what the guest makes itself: a server may send it back in an answer.
        self.redactor.add(secret.shared());
        Ok(self.table.push(secret).map_err(|_| SecretError::TooLarge)?)
    }

    /// The secret of a handle. A handle that the guest never received traps.
    pub(crate) fn secret(&self, handle: &Handle) -> wasmtime::Result<&Secret> {
        Ok(self.table.get(handle)?)
    }

    /// Removes a secret when the guest hands it over or drops it.
    pub(crate) fn take(&mut self, handle: Handle) -> wasmtime::Result<Secret> {
        Ok(self.table.delete(handle)?)
    }

    /// Concatenates texts and encoded secrets, and computes where the result may be sent.
    pub(crate) fn concatenate(&self, parts: &[Part]) -> wasmtime::Result<ComposedBytes> {
        // It never grows beyond its capacity, so that no copy is left behind in freed memory.
        let mut out = Zeroizing::new(Vec::with_capacity(self.length(parts)?));
        let capacity = out.capacity();
        let mut egress_scope: Option<EgressScope> = None;
        for part in parts {
            if self.longest(part)? > capacity.saturating_sub(out.len()) {
                return Err(SecretError::TooLarge.into());
            }
            match part {
                Part::Text(text) => out.extend_from_slice(text.as_bytes()),
                Part::Secret(part) => {
                    let secret = self.secret(&part.value)?;
                    encode(secret.bytes(), part.encoding, &mut out)?;
                    egress_scope = Some(egress_scope.map_or_else(
                        || secret.egress_scope().clone(),
                        |egress_scope| egress_scope.intersect(secret.egress_scope()),
                    ));
                }
            }
            if out.len() > MAX_SECRET_BYTES {
                return Err(SecretError::TooLarge.into());
            }
        }
        debug_assert_eq!(out.capacity(), capacity);
        Ok((out, egress_scope))
    }

    /// An upper bound for the length of the concatenated parts: of any, or of any that are not too large.
    fn length(&self, parts: &[Part]) -> wasmtime::Result<usize> {
        let mut length: usize = 0;
        for part in parts {
            length = length.saturating_add(self.longest(part)?);
        }
        Ok(length.min(MAX_SECRET_BYTES + longest_form(MAX_SECRET_BYTES)))
    }

    /// An upper bound for the length of a part.
    fn longest(&self, part: &Part) -> wasmtime::Result<usize> {
        Ok(match part {
            Part::Text(text) => text.len(),
            Part::Secret(part) => longest_form(self.secret(&part.value)?.bytes().len()),
        })
    }
}

/// The length of the longest form of this many bytes: `\u00xx` for each, in quotation marks.
const fn longest_form(bytes: usize) -> usize {
    bytes.saturating_mul(6).saturating_add(2)
}
