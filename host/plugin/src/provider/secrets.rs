//! The host side of the interfaces `secrets`, `reveal`, `json-path` and `provider-types`.
//!
//! Security: a guest gets handles, and the bytes of a secret only through `reveal`.

use secrecy::ExposeSecret;
use wasmtime::component::Resource;
use zeroize::Zeroizing;

use super::call_state::Phase;
use super::secret::{Provenance, Secret, encode};
use crate::bindings::provider::tollgate::plugin::secrets::{Encoding, JwtTimes, Part, SecretError};
use crate::bindings::provider::tollgate::plugin::{json_path, provider_types, reveal, secrets};
use crate::budget::HostState;
use tollgate_core::json_path::SingularPath;

/// Bytes of a document a path is looked up in.
const MAX_DOCUMENT_BYTES: usize = 1 << 20;

type Handle = Resource<Secret>;

impl secrets::HostSecret for HostState {
    fn equals(&mut self, own: Handle, other: Handle) -> wasmtime::Result<bool> {
        let call = self.provider_call()?;
        Ok(call.secret(&own)?.equals(call.secret(&other)?))
    }

    fn jwt_times(&mut self, own: Handle) -> wasmtime::Result<Option<JwtTimes>> {
        Ok(self.provider_call()?.secret(&own)?.jwt_times_for_guest())
    }

    fn drop(&mut self, own: Handle) -> wasmtime::Result<()> {
        self.provider()?.take(own).map(drop)
    }
}

impl secrets::Host for HostState {
    fn get(&mut self, name: String) -> wasmtime::Result<Result<Handle, SecretError>> {
        let call = self.provider_call()?;
        let Some(permission) = call.permissions.secret(&name).filter(|_| call.phase != Phase::Check) else {
            return Ok(Err(SecretError::NotGranted));
        };
        let Some(value) = call.secret_values.values.get(&name) else {
            return Ok(Err(SecretError::NotFound));
        };
        let bytes = Zeroizing::new(value.expose_secret().as_bytes().to_vec());
        let egress_scope = permission.egress_scope.clone();
        Ok(Secret::new(bytes, egress_scope).and_then(|secret| call.insert_secret(secret)))
    }

    fn public(&mut self, name: String) -> wasmtime::Result<Result<String, SecretError>> {
        let call = self.provider_call()?;
        let listed = call.permissions.secret(&name);
        let public = call.secret_values.public.contains(&name) || listed.is_some_and(|permission| permission.public);
        if listed.is_none() || !public {
            return Ok(Err(SecretError::NotGranted));
        }
        let value = call.secret_values.values.get(&name);
        Ok(value
            .map(|value| value.expose_secret().to_owned())
            .ok_or(SecretError::NotFound))
    }

    fn json_field(&mut self, source: Handle, path: String) -> wasmtime::Result<Result<Handle, SecretError>> {
        let call = self.provider_call()?;
        let secret = call.secret(&source)?;
        let field = field(secret, &path).and_then(|text| secret.part(Zeroizing::new(text.as_bytes().to_vec())));
        Ok(field.and_then(|field| call.insert_secret(field)))
    }

    fn public_field(&mut self, source: Handle, path: String) -> wasmtime::Result<Result<String, SecretError>> {
        let call = self.provider_call()?;
        let secret = call.secret(&source)?;
        let Ok(wanted) = SingularPath::parse(&path) else {
            return Ok(Err(SecretError::BadFormat));
        };
        // Compares the bytes: the permission covers the value of the cluster's Secret, not a
        // document that a guest composed.
        let listed = call.secret_values.values.iter().any(|(name, value)| {
            value.expose_secret().as_bytes() == secret.bytes()
                && call
                    .permissions
                    .secret(name)
                    .is_some_and(|permission| permission.public_fields.contains(&wanted))
        });
        if !listed {
            return Ok(Err(SecretError::NotGranted));
        }
        Ok(field(secret, &path).map(|text| text.as_str().to_owned()))
    }

    fn compose(&mut self, parts: Vec<Part>, encoding: Encoding) -> wasmtime::Result<Result<Handle, SecretError>> {
        let call = self.provider_call()?;
        if let ([Part::Secret(only)], Encoding::Raw) = (parts.as_slice(), encoding)
            && matches!(only.encoding, Encoding::Raw)
        {
            let copy = call.secret(&only.value)?.clone();
            return Ok(call.insert_secret(copy));
        }
        let (joined, egress_scope) = match call.concatenate(&parts)? {
            Ok(written) => written,
            Err(error) => return Ok(Err(error)),
        };
        let mut bytes = Zeroizing::new(Vec::with_capacity(joined.len().saturating_mul(6).saturating_add(4)));
        if let Err(error) = encode(&joined, encoding, &mut bytes) {
            return Ok(Err(error));
        }
        let egress_scope = egress_scope.unwrap_or_else(|| call.permissions.all_hosts_scope());
        Ok(Secret::composed(bytes, egress_scope).and_then(|secret| call.insert_secret(secret)))
    }

    fn trim(&mut self, source: Handle) -> wasmtime::Result<Result<Handle, SecretError>> {
        let call = self.provider_call()?;
        let trimmed = call.secret(&source)?.trim();
        Ok(trimmed.and_then(|secret| call.insert_secret(secret)))
    }

    fn wrap(&mut self, value: Vec<u8>) -> wasmtime::Result<Result<Handle, SecretError>> {
        let call = self.provider_call()?;
        let egress_scope = call.permissions.all_hosts_scope();
        Ok(Secret::new(Zeroizing::new(value), egress_scope).and_then(|secret| call.insert_secret(secret)))
    }
}

/// A string within a secret that is a JSON document.
fn field(secret: &Secret, path: &str) -> Result<Zeroizing<String>, SecretError> {
    if secret.provenance() == Provenance::Composed {
        return Err(SecretError::BadFormat);
    }
    let path = SingularPath::parse(path).map_err(|_| SecretError::BadFormat)?;
    let document: serde_json::Value = serde_json::from_slice(secret.bytes()).map_err(|_| SecretError::BadFormat)?;
    let text = path.select(&document).ok_or(SecretError::NotFound)?;
    let text = text.as_str().ok_or(SecretError::BadFormat)?;
    Ok(Zeroizing::new(text.to_owned()))
}

impl reveal::Host for HostState {
    fn reveal(&mut self, value: Handle) -> wasmtime::Result<Vec<u8>> {
        Ok(self.provider_call()?.secret(&value)?.bytes().to_vec())
    }
}

impl json_path::Host for HostState {
    fn check(&mut self, path: String) -> wasmtime::Result<Result<(), String>> {
        self.provider_call()?;
        Ok(SingularPath::parse(&path).map(drop).map_err(|error| error.to_string()))
    }

    fn select(&mut self, document: Vec<u8>, path: String) -> wasmtime::Result<Result<Option<String>, String>> {
        self.provider_call()?;
        if document.len() > MAX_DOCUMENT_BYTES {
            let observed = document.len();
            return Ok(Err(format!(
                "the document has `{observed}` bytes; at most `{MAX_DOCUMENT_BYTES}` are allowed"
            )));
        }
        let path = match SingularPath::parse(&path) {
            Ok(path) => path,
            Err(error) => return Ok(Err(error.to_string())),
        };
        let document: serde_json::Value = match serde_json::from_slice(&document) {
            Ok(document) => document,
            Err(error) => return Ok(Err(format!("not JSON at line `{}`", error.line()))),
        };
        Ok(Ok(path.select(&document).map(ToString::to_string)))
    }
}

impl provider_types::Host for HostState {}
