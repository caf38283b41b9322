//! The host side of the interfaces `secrets`, `reveal`, `json-path` and `provider-types`.
//!
//! Security: a guest gets handles, and the bytes of a secret only through `reveal`.

use secrecy::ExposeSecret;
use zeroize::Zeroizing;

use crate::bindings::provider::tollgate::plugin::secrets::{Encoding, JwtTimes, Part, SecretError};
use crate::bindings::provider::tollgate::plugin::{json_path, provider_types, reveal, secrets};
use crate::bindings::secret::{Handle, Provenance, Secret, encode};
use crate::call_state::Phase;
use crate::host_state::HostState;
use tollgate_core::json_path::SingularPath;

const MAX_DOCUMENT_BYTES: usize = 1 << 20;

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
    fn convert_secret_error(&mut self, error: wasmtime::Error) -> wasmtime::Result<SecretError> {
        error.downcast()
    }

    fn get(&mut self, name: String) -> wasmtime::Result<Handle> {
        let call = self.provider_call()?;
        let permission = call.permissions.secret(&name).filter(|_| call.phase != Phase::Check);
        let egress_scope = permission.ok_or(SecretError::NotGranted)?.egress_scope.clone();
        let value = call.secret_values.values.get(&name).ok_or(SecretError::NotFound)?;
        let bytes = Zeroizing::new(value.expose_secret().as_bytes().to_vec());
        call.insert_secret(Secret::new(bytes, egress_scope)?)
    }

    fn public(&mut self, name: String) -> wasmtime::Result<String> {
        let call = self.provider_call()?;
        let permission = call.permissions.secret(&name).ok_or(SecretError::NotGranted)?;
        if !permission.public && !call.secret_values.public.contains(&name) {
            return Err(SecretError::NotGranted.into());
        }
        let value = call.secret_values.values.get(&name).ok_or(SecretError::NotFound)?;
        Ok(value.expose_secret().to_owned())
    }

    fn json_field(&mut self, source: Handle, path: String) -> wasmtime::Result<Handle> {
        let call = self.provider_call()?;
        let secret = call.secret(&source)?;
        let text = field(secret, &singular(&path)?)?;
        let part = secret.part(Zeroizing::new(text.as_bytes().to_vec()))?;
        call.insert_secret(part)
    }

    fn public_field(&mut self, source: Handle, path: String) -> wasmtime::Result<String> {
        let call = self.provider_call()?;
        let secret = call.secret(&source)?;
        let wanted = singular(&path)?;
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
            return Err(SecretError::NotGranted.into());
        }
        Ok(field(secret, &wanted)?.as_str().to_owned())
    }

    fn compose(&mut self, parts: Vec<Part>, encoding: Encoding) -> wasmtime::Result<Handle> {
        let call = self.provider_call()?;
        if let ([Part::Secret(only)], Encoding::Raw) = (parts.as_slice(), encoding)
            && matches!(only.encoding, Encoding::Raw)
        {
            // Nothing of the guest's is in it, so it stays as readable as the secret itself.
            let copy = call.secret(&only.value)?.clone();
            return call.insert_secret(copy);
        }
        let (joined, egress_scope) = call.concatenate(&parts)?;
        let mut bytes = Zeroizing::new(Vec::with_capacity(joined.len().saturating_mul(6).saturating_add(4)));
        encode(&joined, encoding, &mut bytes)?;
        let egress_scope = egress_scope.unwrap_or_else(|| call.permissions.all_hosts_scope());
        call.insert_secret(Secret::composed(bytes, egress_scope)?)
    }

    fn trim(&mut self, source: Handle) -> wasmtime::Result<Handle> {
        let call = self.provider_call()?;
        let trimmed = call.secret(&source)?.trim()?;
        call.insert_secret(trimmed)
    }

    fn wrap(&mut self, value: Vec<u8>) -> wasmtime::Result<Handle> {
        let call = self.provider_call()?;
        let egress_scope = call.permissions.all_hosts_scope();
        call.insert_secret(Secret::new(Zeroizing::new(value), egress_scope)?)
    }
}

fn singular(path: &str) -> Result<SingularPath, SecretError> {
    SingularPath::parse(path).map_err(|_| SecretError::BadFormat)
}

/// A string within a secret that is a JSON document.
fn field(secret: &Secret, path: &SingularPath) -> Result<Zeroizing<String>, SecretError> {
    if secret.provenance() == Provenance::Composed {
        return Err(SecretError::BadFormat);
    }
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
        Ok(select(&document, &path))
    }
}

fn select(document: &[u8], path: &str) -> Result<Option<String>, String> {
    if document.len() > MAX_DOCUMENT_BYTES {
        let observed = document.len();
        return Err(format!(
            "the document has `{observed}` bytes; at most `{MAX_DOCUMENT_BYTES}` are allowed"
        ));
    }
    let path = SingularPath::parse(path).map_err(|error| error.to_string())?;
    let document: serde_json::Value =
        serde_json::from_slice(document).map_err(|error| format!("not JSON at line `{}`", error.line()))?;
    Ok(path.select(&document).map(ToString::to_string))
}

impl provider_types::Host for HostState {}
